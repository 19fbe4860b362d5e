"""`apply` through torch, on torch's own CPU: what is written is what the maps say without it."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import typer
from typer.testing import CliRunner

from crossfade.cli.apply import apply
from crossfade.errors import BadInput
from crossfade.files.arrow import to_arrow
from crossfade.maps import Affine, Mlp, NearOrthogonal, Orthogonal
from crossfade.maps.directed import Directed
from crossfade.maps.on_device import DeviceMap
from crossfade.spaces import Side
from crossfade.upgrade import Upgrade
from crossfade.upgrade.apply import apply_file

THERE = "cpu:0"
"""torch's CPU by a name of its own: `cpu` is numpy."""


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def maps():
    square = np.linalg.qr(numbers(6, 6))[0]
    one, two = (numbers(9, 6), numbers(9)), (numbers(7, 9), numbers(7))
    return {
        "orthogonal": Orthogonal(square),
        "near-orthogonal": NearOrthogonal(square + 0.1, numbers(6)),
        "affine": Affine(numbers(7, 6), numbers(7)),
        "mlp": Mlp((one, two), None),
        "mlp with a skip": Mlp((one, two), (numbers(7, 6), numbers(7))),
    }


@pytest.mark.parametrize("kind", maps())
@pytest.mark.parametrize("normalization", ["l2", "none"])
@pytest.mark.parametrize("stored", [np.float16, np.float32, np.float64])
def test_every_map_is_the_same_there(kind, normalization, stored):
    side = Side("old", 6, normalization, np.zeros(6, np.float32))
    directed = Directed(maps()[kind], side, Side("new", 5, "l2", np.zeros(5, np.float32)))
    x = numbers(40, 6, seed=3).astype(stored)
    found = DeviceMap(directed, THERE).send(x, np.dtype(np.float32)).result()
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, directed(x), rtol=1e-4, atol=1e-5)
    half = DeviceMap(directed, THERE).send(x, np.dtype(np.float16)).result()
    np.testing.assert_array_equal(half, found.astype(np.float16))


@pytest.fixture(scope="module")
def upgrade():
    old = numbers(200, 6)
    new = np.concatenate([old, numbers(200, 2, seed=1)], axis=1) + 0.1 * numbers(200, 8, seed=2)
    return Upgrade(solver="closed_form").fit(old, new)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_file_comes_out_as_it_does_without_a_device(upgrade, tmp_path, direction):
    x = numbers(57, 6 if direction == "forward" else 8, seed=5).astype(np.float16)
    table = pa.table({"id": range(57), "vector": to_arrow(x), "name": [f"n{i}" for i in range(57)]})
    pq.write_table(table, tmp_path / "in.parquet")
    seen = []
    for out, device in (("here", "cpu"), ("there", THERE)):
        apply_file(
            upgrade,
            tmp_path / "in.parquet",
            tmp_path / f"{out}.parquet",
            direction=direction,
            batch_rows=10,
            device=device,
            progress=lambda *done: seen.append(done),
        )
    here, there = (pq.read_table(tmp_path / f"{out}.parquet") for out in ("here", "there"))
    assert there.schema.equals(here.schema, check_metadata=True)
    assert there.drop("vector").equals(here.drop("vector"))
    a, b = (np.array(t["vector"].to_pylist()) for t in (here, there))
    np.testing.assert_allclose(a, b, atol=1e-3)
    assert seen[: len(seen) // 2] == seen[len(seen) // 2 :]
    assert seen[-1] == (57, 57)


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0])
def test_a_bad_row_is_named_as_it_is_without_a_device(upgrade, tmp_path, value):
    x = numbers(57, 6)
    x[37] = value
    np.save(tmp_path / "in.npy", x)
    said = []
    for device in ("cpu", THERE):
        with pytest.raises(BadInput) as error:
            apply_file(
                upgrade,
                tmp_path / "in.npy",
                tmp_path / "out.npy",
                direction="forward",
                batch_rows=10,
                device=device,
            )
        said.append(str(error.value))
    assert said[0] == said[1]
    assert "row 37 of 'vector'" in said[1]
    assert not (tmp_path / "out.npy").exists()


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_lengths_that_leave_float32_are_left_to_the_cpu(upgrade, tmp_path, scale):
    np.save(tmp_path / "in.npy", numbers(30, 6) * np.float32(scale))
    for device in ("cpu", THERE):
        out = tmp_path / f"{device[-1]}.npy"
        apply_file(upgrade, tmp_path / "in.npy", out, direction="forward", device=device)
    here, there = np.load(tmp_path / "u.npy"), np.load(tmp_path / "0.npy")
    assert np.array_equal(here, there)


def test_a_number_too_large_for_its_type_is_refused_there_too(tmp_path):
    old, new = numbers(200, 6), numbers(200, 6, seed=1)
    upgrade = Upgrade(solver="closed_form", normalize_old="none", normalize_new="none")
    upgrade = upgrade.fit(old, 4 * old + 0.1 * new)
    x = numbers(30, 6).astype(np.float16)
    x[21] = 30000
    np.save(tmp_path / "in.npy", x)
    with pytest.raises(BadInput, match=r"row 21 of 'vector' maps to a number too large for float1"):
        apply_file(
            upgrade,
            tmp_path / "in.npy",
            tmp_path / "out.npy",
            direction="forward",
            batch_rows=8,
            device=THERE,
        )


def test_the_command_takes_a_device_and_refuses_one_that_is_not_there(upgrade, tmp_path):
    app = typer.Typer()
    app.command()(apply)
    upgrade.save(tmp_path / "upgrade")
    np.save(tmp_path / "in.npy", numbers(20, 6))
    words = [tmp_path / "upgrade", tmp_path / "in.npy", tmp_path / "out.npy"]
    words = [*map(str, words), "--direction", "forward", "--json", "-", "--device"]
    done = CliRunner().invoke(app, [*words, THERE], catch_exceptions=False)
    assert json.loads(done.stdout)["rows"] == 20
    expected = upgrade.forward(np.load(tmp_path / "in.npy"))
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), expected, atol=1e-5)
    with pytest.raises(BadInput, match="device='gpu' is not known → use auto, cpu, cuda or cuda:N"):
        CliRunner().invoke(app, [*words, "gpu", "--overwrite"], catch_exceptions=False)
