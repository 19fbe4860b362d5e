"""What every store promises, as tests that any distribution can run on a store of its own.

    from crossfade.testing import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        def app(self, tmp_path):
            yield MyApp(tmp_path)

`app` is the application's side of the store (`crossfade.testing.App`): what it does to its own rows
with its own library. Each test begins with an empty store.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from crossfade.errors import BadInput, StoreError
from crossfade.files.arrow import to_arrow
from crossfade.stores import TOKEN, Column, Range, StepwiseSwitch, Store, open_store
from crossfade.stores.rows import matrix

Float = NDArray[np.float32]
ROWS, DIM, SHARED = 60, 6, 8
VECTOR = Column("crossfade_vector", "vector", SHARED)
STATE = Column("crossfade_state", "text")
PRINT = Column("crossfade_print", "integer")
ADDED = (VECTOR, STATE, PRINT)


class App(Protocol):
    """An application with a table of `id`, `body`, `kind` and old vectors."""

    address: str
    """The address of its store."""
    text_ids: tuple[str, ...]
    """Six ids for rows, and one that no row gets."""
    unit_length: bool
    """Whether the store keeps vectors at length one."""
    # An application may also have:
    #   key(n): the id that stands for the number n, where ids cannot be integers; those of larger
    #           numbers must sort behind;
    #   rounds: whether the store may round the last bits of a vector.

    def create(self, ids: list[Any], bodies: list[str], kinds: list[int], old: Float) -> None: ...
    def insert(self, ids: list[Any], bodies: list[str], kinds: list[int], old: Float) -> None: ...
    def change(self, key: Any, body: str, old: Float) -> None: ...
    def empty(self, key: Any) -> None: ...
    def delete(self, key: Any) -> None: ...
    def old(self) -> dict[Any, Float]: ...
    def close(self) -> None: ...


def nothing_to_write(rows: pa.RecordBatch) -> None:
    """For `promote`: of no row anything is to be written."""


def keys(app: App, numbers: Iterable[int]) -> list[Any]:
    """The ids that stand for these numbers."""
    return [getattr(app, "key", int)(number) for number in numbers]


def everyone(app: App) -> list[Any]:
    """The ids of all rows that each test begins with."""
    return keys(app, range(0, 2 * ROWS, 2))


def kinds(rows: int) -> list[int]:
    return [i % 3 for i in range(rows)]


def written(
    store: Store, ids: list[Any], *, seed: int = 1, state: str = "lifted", token: Any = None
) -> pa.RecordBatch:
    """A batch of added columns for these ids."""
    rng = np.random.default_rng(seed)
    columns = {
        store.id: pa.array(ids),
        VECTOR.name: to_arrow(rng.normal(size=(len(ids), SHARED)).astype(np.float32)),
        STATE.name: pa.array([state] * len(ids)),
        PRINT.name: pa.array(range(len(ids)), pa.int64()),
    }
    if token is not None:
        columns[TOKEN] = token
    return pa.RecordBatch.from_pydict(columns)


def assert_kept(app: App, found: Float, given: Float) -> None:
    """What was given is kept to the last bit, or at length one where the store keeps it so."""
    if app.unit_length or getattr(app, "rounds", False):
        if app.unit_length:
            given = given / np.linalg.norm(given, axis=-1, keepdims=True)
        np.testing.assert_allclose(found, given, rtol=1e-6, atol=1e-7)
    else:
        np.testing.assert_array_equal(found, given)


def brute_force(old: Float, query: Float, keep: NDArray[np.bool_]) -> list[int]:
    """Ids of the rows to keep, nearest first."""
    cosines = old @ query / np.linalg.norm(old, axis=1) / np.linalg.norm(query)
    cosines[~keep] = -np.inf
    return [2 * int(i) for i in np.argsort(-cosines)[: keep.sum()]]


class StoreContract:
    """Every statement here holds for every store."""

    @pytest.fixture
    def old(self) -> Float:
        return np.random.default_rng(0).normal(size=(ROWS, DIM)).astype(np.float32)

    @pytest.fixture
    def store(self, app: App, old: Float) -> Iterator[Store]:
        app.create(everyone(app), [f"text {i}" for i in range(ROWS)], kinds(ROWS), old)
        opened = open_store(app.address)
        yield opened
        opened.close()

    @pytest.fixture
    def added(self, store: Store) -> Store:
        store.add_columns(ADDED)
        return store

    def test_describes_itself(self, app: Any, store: Any) -> None:
        found = store.describe()
        assert (found.rows, found.dim, found.distance, found.id, found.vector) == (
            (ROWS, DIM, "cosine", store.id, store.vector)
        )
        assert {"body", "kind"} <= set(found.columns)
        assert found.id_type == ("text" if hasattr(app, "key") else "integer")
        assert found.added == ()

    @pytest.mark.parametrize("size", [1, 7, 1000])
    def test_streams_every_row_once_in_order_of_id(
        self, app: Any, store: Any, old: Any, size: Any
    ) -> None:
        batches = list(store.stream([store.vector, "body"], size=size))
        ids = [key for batch in batches for key in batch[store.id].to_pylist()]
        assert ids == everyone(app)
        assert max(map(len, batches)) <= size
        assert_kept(app, np.vstack([matrix(b[store.vector]) for b in batches]), old)
        assert batches[0]["body"][0].as_py() == "text 0"

    def test_streams_from_a_cursor_even_when_its_row_is_gone(self, app: Any, store: Any) -> None:
        gone, *left = keys(app, range(50, 2 * ROWS, 2))
        app.delete(gone)
        batches = list(store.stream([store.vector], after=gone, size=5))
        assert [k for b in batches for k in b[store.id].to_pylist()] == left

    def test_streams_rows_that_come_while_it_runs_or_leaves_them_whole(
        self, app: Any, store: Any, old: Any
    ) -> None:
        stream = store.stream([store.vector], size=10)
        seen = next(stream)[store.id].to_pylist()
        gone, late = keys(app, [30, 1001])
        app.delete(gone)
        app.insert([late], ["late"], [0], old[:1])
        seen += [key for batch in stream for key in batch[store.id].to_pylist()]
        assert gone not in seen
        assert set(seen) - {late} == set(everyone(app)) - {gone}
        assert len(seen) == len(set(seen))

    def test_reads_given_ids_in_their_order_without_those_that_are_gone(
        self, app: Any, store: Any, old: Any
    ) -> None:
        batch = store.read(keys(app, [44, 3, 0]), [store.vector, "body"])
        assert batch[store.id].to_pylist() == keys(app, [44, 0])
        assert_kept(app, matrix(batch[store.vector]), old[[22, 0]])
        assert len(store.read([], [store.vector])) == 0

    def test_text_ids_work_too(self, app: Any, old: Any) -> None:
        *ids, gone = app.text_ids
        app.create(ids, list("uvwxyz"), [0, 1, 2, 0, 1, 2], old[:6])
        store = open_store(app.address)
        assert store.describe().id_type == "text"
        found = [k for b in store.stream([store.vector], size=2) for k in b[store.id].to_pylist()]
        assert found == sorted(ids)
        rest = [k for b in store.stream([], after=ids[0], size=2) for k in b[store.id].to_pylist()]
        assert rest == sorted(ids)[sorted(ids).index(ids[0]) + 1 :]
        store.add_columns(ADDED)
        assert store.write(written(store, [ids[2], ids[4], gone])) == 2
        assert store.tally(STATE.name) == {None: 4, "lifted": 2}
        back = store.read([ids[2], ids[1]], [STATE.name])
        assert back[STATE.name].to_pylist() == ["lifted", None]
        hits = store.search(old[2], column=store.vector, k=1, where={"body": "w"})
        assert [h.id for h in hits] == [ids[2]]
        store.close()

    def test_added_columns_are_empty_then_written_then_read_back(
        self, app: Any, added: Any
    ) -> None:
        assert set(added.describe().added) == {c.name for c in ADDED}
        assert added.tally(STATE.name) == {None: ROWS}
        rows = written(added, keys(app, [0, 10, 20]))
        assert added.write(rows) == 3
        assert added.tally(STATE.name) == {None: ROWS - 3, "lifted": 3}
        back = added.read(keys(app, [10, 0, 2]), [VECTOR.name, STATE.name, PRINT.name])
        assert back[STATE.name].to_pylist() == ["lifted", "lifted", None]
        assert back[PRINT.name].to_pylist() == [1, 0, None]
        assert_kept(app, matrix(back[VECTOR.name])[:2], matrix(rows[VECTOR.name])[[1, 0]])
        assert not back[VECTOR.name][2].is_valid

    def test_writing_again_replaces(self, app: Any, added: Any) -> None:
        added.write(written(added, keys(app, [0, 10])))
        again = written(added, keys(app, [10]), seed=9, state="filled")
        assert added.write(again) == 1
        assert added.tally(STATE.name) == {None: ROWS - 2, "lifted": 1, "filled": 1}
        back = added.read(keys(app, [10]), [VECTOR.name])
        assert_kept(app, matrix(back[VECTOR.name]), matrix(again[VECTOR.name]))

    def test_adding_and_dropping_columns_twice_is_no_error(self, app: Any, added: Any) -> None:
        added.write(written(added, keys(app, [0])))
        added.add_columns(ADDED)
        assert added.tally(STATE.name) == {None: ROWS - 1, "lifted": 1}
        for _ in range(2):
            added.drop_columns([c.name for c in ADDED])
        assert added.describe().added == ()

    def test_nothing_of_the_application_is_changed(self, app: Any, added: Any, old: Any) -> None:
        added.write(written(added, everyone(app)))
        added.drop_columns([c.name for c in ADDED])
        kept = app.old()
        assert sorted(kept) == everyone(app)
        for i, vector in enumerate(old):
            assert_kept(app, kept[keys(app, [2 * i])[0]], vector)

    def test_rows_that_are_gone_do_not_come_back(self, app: Any, added: Any) -> None:
        app.delete(*keys(app, [10]))
        assert added.write(written(added, keys(app, [0, 10]))) == 1
        assert added.describe().rows == ROWS - 1
        assert sum(added.tally(STATE.name).values()) == ROWS - 1

    def test_a_row_that_changed_since_it_was_read_is_not_written(
        self, app: Any, added: Any, old: Any
    ) -> None:
        batch = added.read(keys(app, [0, 2, 4]), [added.vector])
        app.change(*keys(app, [2]), "other", old[5])
        rows = written(added, keys(app, [0, 2, 4]), token=batch[TOKEN])
        # A store may refuse the batch as a whole; what it may not do is write the changed row.
        assert added.write(rows) in (0, 2)
        assert added.read(keys(app, [2]), [STATE.name])[STATE.name].to_pylist() == [None]
        fresh = added.read(keys(app, [0, 2, 4]), [added.vector])
        assert added.write(written(added, keys(app, [0, 2, 4]), token=fresh[TOKEN])) == 3
        assert added.tally(STATE.name)["lifted"] == 3

    def test_a_row_deleted_since_it_was_read_is_not_written(self, app: Any, added: Any) -> None:
        batch = added.read(keys(app, [0, 2]), [added.vector])
        app.delete(*keys(app, [2]))
        assert added.write(written(added, keys(app, [0, 2]), token=batch[TOKEN])) in (0, 1)
        assert added.read(keys(app, [2]), [STATE.name])[STATE.name].to_pylist() == []

    def test_rows_that_come_later_have_nothing_in_added_columns(
        self, app: Any, added: Any, old: Any
    ) -> None:
        added.write(written(added, everyone(app)))
        app.insert(keys(app, [7, 9]), ["late", "later"], [0, 1], old[:2])
        assert added.tally(STATE.name) == {"lifted": ROWS, None: 2}

    def test_promoting_leaves_one_vector_column(self, app: Any, added: Any) -> None:
        rows = written(added, everyone(app))
        added.write(rows)
        stepwise = isinstance(added, StepwiseSwitch)
        assert not stepwise or added.own_vectors(VECTOR.name) == "old"
        name = added.promote(
            VECTOR.name, [STATE.name, PRINT.name], columns=(), work=nothing_to_write
        )
        assert (
            added.promote(VECTOR.name, [STATE.name, PRINT.name], columns=(), work=nothing_to_write)
            == name
        )
        assert not stepwise or added.own_vectors(VECTOR.name) == "new"
        added.close()
        again = open_store(app.address, vector=name)
        found = again.describe()
        assert (found.rows, found.dim, found.added) == (ROWS, SHARED, ())
        assert {"body", "kind"} <= set(found.columns)
        query = np.random.default_rng(9).normal(size=SHARED).astype(np.float32)
        hits = again.search(query, column=name, k=5, where={"kind": [0, 1, 2]}, columns=["body"])
        every = np.ones(ROWS, bool)
        assert [h.id for h in hits] == keys(
            app, brute_force(matrix(rows[VECTOR.name]), query, every)[:5]
        )
        assert hits[0].values["body"] == f"text {int(hits[0].id) // 2}"
        again.close()

    def test_a_shared_column_that_is_gone_is_an_error_of_ours(self, added: Any) -> None:
        # Whoever searches while a migration ends sees the columns go.
        query = np.ones(SHARED, np.float32)
        added.drop_columns([column.name for column in ADDED])
        with pytest.raises((BadInput, StoreError)):
            added.search(query, column=VECTOR.name, k=3)
        try:
            assert set(added.tally(STATE.name)) <= {None}
        except (BadInput, StoreError) as error:
            assert STATE.name in str(error) or added.name in str(error)

    def test_searches_the_old_vectors_like_brute_force(
        self, app: Any, store: Any, old: Any
    ) -> None:
        query = np.random.default_rng(5).normal(size=DIM).astype(np.float32)
        hits = store.search(query, column=store.vector, k=10, columns=["body"])
        expected = brute_force(old, query, np.ones(ROWS, bool))[:10]
        assert [hit.id for hit in hits] == keys(app, expected)
        best = old[expected[0] // 2]
        cosine = best @ query / np.linalg.norm(best) / np.linalg.norm(query)
        assert hits[0].score == pytest.approx(cosine, abs=1e-5)
        assert hits[0].values == {"body": f"text {expected[0] // 2}"}

    def test_hits_bring_their_id_along_where_it_is_asked_for(self, store: Any, old: Any) -> None:
        for columns in ([store.id], ["body", store.id]):
            hits = store.search(old[3], column=store.vector, k=2, columns=columns)
            assert [list(hit.values) for hit in hits] == [columns, columns]
            assert [hit.values[store.id] for hit in hits] == [hit.id for hit in hits]

    @pytest.mark.parametrize(
        "within",
        [Range(1, 2), Range(least=1), Range(most=1.5), Range(1, 1), Range(5, 9), Range(2, 1)],
    )
    def test_searches_with_a_range(self, app: Any, store: Any, old: Any, within: Any) -> None:
        query = np.random.default_rng(6).normal(size=DIM).astype(np.float32)
        values = np.array(kinds(ROWS), float)
        low = -np.inf if within.least is None else within.least
        high = np.inf if within.most is None else within.most
        hits = store.search(query, column=store.vector, k=ROWS, where={"kind": within})
        keep = (values >= low) & (values <= high)
        assert [hit.id for hit in hits] == keys(app, brute_force(old, query, keep))

    @pytest.mark.parametrize("ends", [(None, None), ("a", None), (True, 2), (float("nan"), 1)])
    def test_a_range_is_of_numbers(self, ends: Any) -> None:
        with pytest.raises(BadInput, match="a range from"):
            Range(*ends)

    @pytest.mark.parametrize(
        "where", [{"kind": 1}, {"kind": [0, 2]}, {"kind": 2, "body": "text 5"}]
    )
    def test_searches_with_a_filter(self, app: Any, store: Any, old: Any, where: Any) -> None:
        query = np.random.default_rng(6).normal(size=DIM).astype(np.float32)
        keep = np.isin(kinds(ROWS), where["kind"])
        if "body" in where:
            keep &= np.arange(ROWS) == 5
        hits = store.search(query, column=store.vector, k=ROWS, where=where)
        assert [hit.id for hit in hits] == keys(app, brute_force(old, query, keep))

    def test_searches_an_added_column_among_the_rows_that_have_it(
        self, app: Any, added: Any
    ) -> None:
        rows = written(added, keys(app, range(0, 40, 2)))
        added.write(rows)
        query = np.random.default_rng(7).normal(size=SHARED).astype(np.float32)
        hits = added.search(query, column=VECTOR.name, k=ROWS, where={"kind": [0, 1]})
        keep = np.isin(kinds(20), [0, 1])
        assert [h.id for h in hits] == keys(
            app, brute_force(matrix(rows[VECTOR.name]), query, keep)
        )

    def test_searches_the_rows_that_miss_an_added_column(
        self, app: Any, added: Any, old: Any
    ) -> None:
        added.write(written(added, everyone(app)))
        query = old[3]
        assert added.search(query, column=added.vector, k=5, missing=STATE.name) == []
        app.insert(keys(app, [7]), ["late"], [0], old[3:4])
        hits = added.search(query, column=added.vector, k=5, missing=STATE.name)
        assert [hit.id for hit in hits] == keys(app, [7])

    def test_an_index_finds_what_brute_force_finds(self, app: Any, added: Any) -> None:
        rows = written(added, everyone(app))
        added.write(rows)
        added.build_index(VECTOR.name)
        added.build_index(VECTOR.name)
        query = np.random.default_rng(8).normal(size=SHARED).astype(np.float32)
        hits = added.search(query, column=VECTOR.name, k=5)
        every = np.ones(ROWS, bool)
        assert [h.id for h in hits] == keys(
            app, brute_force(matrix(rows[VECTOR.name]), query, every)[:5]
        )

    def test_refuses_filters_that_are_not_there_or_not_values(self, store: Any) -> None:
        query = np.ones(DIM, np.float32)
        with pytest.raises(BadInput, match="nothing"):
            store.search(query, column=store.vector, k=1, where={"nothing": 1})
        with pytest.raises(BadInput, match="filter on 'kind'"):
            store.search(query, column=store.vector, k=1, where={"kind": object()})
        # A value is a value, never a piece of a statement.
        nasty = "x'); DROP TABLE items; --"
        assert store.search(query, column=store.vector, k=1, where={"body": nasty}) == []
        assert store.describe().rows == ROWS

    def test_keeps_values_across_openings(self, app: Any, store: Any) -> None:
        assert store.get("migration") is None
        store.put("migration", '{"stage": "started"}')
        store.put("other", "x")
        store.put("migration", '{"stage": "é"}')
        store.close()
        again = open_store(app.address)
        assert again.get("migration") == '{"stage": "é"}'
        again.put("migration", None)
        assert again.get("migration") is None
        assert again.get("other") == "x"
        again.close()

    def test_one_process_at_a_time_may_hold_it(self, app: Any, store: Any) -> None:
        with store.lock():
            second = open_store(app.address)
            with pytest.raises(StoreError, match="another process"), second.lock():
                pass
            second.close()
        with store.lock():
            pass

    def test_refuses_odd_names(self, app: Any, store: Any) -> None:
        with pytest.raises(BadInput):
            open_store(app.address, vector='em"bed; DROP')
        with pytest.raises(BadInput, match="no_such"):
            open_store(app.address, vector="no_such")

    def test_tells_its_statements(self, store: Any) -> None:
        told = store.statements(ADDED)
        assert set(told) == {"start", "forward", "backfill", "finish", "rollback"}
        assert all(told.values())
        assert VECTOR.name in " ".join(told["start"])
