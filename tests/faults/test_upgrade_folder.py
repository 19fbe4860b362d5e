"""A changed, cut or half-written upgrade folder is found out, and a failed save undoes itself."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from crossfade import BadInput, Upgrade
from crossfade.artefact import pack, write
from crossfade.errors import BadUpgrade

FILES = ("upgrade.safetensors", "config.json")


@pytest.fixture(scope="module")
def upgrade(made):
    return Upgrade(solver="closed_form").fit(*made())


@pytest.fixture
def folder(upgrade, tmp_path):
    return upgrade.save(tmp_path / "upgrade")


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


def test_an_existing_folder_is_not_overwritten_unless_asked(upgrade, folder, made):
    other = Upgrade(solver="closed_form").fit(*made(seed=1))
    with pytest.raises(BadInput, match=r"already exists → name another folder, or --overwrite"):
        other.save(folder)
    assert Upgrade.load(folder).hash_ == upgrade.hash_
    other.save(folder, overwrite=True)
    assert Upgrade.load(folder).hash_ == other.hash_
    assert [path.name for path in folder.parent.iterdir()] == ["upgrade"]


def test_what_is_not_an_upgrade_is_never_overwritten(upgrade, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("precious")
    (tmp_path / "notes.txt").write_text("precious")
    for name in ("photos", "notes.txt"):
        with pytest.raises(BadInput, match="is there and is not an upgrade → name another folder"):
            upgrade.save(tmp_path / name, overwrite=True)
    assert (tmp_path / "photos" / "cat.jpg").read_text() == "precious"
    assert (tmp_path / "notes.txt").read_text() == "precious"


@pytest.mark.parametrize("parent", ["missing", "file"])
def test_a_parent_that_is_no_folder_is_named(upgrade, tmp_path, parent):
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput) as caught:
        upgrade.save(tmp_path / parent / "upgrade")
    assert str(caught.value) == (f"{tmp_path / parent}: is not a folder → make it, or name another")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_place_that_takes_no_files_is_named(upgrade):
    with pytest.raises(BadInput, match=r"/proc.*(cannot be written|not writable).* → "):
        upgrade.save("/proc/upgrade")


LIMITED = """
import resource, sys
from crossfade import Upgrade
from crossfade.errors import CrossfadeError

source, target, limit = sys.argv[1:]
upgrade = Upgrade.load(source)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    upgrade.save(target, overwrite=True)
except CrossfadeError as error:
    print(error)
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize("limit", [10, 1000])
@pytest.mark.parametrize("there", [True, False])
def test_a_disk_that_takes_no_more_leaves_what_was_there(folder, tmp_path, limit, there):
    if there:
        shutil.copytree(folder, tmp_path / "target")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    ran = subprocess.run(
        [sys.executable, "-c", LIMITED, folder, tmp_path / "target", str(limit)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 2, ran.stderr
    assert f"{tmp_path / 'target'}: " in ran.stdout
    assert "nothing was written → " in ran.stdout
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    if there:
        Upgrade.load(tmp_path / "target")


# Kills itself just before the k-th thing it asks of the file system, for every k, and looks at what
# is left each time. Python announces each of them to audit hooks.
KILLED_EVERYWHERE = """
import os, signal, sys
import crossfade.files
from crossfade import Upgrade
from crossfade.errors import CrossfadeError

source, target = sys.argv[1:]
upgrade = Upgrade.load(source)
upgrade.save(target, overwrite=True)
STEPS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree", "os.listdir"}
for k in range(1, 1000):
    child = os.fork()
    if child == 0:
        left = k
        def hook(event, arguments):
            global left
            if event in STEPS:
                left -= 1
                if left == 0:
                    print(k, event, arguments[:2], file=sys.stderr, flush=True)
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)
        upgrade.save(target, overwrite=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    try:
        Upgrade.load(target)
    except CrossfadeError as error:
        print(f"killed before step {k}: {error}")
        upgrade.save(target, overwrite=True)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        break
print("steps", k)
"""


def test_a_kill_at_any_step_of_a_save_leaves_an_upgrade(folder, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", KILLED_EVERYWHERE, folder, tmp_path / "target"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    *broken, last = ran.stdout.splitlines()
    assert int(last.removeprefix("steps ")) > 5, ran.stderr
    assert broken == [], ran.stderr


SAVING = """
import sys
from crossfade import Upgrade

source, target = sys.argv[1:]
upgrade = Upgrade.load(source)
while True:
    upgrade.save(target, overwrite=True)
    print("saved", flush=True)
"""


def test_a_kill_at_any_moment_leaves_an_upgrade(folder, tmp_path, upgrade):
    rng = random.Random(0)  # noqa: S311
    for _ in range(5):
        command = [sys.executable, "-c", SAVING, folder, tmp_path / "target"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"saved\n"
            time.sleep(rng.uniform(0, 0.05))
            os.kill(process.pid, signal.SIGKILL)
            process.wait(timeout=30)
        assert Upgrade.load(tmp_path / "target").hash_ == upgrade.hash_
