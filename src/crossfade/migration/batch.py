"""One batch of a store's rows: what it holds, what is out of date in it, and what to write."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crossfade.badrows import bad_rows
from crossfade.files.arrow import to_arrow
from crossfade.migration.columns import (
    KNOWN,
    PRINT,
    REVISION,
    STATE,
    SUM,
    UPGRADE,
    VECTOR,
    State,
)
from crossfade.stores import TOKEN, Id, Store
from crossfade.stores.rows import id_list, matrix

Flags = NDArray[np.bool_]
_READ = tuple(name for name in KNOWN if name != SUM)
_MASK = (1 << 24) - 1
# Of the scaled products: what rounding can do to them, and less than a change does.
_NEAR, _CLOSE = 2, 20


def fingerprints(old: NDArray[np.float32], sources: Sequence[Any] | None) -> NDArray[np.int64]:
    """One number per row that tells its old vector and source from others (see `differ`).

    Stores that compare by cosine may keep vectors at length one, and round the last bit anew
    whenever they touch them: a hash of the bits would see changes where there are none. So the
    number holds two products of the vector with fixed random ones, 24 bits each, and 16 bits of a
    hash of the source.

    >>> one, two = fingerprints(np.ones((2, 3), np.float32), ["a", "b"])
    >>> bool(differ(one, two))
    True
    """
    products = _products(old, 2, 1e5) & _MASK
    out = (products[:, 0] << 24) | products[:, 1]
    if sources is not None:
        texts = [hashlib.blake2b(repr(s).encode(), digest_size=2).digest() for s in sources]
        out |= np.frombuffer(b"".join(texts), np.int16).astype(np.int64) << 48
    return out


def differ(a: Any, b: Any) -> Any:
    """Which fingerprints are of different vectors or sources.

    >>> x = np.eye(2, 8, dtype=np.float32)
    >>> differ(fingerprints(x, None), fingerprints(x * np.float32(1.0000001), None)).tolist()
    [False, False]
    >>> differ(fingerprints(x, None), fingerprints(x[::-1], None)).tolist()
    [True, True]
    """
    out = (a >> 48) != (b >> 48)
    for shift in (0, 24):
        apart = ((a >> shift) - (b >> shift)) & _MASK
        out = out | (np.minimum(apart, _MASK + 1 - apart) > _NEAR)
    return out


def checksums(shared: NDArray[np.float32]) -> NDArray[np.int64]:
    """One number per shared vector: its product with a fixed random one, in millionths."""
    return np.asarray(_products(shared, 1, 1e6)[:, 0])


def damaged(sums: NDArray[np.int64], shared: NDArray[np.float32]) -> Flags:
    """Rows whose vector is not the one its checksum was made of.

    >>> x = np.eye(2, 8, dtype=np.float32)
    >>> damaged(checksums(x), x * np.float32(1.0000001)).tolist()
    [False, False]
    >>> damaged(checksums(x), x[::-1]).tolist()
    [True, True]
    """
    return np.asarray(np.abs(sums - checksums(shared)) > _CLOSE)


def _products(x: NDArray[np.float32], count: int, scale: float) -> NDArray[np.int64]:
    """Of the directions alone: float32 is exact enough for them, whatever the lengths are."""
    weights = np.random.default_rng(20252).normal(size=(count, x.shape[1])).astype(np.float32)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        lengths = np.sqrt(np.vecdot(x, x))
        found = x @ weights.T / lengths[:, None] * np.float32(scale)
        whole = np.rint(np.nan_to_num(found, posinf=0.0, neginf=0.0))
    return np.asarray(whole, np.int64)


@dataclass(frozen=True, eq=False)
class Batch:
    """Rows as they were read."""

    store: Store
    rows: pa.RecordBatch
    source: str | None
    old: NDArray[np.float32]
    prints: NDArray[np.int64]

    @classmethod
    def of(cls, store: Store, rows: pa.RecordBatch, source: str | None) -> Batch:
        """`source` is the text column named at start, which the fingerprints are made of too."""
        old = matrix(rows[store.vector])
        sources = None if source is None else rows[source].to_pylist()
        return cls(store, rows, source, old, fingerprints(old, sources))

    @staticmethod
    def columns(store: Store, source: str | None) -> list[str]:
        """What has to be read of the store for a batch."""
        return [store.vector, *([] if source is None else [source]), *_READ]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def ids(self) -> list[Id]:
        return id_list(self.rows[self.store.id])

    @property
    def unusable(self) -> Flags:
        """Rows whose old vector is missing, zero or not finite: nothing can be made of them."""
        out = ~self.rows[self.store.vector].is_valid().to_numpy(zero_copy_only=False)
        out[list(bad_rows(self.old))] = True
        return np.asarray(out)

    def state(self, value: State) -> Flags:
        """Rows in this state."""
        return _equal(self.rows[STATE], value)

    @property
    def changed(self) -> Flags:
        """Rows with another old vector or source than the one their shared vector comes from."""
        known = self.rows[PRINT].is_valid().to_numpy(zero_copy_only=False)
        return np.asarray(known & differ(_integers(self.rows[PRINT]), self.prints))

    def stale(self, upgrade: str) -> Flags:
        """Rows that have no shared vector, or one of another upgrade, or of what they were."""
        return np.asarray(~_equal(self.rows[UPGRADE], upgrade) | self.changed)

    def revisions(self, *, late: bool) -> NDArray[np.int64]:
        """How often each row's source has changed, this time counted in.

        A row that is found without a record after all were lifted (`late`) came since or, where a
        store forgets what was added to a row that is written anew, has changed since.
        """
        came = self.rows[PRINT].is_null().to_numpy(zero_copy_only=False) & late
        return np.asarray(_integers(self.rows[REVISION]) + self.changed + came)

    def take(self, keep: Flags) -> Batch:
        """Some of the rows."""
        if keep.all():
            return self
        rows = self.rows.filter(pa.array(keep))
        return Batch(self.store, rows, self.source, self.old[keep], self.prints[keep])

    def written(
        self, shared: NDArray[np.float32], state: State, upgrade: str, *, late: bool
    ) -> pa.RecordBatch:
        """The rows to write: these shared vectors, and all that is to be known of them."""
        count = len(self)
        return pa.RecordBatch.from_pydict(
            {
                self.store.id: self.rows[self.store.id],
                VECTOR: to_arrow(np.ascontiguousarray(shared, np.float32)),
                STATE: pa.repeat(pa.scalar(state), count),
                UPGRADE: pa.repeat(pa.scalar(upgrade), count),
                PRINT: pa.array(self.prints),
                SUM: pa.array(checksums(shared)),
                REVISION: pa.array(self.revisions(late=late)),
                TOKEN: self.rows[TOKEN],
            }
        )


def _equal(column: pa.Array, value: str) -> Flags:
    found = pc.equal(column, value).fill_null(False)
    return np.asarray(found.to_numpy(zero_copy_only=False))


def _integers(column: pa.Array) -> NDArray[np.int64]:
    return np.asarray(column.fill_null(0).to_numpy(zero_copy_only=False), np.int64)
