"""The counting of `ranking` on a torch device: the same ranks, from a GPU's product.

Sorting whole rows is what a GPU does badly. Here each score looks up its place among the few
relevant scores of its row, and a histogram of those places, summed from the top, gives the counts.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from crossfade.distance import Distance
from crossfade.retrieval.ranking import Counted, refuse_overflow
from crossfade.retrieval.relevance import NONE, Block, Index

# Scores, their places (int64) and what torch keeps in between, for one chunk.
_CHUNK_SCORES = 1 << 27


class TorchEngine:
    """Products and counts on `device`, in float32."""

    def __init__(
        self,
        queries: NDArray[np.floating],
        gallery: NDArray[np.floating],
        own: Index | None,
        distance: Distance = "cosine",
        device: str = "cpu",
    ) -> None:
        self.device = torch.device(device)
        g = torch.from_numpy(np.ascontiguousarray(gallery, dtype=np.float32)).to(self.device)
        if queries is gallery:
            q = g
        else:
            q = torch.from_numpy(np.ascontiguousarray(queries, dtype=np.float32)).to(self.device)
        self.queries, self.gallery = _comparable(q, g, distance)
        self.own = own

    def chunk_rows(self) -> int:
        return max(1, min(_CHUNK_SCORES // len(self.gallery), len(self.queries)))

    def count(self, first: int, last: int, block: Block) -> Counted:
        rows = last - first
        scores = exact_product(self.queries[first:last], self.gallery)
        query = np.repeat(np.arange(rows), block.counts)
        column = np.arange(len(query)) - np.repeat(block.starts, block.counts)
        at, where, items = (self._here(x) for x in (query, column, block.items))
        relevant = scores[at, items]
        own = np.full(rows, NONE) if self.own is None else self.own[first:last]
        left_out = np.flatnonzero(own != NONE)
        # Below every score, so that the query's own item counts for nobody.
        scores[self._here(left_out), self._here(own[left_out])] = -torch.inf
        self._refuse_unfinite(scores, first, own)
        order = None
        if block.grades is not None:
            order = np.lexsort((-block.grades, relevant.cpu().numpy(), query))
            relevant = relevant[self._here(order)]
        width = int(block.counts.max(initial=0))
        # Rows of unequal length end in +∞, which no score reaches.
        table = torch.full((rows, width), torch.inf, device=self.device)
        table[at, where] = relevant
        table = table.sort(dim=1).values
        reached = torch.searchsorted(table, scores, right=True)
        histogram = torch.zeros((rows, width + 1), dtype=torch.int32, device=self.device)
        one = torch.ones((), dtype=torch.int32, device=self.device)
        histogram.scatter_add_(1, reached, one.expand(reached.shape))
        at_least = histogram.flip(1).cumsum(1).flip(1)[:, 1:][at, where]
        return Counted(table[at, where].cpu().numpy(), at_least.cpu().numpy(), order)

    def _here(self, x: Index) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(x)).to(self.device)

    def _refuse_unfinite(self, scores: torch.Tensor, first: int, own: Index) -> None:
        finite = scores.isfinite().sum(1).cpu().numpy()
        bad = np.flatnonzero(finite + (own != NONE) < scores.shape[1])
        if len(bad):
            refuse_overflow(first + int(bad[0]))


def exact_product(queries: torch.Tensor, gallery: torch.Tensor) -> torch.Tensor:
    """Inner products in full float32, whatever the process has set for speed."""
    set_by_user = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        return queries @ gallery.T
    finally:
        torch.set_float32_matmul_precision(set_by_user)


def _comparable(
    queries: torch.Tensor, gallery: torch.Tensor, distance: Distance
) -> tuple[torch.Tensor, torch.Tensor]:
    """As `ranking.comparable`."""
    if distance == "dot":
        return queries, gallery
    if distance == "cosine":
        unit = _unit(gallery)
        return unit if queries is gallery else _unit(queries), unit
    squares = gallery.double().square().sum(1, keepdim=True).float()
    ones = torch.ones((len(queries), 1), device=queries.device)
    return torch.cat([2 * queries, ones], 1), torch.cat([gallery, -squares], 1)


def _unit(x: torch.Tensor) -> torch.Tensor:
    norms = x.norm(dim=1, keepdim=True)
    return x / torch.where(norms > 0, norms, 1.0)
