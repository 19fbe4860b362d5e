"""One batch of a store's rows: what it holds, what is out of date in it, and what to write."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crossfade.files.arrow import to_arrow
from crossfade.journal.columns import (
    FORMER,
    KNOWN,
    PRINT,
    REVISION,
    SOURCE,
    STATE,
    SUM,
    UPGRADE,
    VECTOR,
    State,
)
from crossfade.stores import TOKEN, Column, Id
from crossfade.stores.rows import id_list, matrix, unusable

Flags = NDArray[np.bool_]
_READ = tuple(name for name in KNOWN if name != SUM)
_MASK = (1 << 24) - 1
_LENGTHS = (1 << 16) - 1
# Of the scaled products and of the length: what rounding can do to them, and less than a change.
_NEAR, _CLOSE = 2, 20
# Steps of the length's logarithm: a change by a thousandth is four of them.
_STEPS = 4096
_LEAST = 1e-30


def fingerprints(old: NDArray[np.float32]) -> NDArray[np.int64]:
    """One number per row that tells its old vector from others (see `differ`).

    Stores that compare by cosine may keep vectors at length one, and round the last bit anew
    whenever they touch them: a hash of the bits would see changes where there are none. So the
    number holds two products of the vector's direction with fixed random ones, 24 bits each, and
    16 bits of the logarithm of its length.

    >>> one, two = fingerprints(np.array([[1, 1], [2, 2]], np.float32))
    >>> bool(differ(one, two))
    True
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        squares = np.vecdot(old, old)
        products = _products(old, 2, 1e5, squares) & _MASK
        wide = squares.astype(np.float64)
        # Beyond the range of float32, and near its end, where digits are lost.
        odd = ~((squares > _LEAST) & (squares < np.inf))
        wide[odd] = np.vecdot(old[odd], old[odd], dtype=np.float64)
        lengths = np.log(wide) * (_STEPS / 2)
        steps = np.rint(np.nan_to_num(lengths, posinf=0.0, neginf=0.0)).astype(np.int64)
    return np.asarray((steps << 48) | (products[:, 0] << 24) | products[:, 1])


def source_prints(sources: Sequence[Any]) -> NDArray[np.int64]:
    """63 bits of a hash of each row's source: of a million changes not one is missed.

    >>> one, two = source_prints(["a", "b"])
    >>> bool(one == two)
    False
    """
    hashes = (hashlib.blake2b(repr(s).encode(), digest_size=8).digest() for s in sources)
    return np.frombuffer(b"".join(hashes), np.int64) >> 1


def differ(a: Any, b: Any) -> Any:
    """Which fingerprints are of different vectors.

    >>> x = np.eye(2, 8, dtype=np.float32)
    >>> differ(fingerprints(x), fingerprints(x * np.float32(1.0000001))).tolist()
    [False, False]
    >>> differ(fingerprints(x), fingerprints(x[::-1])).tolist()
    [True, True]
    """
    out = np.zeros(np.broadcast(a, b).shape, bool)
    for shift, mask in ((0, _MASK), (24, _MASK), (48, _LENGTHS)):
        apart = ((a >> shift) - (b >> shift)) & mask
        out = out | (np.minimum(apart, mask + 1 - apart) > _NEAR)
    return out


def checksums(shared: NDArray[np.float32]) -> NDArray[np.int64]:
    """One number per shared vector: its product with a fixed random one, in millionths."""
    return np.asarray(_products(shared, 1, 1e6, np.vecdot(shared, shared))[:, 0])


def damaged(sums: NDArray[np.int64], shared: NDArray[np.float32]) -> Flags:
    """Rows whose vector is not the one its checksum was made of.

    >>> x = np.eye(2, 8, dtype=np.float32)
    >>> damaged(checksums(x), x * np.float32(1.0000001)).tolist()
    [False, False]
    >>> damaged(checksums(x), x[::-1]).tolist()
    [True, True]
    """
    return np.asarray(np.abs(sums - checksums(shared)) > _CLOSE)


def _products(
    x: NDArray[np.float32], count: int, scale: float, squares: NDArray[np.float32]
) -> NDArray[np.int64]:
    """Of the directions alone: float32 is exact enough for them, whatever the lengths are."""
    weights = np.random.default_rng(20252).normal(size=(count, x.shape[1])).astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        # Row by row: a product of so few columns is not worth BLAS's threads, which spin after it.
        products = np.stack([np.vecdot(x, one) for one in weights], axis=1)
        found = products / np.sqrt(squares)[:, None] * np.float32(scale)
        whole = np.rint(np.nan_to_num(found, posinf=0.0, neginf=0.0))
    return np.asarray(whole, np.int64)


class Named(Protocol):
    """What has to be known of a store to read its batches: how it calls ids and old vectors."""

    @property
    def id(self) -> str: ...
    @property
    def vector(self) -> str: ...


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows as they were read."""

    store: Named
    rows: pa.RecordBatch
    old: NDArray[np.float32]
    prints: NDArray[np.int64]
    sources: NDArray[np.int64] | None
    """Fingerprints of the text column that was named at start; None if none was."""

    @classmethod
    def of(cls, store: Named, rows: pa.RecordBatch, source: str | None) -> Batch:
        old = matrix(rows[store.vector])
        sources = None if source is None else source_prints(rows[source].to_pylist())
        return cls(store, rows, old, fingerprints(old), sources)

    @staticmethod
    def columns(store: Named, source: str | None) -> list[str]:
        """What has to be read of the store for a batch."""
        return [store.vector, *([] if source is None else [source]), *_READ]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ids(self) -> list[Id]:
        return id_list(self.rows[self.store.id])

    @cached_property
    def unusable(self) -> Flags:
        """Rows whose old vector is missing, zero or not finite: nothing can be made of them."""
        return unusable(self.rows[self.store.vector], self.old)

    @property
    def known(self) -> Flags:
        """Rows that were written by a migration."""
        return np.asarray(self.rows[UPGRADE].is_valid().to_numpy(zero_copy_only=False))

    @property
    def emptied(self) -> Flags:
        """Rows that have a shared vector, and had an old one when it was made, but no more."""
        return np.asarray(self.known & self.unusable)

    @property
    def late(self) -> Flags:
        """Rows that have none though one could be made."""
        return np.asarray(~self.known & ~self.unusable)

    def state(self, value: State) -> Flags:
        """Rows in this state."""
        former = [text for text, state in FORMER.items() if state == value]
        return _equal(self.rows[STATE], value) | _equal(self.rows[STATE], former[0])

    @property
    def changed(self) -> Flags:
        """Rows with another old vector or source than the one their shared vector comes from."""
        out = self._valid(PRINT) & differ(_integers(self.rows[PRINT]), self.prints)
        if self.sources is not None:
            out |= self._valid(SOURCE) & (_integers(self.rows[SOURCE]) != self.sources)
        return np.asarray(out)

    def stale(self, upgrade: str) -> Flags:
        """Rows that have no shared vector, or one of another upgrade, or of what they were."""
        return np.asarray(~_equal(self.rows[UPGRADE], upgrade) | self.changed)

    def revisions(self, *, late: bool) -> NDArray[np.int64]:
        """How often each row's source has changed, this time counted in.

        A row that is found without a record after all were lifted (`late`) came since or, where a
        store forgets what was added to a row that is written anew, has changed since.
        """
        came = ~self._valid(PRINT) & late
        return np.asarray(_integers(self.rows[REVISION]) + self.changed + came)

    def take(self, keep: Flags) -> Batch:
        """Some of the rows."""
        if keep.all():
            return self
        return Batch(
            self.store,
            self.rows.filter(pa.array(keep)),
            self.old[keep],
            self.prints[keep],
            None if self.sources is None else self.sources[keep],
        )

    def written(
        self, shared: NDArray[np.float32], state: State, upgrade: str, *, late: bool
    ) -> pa.RecordBatch:
        """The rows to write: these shared vectors, and all that is to be known of them."""
        count = len(self)
        sources = pa.nulls(count, pa.int64()) if self.sources is None else pa.array(self.sources)
        return pa.RecordBatch.from_pydict(
            {
                self.store.id: self.rows[self.store.id],
                VECTOR: to_arrow(np.ascontiguousarray(shared, np.float32)),
                STATE: pa.repeat(pa.scalar(state), count),
                UPGRADE: pa.repeat(pa.scalar(upgrade), count),
                PRINT: pa.array(self.prints),
                SOURCE: sources,
                SUM: pa.array(checksums(shared)),
                REVISION: pa.array(self.revisions(late=late)),
                TOKEN: self.rows[TOKEN],
            }
        )

    def cleared(self, columns: Sequence[Column]) -> pa.RecordBatch:
        """The rows to write so that they have no shared vector any more."""
        return pa.RecordBatch.from_pydict(
            {
                self.store.id: self.rows[self.store.id],
                **{c.name: pa.nulls(len(self), c.arrow) for c in columns},
                TOKEN: self.rows[TOKEN],
            }
        )

    def marks(self) -> pa.RecordBatch:
        """Ids and tokens alone: what `Store.erase` takes."""
        return self.rows.select([self.store.id, TOKEN])

    def _valid(self, column: str) -> Flags:
        return np.asarray(self.rows[column].is_valid().to_numpy(zero_copy_only=False))


def _equal(column: pa.Array, value: str) -> Flags:
    found = pc.equal(column, value).fill_null(False)
    return np.asarray(found.to_numpy(zero_copy_only=False))


def _integers(column: pa.Array) -> NDArray[np.int64]:
    return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
