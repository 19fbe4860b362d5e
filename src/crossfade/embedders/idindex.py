"""Which row of a file an id stands in."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crossfade.embedders.contract import Id
from crossfade.errors import BadInput, BadRow, EmbedderError, shortened

MISSING = -1
_ONCE = "keep one row for each id"


class IdIndex:
    """Ids sorted once and then searched, so that ten million of them take some 100 MB, not 1 GB.

    >>> index = IdIndex(pa.array(["b", "a"]), where="new.npz", column="ids")
    >>> index.rows(["a", "b", "c"]).tolist()
    [1, 0, -1]
    """

    def __init__(self, ids: pa.Array, *, where: object, column: str) -> None:
        self._where = where
        if ids.null_count:
            row = int(np.flatnonzero(np.asarray(ids.is_null()))[0])
            raise BadRow(row, "is null", where=where, side=column, step="give every row an id")
        if pa.types.is_integer(ids.type):
            self.text = False
        elif pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type):
            self.text = True
        else:
            raise BadInput(
                f"'{column}' holds {ids.type}", where=where, step="give whole numbers or strings"
            )
        order = pc.sort_indices(ids)
        # Arrow and Python sort strings alike: by code point.
        ids = ids.take(order)
        self._order = order.to_numpy().astype(np.int64)
        same = np.flatnonzero(np.asarray(pc.equal(ids[1:], ids[:-1])))
        if len(same):
            place = int(same[0])
            rows = sorted(self._order[place : place + 2].tolist())
            raise BadInput(
                f"id {shortened(ids[place].as_py())} stands in row {rows[0]} and in row {rows[1]}",
                where=where,
                step=_ONCE,
            )
        self._sorted: Any = _Strings(ids) if self.text else ids.to_numpy()

    def __len__(self) -> int:
        return len(self._order)

    def rows(self, ids: Sequence[Id]) -> NDArray[np.int64]:
        """The row of each id, or `MISSING`."""
        for one in ids:
            if isinstance(one, str) is not self.text:
                mine, yours = ("text", "numbers") if self.text else ("whole numbers", "text")
                raise EmbedderError(
                    f"its ids are {mine}, and {shortened(one)} is asked for as if they were "
                    f"{yours}",
                    where=self._where,
                    step="write the file with ids of the type that the store has",
                )
        return np.fromiter((self._row(one) for one in ids), np.int64, len(ids))

    def _row(self, one: Id) -> int:
        place = bisect_left(self._sorted, one)
        if place < len(self._sorted) and self._sorted[place] == one:
            return int(self._order[place])
        return MISSING


class _Strings(Sequence[str]):
    """An Arrow array of strings as Python sees a list of them."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, place: Any) -> Any:
        return self._values[place].as_py()
