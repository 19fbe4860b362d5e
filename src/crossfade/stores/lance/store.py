"""LanceDB: a Lance table in a folder, the default store; needs no server.

Added columns are columns of the table, null until written: the first time fragment by fragment
(`lance_columns`), then in batches with `merge_insert` from the version they were read at. Lance
refuses the commit if any of these rows was changed or deleted in between, and the batch is read
again. Old versions keep what they held, so readers that have the table open are not disturbed.

`promote` first lets the two vector columns change names (`lance_swap`), in one commit. From then on
the application cannot write old vectors, while those it wrote are all there, under another name:
what came late is lifted from them, and only then they go. In between, this store shows the columns
under the names they had, so nobody need know.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crossfade.distance import Distance
from crossfade.errors import BadInput, MissingExtra, StoreError
from crossfade.files.arrow import is_vector_type
from crossfade.remote import is_remote, to_path
from crossfade.stores.contract import (
    ROWS,
    TOKEN,
    Column,
    Compared,
    Description,
    Hit,
    Id,
    Obstacle,
    OwnVectors,
    Scratch,
    Spread,
    Where,
    Work,
)
from crossfade.stores.lance.columns import can_write_columns, spread_columns, write_columns
from crossfade.stores.lance.fragments import (
    SPARE,
    discard,
    enter_moved,
    is_conflict,
    is_cut_off,
    looked_up,
    tidy,
)
from crossfade.stores.lance.schema import (
    indexed,
    is_text,
    listed,
    literal,
    quoted,
    statements,
    the_id,
    the_vector,
    translate_errors,
)
from crossfade.stores.lance.strays import Strays
from crossfade.stores.lance.swap import Swap, last_swapped, swapped_in
from crossfade.stores.lance.writes import write_batch
from crossfade.stores.ledger import Ledger
from crossfade.stores.locking import folder_lock
from crossfade.stores.names import PREFIX, Range, check_name, check_where
from crossfade.stores.rows import id_list, in_order, matrix, one_batch, score, similarities
from crossfade.stores.scratch import folder_beside, folder_bytes
from crossfade.stores.values import FileValues, beside
from crossfade.threads import at_once

# Below this many rows a scan is as fast as an index and exact.
_INDEX_FROM_ROWS = 50_000
# An index knows vectors by a byte a number: twice as many as wanted are compared in full. Rows that
# pass a filter may be in any partition, and so many are gone through, all of our own indexes.
_REFINE, _PARTITIONS = 2, 256
# Of a table that an application writes old vectors to all the time.
_PASSES = 100
_TRIES = 20
# Seconds that an append of others, begun before a column was dropped, is waited for.
_UNDER_WAY = 0.3
_NAMED = 10
_COMPARED = 1 << 20
# What is remembered of a table's files from one look at it to the next, at most.
_METADATA_BYTES = 128 << 20
# Ids that are in memory at a time to be put in order, and how many tell where they are cut.
_SORTED, _SAMPLED = 1 << 23, 10_000


def _repeated(ids: pa.Array) -> list[Id]:
    """Those of ids in order that more than one row has.

    >>> _repeated(pa.array([1, 2, 2, 2, 3]))
    [2]
    """
    same = pc.equal(ids.slice(1), ids.slice(0, max(0, len(ids) - 1)))
    return id_list(pc.unique(ids.slice(1).filter(same)))


def _all_of(*conditions: str | None) -> str | None:
    return " AND ".join(one for one in conditions if one is not None) or None


def ledger_of(path: Path) -> Ledger | None:
    """What is kept of a table in an object store; it is next to it, and no table to LanceDB."""
    if not is_remote(path):
        return None
    return Ledger(path.with_name(f".{path.name}.crossfade"), str(path))


class LanceStore:
    """A table of a LanceDB folder."""

    kind = "lancedb"

    def __init__(
        self,
        path: str | Path,
        *,
        id: str | None = None,
        vector: str | None = None,
        distance: Distance | None = None,
    ) -> None:
        self.path = to_path(path)
        self.name = str(self.path)
        self._moved, self._index_from = 0, _INDEX_FROM_ROWS
        self._session: tuple[int, Any] = (0, None)
        self._ledger = ledger_of(self.path)
        self._values = self._ledger or FileValues(self._beside("json"))
        if not (self.path / "_versions").is_dir():
            raise BadInput("is not a LanceDB table", where=path, step="name DIR/TABLE.lance")
        schema = self._now().schema
        self.id = check_name(id or the_id(schema, self.name), "column")
        self.vector = check_name(vector or the_vector(schema, self.name), "column")
        for name in (self.id, self.vector):
            if name not in schema.names:
                raise BadInput(f"has no column {name!r}", where=path, step=listed(schema))
        kind = schema.field(self.id).type
        if not (pa.types.is_integer(kind) or is_text(kind)):
            raise BadInput(f"ids are {kind}", where=path, step="use integer or text ids")
        self._text_ids = is_text(kind)
        if not is_vector_type(schema.field(self.vector).type):
            raise BadInput(f"{self.vector!r} holds no vectors", where=path, step=listed(schema))
        self.distance: Distance = distance or self._index_distance() or "cosine"

    def describe(self) -> Description:
        dataset = self._now()
        swap = swapped_in(dataset.schema, self.vector)
        names = tuple(swap.shown(name) for name in dataset.schema.names)
        kind = dataset.schema.field(swap.kept(self.vector)).type
        if not pa.types.is_fixed_size_list(kind):
            raise BadInput(
                f"{self.vector!r} is a list of any length",
                where=self.name,
                step="make it a list of a fixed size",
            )
        with translate_errors(self.name):
            rows, covered = dataset.count_rows(), indexed(dataset)
        return Description(
            kind=self.kind,
            name=self.name,
            rows=rows,
            id=self.id,
            id_type="text" if self._text_ids else "integer",
            vector=self.vector,
            dim=kind.list_size,
            distance=self.distance,
            columns=tuple(n for n in names if not n.startswith(PREFIX)),
            added=tuple(n for n in names if n.startswith(PREFIX)),
            indexed=tuple(sorted(swap.shown(name) for name in covered)),
        )

    def stream(
        self,
        columns: Sequence[str],
        *,
        after: Id | None = None,
        size: int = ROWS,
        missing: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        dataset = self._now()
        nothing = None if missing is None else self._missing(dataset, missing)
        later = None if after is None else f"{quoted(self.id)} > {literal(after)}"
        for ids in self._ids_in_order(dataset, _all_of(nothing, later)):
            for first in range(0, len(ids), size):
                last = min(first + size, len(ids)) - 1
                low, high = literal(ids[first].as_py()), literal(ids[last].as_py())
                between = f"{quoted(self.id)} >= {low} AND {quoted(self.id)} <= {high}"
                table = self._read(_all_of(between, nothing) or between, columns)
                if len(table):
                    yield one_batch(table.take(pc.sort_indices(table[self.id])))

    def read(self, ids: Sequence[Id], columns: Sequence[str]) -> pa.RecordBatch:
        wanted = ", ".join(literal(key) for key in ids) if ids else "NULL"
        return in_order(self._read(f"{quoted(self.id)} IN ({wanted})", columns), self.id, ids)

    def add_columns(self, columns: Sequence[Column]) -> None:
        def add(dataset: Any) -> None:
            there = {swapped_in(dataset.schema, self.vector).shown(n) for n in dataset.schema.names}
            missing = [c for c in columns if c.name not in there]
            if missing:
                fields = [pa.field(check_name(c.name), c.arrow) for c in missing]
                dataset.add_columns(pa.schema(fields))

        self._alter(add)

    def drop_columns(self, names: Sequence[str]) -> None:
        def drop(dataset: Any) -> None:
            there = [name for name in names if name in dataset.schema.names]
            if there:
                dataset.drop_columns(there)

        self._alter(drop)

    def write(self, rows: pa.RecordBatch) -> int:
        if not len(rows):
            return 0
        self._check_lease()
        dataset = self._now()
        if TOKEN in rows.schema.names:
            with translate_errors(self.name):
                dataset = dataset.checkout_version(rows[TOKEN][0].as_py())
            rows = rows.drop_columns([TOKEN])
        swap = swapped_in(dataset.schema, self.vector)
        rows = rows.rename_columns([swap.kept(name) for name in rows.schema.names])
        key = dataset.schema.field(self.id).type
        rows = rows.set_column(
            rows.schema.get_field_index(self.id), self.id, rows[self.id].cast(key)
        )
        with translate_errors(self.name):
            written = write_batch(dataset, self.path, self.id, rows)
        self._tidy(SPARE)
        self._moved += written
        with translate_errors(self.name):
            if enter_moved(self._now(), self._moved):
                self._moved = 0
        return written

    def erase(self, rows: pa.RecordBatch) -> int:
        dataset = self._now()
        swap = swapped_in(dataset.schema, self.vector)
        nothing = {
            swap.shown(f.name): pa.nulls(len(rows), f.type)
            for f in dataset.schema
            if swap.shown(f.name).startswith(PREFIX)
        }
        return self.write(
            pa.RecordBatch.from_pydict({self.id: rows[self.id], **nothing, TOKEN: rows[TOKEN]})
        )

    def write_all(self, columns: Sequence[str], work: Work, *, size: int = ROWS) -> Iterator[int]:
        dataset = self._now()
        added = [name for name in dataset.schema.names if name.startswith(PREFIX)]
        if can_write_columns(dataset):
            with translate_errors(self.name):
                yield from write_columns(self._now, self.path, self.id, added, columns, work, size)

    def write_spread(
        self, columns: Sequence[str], work: Work, spread: Spread, *, size: int = ROWS
    ) -> Generator[tuple[int, int], None, None]:
        dataset = self._now()
        added = [name for name in dataset.schema.names if name.startswith(PREFIX)]
        if can_write_columns(dataset):
            with translate_errors(self.name):
                yield from spread_columns(
                    self._now, self._remove_files, self.id, added, columns, work, size, spread
                )

    def _remove_files(self, prefix: str, but: set[str]) -> None:
        """Data files whose names begin so, but for those that the table has."""
        written = {path.name for path in (self.path / "data").glob(f"{prefix}*")}
        discard(str(self.path), self.path, written - but)

    def tally(self, column: str) -> dict[str | None, int]:
        dataset = self._now()
        with translate_errors(self.name):
            values = dataset.to_table(columns=[column])[column]
        return {v["values"]: v["counts"] for v in values.value_counts().to_pylist()}

    def search(
        self,
        query: NDArray[np.float32],
        *,
        column: str,
        k: int,
        where: Where | None = None,
        missing: str | None = None,
        columns: Sequence[str] = (),
    ) -> list[Hit]:
        brought = [name for name in columns if name != self.id]
        found = self._nearest(self._now(), query, column, k, where, missing, brought)
        values = [column.to_pylist() for column in found.columns]
        hits = []
        for key, *row, distance in zip(*values, strict=True):
            known = {self.id: key} | dict(zip(brought, row, strict=True))
            along = {name: known[name] for name in columns}
            hits.append(Hit(key, score(self.distance, distance), along))
        return hits

    def search_both(
        self,
        old: NDArray[np.float32],
        backward: NDArray[np.float32],
        shared: NDArray[np.float32] | None,
        *,
        column: str,
        state: str,
        k: int,
        where: Where | None = None,
        columns: Sequence[str] = (),
    ) -> Compared:
        dataset = self._now()
        lifted = shared is not None
        needed = [self.vector, *([column, state] if lifted else []), *columns]
        brought = [name for name in dict.fromkeys(needed) if name != self.id]
        asked = [(old, self.vector), (backward, self.vector)]
        if shared is not None:
            asked[1] = (shared, column)

        # Vectors come along as they lie in memory; to look rows up by id is to go through all ids.
        # And they are compared here: an index need not compare twice as many before.
        def near(side: tuple[NDArray[np.float32], str]) -> pa.Table:
            return self._nearest(dataset, *side, k, where, None, brought, refine=None)

        parts = at_once(lambda: near(asked[0]), lambda: near(asked[1]))
        names = [self.id, *brought, "_distance"]
        found = pa.concat_tables(part.rename_columns(names) for part in parts)
        first: dict[Id, int] = {}
        for row, key in enumerate(found[self.id].to_pylist()):
            first.setdefault(key, row)
        found = found.take(pa.array(list(first.values()), pa.int64()))
        kept = [found[name].to_pylist() for name in columns]
        return Compared(
            hits=[
                Hit(key, 0.0, dict(zip(columns, (values[row] for values in kept), strict=True)))
                for row, key in enumerate(first)
            ],
            old=self._compare(old, found[self.vector]),
            backward=self._compare(backward, found[self.vector]),
            shared=np.full(len(first), np.nan)
            if shared is None
            else self._compare(shared, found[column]),
            vectors=matrix(found[self.vector])
            if found[self.vector].null_count < len(first)
            else np.zeros((len(first), len(old)), np.float32),
            states=found[state].to_pylist() if lifted else [None] * len(first),
        )

    def _compare(self, query: NDArray[np.float32], column: pa.ChunkedArray) -> NDArray[np.float64]:
        """Similarities; NaN where there is no vector."""
        there = column.is_valid().to_numpy(zero_copy_only=False)
        if not there.any():
            return np.full(len(there), np.nan)
        found = np.asarray(similarities(self.distance, matrix(column), query), np.float64)
        return np.where(there, found, np.nan)

    def _nearest(
        self,
        dataset: Any,
        query: NDArray[np.float32] | None,
        column: str,
        k: int,
        where: Where | None,
        missing: str | None,
        columns: Sequence[str],
        *,
        refine: int | None = _REFINE,
    ) -> pa.Table:
        """The nearest rows as (id, *columns, _distance), under the names that the table has."""
        terms = []
        for name, values in check_where(where, tuple(dataset.schema.names)).items():
            if isinstance(values, Range):
                # A filter compares a column with numbers of its own kind alone.
                if pa.types.is_integer(dataset.schema.field(name).type):
                    values = values.whole()
                terms += [f"{quoted(name)} {sign} {literal(end)}" for sign, end in values.ends]
            else:
                terms.append(f"{quoted(name)} IN ({', '.join(map(literal, values))})")
        if missing is not None:
            terms.append(self._missing(dataset, missing))
        swap = swapped_in(dataset.schema, self.vector)
        nearest: dict[str, Any] = {
            "column": swap.kept(column),
            "q": np.asarray(query, np.float32),
            "k": k,
        }
        nearest |= {"metric": self.distance, "refine_factor": refine}
        if terms:
            nearest["minimum_nprobes"] = _PARTITIONS
        with translate_errors(self.name):
            return dataset.scanner(
                nearest=nearest,
                # Rows without a vector are left out by the search itself.
                filter=" AND ".join(terms) or None,
                prefilter=True,
                columns=[self.id, *(swap.kept(name) for name in columns), "_distance"],
            ).to_table()

    def build_index(self, column: str) -> None:
        self._tidy()
        dataset = self._now()
        column = swapped_in(dataset.schema, self.vector).kept(column)
        with translate_errors(self.name):
            rows = dataset.count_rows(f"{quoted(column)} IS NOT NULL")
        if rows < self._index_from:
            return
        with translate_errors(self.name):
            dataset.create_index(
                column,
                "IVF_HNSW_SQ",
                metric=self.distance,
                num_partitions=max(1, round(math.sqrt(rows) / 32)),
                replace=True,
            )

    def version(self) -> str | None:
        return str(self._now().version)

    def activity(self) -> str | None:
        return self.version()

    def duplicates(self) -> list[Id]:
        twice = set[Id]()
        for ids in self._ids_in_order(self._now()):
            # A piece at a time, and those that are equal side by side: counting takes ten times
            # the memory of the ids themselves.
            for first in range(0, len(ids), _COMPARED):
                twice.update(_repeated(ids.slice(first, _COMPARED + 1)))
                if len(twice) >= _NAMED:
                    return sorted(twice)[:_NAMED]
        return sorted(twice)

    def _ids_in_order(self, dataset: Any, kept: str | None = None) -> Iterator[pa.Array]:
        """The ids of all rows, or of those that are kept, in order: a range of them at a time, so
        that a hundred million take no more memory than a few. Rows without an id are an obstacle,
        and none of them."""
        name, cuts = quoted(self.id), self._cuts(dataset)
        for low, high in zip([None, *cuts], [*cuts, None], strict=True):
            above = None if low is None else f"{name} >= {low}"
            below = None if high is None else f"{name} < {high}"
            yield self._sorted_ids(dataset, _all_of(above, below, kept))

    def _cuts(self, dataset: Any) -> list[str]:
        """Where the ids are cut into ranges of about as many rows, by a sample of them."""
        with translate_errors(self.name):
            ranges = math.ceil((rows := dataset.count_rows()) / _SORTED)
            if ranges < 2:
                return []
            some = np.linspace(0, rows - 1, _SAMPLED).astype(np.int64)
            sample = dataset.take(some.tolist(), columns=[self.id])[self.id].drop_null()
        sample = sample.take(pc.sort_indices(sample))
        places = (len(sample) * i // ranges for i in range(1, ranges))
        return [literal(sample[at].as_py()) for at in places]

    def _sorted_ids(self, dataset: Any, kept: str | None) -> pa.Array:
        with translate_errors(self.name):
            found = dataset.to_table(columns=[self.id], filter=kept)[self.id].drop_null()
        if not pa.types.is_integer(found.type):
            ids = found.combine_chunks()
            return ids.take(pc.sort_indices(ids))
        # In place: every copy of them counts.
        numbers = found.to_numpy()
        if not numbers.flags.writeable:
            numbers = numbers.copy()
        del found
        numbers.sort()
        return pa.array(numbers)

    def draw(self, rows: int, seed: int) -> list[Id]:
        dataset, rng = self._now(), np.random.default_rng(seed)
        with translate_errors(self.name):
            total = dataset.count_rows()
            places = rng.choice(total, min(rows, total), replace=False)
            found = dataset.take(np.sort(places).tolist(), columns=[self.id])[self.id].to_pylist()
        return [found[at] for at in rng.permutation(len(found)) if found[at] is not None]

    def obstacles(self) -> list[Obstacle]:
        """Nothing hangs on a column of a Lance table but its index, and the new one has its own.
        But a row without an id could not be told from another."""
        dataset = self._now()
        with translate_errors(self.name):
            nameless = dataset.count_rows(f"{quoted(self.id)} IS NULL")
        return [Obstacle(f"{nameless:,} rows have no id", rows=True)] if nameless else []

    def promote(
        self, column: str, drop: Sequence[str], *, columns: Sequence[str], work: Work
    ) -> str:
        dataset = self._now()
        swap = swapped_in(dataset.schema, self.vector)
        if column in dataset.schema.names:
            swap = Swap(self.vector, column)
            renames = swap.renames()

            def exchange(dataset: Any) -> None:
                # A first try whose answer was lost may have done it.
                if swapped_in(dataset.schema, self.vector).column is None:
                    dataset.alter_columns(*renames)

            self._alter(exchange)
        if swap.column is None:
            # Killed behind the drop, perhaps: what came just before it is in the version before.
            last = last_swapped(self._now, self.path, Swap(self.vector, column))
            left = self._mend(last, columns, work)
        else:
            seen = self._settle(columns, work)
            last = self._drop_old(swap, drop)
            left = self._mend(last, columns, work) if last is not None and last > seen else set()
        left |= self._gather(last, columns, work)
        self._tidy()
        if left:
            raise StoreError(
                "rows that came in the moment of the switch have no vector, and no id of their "
                f"own: {', '.join('none' if key is None else repr(key) for key in left)}",
                where=self.name,
                step="delete them, or give them an id and the new model's vector, then finish "
                "again",
            )
        return self.vector

    def _drop_old(self, swap: Swap, drop: Sequence[str]) -> int | None:
        """Drop the old vectors, which are aside; gives the last version that had them."""
        last: int | None = None

        def act(dataset: Any) -> None:
            nonlocal last
            there = [name for name in (swap.aside, *drop) if name in dataset.schema.names]
            if there:
                dataset.drop_columns(there)
                last = int(dataset.version) - 1

        self._alter(act)
        return last_swapped(self._now, self.path, swap) if last is None else last

    def withdraw(self, column: str) -> None:
        dataset = self._now()
        swap = swapped_in(dataset.schema, self.vector)
        if swap.column is None:
            if column not in dataset.schema.names:
                raise StoreError("the old vectors are gone", where=self.name)
            return
        newer = dataset.count_rows(
            f"{quoted(self.vector)} IS NOT NULL AND {quoted(swap.aside)} IS NULL "
            f"AND {quoted(self._state_of(dataset))} IS NULL"
        )
        if newer:
            raise StoreError(
                f"{newer:,} rows were written with new vectors since the switch, and have no other",
                where=self.name,
                step="finish, or delete these rows first",
            )

        def back(dataset: Any) -> None:
            if swapped_in(dataset.schema, self.vector).column is None:
                return
            # A row of ours without a vector: the application has taken it away since.
            emptied = (
                f"{quoted(self.vector)} IS NULL AND {quoted(swap.aside)} IS NOT NULL "
                f"AND {quoted(self._state_of(dataset))} IS NOT NULL"
            )
            if dataset.count_rows(emptied):
                dataset.update({swap.aside: "NULL"}, where=emptied)
            dataset.alter_columns(*swap.reversed())

        self._alter(back)

    def own_vectors(self, column: str) -> OwnVectors:
        """By Lance's own names: what is shown of a swapped table is as it was before."""
        names = self._now().schema.names
        return "old" if column in names else "new"

    def _alter(self, act: Callable[[Any], object]) -> Any:
        """Change the columns of the table as it is now; again, if others wrote at the same time.

        Gives the table as it was after that. What was done and not told is not done twice: `act`
        looks first.
        """
        tried = 0
        while True:
            self._check_lease()
            dataset = self._now()
            try:
                with translate_errors(self.name):
                    act(dataset)
                return dataset
            except StoreError as error:
                tried += 1
                if not (is_conflict(error) or is_cut_off(error)) or tried == _TRIES:
                    raise
                time.sleep(0.02 * tried)

    def _state_of(self, dataset: Any) -> str:
        """Any added column that is no vector: rows of ours have something in it."""
        return next(
            str(f.name)
            for f in dataset.schema
            if f.name.startswith(PREFIX) and not is_vector_type(f.type)
        )

    def _settle(self, columns: Sequence[str], work: Work) -> int:
        """Show every row to `work` until it has nothing to do; gives the version of that look."""
        for _ in range(_PASSES):
            version, idle = self._now().version, True
            for rows in self.stream(columns):
                # What is written by an id goes to every row that has it; a batch holds them all.
                self._refuse_repeated(_repeated(rows[self.id]))
                made = work(rows)
                if made is not None:
                    idle = False
                    self.write(made)
            if idle:
                self._refuse_nameless()
                # Those that came behind the look, beside rows that it had passed already.
                if self._now().version != version:
                    self._refuse_repeated(self.duplicates())
                return int(version)
        raise StoreError(
            "rows change faster than they can be written",
            where=self.name,
            step="finish again when the table is calmer",
        )

    def _refuse_repeated(self, twice: Sequence[Id]) -> None:
        """While the old vectors are all there, and it can be rolled back."""
        if twice:
            raise StoreError(
                f"several rows have the same id: {', '.join(map(repr, twice[:_NAMED]))}",
                where=self.name,
                step="keep one row of each id, then finish again, or rollback",
            )

    def _refuse_nameless(self) -> None:
        for found in self.obstacles():
            raise StoreError(
                found.cause,
                where=self.name,
                step="give them ids of their own, then finish again, or rollback",
            )

    def _mend(self, version: int | None, columns: Sequence[str], work: Work) -> set[Id | None]:
        """Give rows that came in the instant before the drop the vectors that are theirs.

        In the version before it they are as they were, old vector and all. Gives the ids of those
        that cannot be told from others.
        """
        left = set[Id | None]()
        if version is None:
            return left
        before = self._now().checkout_version(version)
        swap = swapped_in(before.schema, self.vector)
        wanted = list(dict.fromkeys([self.id, *columns]))
        with translate_errors(self.name):
            for rows in before.to_batches(
                columns=[swap.kept(name) for name in wanted], batch_size=ROWS
            ):
                token = pa.array(np.full(len(rows), version, np.int64))
                made = work(rows.rename_columns(wanted).append_column(TOKEN, token))
                if made is not None:
                    left |= self._replace(before, made.select([self.id, str(swap.column)]))
        return left

    def _gather(self, version: int | None, columns: Sequence[str], work: Work) -> set[Id | None]:
        """Give rows their vectors that were being appended while the old column went: for a
        moment, until what was under way has ended. Gives what `_mend` does."""
        left = set[Id | None]()
        if version is None:
            return left
        before = self._now().checkout_version(version)
        strays, until = Strays(before, self.path, self.vector), time.monotonic() + _UNDER_WAY
        wanted = list(dict.fromkeys([self.id, *columns]))
        ended = False
        while not ended:
            ended, now = time.monotonic() >= until, self._now()
            with translate_errors(self.name):
                for rows in strays.find(now, wanted, ROWS):
                    token = pa.array(np.full(len(rows), now.version, np.int64))
                    made = work(rows.append_column(TOKEN, token))
                    if made is not None:
                        made = made.select([self.id, str(strays.swap.column)])
                        left |= self._replace(before, made)
            if not ended:
                time.sleep(0.05)
        return left

    def _replace(self, before: Any, rows: pa.RecordBatch) -> set[Id | None]:
        """Set the vectors of rows that have the one they had before; others are the application's
        own by now. Gives the ids of those without one that have none of their own."""
        keys, table = rows[self.id].to_pylist(), self._now()
        ids = ", ".join(literal(key) for key in keys if key is not None) or "NULL"
        condition = f"{quoted(self.id)} IN ({ids})"
        if None in keys:
            condition += f" OR {quoted(self.id)} IS NULL"
        was, now = self._vectors(before, condition), self._vectors(table, condition)
        given = Counter(keys)
        # By its id a vector would go to all rows that have it.
        same = [
            key is not None
            and given[key] == len(now[key]) == 1
            and now[key] == (was[key] or [None])
            for key in keys
        ]
        late = rows.filter(pa.array(same))
        if len(late):
            kind = table.schema.field(self.id).type
            late = pa.table({self.id: late[self.id].cast(kind), self.vector: late[1]})
            table.merge_insert(self.id).when_matched_update_all().execute(late)
        return {key for key in keys if (key is None or len(now[key]) > 1) and None in now[key]}

    def _vectors(self, dataset: Any, condition: str) -> defaultdict[Id | None, list[Any]]:
        """The vectors of the rows that meet a condition, by their ids."""
        found = dataset.to_table(columns=[self.id, self.vector], filter=condition)
        out = defaultdict[Id | None, list[Any]](list)
        for key, vector in zip(*(found[n].to_pylist() for n in found.column_names), strict=True):
            out[key].append(vector)
        return out

    def get(self, key: str) -> str | None:
        return self._values.get(key)

    def put(self, key: str, value: str | None) -> None:
        self._values.put(key, value)

    @contextmanager
    def scratch(self, rows: int) -> Iterator[Scratch | None]:
        if is_remote(self.path):
            yield None
            return
        import lance

        with folder_beside(self.path) as folder:
            dataset = self._now()
            with translate_errors(self.name):
                lance.write_dataset(
                    dataset.scanner(limit=rows).to_reader(),
                    folder / "items.lance",
                    data_storage_version=dataset.data_storage_version,
                )
            store = LanceStore(
                folder / "items.lance", id=self.id, vector=self.vector, distance=self.distance
            )
            # Of few rows none would be built, and of as many as are meant there is one.
            store._index_from = 0
            yield Scratch(store, lambda: folder_bytes(folder))

    @contextmanager
    def lock(self) -> Iterator[None]:
        if self._ledger is not None:
            with self._ledger.lease():
                yield
            return
        with folder_lock(self._beside("lock"), self.name):
            FileValues(self._beside("json")).clean()
            yield

    def _check_lease(self) -> None:
        """Before anything is written: who has slept past its lease must not go on as if."""
        if self._ledger is not None:
            self._ledger.check()

    def statements(self, columns: Sequence[Column]) -> dict[str, list[str]]:
        return statements(self.id, self.vector, self.distance, columns, _INDEX_FROM_ROWS)

    def close(self) -> None:
        """Nothing is held open."""

    def _now(self) -> Any:
        """The table as it is at this moment, with all that anyone has written.

        What does not change is kept from one look to the next: to read an index again for every
        search would take twenty times as long as to search it.
        """
        try:
            import lance
        except ImportError as error:
            raise MissingExtra("pylance", extra="lance", need="a LanceDB store") from error
        process, session = self._session
        if process != os.getpid():
            # A parent's may be in the middle of something that its threads will never end here.
            session = lance.Session(  # type: ignore[attr-defined]
                metadata_cache_size_bytes=_METADATA_BYTES
            )
            self._session = (os.getpid(), session)
        with translate_errors(self.name):
            return looked_up(lambda: lance.dataset(str(self.path), session=session))

    def _tidy(self, spare: int = 0) -> None:
        dataset = self._now()
        with translate_errors(self.name):
            tidy(dataset, spare)

    def _missing(self, dataset: Any, column: str) -> str:
        return f"{quoted(swapped_in(dataset.schema, self.vector).kept(column))} IS NULL"

    def _read(self, condition: str, columns: Sequence[str]) -> pa.Table:
        dataset = self._now()
        swap = swapped_in(dataset.schema, self.vector)
        wanted = list(dict.fromkeys([self.id, *columns]))
        with translate_errors(self.name):
            table = dataset.to_table(columns=[swap.kept(n) for n in wanted], filter=condition)
        table = table.rename_columns(wanted)
        return table.append_column(TOKEN, pa.array(np.full(len(table), dataset.version, np.int64)))

    def _beside(self, what: str) -> Path:
        """A file of ours next to the table, so that the table's own folder stays Lance's."""
        return beside(self.path, what)

    def _index_distance(self) -> Distance | None:
        dataset = self._now()
        with translate_errors(self.name):
            for index in dataset.describe_indices():
                if self.vector in index.field_names:
                    found = dataset.stats.index_stats(index.name)["indices"]
                    name = str(found[0].get("metric_type", "")) if found else ""
                    known: dict[str, Distance] = {"cosine": "cosine", "l2": "l2", "dot": "dot"}
                    return known.get(name)
        return None
