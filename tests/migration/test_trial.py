"""An estimate from a trial: what it reads, what it costs, and that it leaves the store as it is."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.embedders.server import Server
from tests.migration.conftest import D, texts_of
from tests.stores.apps import LanceApp, ParquetApp, PostgresApp, QdrantApp
from tests.stores.faiss.app import FaissApp
from tests.stores.sqlite.app import SqliteApp, Vec0App

from crossfade import Upgrade
from crossfade.embedders import EndpointSettings, open_embedder
from crossfade.errors import BadInput
from crossfade.journal import open_migrating
from crossfade.journal.columns import VECTOR
from crossfade.migration import Migration
from crossfade.migration.measured import Measured
from crossfade.migration.trial import STEPS, try_out

ROWS = 900
SMALL = {"rows": 32, "write": True}
COPIED = {
    "faiss": FaissApp,
    "lancedb": LanceApp,
    "parquet": ParquetApp,
    "pgvector": PostgresApp,
    "sqlite": SqliteApp,
    "sqlite-vec0": Vec0App,
}
INDEXED = ("lancedb", "pgvector")


def seen(app, folder) -> list:
    """What there is beside the rows: tables of a database, or files that are no log of one."""
    if isinstance(app, PostgresApp):
        return app.run("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace")
    return sorted(path for path in folder.rglob("*") if path.suffix not in (".db-shm", ".db-wal"))


def size_of(app, folder) -> int:
    """Bytes of the tables of a database, of its pages, or of all files."""
    if isinstance(app, PostgresApp):
        asked = "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relkind = 'r' AND "
        return int(app.run(asked + "relname IN ('items', 'crossfade_items')")[0][0])
    if isinstance(app, SqliteApp):
        return app.connection.pragma("page_count") * app.connection.pragma("page_size")
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def app(models, tmp_path):
    made, texts = LanceApp(tmp_path), texts_of(ROWS)
    made.create(list(range(ROWS)), texts, [1] * ROWS, models.old(texts))
    return made


@pytest.fixture
def server(models):
    made = Server(models.new)
    made.start()
    yield made
    made.stop()


def test_a_mean_has_the_interval_of_its_t_distribution():
    values = [3.0, 4.0, 8.0, 5.0, 6.0, 5.5]
    found = Measured.of(values)
    from scipy.stats import ttest_1samp

    low, high = ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (found.mean, found.low, found.high) == pytest.approx((np.mean(values), low, high))
    whole = found.times(10).plus(Measured(1.0, 1.0, 1.0))
    assert whole.mean == pytest.approx(10 * found.mean + 1)


def test_a_trial_embeds_some_rows_and_writes_nothing(app, models, server, upgrade_folder):
    import lance

    before = lance.dataset(app.address).version
    settings = EndpointSettings(model="fine", batch_size=16, cost_per_million_tokens=1e6)
    embedder = open_embedder(server.url, endpoint=settings)
    store = open_migrating(app.address)
    trial = try_out(store, Upgrade.load(upgrade_folder), embedder, source="body", rows=32)
    embedder.close()
    assert trial.rows == 9 * 32 == sum(len(asked["input"]) for asked in server.requests)
    assert lance.dataset(app.address).version == before
    assert store.describe().added == ()
    assert store.get("migration") is None
    told = trial.estimate(1_000_000, {"stop": 0.25, "full": 1.0})
    # The endpoint counts words, of which each text has one, at a price of one.
    assert told["backfill"]["stop"]["cost"]["mean"] == pytest.approx(250_000)
    assert told["backfill"]["full"]["tokens"]["high"] == pytest.approx(1_000_000)
    assert told["backfill"]["stop"]["requests"] == -(-250_000 // 16)
    assert told["trial"]["spent"] == pytest.approx(9 * 32)
    assert told["storage_bytes"] == 1_000_000 * (4 * 16 + 80)
    assert (told["forward"]["bytes_from"], told["storage_from"]) == ("reckoned", "reckoned")
    assert told["not_measured"][1:] == list(STEPS)
    assert all(told[step] is None for step in ("index", "verify", "finish"))
    assert json.dumps(told)
    for seconds in (told["forward"]["seconds"], told["backfill"]["full"]["seconds"]):
        assert 0 <= seconds["low"] <= seconds["mean"] <= seconds["high"] < 1e6
    assert trial.cost_per_1k == pytest.approx(1000)


def test_what_costs_nothing_and_sends_no_requests_says_so(app, models, upgrade_folder):
    store = open_migrating(app.address)
    trial = try_out(
        store, Upgrade.load(upgrade_folder), open_embedder(models.new), source="body", rows=16
    )
    full = trial.estimate(100, {"full": 1.0})["backfill"]["full"]
    assert (full["requests"], full["tokens"], full["cost"]) == (None, None, None)
    assert trial.items_per_second > 0


def test_what_cannot_be_tried_out_is_refused(app, models, upgrade_folder, tmp_path):
    upgrade, embedder = Upgrade.load(upgrade_folder), open_embedder(models.new)
    store = open_migrating(app.address)
    with pytest.raises(BadInput, match="needs the items' text"):
        try_out(store, upgrade, embedder)
    with pytest.raises(BadInput, match="has no column 'text'"):
        try_out(store, upgrade, embedder, source="text")
    other = LanceApp(tmp_path / "other")
    other.create([1, 2], ["a", "b"], [1, 1], models.old(["a", "b"]))
    with pytest.raises(BadInput, match="2 rows, too few"):
        try_out(open_migrating(other.address), upgrade, embedder, source="body")
    wide = LanceApp(tmp_path / "wide")
    wide.create([1, 2], ["a", "b"], [1, 1], np.ones((2, D + 1), np.float32))
    with pytest.raises(BadInput, match="13 dimensions"):
        try_out(open_migrating(wide.address), upgrade, embedder, source="body")


def test_the_command_estimates(app, models, server, upgrade_folder, tmp_path):
    from typer.testing import CliRunner

    from crossfade.cli import app as command

    texts = texts_of(300, seed=7)
    labels = np.array([ord(t[0]) for t in texts])
    np.savez(tmp_path / "held.npz", old=models.old(texts), new=models.new(texts), labels=labels)
    asked = ["plan", upgrade_folder, tmp_path / "held.npz", "-o", tmp_path / "plan"]
    asked += ["--order", "random", "--blend", "1", "--ask", "new", "--items", "5000000"]
    asked += ["--trial", app.address, "--embed", server.url, "--model", "m", "--source", "body"]
    asked += ["--cost-per-1m-tokens", "2", "--json", tmp_path / "plan.json"]
    found = CliRunner().invoke(command, [str(one) for one in asked])
    assert found.exit_code == 0, found.output
    told = json.loads((tmp_path / "plan.json").read_text())
    assert told["estimate"]["items"] == 5_000_000
    assert told["estimate"]["backfill"]["full"]["cost"]["mean"] == pytest.approx(10.0)
    assert told["costs"]["full"]["cost"] == pytest.approx(10.0)
    kept = json.loads((tmp_path / "plan" / "plan.json").read_text())
    assert kept["estimate"] == told["estimate"]


@pytest.mark.parametrize("kind", sorted(COPIED))
def test_told_to_it_migrates_copies_and_leaves_the_store_as_it_is(
    kind, models, upgrade_folder, tmp_path
):
    app = COPIED[kind](tmp_path)
    texts = texts_of(ROWS)
    app.create(list(range(ROWS)), texts, [1] * ROWS, models.old(texts))
    store, upgrade = open_migrating(app.address), Upgrade.load(upgrade_folder)
    try:
        version, there, rows = store.version(), seen(app, tmp_path), app.old()
        trial = try_out(store, upgrade, open_embedder(models.new), source="body", **SMALL)
        after = app.old()
        assert (store.version(), seen(app, tmp_path)) == (version, there)
        assert all((after[key] == rows[key]).all() for key in rows) and len(after) == ROWS
        assert store.describe().added == () and store.get("migration") is None
        told = trial.estimate(1_000_000, {"full": 1.0})
        assert told["not_measured"] == []
        assert (told["index"] is not None) == (kind in INDEXED) == bool(told["notes"])
        for step in ("forward", "verify", "finish"):
            seconds = told[step]["seconds"]
            assert 0 <= seconds["low"] <= seconds["mean"] <= seconds["high"] < 1e5
            assert (told[step]["from"], told[step]["bytes_from"]) == ("measured", "measured")
        # A small index is a quick one, to build and to write into.
        least = "measured, at least" if kind in INDEXED else "measured"
        assert told["backfill"]["full"]["from"] == least
        # The same step of the whole store, and what it has grown by.
        before = size_of(app, tmp_path)
        migration = Migration(app.address, upgrade_folder)
        migration.start(source="body", force=True)
        migration.forward(index=False)
        migration.close()
        grown = (size_of(app, tmp_path) - before) / ROWS
        # Pages are filled to the end here and half there, and a journal lies beside.
        assert told["forward"]["bytes"]["mean"] / 1e6 == pytest.approx(grown, rel=0.25)
        parts = [told["forward"], told["index"], told["backfill"]["full"]]
        total = sum(part["bytes"]["mean"] for part in parts if part is not None)
        assert told["storage_bytes"] == pytest.approx(total, abs=1)
    finally:
        store.close()
        app.close()


def test_a_step_is_something_fixed_and_a_rate_for_each_item(app, models, upgrade_folder):
    store, upgrade = open_migrating(app.address), Upgrade.load(upgrade_folder)
    trial = try_out(store, upgrade, open_embedder(models.new), source="body", **SMALL)
    for step, found in trial.rehearsed.items():
        for items in (1000, 7000):
            line = trial.estimate(items, {"full": 1.0})["backfill" if step == "writing" else step]
            if step == "writing":
                line, fixed = line["full"], trial.first_embedding
                rate = trial.fetching.mean + trial.embedding.mean + trial.writing.mean
            else:
                fixed, rate = found.fixed, found.seconds.mean
            assert line["fixed_seconds"] == fixed
            assert line["seconds"]["mean"] == pytest.approx(fixed + items * rate)


def test_a_store_that_cannot_be_copied_has_columns_written_and_dropped(
    models, upgrade_folder, tmp_path
):
    app = QdrantApp(tmp_path)
    texts = texts_of(300)
    app.create(list(range(300)), texts, [1] * 300, models.old(texts))
    store, upgrade = open_migrating(app.address), Upgrade.load(upgrade_folder)
    try:
        trial = try_out(store, upgrade, open_embedder(models.new), source="body", **SMALL)
        assert trial.rehearsed is None and trial.writing is not None
        assert store.describe().added == () and store.get("migration") is None
        told = trial.estimate(1000, {"full": 1.0})
        assert told["not_measured"][1:] == list(STEPS)
        assert told["storage_from"] == "reckoned"
        mean = 1000 * trial.writing.mean + trial.first_reading
        assert told["forward"]["seconds"]["mean"] == pytest.approx(mean)
    finally:
        store.close()
        app.close()


def test_of_few_rows_what_they_take_is_reckoned(models, upgrade_folder, tmp_path):
    few, texts = PostgresApp(tmp_path), texts_of(40)
    few.create(list(range(40)), texts, [1] * 40, models.old(texts))
    store, upgrade = open_migrating(few.address), Upgrade.load(upgrade_folder)
    trial = try_out(store, upgrade, open_embedder(models.new), source="body", **SMALL)
    told = trial.estimate(1000, {"full": 1.0})
    # They lie in pages that were there for fewer.
    assert told["storage_bytes"] == 1000 * (4 * 16 + 80)
    assert (told["storage_from"], told["finish"]["bytes"]) == ("reckoned", None)
    store.close()


def test_a_copy_of_a_table_has_its_indexes_and_leaves_its_sequence_and_triggers_alone(
    models, upgrade_folder, tmp_path
):
    app, texts = PostgresApp(tmp_path), texts_of(300)
    app.run('CREATE SCHEMA "Shop"')
    app.run(
        'CREATE TABLE "Shop".items (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, '
        "body text NOT NULL, size int GENERATED ALWAYS AS (length(body)) STORED, "
        f"vector vector({D}))"
    )
    app.run('CREATE INDEX ON "Shop".items USING hnsw (vector vector_l2_ops)')
    app.run("CREATE TABLE log (id bigint)")
    app.run(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO log VALUES (NEW.id); RETURN NEW; END $$"
    )
    for text, vector in zip(texts, models.old(texts), strict=True):
        app.run(
            'INSERT INTO "Shop".items (body, vector) VALUES (%s, %s)', text, str(vector.tolist())
        )
    app.run('CREATE TRIGGER t AFTER INSERT ON "Shop".items FOR EACH ROW EXECUTE FUNCTION note()')
    store = open_migrating(f"{app.url}#Shop.items")
    upgrade = Upgrade.load(upgrade_folder)
    with store.scratch(100) as scratch:
        found = scratch.store.describe()
        assert (found.rows, found.distance, found.indexed) == (100, "l2", ("vector",))
        assert "size" in found.columns
    trial = try_out(store, upgrade, open_embedder(models.new), source="body", **SMALL)
    assert trial.rehearsed is not None
    store.close()
    names = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = "
    assert app.run(names + """'"Shop"'::regnamespace""") == [("items",)]
    assert app.run("SELECT count(*) FROM log") == [(0,)]
    added = 'INSERT INTO "Shop".items (body) VALUES (%s) RETURNING id'
    assert app.run(added, "the next") == [(301,)]


def test_a_copy_goes_with_a_trial_that_fails(app, upgrade_folder, tmp_path):
    store = open_migrating(app.address)
    there = seen(app, tmp_path)
    with pytest.raises(KeyError), store.scratch(100) as scratch:
        assert scratch.store.describe().rows == 100
        assert scratch.size() > 0
        assert seen(app, tmp_path) != there
        raise KeyError
    assert seen(app, tmp_path) == there


def test_what_is_being_migrated_is_not_written_to(app, models, upgrade_folder):
    migration = Migration(app.address, upgrade_folder)
    migration.start(force=True)
    with pytest.raises(BadInput, match="is being migrated"):
        try_out(
            migration.store, migration.upgrade, open_embedder(models.new), source="body", write=True
        )
    assert VECTOR in migration.store.describe().added
