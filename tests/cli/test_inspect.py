"""`crossfade inspect`: what is in an upgrade folder or a pairs file."""

from __future__ import annotations

import json
import math

import lance
import numpy as np
import pyarrow as pa
import pytest

from crossfade import Upgrade
from crossfade.cases import CASES
from crossfade.maps.near_orthogonal import column_angles


def strict(text):
    """JSON that any reader takes: no NaN and no Infinity."""

    def refuse(constant):
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def folder(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    upgrade = Upgrade(
        solver="paper",
        backward_map="near-orthogonal",
        lam=0.5,
        hidden=(5, 4),
        epochs=2,
        old_model="ada-1",
    )
    return upgrade.fit(*made()).save(tmp_path / "mine")


def test_an_upgrade_as_a_table(crossfade, folder):
    ran = crossfade("inspect", "mine")
    assert ran.code == 0, ran.err
    assert "new (8) → shared (8), near-orthogonal" in ran.out
    assert "old (6) → shared (8), mlp (5, 4)" in ran.out
    assert "ada-1" in ran.out
    assert "asked: 0.5" in ran.out
    for case in CASES:
        assert case in ran.out


def test_an_upgrade_as_json(crossfade, folder):
    facts = strict(crossfade("inspect", "mine", "--json").out)
    upgrade = Upgrade.load(folder)
    weight = upgrade.backward_.map.weight.astype(np.float64)
    assert facts["hash"] == upgrade.hash_
    assert facts["lambda"] == {"asked": 0.5, "reached": upgrade.lambda_reached_}
    angles = column_angles(weight)
    assert facts["column_angles_degrees"]["min"] == pytest.approx(angles.min())
    assert facts["column_angles_degrees"]["max"] == pytest.approx(angles.max())
    # The largest singular value is the spectral norm.
    assert facts["singular_values"]["max"] == pytest.approx(np.linalg.norm(weight, 2))
    assert facts["validation"] == upgrade.validation_
    assert set(facts["last_losses"]["paper"]) >= {"L_F", "L_B", "L_C", "L_λ"}
    assert facts["fit"]["rows"] == 120


def test_json_without_regularization_is_json_all_the_same(crossfade, made, tmp_path):
    upgrade = Upgrade(solver="closed_form", backward_map="near-orthogonal", lam=math.inf)
    upgrade.fit(*made()).save(tmp_path / "free")
    assert strict(crossfade("inspect", tmp_path / "free", "--json").out)["lambda"]["reached"] > 0


def test_an_upgrade_of_one_dimension(crossfade, made, tmp_path):
    Upgrade(solver="closed_form").fit(*made(n=1), force=True).save(tmp_path / "thin")
    assert crossfade("inspect", tmp_path / "thin").code == 0


def test_a_pairs_file_with_all_that_is_wrong_with_it(crossfade, made, tmp_path):
    old, new, labels = made()
    old[3], new[7], labels[11] = np.nan, 0, 77
    np.savez(tmp_path / "pairs.npz", old=old, new=new, labels=labels)
    facts = strict(crossfade("inspect", tmp_path / "pairs.npz", "--json").out)
    assert facts["rows"] == 120
    assert (facts["old"]["dim"], facts["new"]["dim"]) == (6, 8)
    assert facts["old"]["bad_rows"] == {
        "count": 1,
        "first": [{"row": 3, "problem": "has a NaN"}],
    }
    assert facts["new"]["bad_rows"]["first"] == [{"row": 7, "problem": "is all zeros"}]
    assert facts["labels"]["classes"] == 7
    assert facts["labels"]["single_item"]["first"] == [{"class": 77, "row": 11}]
    good = np.linalg.norm(np.delete(old, 3, axis=0).astype(np.float64), axis=1)
    assert facts["old"]["norms"] == pytest.approx(
        {"min": good.min(), "mean": good.mean(), "max": good.max()}, rel=1e-5
    )
    table = crossfade("inspect", tmp_path / "pairs.npz")
    assert table.code == 0
    assert "has a NaN" in table.out


def test_pairs_in_separate_files(crossfade, made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    old, new, labels = made()
    for name, array in (("old", old), ("new", new), ("labels", labels)):
        np.save(f"{name}.npy", array)
    ran = crossfade(
        "inspect", "--old", "old.npy", "--new", "new.npy", "--labels", "labels.npy", "--json"
    )
    assert strict(ran.out)["labels"]["classes"] == 6


def test_a_changed_byte_is_found(crossfade, folder):
    path = folder / "upgrade.safetensors"
    data = bytearray(path.read_bytes())
    data[-2] ^= 4
    path.write_bytes(data)
    ran = crossfade("inspect", "mine")
    assert (ran.code, ran.out) == (2, "")
    assert "error mine: does not match its content hash: a byte was changed or lost → " in ran.err


@pytest.mark.parametrize("name", ["missing.npz", "missing"])
def test_what_is_not_there_is_named(crossfade, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    ran = crossfade("inspect", name)
    assert ran.code == 2
    assert f"error {name}: " in ran.err
    assert " → " in ran.err


def test_a_folder_that_is_no_upgrade_is_named(crossfade, tmp_path):
    ran = crossfade("inspect", tmp_path)
    assert ran.code == 2
    assert "config.json: is missing" in ran.err


def test_a_folder_of_tables_is_answered_with_them(crossfade, folder):
    vectors = pa.FixedSizeListArray.from_arrays(np.ones(6, np.float32), 3)
    table = pa.table({"id": [1, 2], "vector": vectors})
    for place in ("shop/items.lance", "shop/docs.lance", "mine/rows.lance"):
        lance.write_dataset(table, place)
    ran = crossfade("inspect", "shop")
    assert ran.code == 2
    assert "shop: names no table → add #TABLE to the address: there are docs, items" in ran.err
    assert crossfade("inspect", "shop#items").code == 0
    # An upgrade is one, whatever else has been put into its folder.
    assert "shared (8)" in crossfade("inspect", "mine").out


def test_nothing_named_is_answered(crossfade):
    ran = crossfade("inspect")
    assert ran.code == 2
    assert "no old and new vectors were named" in ran.err
