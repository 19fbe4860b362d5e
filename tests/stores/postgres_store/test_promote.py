"""The shared vectors become the application's, and everything else stays as it was."""

from __future__ import annotations

import threading

import numpy as np
import psycopg
import pytest
from tests.stores.postgres_store.table import (
    DIM,
    NAMES,
    SHARED,
    STATE,
    VECTOR,
    Table,
    lift,
    lifted,
    text,
    vectors,
    work,
)

from crossfade.errors import StoreError

ROWS = 300
COLUMNS = ["vector", *NAMES]


def promote(store, working=work) -> str:
    return store.promote(VECTOR.name, [STATE.name], columns=COLUMNS, work=working)


@pytest.fixture
def table():
    return Table()


def ended(table, old: dict[int, np.ndarray | None]) -> None:
    """Every row has what the model says of its old vector, and nothing of ours is left."""
    found = table.vectors()
    assert sorted(found) == sorted(old)
    for key, vector in old.items():
        if vector is None or not np.abs(vector).sum():
            assert found[key] is None, key
        else:
            np.testing.assert_array_equal(found[key], lifted(vector)[0], err_msg=str(key))
    assert table.run("SELECT to_regclass('crossfade_items')") == [(None,)]
    names = table.run(
        "SELECT attname FROM pg_attribute WHERE attrelid = 'items'::regclass "
        "AND attname LIKE 'crossfade%' AND NOT attisdropped"
    )
    assert names == []


def test_every_row_ends_with_its_shared_vector(table):
    old = table.create(vectors(ROWS))
    table.run("UPDATE items SET vector = NULL WHERE id = 7")
    table.change(9, np.zeros(DIM, np.float32))
    store = table.open()
    lift(store)
    assert promote(store) == "vector"
    ended(table, dict(enumerate(old)) | {7: None, 9: None})
    assert store.describe().dim == SHARED
    # Done again, it does nothing.
    assert promote(store) == "vector"
    ended(table, dict(enumerate(old)) | {7: None, 9: None})
    hits = store.search(lifted(old[3])[0], column="vector", k=1)
    assert hits[0].id == 3
    store.close()


class Application(threading.Thread):
    """Inserts, changes and deletes until its vectors are refused, and remembers what it did."""

    def __init__(self, table: Table, old: dict[int, np.ndarray | None]) -> None:
        super().__init__()
        self.table, self.old = table, old
        self.done = self.again = 0
        self.refused = ""

    def run(self) -> None:
        rng = np.random.default_rng(1)
        with psycopg.connect(self.table.url, autocommit=True) as connection:
            while not self.refused:
                new = vectors(2, seed=1000 + self.done)
                key, other, gone = 10_000 + self.done, *map(int, rng.choice(sorted(self.old), 2))
                try:
                    with connection.transaction():
                        connection.execute(
                            "INSERT INTO items (id, body, vector) VALUES (%s, 'late', %s)",
                            [key, text(new[0])],
                        )
                        connection.execute(
                            "UPDATE items SET vector = %s WHERE id = %s", [text(new[1]), other]
                        )
                        connection.execute("DELETE FROM items WHERE id = %s", [gone])
                except psycopg.errors.SerializationFailure:
                    self.again += 1
                    continue
                except psycopg.errors.DataException as error:
                    self.refused = str(error)
                    return
                self.old[key], self.old[other] = new
                self.old.pop(gone)
                self.done += 1


@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
def test_rows_that_come_change_and_go_meanwhile_are_not_lost(table, isolation):
    """Where transactions are serializable, those of the application that meet ours are refused and
    said again, as it has to do anyway; ours are not."""
    old = dict(enumerate(table.create(vectors(2000))))
    table.index()
    name = table.run("SELECT current_database()")[0][0]
    table.run(f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'")
    store = table.open()
    lift(store)
    shown = []

    def working(rows):
        shown.append(len(rows))
        return work(rows)

    application = Application(table, old)
    application.start()
    promote(store, working)
    application.join()
    assert "24 dimensions" in application.refused
    assert application.done > 20
    assert isolation == "serializable" or application.again == 0
    ended(table, old)
    # All were looked at once, and then what changed, not all of them again.
    assert sum(shown) < 2 * 2000 + 20 * application.done
    store.close()


def test_a_row_that_nothing_can_be_made_of_stops_it_before_anything_is_lost(table):
    old = table.create(vectors(ROWS))
    store = table.open()
    lift(store)
    table.insert([777], vectors(1, seed=4))
    with pytest.raises(StoreError, match="row 777 has an old vector and no shared one"):
        promote(store, lambda rows: None)
    kept = table.vectors()
    assert all(np.array_equal(kept[i], old[i]) for i in range(ROWS))
    promote(store)
    ended(table, {**dict(enumerate(old)), 777: vectors(1, seed=4)[0]})
    store.close()


KEPT = {
    "not null": "SELECT attnotnull FROM pg_attribute WHERE attrelid = 'items'::regclass "
    "AND attname = 'vector'",
    "comment": "SELECT col_description('items'::regclass, attnum) FROM pg_attribute "
    "WHERE attrelid = 'items'::regclass AND attname = 'vector'",
    "storage": "SELECT attstorage, attcompression, attstattarget, attoptions FROM pg_attribute "
    "WHERE attrelid = 'items'::regclass AND attname = 'vector'",
    "grants": "SELECT attacl::text FROM pg_attribute WHERE attrelid = 'items'::regclass "
    "AND attname = 'vector'",
    "type": "SELECT atttypid::regtype::text FROM pg_attribute "
    "WHERE attrelid = 'items'::regclass AND attname = 'vector'",
    "checks": "SELECT conname, pg_get_constraintdef(oid), convalidated FROM pg_constraint "
    "WHERE conrelid = 'items'::regclass AND contype = 'c' ORDER BY 1",
    "indexes": "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'items' ORDER BY 1",
    "index comments": "SELECT obj_description('items_vector'::regclass, 'pg_class')",
    "views": "SELECT c.relname, pg_get_viewdef(c.oid), pg_get_userbyid(relowner), "
    "coalesce(relacl, acldefault('r', relowner))::text, "
    "reloptions, obj_description(c.oid, 'pg_class') FROM pg_class c WHERE relkind = 'v' "
    "AND relnamespace = 'public'::regnamespace ORDER BY 1",
    "view columns": "SELECT attrelid::regclass::text, attname, attacl::text, "
    "col_description(attrelid, attnum) FROM pg_attribute WHERE attrelid IN "
    "(SELECT oid FROM pg_class WHERE relkind = 'v' AND relnamespace = 'public'::regnamespace) "
    "ORDER BY 1, 2",
    "policies": "SELECT policyname, permissive, roles, cmd, qual, with_check FROM pg_policies "
    "WHERE tablename = 'items' ORDER BY 1",
    "triggers": "SELECT tgname, pg_get_triggerdef(oid), tgenabled FROM pg_trigger "
    "WHERE tgrelid = 'items'::regclass AND NOT tgisinternal ORDER BY 1",
    "options": "SELECT reloptions FROM pg_class WHERE oid = 'items'::regclass",
}


@pytest.mark.parametrize("kind", ["vector", "halfvec"])
def test_what_hung_on_the_column_hangs_on_it_afterwards(table, kind):
    old = table.create(
        vectors(ROWS),
        vector=f"vector {kind}({{}}) NOT NULL CHECK (vector IS NOT NULL), second vector(3)",
        more=", CONSTRAINT long CHECK (vector_norm(vector::vector) < 1000 OR body IS NULL)",
    )
    _, role = table.role("clerk", "SELECT (id)")
    for statement in (
        "COMMENT ON COLUMN items.vector IS 'it''s the model''s'",
        "ALTER TABLE items ALTER vector SET STORAGE EXTENDED",
        "ALTER TABLE items ALTER vector SET COMPRESSION pglz",
        "ALTER TABLE items ALTER vector SET STATISTICS 7",
        "ALTER TABLE items ALTER vector SET (n_distinct = -1)",
        f"GRANT SELECT (vector), UPDATE (vector) ON items TO {role} WITH GRANT OPTION",
        "GRANT SELECT (vector) ON items TO PUBLIC",
        f"CREATE INDEX items_vector ON items USING hnsw (vector {kind}_cosine_ops) "
        "WITH (m = 8, ef_construction = 40) WHERE kind < 2",
        "COMMENT ON INDEX items_vector IS 'ours'",
        f'CREATE INDEX "Odd name" ON items USING ivfflat (vector {kind}_l2_ops) '
        "WITH (lists = 5) WHERE vector IS NOT NULL",
        "CREATE INDEX other ON items USING hnsw (second vector_l2_ops)",
        "CREATE INDEX plain ON items (kind)",
        "CREATE VIEW near WITH (security_barrier = true) AS "
        "SELECT id, vector, kind AS k FROM items WHERE vector IS NOT NULL",
        "CREATE VIEW nearer AS SELECT * FROM near WHERE id > 10",
        "CREATE VIEW apart AS SELECT id, body FROM items",
        "COMMENT ON VIEW near IS 'those'",
        "COMMENT ON COLUMN near.k IS 'kind'",
        f"GRANT SELECT ON near TO {role} WITH GRANT OPTION",
        f"GRANT SELECT (id) ON nearer TO {role}",
        f"ALTER VIEW nearer OWNER TO {role}",
        f"ALTER DEFAULT PRIVILEGES GRANT UPDATE ON TABLES TO {role}",
        "CREATE POLICY mine ON items AS RESTRICTIVE FOR SELECT TO PUBLIC "
        "USING (vector IS NOT NULL AND kind >= 0)",
        f"CREATE POLICY theirs ON items FOR INSERT TO {role} WITH CHECK (vector IS NOT NULL)",
        "CREATE FUNCTION touched() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN NEW.body = NEW.body || ''!''; RETURN NEW; END'",
        "CREATE TRIGGER seen BEFORE UPDATE OF vector ON items FOR EACH ROW "
        "EXECUTE FUNCTION touched()",
        "CREATE TRIGGER always BEFORE UPDATE OF vector ON items FOR EACH ROW "
        "WHEN (OLD.vector IS DISTINCT FROM NEW.vector) EXECUTE FUNCTION touched()",
        "ALTER TABLE items DISABLE TRIGGER always",
        "ALTER TABLE items SET (fillfactor = 90)",
    ):
        table.run(statement)
    before = {name: table.run(query) for name, query in KEPT.items()}
    store = table.open(vector="vector")
    assert store.obstacles() == []
    lift(store)
    assert store.obstacles() == []
    promote(store)
    assert {name: table.run(query) for name, query in KEPT.items()} == before
    found = table.vectors()
    assert all(np.allclose(found[i], lifted(old[i])[0], rtol=1e-3, atol=1e-2) for i in range(ROWS))
    if kind == "vector":
        ended(table, dict(enumerate(old)))
    assert table.run("SELECT count(*) FROM nearer")[0][0] == ROWS - 11
    # None of our writes set off the application's triggers; its own do.
    assert table.run("SELECT count(*) FROM items WHERE body LIKE '%!'")[0][0] == 0
    table.run("UPDATE items SET vector = vector WHERE id = 1")
    assert table.run("SELECT body FROM items WHERE id = 1")[0][0] == "text 1!"
    store.close()


def test_no_trigger_of_the_application_fires(table):
    table.create(vectors(ROWS))
    table.run(
        "CREATE FUNCTION touched() RETURNS trigger LANGUAGE plpgsql AS "
        "'BEGIN NEW.body = NEW.body || ''!''; RETURN NEW; END'"
    )
    table.run("CREATE TRIGGER t BEFORE UPDATE ON items FOR EACH ROW EXECUTE FUNCTION touched()")
    store = table.open()
    lift(store)
    promote(store)
    assert table.run("SELECT count(*) FROM items WHERE body LIKE '%!'")[0][0] == 0
    store.close()


def test_zero_vectors_of_a_column_that_is_not_null_are_zeros_of_the_new_dimension(table):
    old = vectors(ROWS)
    old[[3, 200]] = 0
    table.create(old, vector="vector vector({}) NOT NULL")
    store = table.open()
    lift(store)
    promote(store)
    found = table.vectors()
    assert not found[3].any() and not found[200].any() and len(found[3]) == SHARED
    np.testing.assert_array_equal(found[4], lifted(old[4])[0])
    assert table.run(KEPT["not null"]) == [(True,)]
    assert table.run(KEPT["checks"]) == []
    store.close()


def test_an_application_without_an_index_has_none_afterwards(table):
    table.create(vectors(ROWS))
    before = table.run(KEPT["indexes"])
    store = table.open()
    lift(store)
    store.build_index(VECTOR.name)
    promote(store)
    assert table.run(KEPT["indexes"]) == before
    assert store.describe().indexed == ()
    store.close()


def test_the_old_index_stands_until_the_new_one_does(table):
    table.create(vectors(ROWS))
    table.index()
    table.run("ALTER TABLE items ADD COLUMN second vector(3)")
    table.run("CREATE INDEX second ON items USING hnsw (second vector_l2_ops)")
    store = table.open(vector="vector")
    lift(store)
    seen = []

    def working(rows):
        # Only while all are shown: later on the table is ours.
        if not seen:
            seen.extend(
                table.run(
                    "SELECT c.relname, i.indisvalid, pg_get_indexdef(c.oid) FROM pg_index i "
                    "JOIN pg_class c ON c.oid = i.indexrelid "
                    "WHERE i.indrelid = 'items'::regclass AND NOT i.indisprimary"
                )
            )
        return work(rows)

    promote(store, working)
    assert len(seen) == 3 and all(valid for _, valid, _ in seen)
    assert {"items_vector", "second"} < {name for name, _, _ in seen}
    assert [name for (name, _) in table.run(KEPT["indexes"])] == [
        "items_pkey",
        "items_vector",
        "second",
    ]
    store.close()


def test_withdrawn_it_is_as_if_it_had_never_begun(table):
    old = table.create(vectors(ROWS))
    table.index()
    before = table.run(KEPT["indexes"])
    store = table.open()
    lift(store)
    # Where none was begun, nothing happens.
    store.withdraw(VECTOR.name)

    class Stopped(Exception):
        pass

    def working(rows):
        raise Stopped

    with pytest.raises(Stopped):
        promote(store, working)
    assert len(table.run(KEPT["indexes"])) == len(before) + 1
    store.withdraw(VECTOR.name)
    store.withdraw(VECTOR.name)
    assert table.run(KEPT["indexes"]) == before
    kept = table.vectors()
    assert all(np.array_equal(kept[i], old[i]) for i in range(ROWS))
    assert table.run("SELECT count(*) FROM pg_attribute WHERE attrelid = 'items'::regclass "
                     "AND attname LIKE 'crossfade%'") == [(0,)]  # fmt: skip
    # The table beside is the rollback's affair, and a promote can be begun again.
    assert store.tally(STATE.name) == {"forward": ROWS}
    promote(store)
    ended(table, dict(enumerate(old)))
    with pytest.raises(StoreError, match="gone already"):
        store.withdraw(VECTOR.name)
    # The next migration of the table begins anew.
    store.close()
    again = table.open()
    again.add_columns([VECTOR, STATE])
    again.withdraw(VECTOR.name)
    again.drop_columns(NAMES)
    again.close()


def test_vectors_written_after_a_promote_was_cut_short_are_the_ones_that_count(table):
    old = table.create(vectors(ROWS))
    store = table.open()
    lift(store)

    def working(rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        promote(store, working)
    # The application changed rows, and they were lifted anew; others were erased.
    changed = vectors(20, seed=9)
    for i in range(20):
        table.change(i, changed[i])
    store.write(work(store.read(list(range(20)), COLUMNS)))
    table.run("UPDATE items SET vector = NULL WHERE id = 30")
    store.erase(store.read([30], []).select(["id", "crossfade_token"]))
    promote(store)
    ended(table, dict(enumerate([*changed, *old[20:]])) | {30: None})
    store.close()


@pytest.mark.parametrize("kind", ["text", "uuid", "smallint"])
def test_other_ids(table, kind):
    old = vectors(60)
    table.create(old)
    make = {"text": "'it''s ' || id", "uuid": "md5(id::text)::uuid", "smallint": "id::smallint"}
    table.run(f"ALTER TABLE items ALTER id TYPE {kind} USING {make[kind]}")
    table.index()
    store = table.open()
    lift(store)
    promote(store)
    found = table.run("SELECT body, vector::text FROM items")
    for body, vector in found:
        key = int(body.removeprefix("text "))
        numbers = np.array([float(x) for x in vector.strip("[]").split(",")], np.float32)
        np.testing.assert_array_equal(numbers, lifted(old[key])[0])
    store.close()
