"""An upgrade on disk: what its files hold, and how its content is known by its hash."""

from __future__ import annotations

import hashlib
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from crossfade import Upgrade
from crossfade.cases import CASES
from crossfade.upgrade.artefact import Config, SideConfig, pack

numbers = st.floats(allow_nan=True, allow_infinity=True)
# What UTF-8 can hold.
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


def config(**changes):
    fields = {
        "crossfade_version": "0",
        "old": SideConfig(model="a", dim=2, normalization="l2"),
        "new": SideConfig(model="b", dim=3, normalization="none"),
        "shared_dim": 3,
        "backward": "orthogonal",
        "forward": "affine",
        "lambda_asked": None,
        "lambda_reached": 0.0,
        "settings": {},
        "fit": {},
        "validation": {},
        "closed_form": {},
        "notes": [],
        "history": [],
    }
    return Config(**fields | changes)


@given(numbers, numbers, st.integers(), texts, st.lists(texts, max_size=3))
def test_a_config_is_read_as_it_was_written(reached, loss, seed, name, notes):
    written = config(
        lambda_reached=reached,
        lambda_asked=loss,
        old=SideConfig(model=name, dim=2, normalization="l2"),
        settings={"seed": seed, "lam": reached, "name": name, "none": None, "flag": True},
        validation={"old/old": {"mAP": loss}},
        history=[{"losses": {"L_λ": loss}, "epoch": 1}],
        notes=notes,
    ).text()
    assert Config.model_validate_json(written).text() == written


@pytest.fixture(scope="module")
def upgrade(made):
    return Upgrade(solver="closed_form", old_model="ada-1", new_model="ada-2").fit(*made())


@pytest.fixture
def folder(upgrade, tmp_path):
    return upgrade.save(tmp_path / "upgrade")


def test_a_folder_holds_tensors_a_config_and_a_card(folder):
    names = {path.name for path in folder.iterdir()}
    assert names == {"upgrade.safetensors", "config.json", "README.md"}
    assert [path.name for path in folder.parent.iterdir()] == ["upgrade"]


def test_the_config_says_what_was_asked_and_reached(folder, upgrade):
    found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    assert found["old"] == {"model": "ada-1", "dim": 6, "normalization": "l2"}
    assert found["new"] == {"model": "ada-2", "dim": 8, "normalization": "l2"}
    assert (found["backward"], found["forward"]) == ("orthogonal", "affine")
    assert found["settings"]["solver"] == "closed_form"
    assert found["fit"]["rows"] == 120
    assert found["fit"]["classes"] == 6
    assert set(found["validation"]) == set(found["closed_form"]) == set(CASES)
    assert found["content_hash"] == upgrade.hash_


def test_the_tensors_are_plain_safetensors_of_float32(folder, upgrade):
    tensors = load_file(folder / "upgrade.safetensors")
    assert tensors.pop("pairs.sketch").dtype == np.uint64
    assert all(tensor.dtype == np.float32 for tensor in tensors.values())
    assert np.array_equal(tensors["backward.weight"], upgrade.backward_.map.weight)
    assert np.array_equal(tensors["forward.weight"], upgrade.forward_.map.weight)


def test_the_hash_covers_the_tensors_and_the_config_without_its_hash(folder):
    text = (folder / "config.json").read_text(encoding="utf-8")
    stated = json.loads(text)["content_hash"]
    blank = text.replace(f'"content_hash": "{stated}"', '"content_hash": ""')
    tensors = (folder / "upgrade.safetensors").read_bytes()
    assert hashlib.sha256(blank.encode() + tensors).hexdigest() == stated


def test_the_order_of_tensors_does_not_change_the_hash():
    a, b = np.ones(2, np.float32), np.zeros((1, 2), np.float32)
    first, second = pack(config(), {"a": a, "b": b}), pack(config(), {"b": b, "a": a})
    assert first[0].content_hash == second[0].content_hash
    assert first[1] == second[1]


def test_any_change_of_tensors_or_config_changes_the_hash():
    tensor = np.ones(2, np.float32)
    hashes = {
        pack(config(), {"a": tensor})[0].content_hash,
        pack(config(), {"a": np.nextafter(tensor, 2)})[0].content_hash,
        pack(config(), {"b": tensor})[0].content_hash,
        pack(config(shared_dim=4), {"a": tensor})[0].content_hash,
        pack(config(lambda_reached=math.ulp(0)), {"a": tensor})[0].content_hash,
    }
    assert len(hashes) == 5


def test_the_card_is_for_people(folder, upgrade):
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert card.startswith("# Upgrade ada-1 → ada-2\n")
    assert f"`{upgrade.hash_}`" in card
    for case in CASES:
        reached = " | ".join(f"{v:.1f}" for v in upgrade.validation_[case].values())
        assert f"| {case} | {reached} |" in card
    assert "old, 6 dimensions" in card
    assert "new, 8 dimensions" in card


def test_the_card_tells_the_notes_and_the_lambda(made, tmp_path):
    old, new, labels = made()
    upgrade = Upgrade(solver="closed_form", backward_map="near-orthogonal", lam=0.5)
    upgrade.fit(old, new, labels)
    upgrade.config_.notes.append("something to know")
    card = (upgrade.save(tmp_path / "upgrade") / "README.md").read_text(encoding="utf-8")
    assert "λ asked 0.5, ‖WWᵀ−I‖ of B reached 0.50" in card
    assert "something to know" in card


def test_an_edited_card_does_no_harm(folder, upgrade):
    (folder / "README.md").write_text("ours", encoding="utf-8")
    assert Upgrade.load(folder).hash_ == upgrade.hash_
    (folder / "README.md").unlink()
    assert Upgrade.load(folder).hash_ == upgrade.hash_
