"""The order of a gallery by Ray is the one that this process makes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engines import letters
from tests.engines.conftest import create, table
from typer.testing import CliRunner

from crossfade import Held, Pairs, Plan, Upgrade, plan
from crossfade.backfill.gallery import order_gallery
from crossfade.cli import app
from crossfade.engines.ray import RayEngine
from crossfade.errors import BadInput
from crossfade.files import parts

ROWS = 1800


@pytest.fixture
def upgrade(upgrade_folder) -> Upgrade:
    return Upgrade.load(upgrade_folder)


def classes(texts: list[str]) -> np.ndarray:
    return np.array([ord(text[0]) % 5 for text in texts])


def planned(upgrade: Upgrade, order: str, *, labels: bool = True) -> Plan:
    texts = letters.texts_of(300, seed=5)
    pairs = Pairs.from_arrays(letters.old(texts), letters.new(texts), classes(texts))
    if not labels:
        pairs = Pairs.from_arrays(letters.old(texts), letters.new(texts))
    return plan(
        upgrade, Held.of(pairs), orders=[order], blends=[1.0], ask=["new"], lifts=[1.0],
        priority=np.arange(300.0),
    )  # fmt: skip


def ids_of(path) -> list:
    return pq.read_table(path)["id"].to_pylist()


KINDS = [("parquet", "items"), ("lancedb", "items.lance")]
ORDERS = ["far-mse", "small-margin", "far-cosine+priority", "alignment-error", "random"]


@pytest.mark.parametrize(("kind", "name"), KINDS)
@pytest.mark.parametrize("order", ORDERS)
def test_it_is_the_order_that_is_made_here(
    kind, name, order, tmp_path, upgrade, cluster, monkeypatch
):
    # So that there are several parts to each file or fragment.
    monkeypatch.setattr(parts, "_ROWS", 100)
    create(kind, tmp_path / "items", ROWS)
    made = planned(upgrade, order)
    texts = letters.texts_of(ROWS)
    # Names that sort otherwise than the rows, rows without a class, and one whose class is unknown.
    ids = pa.array([f"{(7 * i) % ROWS:04}" for i in range(ROWS)])
    labels = pa.array([None if i % 50 == 3 else int(c) for i, c in enumerate(classes(texts))])
    given = {"ids": ids, "labels": labels, "priority": np.sin(np.arange(ROWS))}
    source, seen = tmp_path / name, []
    order_gallery(made, upgrade, source, tmp_path / "here.parquet", **given)
    with RayEngine(address=cluster, num_actors=2) as engine:
        order_gallery(
            made,
            upgrade,
            source,
            tmp_path / "there.parquet",
            **given,
            engine=engine,
            progress=lambda done, total: seen.append((done, total)),
        )
    here, there = (ids_of(tmp_path / f"{name}.parquet") for name in ("here", "there"))
    # Rows of one text are equally urgent, but for what products of other sizes round otherwise.
    alike = 8 if order == "alignment-error" else 0
    assert sorted(here) == sorted(there)
    assert np.abs(np.subtract(*(np.argsort(some) for some in (here, there)))).max() <= alike
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_without_classes_the_nearest_mean_counts(tmp_path, upgrade, cluster):
    create("parquet", tmp_path / "items", ROWS)
    made = planned(upgrade, "far-mse")
    order_gallery(made, upgrade, tmp_path / "items", tmp_path / "here.parquet")
    with RayEngine(address=cluster, num_actors=2) as engine:
        order_gallery(made, upgrade, tmp_path / "items", tmp_path / "there.parquet", engine=engine)
    assert ids_of(tmp_path / "there.parquet") == ids_of(tmp_path / "here.parquet")


def test_a_bad_row_is_named_by_file_and_number(tmp_path, upgrade, cluster):
    create("parquet", tmp_path / "items", ROWS)
    bad = table(600)
    vectors = np.array(bad["vector"].to_pylist(), np.float32)
    vectors[417] = np.nan
    kind = bad.schema.field("vector").type
    pq.write_table(
        bad.set_column(2, "vector", pa.array(vectors.tolist(), kind)),
        tmp_path / "items" / "1.parquet",
    )
    with (
        RayEngine(address=cluster) as engine,
        pytest.raises(BadInput, match=r"1\.parquet: row 417 of 'vector'"),
    ):
        order_gallery(
            planned(upgrade, "far-mse"),
            upgrade,
            tmp_path / "items",
            tmp_path / "out.parquet",
            engine=engine,
        )
    assert not (tmp_path / "out.parquet").exists()


def test_the_command_has_it_done(tmp_path, upgrade_folder, cluster, monkeypatch):
    monkeypatch.chdir(tmp_path)
    create("parquet", tmp_path / "items", ROWS)
    texts = letters.texts_of(300, seed=5)
    np.savez("held.npz", old=letters.old(texts), new=letters.new(texts), labels=classes(texts))
    command = ["plan", str(upgrade_folder), "held.npz", "--order", "far-mse", "--blend", "1"]
    for output, more in (("here", []), ("there", ["--engine", "ray", "--address", cluster])):
        ran = CliRunner().invoke(app, [*command, "--gallery", "items", "-o", output, *more])
        assert ran.exit_code == 0, ran.output
    assert ids_of("there/order.parquet") == ids_of("here/order.parquet")
    ran = CliRunner().invoke(app, [*command, "-o", "none", "--engine", "ray"])
    assert isinstance(ran.exception, BadInput) or ran.exit_code == 2
    assert "add --gallery" in f"{ran.output}{ran.exception}"
