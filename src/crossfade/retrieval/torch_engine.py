"""The counting of `ranking` on a torch device: the same ranks, from a GPU's product.

Sorting whole rows is what a GPU does badly. Here each score looks up its place among the few
relevant scores of its row, and a histogram of those places, summed from the top, gives the counts.
"""

from __future__ import annotations

import numpy as np
import torch

from crossfade.retrieval.ranking import Counted, Float, refuse_overflow
from crossfade.retrieval.relevance import NONE, Block, Index

# Scores, their places (int64) and what torch keeps in between, for one chunk.
_CHUNK_SCORES = 1 << 27


class TorchEngine:
    """Products and counts on `device`, in float32."""

    def __init__(self, queries: Float, gallery: Float, own: Index | None, device: str) -> None:
        self.device = torch.device(device)
        self.queries = torch.from_numpy(queries)
        self.gallery = torch.from_numpy(gallery).to(self.device)
        self.own = own

    def chunk_rows(self) -> int:
        return max(1, min(_CHUNK_SCORES // len(self.gallery), len(self.queries)))

    def count(self, first: int, last: int, block: Block) -> Counted:
        rows = last - first
        scores = exact_product(self.queries[first:last].to(self.device), self.gallery)
        query = np.repeat(np.arange(rows), block.counts)
        at = torch.from_numpy(query).to(self.device)
        relevant = scores[at, torch.from_numpy(block.items).to(self.device)]
        own = np.full(rows, NONE) if self.own is None else self.own[first:last]
        left_out = np.flatnonzero(own != NONE)
        # Below every score, so that the query's own item counts for nobody.
        there = torch.from_numpy(left_out).to(self.device)
        scores[there, torch.from_numpy(own[left_out]).to(self.device)] = -torch.inf
        self._refuse_unfinite(scores, first, own)
        mine = relevant.cpu().numpy()
        keys = (mine, query) if block.grades is None else (-block.grades, mine, query)
        order = np.lexsort(keys)
        mine = mine[order]
        column = np.arange(len(mine)) - np.repeat(block.starts, block.counts)
        width = int(block.counts.max(initial=0))
        # Rows of unequal length end in +∞, which no score reaches.
        table = torch.full((rows, width), torch.inf, device=self.device)
        where = torch.from_numpy(column).to(self.device)
        table[at, where] = torch.from_numpy(mine).to(self.device)
        reached = torch.searchsorted(table, scores, right=True)
        histogram = torch.zeros((rows, width + 1), dtype=torch.int32, device=self.device)
        one = torch.ones((), dtype=torch.int32, device=self.device)
        histogram.scatter_add_(1, reached, one.expand(reached.shape))
        at_least = histogram.flip(1).cumsum(1).flip(1)[:, 1:][at, where]
        return Counted(mine, at_least.cpu().numpy().astype(np.int64), order)

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
