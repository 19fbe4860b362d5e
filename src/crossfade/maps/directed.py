"""A map with a direction: it knows the space it reads, and refuses vectors of the other one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossfade.errors import BadRow
from crossfade.maps import Map, Mlp, Orthogonal
from crossfade.spaces import FINGERPRINT_SAMPLE, Side, inverse_norms, refuse_bad_rows

# Rows per step, so that a step's input and output stay in the processor's cache.
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, eq=False)
class Directed:
    """A map from one model's space (`reads`) to the shared space; `other` is the side it refuses.

    Where the side is L2-normalized, unit vectors go in and unit vectors come out: scores in the
    shared space are then cosines under any of a store's distance functions.
    """

    map: Map
    reads: Side
    other: Side

    def __call__(self, vectors: ArrayLike) -> NDArray[np.float32]:
        """Shared-space vectors: (rows, n) for an array of rows, (n,) for a single vector."""
        x = np.asarray(vectors)
        if x.dtype == np.float32 and x.shape == (self.reads.dim,) and type(self.map) is Orthogonal:
            return self._one_query(x)
        self.reads.check_shape(x, self.other)
        if x.ndim == 1:
            return np.asarray(self._rows(x[None])[0])
        self.reads.check_fingerprint(x[:FINGERPRINT_SAMPLE], self.other)
        return self._rows(x)

    def _one_query(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        # The path of every live query: nothing but the product and one length.
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            square = float(x.dot(x))
        if not 0.0 < square < np.inf:
            # Before the product, which warns of infinite values on its own.
            refuse_bad_rows(x[None], self.reads.name)
        y: NDArray[np.float32] = self.map.weight @ x  # type: ignore[union-attr]
        if self.reads.normalization == "l2":
            y *= 1.0 / square**0.5 if 0.0 < square < np.inf else inverse_norms(x[None], "")[0]
        return y

    def _rows(self, x: NDArray[np.floating]) -> NDArray[np.float32]:
        out = np.empty((len(x), self.map.out_dim), dtype=np.float32)
        widest = max(self.map.hidden) if isinstance(self.map, Mlp) else self.map.out_dim
        step = max(64, CHUNK_BYTES // (4 * max(self.reads.dim, widest)))
        for first in range(0, len(x), step):
            # A float64 beyond float32's range becomes infinite, and is then found as a bad row.
            with np.errstate(over="ignore"):
                part = np.ascontiguousarray(x[first : first + step], dtype=np.float32)
            try:
                self._chunk(part, out[first : first + step])
            except BadRow as error:
                raise error.moved(first) from None
        return out

    def _chunk(self, x: NDArray[np.float32], out: NDArray[np.float32]) -> None:
        scale = inverse_norms(x, self.reads.name)
        if self.reads.normalization == "none":
            self.map(x, out)
        elif isinstance(self.map, Orthogonal):
            # A rotation commutes with scaling and keeps lengths: one pass instead of three.
            self.map(x, out)
            out *= scale[:, None]
        else:
            self.map(x * scale[:, None], out)
            out *= inverse_norms(out, "shared")[:, None]
