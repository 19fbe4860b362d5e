"""Applying an upgrade to files: what is written is what the maps say, whatever the format."""

from __future__ import annotations

import json

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from crossfade.cli.apply import apply
from crossfade.errors import BadInput
from crossfade.files import open_source
from crossfade.files.arrow import to_arrow
from crossfade.upgrade import Upgrade
from crossfade.upgrade.apply import apply_file, transform_batch

OLD_DIM, NEW_DIM = 6, 8


@pytest.fixture(scope="module")
def upgrade():
    rng = np.random.default_rng(0)
    items = rng.normal(size=(200, 5))
    old = items @ rng.normal(size=(5, OLD_DIM)) + 0.1 * rng.normal(size=(200, OLD_DIM))
    new = items @ rng.normal(size=(5, NEW_DIM)) + 0.1 * rng.normal(size=(200, NEW_DIM))
    return Upgrade(solver="closed_form").fit(old, new)


def vectors(dim, dtype=np.float32, rows=50, seed=1):
    return np.random.default_rng(seed).normal(size=(rows, dim)).astype(dtype)


@settings(max_examples=15, deadline=None)
@given(
    rows=st.integers(1, 30),
    dims=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    stored=st.sampled_from([np.float16, np.float32, np.float64]),
    asked=st.sampled_from([None, np.float16, np.float32]),
)
def test_a_batch_is_mapped_and_the_rest_of_it_stays(rows, dims, stored, asked):
    x = vectors(dims[0], stored, rows)
    matrix = vectors(dims[1], np.float32, dims[0])
    batch = pa.record_batch({"id": list(range(rows)), "v": to_arrow(x), "t": ["x"] * rows})
    batch = batch.replace_schema_metadata({"a": "b"})
    mapped = transform_batch(batch, "v", lambda x: x.astype(np.float32) @ matrix, asked)
    expected = x.astype(np.float32) @ matrix
    kept = asked or (np.float32 if stored == np.float64 else stored)
    assert mapped.schema.field("v").type == pa.list_(pa.from_numpy_dtype(kept), dims[1])
    np.testing.assert_array_equal(mapped.column("v").to_pylist(), expected.astype(kept).tolist())
    assert mapped.select(["id", "t"]).equals(batch.select(["id", "t"]))
    assert mapped.schema.metadata == {b"a": b"b"}


def test_a_slice_of_a_batch_maps_its_own_rows():
    x = vectors(3)
    batch = pa.record_batch({"v": to_arrow(x)}).slice(5, 7)
    mapped = transform_batch(batch, "v", lambda x: -x)
    np.testing.assert_array_equal(mapped.column("v").to_pylist(), (-x[5:12]).tolist())


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("batch_rows", [None, 7])
def test_npy_is_mapped_as_in_memory(tmp_path, upgrade, direction, dtype, batch_rows):
    x = vectors(OLD_DIM if direction == "forward" else NEW_DIM, dtype)
    np.save(tmp_path / "x.npy", x)
    report = apply_file(
        upgrade,
        tmp_path / "x.npy",
        tmp_path / "y.npy",
        direction=direction,
        batch_rows=batch_rows,
    )
    y = np.load(tmp_path / "y.npy")
    assert y.dtype == (np.float16 if dtype == np.float16 else np.float32)
    expected = getattr(upgrade, direction)(x.astype(np.float32))
    tolerance = 2e-3 if dtype == np.float16 else 1e-5
    np.testing.assert_allclose(y, expected, rtol=tolerance, atol=tolerance)
    assert (report.rows, report.dim_in, report.dim_out) == (50, x.shape[1], y.shape[1])
    assert report.path == tmp_path / "y.npy"


def test_the_stored_type_can_be_asked_for(tmp_path, upgrade):
    np.save(tmp_path / "x.npy", vectors(OLD_DIM))
    apply_file(
        upgrade, tmp_path / "x.npy", tmp_path / "y.npy", direction="forward", dtype="float16"
    )
    assert np.load(tmp_path / "y.npy").dtype == np.float16


@pytest.mark.parametrize("extension", ["parquet", "lance"])
def test_tables_keep_ids_and_are_tagged(tmp_path, upgrade, extension):
    x = vectors(OLD_DIM, np.float16)
    table = pa.table({"id": [f"doc-{i}" for i in range(50)], "embedding": to_arrow(x)})
    table = table.replace_schema_metadata({"owner": "search"})
    source, target = tmp_path / f"x.{extension}", tmp_path / f"y.{extension}"
    if extension == "parquet":
        pq.write_table(table, source)
    else:
        lance.write_dataset(table, str(source))
    apply_file(upgrade, source, target, direction="forward", batch_rows=20)
    found = pq.read_table(target) if extension == "parquet" else lance.dataset(target).to_table()
    assert found.column("id").to_pylist() == table.column("id").to_pylist()
    kind = found.schema.field("embedding").type
    assert kind == pa.list_(pa.float16(), upgrade.forward(x).shape[1])
    np.testing.assert_allclose(
        np.array(found.column("embedding").to_pylist()), upgrade.forward(x), rtol=2e-3, atol=2e-3
    )
    metadata = open_source(target).metadata
    assert metadata["owner"] == "search"
    assert metadata["crossfade.space"] == "shared"
    assert metadata["crossfade.upgrade"] == upgrade.hash_
    assert metadata["crossfade.direction"] == "forward"


def test_safetensors_keeps_its_other_tensors(tmp_path, upgrade):
    tensors = {"embeddings": vectors(NEW_DIM), "ids": np.arange(50)}
    safetensors.numpy.save_file(tensors, tmp_path / "x.safetensors")
    apply_file(
        upgrade, tmp_path / "x.safetensors", tmp_path / "y.safetensors", direction="backward"
    )
    found = safetensors.numpy.load_file(tmp_path / "y.safetensors")
    np.testing.assert_array_equal(found["ids"], tensors["ids"])
    np.testing.assert_allclose(
        found["embeddings"], upgrade.backward(tensors["embeddings"]), rtol=1e-5, atol=1e-6
    )


def test_what_the_target_cannot_hold_is_reported(tmp_path, upgrade):
    np.savez(tmp_path / "x.npz", x=vectors(OLD_DIM), ids=np.arange(50))
    report = apply_file(upgrade, tmp_path / "x.npz", tmp_path / "y.npy", direction="forward")
    assert report.left_out == ("ids",)


def test_a_file_can_be_mapped_onto_itself(tmp_path, upgrade):
    x = vectors(OLD_DIM)
    path = tmp_path / "x.npz"
    np.savez(path, x=x, ids=np.arange(50))
    apply_file(upgrade, path, path, direction="forward", overwrite=True, batch_rows=8)
    with np.load(path) as found:
        np.testing.assert_allclose(found["x"], upgrade.forward(x), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found["ids"], np.arange(50))


def test_progress_is_told(tmp_path, upgrade):
    np.save(tmp_path / "x.npy", vectors(OLD_DIM))
    told = []
    apply_file(
        upgrade,
        tmp_path / "x.npy",
        tmp_path / "y.npy",
        direction="forward",
        batch_rows=20,
        progress=lambda done, rows: told.append((done, rows)),
    )
    assert told == [(20, 50), (40, 50), (50, 50)]


def test_a_number_too_large_for_float16_is_not_made_infinite():
    batch = pa.record_batch({"v": to_arrow(vectors(3, np.float16))})
    with pytest.raises(BadInput, match=r"row 0 maps to a number too large .*→ add --dtype float32"):
        transform_batch(batch, "v", lambda x: np.full((len(x), 2), 1e6, np.float32))


@pytest.fixture(scope="module")
def command(upgrade, tmp_path_factory):
    """`crossfade apply` with the folder of the upgrade given."""
    folder = tmp_path_factory.mktemp("upgrade") / "upgrade"
    upgrade.save(folder)
    app = typer.Typer()
    app.command()(apply)

    def run(*arguments):
        return CliRunner().invoke(app, [str(folder), *map(str, arguments)])

    return run


def test_the_command_maps_and_says_so(tmp_path, upgrade, command):
    x = vectors(OLD_DIM)
    np.save(tmp_path / "x.npy", x)
    ran = command(tmp_path / "x.npy", tmp_path / "y.npy", "--direction", "forward")
    assert ran.exit_code == 0, ran.output
    assert f"y.npy: 50 vectors mapped forward, {OLD_DIM} → " in ran.stdout
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), upgrade.forward(x), rtol=1e-5)


def test_the_command_reports_as_json(tmp_path, command):
    np.savez(tmp_path / "x.npz", x=vectors(NEW_DIM), ids=np.arange(50))
    options = ("--direction", "backward", "--dtype", "float16", "--batch-rows", 9)
    ran = command(tmp_path / "x.npz", tmp_path / "y.npy", *options, "--json", "-")
    found = json.loads(ran.stdout)
    assert (found["rows"], found["dim_in"], found["left_out"]) == (50, NEW_DIM, ["ids"])
    assert "left out: ids" in ran.stderr
    assert np.load(tmp_path / "y.npy").dtype == np.float16
    file = tmp_path / "report.json"
    ran = command(tmp_path / "x.npz", tmp_path / "y.npy", *options, "--overwrite", "--json", file)
    assert json.loads(file.read_text())["direction"] == "backward"


def test_the_command_lets_errors_through_to_be_printed_in_one_place(tmp_path, command):
    np.save(tmp_path / "x.npy", vectors(OLD_DIM))
    ran = command(tmp_path / "x.npy", tmp_path / "y.npy", "--direction", "backward")
    assert isinstance(ran.exception, BadInput)
    assert "use --direction forward" in str(ran.exception)
