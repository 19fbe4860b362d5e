"""A changed, cut or half-written upgrade folder is found out when it is loaded."""

from __future__ import annotations

import json
import random
import shutil

import numpy as np
import pytest

from crossfade import Upgrade
from crossfade.errors import BadUpgrade
from crossfade.upgrade.artefact import pack, write

FILES = ("upgrade.safetensors", "config.json")


def refused(folder):
    with pytest.raises(BadUpgrade) as caught:
        Upgrade.load(folder)
    assert caught.value.exit_code == 2
    assert str(folder) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_a_changed_byte_is_found_wherever_it_is(folder, name):
    path = folder / name
    good = path.read_bytes()
    rng = random.Random(0)  # noqa: S311
    missed = []
    for position in sorted(rng.sample(range(len(good)), min(len(good), 600))):
        changed = bytearray(good)
        # A bit of each byte in turn: some make other letters, some no letters at all.
        changed[position] ^= 1 << rng.randrange(8)
        path.write_bytes(changed)
        try:
            Upgrade.load(folder)
        except BadUpgrade as error:
            assert error.exit_code == 2
        else:
            missed.append(position)
    assert missed == []


@pytest.mark.parametrize("other", [b" ", b"\t", b"\r", b"\n"])
def test_changed_white_space_is_found(folder, other):
    path = folder / "config.json"
    good = path.read_bytes()
    for position in [i for i, byte in enumerate(good) if byte in b" \n" and bytes([byte]) != other]:
        path.write_bytes(good[:position] + other + good[position + 1 :])
        assert "does not match its content hash" in refused(folder)


def test_the_message_says_what_happened_and_what_to_do(folder):
    path = folder / "upgrade.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert refused(folder) == (
        f"{folder}: does not match its content hash: a byte was changed or lost "
        "→ copy the upgrade again or refit it"
    )


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_truncated_file_is_found(folder, name, share):
    path = folder / name
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    refused(folder)


@pytest.mark.parametrize("name", FILES)
def test_an_appended_byte_is_found(folder, name):
    with (folder / name).open("ab") as file:
        file.write(b"\n")
    assert "content hash" in refused(folder)


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    assert refused(folder) == (f"{folder / name}: is missing → copy the whole upgrade folder again")


@pytest.mark.parametrize("name", FILES)
def test_a_folder_in_place_of_a_file_is_refused(folder, name):
    (folder / name).unlink()
    (folder / name).mkdir()
    assert "cannot be read" in refused(folder)


def test_files_of_two_upgrades_do_not_make_one(folder, made, tmp_path):
    other = Upgrade(solver="closed_form").fit(*made(seed=1)).save(tmp_path / "other")
    shutil.copy(other / "upgrade.safetensors", folder)
    assert "content hash" in refused(folder)


def test_what_is_no_folder_is_refused(tmp_path):
    assert refused(tmp_path / "none").endswith(
        "is not an upgrade folder → name the folder `crossfade fit` wrote"
    )
    (tmp_path / "file").write_text("x")
    assert "is not an upgrade folder" in refused(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert "config.json: is missing" in refused(tmp_path / "empty")


def test_a_config_of_another_format_names_the_way_out(folder):
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(config | {"format": 2}), encoding="utf-8")
    message = refused(folder)
    assert "is not a config this version reads" in message
    assert message.endswith("→ refit, or install the version of crossfade that wrote it")


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "not json", '{"format": 1}'])
def test_a_config_that_is_none_is_refused(folder, text):
    (folder / "config.json").write_text(text, encoding="utf-8")
    refused(folder)


def rewritten(upgrade, folder, tensors, **changes):
    """A folder whose hash is right and whose contents are not."""
    config, data = pack(upgrade.config_.model_copy(update=changes), tensors)
    write(folder, config, data, "card", overwrite=True)


def test_tensors_that_are_not_all_there_are_named(upgrade, folder):
    for name in upgrade._tensors():
        rewritten(upgrade, folder, {k: v for k, v in upgrade._tensors().items() if k != name})
        message = refused(folder)
        assert name.split(".")[-1] in message
        assert message.endswith("→ refit the upgrade")


def test_maps_of_other_dimensions_than_the_config_says_are_refused(upgrade, folder):
    tensors = upgrade._tensors()
    rewritten(upgrade, folder, tensors | {"forward.weight": np.ones((8, 5), np.float32)})
    with pytest.raises(BadUpgrade, match="maps have dimensions"):
        Upgrade.load(folder)


def test_settings_of_another_version_are_refused(upgrade, folder):
    settings = upgrade.config_.settings | {"momentum": 0.9}
    rewritten(upgrade, folder, upgrade._tensors(), settings=settings)
    assert "momentum" in refused(folder)
