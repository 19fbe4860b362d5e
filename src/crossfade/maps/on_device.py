"""A map on a torch device, fed so that the bus is never idle.

A batch goes up from pinned memory on one stream, is mapped on a second and comes down into pinned
memory on a third: while one is mapped, the next goes up and the one before comes down. Numbers
cross the bus as they are stored; float16 becomes float32 and float16 again on the device. What the
device cannot map (a NaN, a zero row, a number too large for its type) is left to the map on the
CPU, which says why.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from crossfade.maps import Mlp, Orthogonal
from crossfade.maps.directed import Directed
from crossfade.spaces import FINGERPRINT_SAMPLE
from crossfade.threads import cores

IN_FLIGHT = 3
"""Batches on their way: one going up, one mapped, one coming down."""
# One thread copies at a fraction of what a bus carries.
_COPIERS = max(1, min(8, cores() // 2))


@dataclass(frozen=True, eq=False)
class Flight:
    """A batch on its way. `result` waits for it; None is a batch for the CPU to look at."""

    mapped: torch.Tensor
    good: torch.Tensor
    landed: torch.cuda.Event | None

    def result(self) -> NDArray[Any] | None:
        """The mapped rows. The array keeps its pinned memory until it is let go."""
        if self.landed is not None:
            self.landed.synchronize()
        return self.mapped.numpy() if bool(self.good) else None


class DeviceMap:
    """B or F on `device`; cpu is torch's own CPU, which does the same without streams.

    >>> from crossfade.spaces import Side
    >>> side = Side("new", 2, "l2", np.zeros(2, np.float32))
    >>> turn = Directed(Orthogonal(np.array([[0, -1], [1, 0]], np.float32)), side, side)
    >>> DeviceMap(turn, "cpu").send(np.array([[3, 4]], np.float32), np.dtype("f2")).result()
    array([[-0.8,  0.6]], dtype=float16)
    """

    def __init__(self, directed: Directed, device: str) -> None:
        self.directed, self.device = directed, torch.device(device)
        self._cuda = self.device.type == "cuda"
        self._copiers = ThreadPoolExecutor(_COPIERS)
        self._up, self._work, self._down = (self._stream() for _ in range(3))
        self._tensors = {
            name: torch.from_numpy(np.ascontiguousarray(value)).to(self.device)
            for name, value in directed.map.tensors().items()
        }

    def _stream(self) -> torch.cuda.Stream | None:
        return torch.cuda.Stream(self.device) if self._cuda else None  # type: ignore[no-untyped-call]

    def send(self, vectors: NDArray[Any], dtype: np.dtype[Any]) -> Flight:
        """Rows (m, d) on their way to become (m, n) of `dtype`."""
        reads, other = self.directed.reads, self.directed.other
        reads.check_shape(vectors, other)
        reads.check_fingerprint(vectors[:FINGERPRINT_SAMPLE], other)
        staged = self._staged(vectors)
        with self._on(self._up):
            x = staged.to(self.device, non_blocking=True)
        self._follow(self._work, self._up, x)
        with self._on(self._work):
            y, good = self._map(x, _as_torch(dtype))
        self._follow(self._down, self._work, y, good)
        with self._on(self._down):
            if not self._cuda:
                return Flight(y, good, None)
            landed = torch.cuda.Event()  # type: ignore[no-untyped-call]
            mapped, told = (torch.empty(t.shape, dtype=t.dtype, pin_memory=True) for t in (y, good))
            mapped.copy_(y, non_blocking=True)
            told.copy_(good, non_blocking=True)
            landed.record(self._down)
        return Flight(mapped, told, landed)

    def _staged(self, vectors: NDArray[Any]) -> torch.Tensor:
        """A copy of the rows in memory the device can read by itself.

        torch keeps such memory for the next batch of its size once nothing reads it any more.
        """
        staged = torch.empty(vectors.shape, dtype=_as_torch(vectors.dtype), pin_memory=self._cuda)
        into = staged.numpy()
        step = -(-len(vectors) // _COPIERS) or 1
        starts = range(0, len(vectors), step)
        list(
            self._copiers.map(
                lambda first: np.copyto(into[first : first + step], vectors[first : first + step]),
                starts,
            )
        )
        return staged

    def _map(self, x: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """The rows mapped, and whether every one of them is what the CPU would have made of it."""
        unit = self.directed.reads.normalization == "l2"
        x = x.float()
        lengths = x.norm(dim=1, keepdim=True)
        y = self._product(x / lengths if unit else x)
        if unit and not isinstance(self.directed.map, Orthogonal):
            y = y / y.norm(dim=1, keepdim=True)
        y = y.to(dtype)
        finite = torch.isfinite(lengths).all() & (lengths > 0).all()
        return y, finite & torch.isfinite(y).all()

    def _product(self, x: torch.Tensor) -> torch.Tensor:
        t = self._tensors
        set_by_user = torch.get_float32_matmul_precision()
        # In full float32, whatever the process has set for speed.
        torch.set_float32_matmul_precision("highest")
        try:
            if not isinstance(self.directed.map, Mlp):
                return torch.nn.functional.linear(x, t["weight"], t.get("bias"))
            h, last = x, len(self.directed.map.layers) - 1
            for i in range(last + 1):
                h = torch.nn.functional.linear(h, t[f"layers.{i}.weight"], t[f"layers.{i}.bias"])
                h = h.relu() if i < last else h
            if "skip.weight" in t:
                h = h + torch.nn.functional.linear(x, t["skip.weight"], t["skip.bias"])
            return h
        finally:
            torch.set_float32_matmul_precision(set_by_user)

    def _on(self, stream: torch.cuda.Stream | None) -> AbstractContextManager[Any]:
        return nullcontext() if stream is None else torch.cuda.stream(stream)

    def _follow(
        self,
        stream: torch.cuda.Stream | None,
        before: torch.cuda.Stream | None,
        *tensors: torch.Tensor,
    ) -> None:
        """What `stream` does next waits for `before`, whose tensors it uses."""
        if stream is None or before is None:
            return
        stream.wait_stream(before)
        for tensor in tensors:
            tensor.record_stream(stream)


def _as_torch(dtype: np.dtype[Any]) -> torch.dtype:
    return torch.from_numpy(np.empty(0, dtype.newbyteorder("="))).dtype
