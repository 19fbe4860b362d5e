"""What stands in the way of promote is told before anything is changed, with its name."""

from __future__ import annotations

import numpy as np
import pytest
from tests.stores.postgres_store.table import (
    ADDED,
    NAMES,
    SHARED,
    STATE,
    VECTOR,
    Table,
    lift,
    lifted,
    vectors,
    work,
)

from crossfade.errors import StoreError
from crossfade.stores import Column, Obstacle

ROWS = 60


@pytest.fixture
def table():
    app = Table()
    app.create(vectors(ROWS))
    return app


def promote(store, working=work) -> str:
    return store.promote(VECTOR.name, [STATE.name], columns=["vector", *NAMES], work=working)


def told(table, url=None) -> list[Obstacle]:
    store = table.open(url, vector="vector")
    found = store.obstacles()
    store.close()
    return found


FINAL = {
    "materialized view": ("CREATE MATERIALIZED VIEW m AS SELECT id, vector FROM items", "'m'"),
    "view below it": (
        "CREATE VIEW v AS SELECT id, vector FROM items; "
        "CREATE MATERIALIZED VIEW below AS SELECT id FROM v",
        "'below'",
    ),
    "view with a trigger": (
        "CREATE VIEW v AS SELECT id, vector FROM items; CREATE FUNCTION f() RETURNS trigger "
        "LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER instead INSTEAD OF INSERT "
        "ON v FOR EACH ROW EXECUTE FUNCTION f()",
        "trigger instead on view v",
    ),
    "view in a function": (
        "CREATE VIEW v AS SELECT id, vector FROM items; "
        "CREATE FUNCTION of(v) RETURNS bigint LANGUAGE sql AS 'SELECT $1.id'",
        "function of\\(v\\)",
    ),
    "rule": ("CREATE RULE no AS ON UPDATE TO items DO ALSO SELECT 1", "'no'"),
    "generated column": (
        "ALTER TABLE items ADD COLUMN length float "
        "GENERATED ALWAYS AS (vector_norm(vector)) STORED",
        "length",
    ),
    "function": (
        "CREATE FUNCTION f() RETURNS vector LANGUAGE sql "
        "BEGIN ATOMIC SELECT vector FROM items LIMIT 1; END",
        "function f()",
    ),
    "unique": ("ALTER TABLE items ADD CONSTRAINT one UNIQUE (vector)", "one"),
    "foreign key": (
        "ALTER TABLE items ADD CONSTRAINT one UNIQUE (vector); "
        "CREATE TABLE other (v vector REFERENCES items (vector))",
        "one",
    ),
    "publication of columns": (
        "CREATE PUBLICATION p FOR TABLE items (id, vector)",
        "publication p",
    ),
    "check of the dimension": (
        "ALTER TABLE items ADD CONSTRAINT size CHECK (vector_dims(vector) = 16)",
        "'size' would not hold",
    ),
    "default": (
        f"ALTER TABLE items ALTER vector SET DEFAULT '{[1.0] * 16}'",
        "default of the old dimension",
    ),
    "constraint trigger": (
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; "
        "CREATE CONSTRAINT TRIGGER late AFTER UPDATE OF vector ON items DEFERRABLE "
        "FOR EACH ROW EXECUTE FUNCTION f()",
        "late",
    ),
    "children": ("CREATE TABLE child () INHERITS (items)", "parents or children"),
    "parents": (
        "CREATE TABLE parent (kind int); ALTER TABLE items INHERIT parent",
        "parents or children",
    ),
}
WAIVED = {
    "expression": (
        "CREATE INDEX e ON items USING hnsw ((vector::halfvec(16)) halfvec_l2_ops)",
        "index 'e'",
    ),
    "b-tree": ("CREATE INDEX b ON items (kind) INCLUDE (vector)", "index 'b'"),
    "predicate": (
        "CREATE INDEX p ON items USING hnsw (vector vector_l2_ops) WHERE vector_norm(vector) > 0",
        "index 'p'",
    ),
    "statistics": ("CREATE STATISTICS s ON kind, vector FROM items", "statistics object s"),
    "publication": ("CREATE PUBLICATION p FOR TABLE items", "'p' sends the table on"),
    "trigger that always fires": (
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; "
        "CREATE TRIGGER every BEFORE UPDATE ON items FOR EACH ROW EXECUTE FUNCTION f(); "
        "ALTER TABLE items ENABLE ALWAYS TRIGGER every",
        "'every'",
    ),
}


@pytest.mark.parametrize("what", sorted(FINAL))
def test_what_cannot_be_carried_along_is_refused_with_its_name(table, what):
    statement, name = FINAL[what]
    assert told(table) == []
    store = table.open()
    lift(store)
    table.run(statement)
    found = [one.cause for one in told(table) if one.final]
    assert found
    before = table.vectors()
    with pytest.raises(StoreError, match=name):
        promote(store)
    # Nothing was changed: not a column, not an index, not a row.
    assert table.run(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'items'::regclass "
        "AND attname LIKE 'crossfade%'"
    ) == []  # fmt: skip
    after = table.vectors()
    assert all(np.array_equal(after[key], before[key]) for key in before)
    store.close()


@pytest.mark.parametrize("what", sorted(WAIVED))
def test_what_would_be_lost_is_told_and_may_be_waved_through(table, what):
    statement, name = WAIVED[what]
    table.run(statement)
    found = told(table)
    assert len(found) == 1 and not found[0].final
    assert name in found[0].cause
    store = table.open()
    lift(store)
    promote(store)
    assert len(table.vectors()[3]) == SHARED
    store.close()


def test_what_comes_between_the_check_and_the_switch_is_not_broken(table):
    """A view that is made while rows are shown is carried along like the others; a function that
    cannot be stops it, and nothing is lost."""
    table.index()
    store = table.open()
    lift(store)
    seen = []

    def working(rows):
        if not seen:
            table.run("CREATE VIEW late AS SELECT id, vector FROM items")
            table.run("CREATE INDEX late_index ON items USING hnsw (vector vector_l2_ops)")
        seen.append(rows)
        return work(rows)

    promote(store, working)
    assert table.run("SELECT count(*) FROM late") == [(ROWS,)]
    assert "vector_l2_ops" in table.run("SELECT pg_get_indexdef('late_index'::regclass)")[0][0]
    store.close()


def test_a_function_that_comes_meanwhile_stops_it_with_nothing_lost(table):
    store = table.open()
    lift(store)
    before = table.vectors()

    def working(rows):
        table.run(
            "CREATE OR REPLACE FUNCTION f() RETURNS vector LANGUAGE sql "
            "BEGIN ATOMIC SELECT vector FROM items LIMIT 1; END"
        )
        return work(rows)

    with pytest.raises(StoreError, match="function f"):
        promote(store, working)
    after = table.vectors()
    assert all(np.array_equal(after[key], before[key]) for key in before)
    store.withdraw(VECTOR.name)
    table.run("DROP FUNCTION f()")
    promote(store)
    store.close()


def test_partitioned_tables_are_refused():
    table = Table()
    table.run(
        "CREATE TABLE items (id bigint PRIMARY KEY, body text, kind int, vector vector(4)) "
        "PARTITION BY RANGE (id)"
    )
    table.run("CREATE TABLE part PARTITION OF items FOR VALUES FROM (0) TO (100)")
    assert [one.final for one in told(table)] == [True]
    assert "partitioned" in told(table)[0].cause
    part = Table(table.url, "part")
    assert "is a partition" in told(part)[0].cause


def test_rights_that_are_missing(table):
    url, role = table.role("writer", "SELECT, INSERT, UPDATE, DELETE")
    table.run("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    found = " ".join(one.cause for one in told(table, url))
    assert "does not own" in found and "may not create tables" in found
    # The owner may, without being a superuser; its triggers are another matter.
    table.run(f"ALTER TABLE items OWNER TO {role}; GRANT CREATE ON SCHEMA public TO {role}")
    assert told(table, url) == []
    table.run(
        "CREATE FUNCTION touched() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN NEW.body = NEW.body || ''!''; RETURN NEW; END'"
    )
    table.run("CREATE TRIGGER t BEFORE UPDATE ON items FOR EACH ROW EXECUTE FUNCTION touched()")
    (found,) = told(table, url)
    assert "trigger 't' fires" in found.cause and not found.final
    store = table.open(url)
    lift(store)
    promote(store)
    assert len(table.vectors()[3]) == SHARED
    # It was said that it would.
    assert table.run("SELECT body FROM items WHERE id = 3") == [("text 3!",)]
    store.close()


def test_an_index_that_the_new_dimension_is_too_long_for(table):
    table.index()
    store = table.open()
    long = Column(VECTOR.name, "vector", 2001)
    store.add_columns([long, STATE])
    (found,) = store.obstacles()
    assert "2001 dimensions" in found.cause and not found.final
    store.close()


def test_ids_that_are_null():
    table = Table()
    table.run("CREATE TABLE items (id bigint UNIQUE, vector vector(3))")
    table.run("INSERT INTO items VALUES (1, '[1,2,3]'), (2, '[1,2,3]')")
    store = table.open(id="id")
    assert store.obstacles() == []
    table.run("INSERT INTO items VALUES (NULL, '[1,2,3]')")
    (found,) = store.obstacles()
    assert found.final and "no 'id'" in found.cause
    store.close()


def secured(table, forced: bool = False) -> tuple[str, str]:
    """Rows belong to kinds, and a role sees its own."""
    url, role = table.role("tenant", "SELECT, INSERT, UPDATE, DELETE")
    table.run(f"GRANT CREATE ON SCHEMA public TO {role}")
    table.run("CREATE POLICY own ON items USING (kind = 1)")
    table.run("ALTER TABLE items ENABLE ROW LEVEL SECURITY")
    if forced:
        table.run(f"ALTER TABLE items OWNER TO {role}")
        table.run("ALTER TABLE items FORCE ROW LEVEL SECURITY")
    return url, role


@pytest.mark.parametrize("forced", [False, True])
def test_rows_that_cannot_be_seen_are_an_obstacle_and_an_error(table, forced):
    url, role = secured(table, forced)
    found = [one for one in told(table, url) if "row-level security" in one.cause]
    assert [one.final for one in found] == [True]
    store = table.open(url)
    query = vectors(1)[0]
    for ask in (
        store.describe,
        lambda: list(store.stream(["vector"])),
        lambda: store.read([1], ["vector"]),
        lambda: store.search(query, column="vector", k=3),
    ):
        with pytest.raises(StoreError, match="BYPASSRLS"):
            ask()
    store.close()
    table.run(f"ALTER ROLE {role} BYPASSRLS")
    assert [one for one in told(table, url) if "row-level security" in one.cause] == []


def test_an_owner_who_sees_every_row_migrates_those_of_all_tenants(table):
    _, role = secured(table)
    owner, name = table.role("owner", "SELECT")
    table.run(f"ALTER TABLE items OWNER TO {name}; GRANT CREATE ON SCHEMA public TO {name}")
    old = table.vectors()
    store = table.open(owner)
    assert store.obstacles() == []
    lift(store)
    promote(store)
    found = table.vectors()
    for key, vector in old.items():
        np.testing.assert_array_equal(found[key], lifted(vector)[0])
    assert table.run("SELECT policyname FROM pg_policies WHERE tablename = 'items'") == [("own",)]
    assert role
    store.close()


def test_added_columns_are_nobodys_business(table):
    store = table.open()
    store.add_columns(ADDED)
    assert store.obstacles() == []
    store.close()
