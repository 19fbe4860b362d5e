"""The store of docs/writing-a-store.md passes the contract, found by its entry point."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.stores.apps import TEXT_IDS, _table

from crossfade import Migration, Searcher, Upgrade
from crossfade.errors import BadInput
from crossfade.stores import open_store, registry
from crossfade.testing import StoreContract


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs a distribution, as far as its metadata goes, whose entry point is this value."""

    def install(value: str) -> None:
        metadata = tmp_path / "site" / "toy_store-1.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-store\nVersion: 1\n")
        (metadata / "entry_points.txt").write_text(f"[crossfade.stores]\ntoy = {value}\n")
        monkeypatch.syspath_prepend(metadata.parent)
        registry._others.cache_clear()

    yield install
    registry._others.cache_clear()


class ToyApp:
    """The application's side: it reads and replaces the file."""

    text_ids, unit_length = TEXT_IDS, False

    def __init__(self, folder):
        self.path = folder / "items.parquet"
        self.address = f"toy:{self.path}#items"

    def create(self, ids, bodies, kinds, old):
        pq.write_table(_table(ids, bodies, kinds, old), self.path)

    def insert(self, ids, bodies, kinds, old):
        table = pq.read_table(self.path)
        more = _table(ids, bodies, kinds, old)
        for name in table.column_names[len(more.column_names) :]:
            more = more.append_column(name, pa.nulls(len(more), table.schema.field(name).type))
        pq.write_table(pa.concat_tables([table, more.cast(table.schema)]), self.path)

    def change(self, key, body, old):
        self._update(key, body=body, vector=old.tolist())

    def empty(self, key):
        self._update(key, vector=None)

    def delete(self, key):
        table = pq.read_table(self.path)
        pq.write_table(table.filter(pc.field("id") != key), self.path)

    def old(self):
        rows = pq.read_table(self.path).select(["id", "vector"]).to_pylist()
        return {row["id"]: np.array(row["vector"], np.float32) for row in rows}

    def close(self):
        """Nothing is held open."""

    def _update(self, key, **values):
        table = pq.read_table(self.path)
        rows = table.to_pylist()
        next(row for row in rows if row["id"] == key).update(values)
        pq.write_table(pa.Table.from_pylist(rows, table.schema), self.path)


class TestToyStore(StoreContract):
    @pytest.fixture
    def app(self, tmp_path, installed):
        installed("examples.toy_store:KIND")
        return ToyApp(tmp_path)


def test_a_migration_runs_on_it(tmp_path, installed):
    installed("examples.toy_store:KIND")
    rng = np.random.default_rng(0)
    new = rng.normal(size=(300, 8)).astype("f4")
    old = (new[:, :6] + 0.1 * rng.normal(size=(300, 6))).astype("f4")
    Upgrade(solver="closed_form").fit(old[:200], new[:200]).save(tmp_path / "up")
    app = ToyApp(tmp_path)
    app.create(list(range(300)), [f"text {i}" for i in range(300)], [0] * 300, old)
    with closing(Migration(app.address, tmp_path / "up")) as migration:
        migration.start(force=True)
        migration.forward()
        searcher = Searcher(app.address, Upgrade.load(tmp_path / "up"))
        assert [searcher.search(new[i], 1)[0].id for i in (3, 40, 250)] == [3, 40, 250]
        assert migration.verify().passed
        migration.finish(force=True)
    table = pq.read_table(app.path)
    assert table.column_names == ["id", "body", "kind", "vector"]
    assert table.schema.field("vector").type.list_size == 8


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("examples.toy_store:ToyStore", "examples.toy_store:ToyStore is no StoreKind"),
        ("examples.no_such_store:KIND", r"cannot be loaded \(ModuleNotFoundError"),
    ],
)
def test_a_broken_distribution_is_named_and_in_nobody_elses_way(tmp_path, installed, value, cause):
    installed(value)
    with pytest.raises(BadInput, match=cause) as raised:
        open_store("toy:x#items")
    assert "mend or uninstall toy-store" in str(raised.value)
    with pytest.raises(BadInput, match=r"items\.lance"):
        open_store(tmp_path / "items.lance")
