"""What a dry run on pgvector prints is what is executed, by the server's own log, and all of it."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from tests.migration.conftest import Function
from tests.stores.apps import PostgresApp
from tests.stores.postgres import server

from crossfade.files.arrow import to_arrow
from crossfade.journal.columns import STATE, VECTOR, columns
from crossfade.journal.journal import load_journal, save_journal
from crossfade.migration import Migration
from crossfade.stores import TOKEN

CHANGES = (
    "ALTER", "COMMENT", "COPY", "CREATE", "DELETE", "DROP", "GRANT", "INSERT", "LOCK", "REVOKE",
    "TRUNCATE", "UPDATE", "VACUUM",
)  # fmt: skip
_ENTRY = re.compile(r"^\d{4}-.*?\] +(\w+): +", re.MULTILINE)
_SAID = re.compile(r"(?:statement|execute [^:]*): (.*)", re.DOTALL)


class Log:
    """What the server writes down from now on."""

    def __init__(self) -> None:
        self.begin = server().log.stat().st_size

    def statements(self) -> list[str]:
        text = server().log.read_bytes()[self.begin :].decode()
        parts = _ENTRY.split(text)[1:]
        logged = [
            entry for kind, entry in zip(parts[::2], parts[1::2], strict=True) if kind == "LOG"
        ]
        found = [match[1] for entry in logged if (match := _SAID.match(entry))]
        # A statement goes on over lines that begin with a tab.
        return [one.replace("\n\t", "\n").strip() for one in found]


@pytest.fixture
def app(tmp_path):
    """A table with something of everything that is carried over."""
    return PostgresApp(tmp_path)


@pytest.fixture
def logged(world):
    app = world.app
    app.run("ALTER TABLE items ALTER COLUMN vector SET NOT NULL")
    app.run("CREATE INDEX items_near ON items USING hnsw (vector vector_cosine_ops)")
    app.run("COMMENT ON INDEX items_near IS 'for the shop'")
    app.run("COMMENT ON COLUMN items.vector IS 'by the old model'")
    app.run("ALTER TABLE items ADD CONSTRAINT lengths CHECK (vector_norm(vector) >= 0)")
    app.run("CREATE VIEW seen AS SELECT id, vector FROM items")
    app.run("COMMENT ON VIEW seen IS 'what is shown'")
    app.run("CREATE POLICY every ON items USING (vector IS NOT NULL)")
    made = Migration(f"{app.url}&options=-c%20log_statement%3Dall#items", world.folder)
    yield made
    made.close()


def patterns(printed: list[str]) -> dict[str, re.Pattern]:
    """`…` is whatever is known by then."""
    return {one: re.compile(re.escape(one).replace("…", ".*"), re.DOTALL) for one in printed}


def unexecuted(printed: list[str], executed: list[str]) -> list[str]:
    found = patterns(printed)
    return [one for one, like in found.items() if not any(map(like.fullmatch, executed))]


def unprinted(executed: list[str], printed: list[str]) -> list[str]:
    known = patterns(printed).values()
    changes = [one for one in executed if one.startswith(CHANGES)]
    return [one for one in changes if not any(like.fullmatch(one) for like in known)]


def write_rows(world, store, ids: list[int]) -> int:
    """As `forward` writes them, with the state in which they were read."""
    rows = store.read(ids, [store.vector])
    count = len(ids)
    made = {VECTOR: to_arrow(world.models.new(["a row"] * count))}
    made[STATE] = pa.array(["lifted"] * count)
    more = {c.name: pa.nulls(count, c.arrow) for c in columns(16) if c.name not in made}
    if ids == [9000]:
        # It changes between the look at it and the write.
        world.app.change(9000, "another", world.models.old(["another"])[0])
    given = {"id": rows["id"], **made, **more, TOKEN: rows[TOKEN]}
    return store.write(pa.RecordBatch.from_pydict(given))


def write_late(world, store) -> None:
    """Rows that come, change and go."""
    world.app.insert([9000, 9001], ["a row"] * 2, [1, 1], world.models.old(["a row"] * 2))
    assert write_rows(world, store, [9000]) == 0
    assert write_rows(world, store, [9001, 0]) == 2
    assert store.erase(store.read([9001, 0], [])) == 2
    for key in (9000, 9001):
        world.app.delete(key)


def test_a_dry_run_prints_what_a_migration_executes(world, logged, plan_folder):
    printed = logged.outlook(force=True, source="body").statements
    steps, log = ["start", "forward", "backfill", "finish"], Log()
    logged.start(source="body", force=True)
    logged.forward()
    write_late(world, logged.store)
    logged.forward()
    logged.backfill(Function(world.models), plan=plan_folder, labels="kind", share=1.0)
    logged.verify(embed=Function(world.models))
    logged.finish(force=True)
    executed = log.statements()
    assert len(executed) > 100
    for step in steps:
        assert unexecuted(printed[step], executed) == []
    assert unprinted(executed, [one for step in steps for one in printed[step]]) == []
    assert world.app.run("SELECT obj_description('items_near'::regclass)") == [("for the shop",)]


def test_a_dry_run_prints_what_a_rollback_executes(world, logged):
    printed = logged.outlook(force=True, source="body").statements
    logged.start(source="body", force=True)
    logged.forward()
    # As a `finish` that was cut short leaves it.
    with logged.store.lock():
        begun = load_journal(logged.store).after("finish begun", stage="finishing")
        save_journal(logged.store, begun)
    world.app.run("ALTER TABLE items ADD COLUMN crossfade_vector vector(16)")
    log = Log()
    logged.rollback()
    executed = log.statements()
    assert unexecuted(printed["rollback"], executed) == []
    assert unprinted(executed, printed["rollback"]) == []
