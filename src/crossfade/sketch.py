"""A small memory of which rows an upgrade was fitted on.

Numbers measured on rows the fit has seen flatter it. An upgrade therefore keeps a bottom-k sketch:
the smallest of its rows' 64-bit hashes. A row whose hash is below the largest kept one was seen if,
and only if, its hash is there; so a few thousand hashes tell for any number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

SIZE = 4096
CHANCE = 0.01
Hashes = NDArray[np.uint64]
_TOGETHER = 1 << 22


def row_hashes(x: NDArray[np.floating]) -> Hashes:
    """One 64-bit number per row: equal rows, as float32, have equal ones.

    >>> a, b, c = row_hashes(np.array([[1.0, 2.0], [1.0, 2.0], [2.0, 1.0]]))
    >>> a == b, a == c
    (np.True_, np.False_)
    """
    out = np.empty(len(x), np.uint64)
    step = max(1, _TOGETHER // max(1, x.shape[1]))
    for first in range(0, len(x), step):
        # Adding zero makes −0 the same as 0.
        part = np.ascontiguousarray(x[first : first + step], dtype=np.float32) + np.float32(0)
        out[first : first + step] = bit_hashes(part.view(np.uint32))
    return out


def bit_hashes(words: NDArray[np.uint32]) -> Hashes:
    """One 64-bit number per row of words: equal rows have equal ones."""
    rng = np.random.default_rng(20251)
    weights = rng.integers(0, 2**63, size=words.shape[1], dtype=np.uint64) * np.uint64(2)
    # By a sum that makes no array of products on its way.
    out: Hashes = np.einsum("ij,j->i", words, weights + np.uint64(1))
    # The low bits of such a sum depend on the low bits of the numbers alone: mix them.
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        out ^= out >> np.uint64(shift)
        out *= np.uint64(factor)
    return out ^ (out >> np.uint64(31))


def sketch(parts: Iterable[Hashes]) -> Hashes:
    """The smallest `SIZE` hashes, ascending, of a stream of them."""
    kept = np.empty(0, np.uint64)
    for part in parts:
        kept = np.unique(np.concatenate([kept, part]))[:SIZE]
    return kept


@dataclass(frozen=True)
class Seen:
    """Of `rows` that the sketch can tell about, `seen` were fitted on."""

    seen: int
    rows: int

    @property
    def share(self) -> float:
        return self.seen / self.rows if self.rows else 0.0

    @property
    def overlap(self) -> bool:
        """More than the odd item that any two samples of real data have in common."""
        return self.share > CHANCE


def seen(kept: Hashes, x: NDArray[np.floating]) -> Seen:
    """How many of the rows of `x` the sketch knows.

    >>> x = np.arange(12.0).reshape(6, 2)
    >>> seen(sketch([row_hashes(x[:4])]), x)
    Seen(seen=4, rows=6)
    """
    hashes = row_hashes(x)
    if len(kept) >= SIZE:
        hashes = hashes[hashes <= kept[-1]]
    return Seen(int(np.isin(hashes, kept).sum()), len(hashes))
