"""What a migration needs of a vector store: the contract every store keeps.

A store is one table (collection, folder) of rows with an id, an old vector, and whatever else the
application keeps there. The application's own columns are never written. A migration adds columns
of its own, writes them in batches, and drops them again: how a store keeps an added column (in the
table, in a table beside it, as a named vector) is the store's own affair.

Rows may come, change and go at any time, for the application goes on. Every batch that is read
carries a `TOKEN`, which says what the store looked like; a write that hands the token back does not
touch rows that changed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.distance import Distance

Id = int | str
Where = Mapping[str, Any]
Work = Callable[[pa.RecordBatch], pa.RecordBatch | None]
"""Is shown rows as `Store.stream` gives them; makes what `Store.write` takes, of some of them."""
OwnVectors = Literal["old", "new", "neither"]
"""What an application finds by the name that it knows its vectors by: `neither` where they are not
all old and not all new, or where nothing has the name."""
Change = Callable[[str | None, float], str | None]
"""Makes of a value, and of the time in seconds, what is to be there instead."""

TOKEN = "crossfade_token"  # noqa: S105  (a version of a row, not a secret)
ROWS = 10_000


@dataclass(frozen=True)
class Column:
    """A column to add: a vector of `dim` float32, a text, or a 64-bit integer."""

    name: str
    kind: Literal["vector", "text", "integer"]
    dim: int = 0

    @property
    def arrow(self) -> pa.DataType:
        """
        >>> Column("shared", "vector", 3).arrow
        FixedSizeListType(fixed_size_list<item: float>[3])
        """
        if self.kind == "vector":
            return pa.list_(pa.float32(), self.dim)
        return pa.string() if self.kind == "text" else pa.int64()


@dataclass(frozen=True)
class Description:
    """What is known of a store without reading its rows; `added` are columns of `add_columns`."""

    kind: str
    name: str
    rows: int
    id: str
    id_type: Literal["integer", "text"]
    vector: str
    dim: int
    distance: Distance
    columns: tuple[str, ...]
    added: tuple[str, ...]
    indexed: tuple[str, ...]


@dataclass(frozen=True)
class Obstacle:
    """Something that `promote` would break or lose; `final` if nobody may wave it through, `rows`
    if it is the matter with rows, which come at any time: `verify` looks for it too."""

    cause: str
    final: bool = True
    rows: bool = False


@dataclass(frozen=True)
class Hit:
    """One result of a search: a higher score is nearer, whatever the distance."""

    id: Id
    score: float
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Compared:
    """Rows that either of two searches found, with what each query says of each of them.

    `old` and `backward` are similarities by a row's old vector, `shared` by its shared one, as
    scores of hits are; NaN where there is no such vector. `vectors` (rows, d) are the old vectors,
    zeros where there is none. `states` is what the rows' column tells.
    The scores of the hits themselves say nothing yet.
    """

    hits: list[Hit]
    old: NDArray[np.float64]
    backward: NDArray[np.float64]
    shared: NDArray[np.float64]
    vectors: NDArray[np.float32]
    states: list[str | None]


class Store(Protocol):
    """One table of a vector database."""

    kind: str
    name: str
    """How messages call it; holds no secret."""
    id: str
    vector: str
    distance: Distance

    def describe(self) -> Description:
        """Counts, dimension, distance and columns, as they are now."""
        ...

    def stream(
        self,
        columns: Sequence[str],
        *,
        after: Id | None = None,
        size: int = ROWS,
        missing: str | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows in ascending order of id, those after `after`, as (id, *columns, TOKEN).

        Each batch shows the rows as they are when it is read. Text ids sort by code point. Who asks
        for no columns wants ids: tokens may then be null, and fit no row.
        `missing` keeps rows that have nothing in that added column.
        """
        ...

    def read(self, ids: Sequence[Id], columns: Sequence[str]) -> pa.RecordBatch:
        """The rows of these ids that are there, in the order given, as (id, *columns, TOKEN)."""
        ...

    def add_columns(self, columns: Sequence[Column]) -> None:
        """Add columns, null in every row; those that are there already are left alone."""
        ...

    def drop_columns(self, names: Sequence[str]) -> None:
        """Drop columns that `add_columns` made; those that are not there are no error."""
        ...

    def write(self, rows: pa.RecordBatch) -> int:
        """Set added columns of given ids, all or nothing; gives the number of rows written.

        `rows` holds the id and every added column, and may hold TOKEN: then rows that changed
        since they were read are left alone. Rows that are gone do not come back.
        """
        ...

    def erase(self, rows: pa.RecordBatch) -> int:
        """Take the added columns from these rows, (id, TOKEN), as if they had never been written.

        Gives the number of rows; those that changed since they were read are left alone.
        """
        ...

    def tally(self, column: str) -> dict[str | None, int]:
        """How many rows hold each value of an added text column; None counts the rows without."""
        ...

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
        """The `k` nearest rows by a vector column, the application's or an added one.

        `where` keeps rows whose column equals a value, is one of a list or lies in a `Range`;
        `missing` keeps rows that have nothing in that added column. `columns` are what hits bring
        along: any column, vectors and added ones too.
        """
        ...

    def build_index(self, column: str) -> None:
        """Index a vector column for search, or do nothing where the store needs none."""
        ...

    def version(self) -> str | None:
        """A mark that is another one once any row has come, changed or gone.

        None where a store has no such thing, and one must look at the rows.
        """
        ...

    def activity(self) -> str | None:
        """As `version`, but a hint: it is cheap, may be late, and None means that nothing is known.

        A searcher looks for rows that came whenever it changes, and now and then anyway.
        """
        ...

    def duplicates(self) -> list[Id]:
        """Some ids that more than one row has; none where the store itself sees to it."""
        ...

    def obstacles(self) -> list[Obstacle]:
        """What stands in the way of `promote`: what hangs on the vector column and cannot be
        carried along, rights that are missing, rows that cannot be seen."""
        ...

    def promote(
        self, column: str, drop: Sequence[str], *, columns: Sequence[str], work: Work
    ) -> str:
        """Make an added vector column the only one, drop `drop`, and give the name it has then.

        Rows come and change meanwhile. `work` is shown rows as `stream` gives them, with `columns`,
        and makes what is to be written of those that need another vector. Every row that came or
        changed is shown to it before its old vector goes, so that none is lost. Killed at any
        point, it can be called again; until the old vectors go, `withdraw` undoes it.
        """
        ...

    def withdraw(self, column: str) -> None:
        """Undo a `promote` of `column` that was cut short; no error where none was begun.

        `StoreError` if old vectors are gone already, or rows would lose the only vector they have.
        """
        ...

    def get(self, key: str) -> str | None:
        """A value of the small key-value place that the store keeps for this table."""
        ...

    def put(self, key: str, value: str | None) -> None:
        """Set a value, durably, or remove it with None."""
        ...

    def lock(self) -> AbstractContextManager[None]:
        """Hold the store for one migration; `StoreError` if another process does.

        A process that dies lets go.
        """
        ...

    def statements(self, columns: Sequence[Column]) -> dict[str, list[str]]:
        """What each step of a migration will say to the store, for people to read beforehand."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


@runtime_checkable
class StepwiseSwitch(Store, Protocol):
    """A store whose `promote` drops the added column later than the vectors change places, so that
    the columns there are do not tell whether they have."""

    def own_vectors(self, column: str) -> OwnVectors:
        """Which vectors the application's own name stands for at this moment, by a look at what it
        would find; `new` where a `promote` of `column` has come to its end."""
        ...


@runtime_checkable
class WholeColumns(Store, Protocol):
    """A store that has a better way to write added columns for the first time than row by row."""

    def write_all(self, columns: Sequence[str], work: Work, *, size: int = ROWS) -> Iterator[int]:
        """Show `work` the rows that no added column was ever written of, and write what it makes.

        Yields after each batch how many rows have come to be written since the last time. Rows that
        change meanwhile may be shown twice, or left as they are. What was yielded stays, whenever
        it is stopped; what is left is done by calling it again.
        """
        ...


Spread = Callable[[Callable[[Any], Any], Sequence[Any]], Generator[Any, None, None]]
"""Has a function called with each of some parts by others, and gives what it made, in any order."""


@runtime_checkable
class SpreadColumns(Store, Protocol):
    """A store whose added columns others can write, each a part of the table, for it to commit."""

    def write_spread(
        self, columns: Sequence[str], work: Work, spread: Spread, *, size: int = ROWS
    ) -> Generator[tuple[int, int], None, None]:
        """As `WholeColumns.write_all`, with `work` done wherever `spread` has it done.

        Yields after each part how many rows were shown and how many written.
        """
        ...


@runtime_checkable
class TwoSided(Store, Protocol):
    """A store that asks two models at once, and compares what it finds with both queries."""

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
        """The `k` rows nearest to `old` by the old vectors, and the `k` nearest to `shared` by an
        added column; without `shared`, the `k` nearest to `backward` by the old vectors instead.

        What `search` finds for either, first the one's, then what the other adds, each in the order
        of its ranks. Rows are compared with all queries exactly. `state` is an added text column.
        """
        ...


@runtime_checkable
class RandomAccess(Store, Protocol):
    """A store that finds some rows by chance without going through all of them."""

    def draw(self, rows: int, seed: int) -> list[Id]:
        """Ids of so many rows, or of all there are, in a random order, each as likely as the
        others."""
        ...


@runtime_checkable
class Joinable(Store, Protocol):
    """A store that several processes may fill at a time: each of them a worker, with a mark.

    Who may do what is kept in values of the store, and agreed on by `change`.
    """

    def change(self, key: str, change: Change) -> str | None:
        """Put in the place of a value what `change` makes of it, as one step; gives what is there.

        The time that `change` is told is one for all workers: the server's, where it tells it.
        After a lost answer, or if another was quicker, `change` is asked again, of what is there
        then: it must see for itself whether its work is done.
        """
        ...

    def join(self, mark: str) -> AbstractContextManager[None]:
        """Hold the store as one of its workers; `StoreBusy` if another process holds it alone.

        A process that dies lets go.
        """
        ...

    def disown(self, mark: str) -> None:
        """Let a worker that is believed dead write nothing any more, should it wake up."""
        ...


@dataclass(frozen=True)
class Scratch:
    """A copy of a part of a store, to try something out on; `size` is what it takes, in bytes,
    with all that was added to it and all indexes."""

    store: Store
    size: Callable[[], int]


@runtime_checkable
class Copyable(Store, Protocol):
    """A store of which a part can be copied, for a migration to be tried out on the copy."""

    def scratch(self, rows: int) -> AbstractContextManager[Scratch | None]:
        """A store of the same kind in the same place, with copies of some rows; gone at the end.

        The store itself is read, and nothing else. None where there is no place for a copy.
        """
        ...
