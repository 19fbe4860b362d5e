"""`apply` by Ray gives what the local engine gives, whatever goes in and out."""

from __future__ import annotations

import json

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engines import letters
from tests.engines.conftest import assert_same, create, table
from typer.testing import CliRunner

from crossfade import Upgrade
from crossfade.cli import app
from crossfade.engines.apply import apply
from crossfade.engines.ray import RayEngine
from crossfade.errors import BadInput
from crossfade.files import open_source, parts

ROWS = 1800


@pytest.fixture
def upgrade(upgrade_folder) -> Upgrade:
    return Upgrade.load(upgrade_folder)


def rows_of(path) -> pa.Table:
    source = open_source(path)
    return pa.Table.from_batches(source.batches(10_000)).combine_chunks()


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("lancedb", "out.lance"),
        ("parquet", "out"),
        ("parquet", "out.lance"),
        ("lancedb", "out.parquet"),
        ("parquet", "out.npy"),
    ],
)
def test_what_comes_out_is_what_comes_out_locally(
    kind, target, tmp_path, upgrade, cluster, monkeypatch
):
    # So that there is more than a part to each, and their order matters.
    monkeypatch.setattr(parts, "_ROWS", 100)
    source = create(kind, tmp_path / "items")
    (tmp_path / "here").mkdir()
    seen = []
    here = apply(upgrade, source, tmp_path / "here" / target, direction="forward")
    with RayEngine(address=cluster, num_actors=2) as engine:
        there = apply(
            upgrade,
            source,
            tmp_path / target,
            direction="forward",
            engine=engine,
            progress=lambda done, total: seen.append((done, total)),
        )
    assert (there.rows, there.dim_in, there.dim_out) == (ROWS, letters.D, letters.N)
    assert there.left_out == here.left_out
    assert seen[-1] == (ROWS, ROWS)
    found, expected = rows_of(tmp_path / target), rows_of(tmp_path / "here" / target)
    assert_same(found, expected)
    vectors = np.array(found[open_source(tmp_path / target).column].to_pylist(), np.float32)
    np.testing.assert_allclose(
        vectors, upgrade.forward(letters.old(letters.texts_of(ROWS))), atol=1e-6
    )
    if target == "out":
        names = [path.name for path in sorted((tmp_path / "out").iterdir())]
        assert names == ["0.parquet", "1.parquet", "2.parquet"]


def test_a_bad_row_is_named_by_file_and_number_and_nothing_is_left(tmp_path, upgrade, cluster):
    source = tmp_path / "items"
    create("parquet", source)
    made = table(600)
    vectors = np.array(made["vector"].to_pylist(), np.float32)
    vectors[417] = np.nan
    kind = made.schema.field("vector").type
    bad = made.set_column(2, "vector", pa.array(vectors.tolist(), kind))
    pq.write_table(bad, source / "1.parquet")
    with RayEngine(address=cluster) as engine:
        for target in ("out", "out.lance", "out.parquet"):
            with pytest.raises(BadInput, match=r"1\.parquet: row 417 of 'vector'"):
                apply(upgrade, source, tmp_path / target, direction="forward", engine=engine)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["items"]


def test_what_cannot_be_read_in_parts_is_refused(tmp_path, upgrade, cluster):
    np.save(tmp_path / "old.npy", letters.old(letters.texts_of(100)))
    with RayEngine(address=cluster) as engine, pytest.raises(BadInput, match="--engine local"):
        apply(
            upgrade,
            tmp_path / "old.npy",
            tmp_path / "out.npy",
            direction="forward",
            engine=engine,
        )


def test_a_folder_is_mapped_by_the_command(tmp_path, upgrade, upgrade_folder):
    create("parquet", tmp_path / "items")
    command = ["apply", upgrade_folder, tmp_path / "items", tmp_path / "out"]
    ran = CliRunner().invoke(app, [*map(str, command), "--direction", "forward", "--json", "-"])
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["rows"] == ROWS
    assert rows_of(tmp_path / "out")["id"].to_pylist() == list(range(ROWS))


def test_ray_is_started_and_stopped_where_none_is_named(tmp_path, upgrade, upgrade_folder):
    import os
    import subprocess
    import sys

    source = create("lancedb", tmp_path / "items")
    command = [sys.executable, "-W", "error", "-m", "crossfade", "apply", str(upgrade_folder)]
    ran = subprocess.run(
        [*command, source, "out.lance", "--direction", "forward", "--engine", "ray"],
        cwd=tmp_path,
        env=os.environ | {"RAY_ADDRESS": "127.0.0.1:1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("out.lance: 1800 vectors mapped forward, 12 → 16 dimensions")
    # Progress on stderr, and nothing of Ray's own.
    assert not [line for line in ran.stderr.splitlines() if "ray" in line.lower()]
    assert lance.dataset(str(tmp_path / "out.lance")).count_rows() == ROWS
