"""A map with a direction: it knows the space it reads, and refuses vectors of the other one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossfade.errors import BadRow
from crossfade.maps import Affine, Map, Mlp, NearOrthogonal, Orthogonal
from crossfade.spaces import FINGERPRINT_SAMPLE, Side, inverse_norms
from crossfade.threads import in_parts

# Rows per step: enough for the product to run at full speed, few enough to stay near the processor.
CHUNK_BYTES = 4 << 20


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

    def unmapped(self, vectors: ArrayLike) -> NDArray[np.float32]:
        """The side's own vectors as the map would read them: checked and normalized, no more."""
        x = np.asarray(vectors)
        self.reads.check_shape(x, self.other)
        with np.errstate(over="ignore"):
            rows = np.atleast_2d(x).astype(np.float32)
        if x.ndim == 2:
            self.reads.check_fingerprint(rows[:FINGERPRINT_SAMPLE], self.other)
        scale = inverse_norms(rows, self.reads.name)
        if self.reads.normalization == "l2":
            rows *= scale[:, None]
        return rows if x.ndim == 2 else np.asarray(rows[0])

    def _one_query(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        # The path of every live query: nothing but the product and one length.
        # Of numpy's inner products only vdot keeps quiet when it overflows.
        square = float(np.vdot(x, x))
        if not 0.0 < square < np.inf:
            return np.asarray(self._rows(x[None])[0])
        y: NDArray[np.float32] = self.map.weight.dot(x)  # type: ignore[union-attr]
        if self.reads.normalization == "l2":
            np.multiply(y, square**-0.5, out=y)
        return y

    def _rows(self, x: NDArray[np.floating]) -> NDArray[np.float32]:
        out = np.empty((len(x), self.map.out_dim), dtype=np.float32)
        widest = max(self.map.hidden) if isinstance(self.map, Mlp) else self.map.out_dim
        step = max(64, CHUNK_BYTES // (4 * max(self.reads.dim, widest)))
        step = max(1, min(step, len(x)))

        def part(begin: int, end: int) -> None:
            # One buffer for all steps: fresh memory costs more to touch than to fill.
            rows = min(step, end - begin)
            wide = np.empty((rows, self.reads.dim + 1), np.float32) if self._biased else None
            for first in range(begin, end, step):
                last = min(first + step, end)
                # A float64 beyond float32's range becomes infinite, then found as a bad row.
                with np.errstate(over="ignore"):
                    some = np.ascontiguousarray(x[first:last], dtype=np.float32)
                try:
                    self._chunk(some, out[first:last], wide)
                except BadRow as error:
                    raise error.moved(first) from None

        # Threads cost more than they bring where there is one step to do.
        in_parts(len(x), part, threads=1 if len(x) < 2 * step else None)
        return out

    def _chunk(
        self, x: NDArray[np.float32], out: NDArray[np.float32], wide: NDArray[np.float32] | None
    ) -> None:
        scale = inverse_norms(x, self.reads.name)
        if self.reads.normalization == "none":
            self.map(x, out)
        elif isinstance(self.map, Orthogonal):
            # A rotation commutes with scaling and keeps lengths: one pass instead of three.
            self.map(x, out)
            out *= scale[:, None]
        elif wide is None:
            self.map(x * scale[:, None], out)
            out *= inverse_norms(out, "shared")[:, None]
        else:
            # The length is divided out in the end, so x need not be scaled: W x + ‖x‖ b points the
            # same way. The bias rides along as one more column of the product.
            wide = wide[: len(x)]
            wide[:, :-1] = x
            np.divide(1.0, scale, out=wide[:, -1])
            np.matmul(wide, self._with_bias, out=out)
            out *= inverse_norms(out, "shared")[:, None]

    @property
    def _biased(self) -> bool:
        unit = self.reads.normalization == "l2"
        return unit and isinstance(self.map, Affine | NearOrthogonal)

    @cached_property
    def _with_bias(self) -> NDArray[np.float32]:
        tensors = self.map.tensors()
        return np.concatenate([tensors["weight"].T, tensors["bias"][None]])
