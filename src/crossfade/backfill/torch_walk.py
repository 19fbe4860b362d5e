"""`kernel` on a torch device: the same ranks at every point of a curve, from a GPU's products.

Each score looks up its place among the thresholds of its row, once as it is before its turn and
once as it is after; where items stand and when they move is added up for all of a chunk at a time.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from crossfade.retrieval.relevance import NONE, Block, Index
from crossfade.retrieval.torch_engine import exact_product

Float = NDArray[np.float32]
# Places over time of one step, of which torch keeps some half a dozen arrays.
_STEP = 1 << 26


class TorchWalk:
    """Scores on `device`, and walks along an order through them."""

    def __init__(
        self, before: tuple[Float, Float], after: tuple[Float, Float], device: str
    ) -> None:
        self.device = torch.device(device)
        self.before, self.after = (
            (self._here(queries), self._here(gallery)) for queries, gallery in (before, after)
        )

    def scores(self, first: int, last: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Of some queries with all items, as they are before their turn and after it."""
        (q0, g0), (q1, g1) = self.before, self.after
        return exact_product(q0[first:last], g0), exact_product(q1[first:last], g1)

    def walk(
        self,
        scores: tuple[torch.Tensor, torch.Tensor],
        turn: Index,
        points: int,
        block: Block,
        own: Index,
    ) -> tuple[NDArray[np.int32], NDArray[np.float64] | None]:
        """Ranks and grades (points, relevant items of the chunk), ascending for each query."""
        total = len(block.items)
        ranks = np.empty((points, total), np.int32)
        grades = None if block.grades is None else np.empty((points, total))
        turns = self._here(np.minimum(turn, points))
        bounds = np.append(block.starts, total)

        def part(begin: int, end: int) -> None:
            width = int(block.counts[begin:end].max(initial=0))
            if width == 0:
                return
            if end - begin > 1 and (end - begin) * points * 2 * width > _STEP:
                middle = (begin + end) // 2
                part(begin, middle)
                part(middle, end)
                return
            here = slice(bounds[begin], bounds[end])
            some = Block(
                block.counts[begin:end],
                block.items[here],
                None if block.grades is None else block.grades[here],
            )
            sides = scores[0][begin:end], scores[1][begin:end]
            found, graded = self._walk(sides, turns, points, some, own[begin:end], width)
            ranks[:, here] = found
            if grades is not None and graded is not None:
                grades[:, here] = graded

        part(0, len(block.counts))
        return ranks, grades

    def _walk(
        self,
        scores: tuple[torch.Tensor, torch.Tensor],
        turn: torch.Tensor,
        points: int,
        block: Block,
        own: Index,
        width: int,
    ) -> tuple[NDArray[np.int32], NDArray[np.float64] | None]:
        before, after = scores
        rows, total = len(block.counts), len(block.items)
        query = np.repeat(np.arange(rows), block.counts)
        items, grades = block.items, block.grades
        if grades is not None:
            # Of equal scores the higher grade first: it is met last from above.
            by_grade = np.lexsort((-grades, query))
            items, grades = items[by_grade], grades[by_grade]
        column = np.arange(total) - np.repeat(block.starts, block.counts)
        at, where, item = self._here(query), self._here(column), self._here(items)
        # Each relevant item sets two thresholds; shorter rows end in +∞, which no score reaches.
        table = torch.full((rows, width, 2), torch.inf, device=self.device)
        table[at, where, 0], table[at, where, 1] = before[at, item], after[at, item]
        thresholds, order = table.reshape(rows, 2 * width).sort(dim=1, stable=True)
        turned_at = torch.full((rows, width), points + 1, dtype=turn.dtype, device=self.device)
        turned_at[at, where] = turn[item]
        turned_at = turned_at.gather(1, order // 2)
        is_after = order % 2 == 1
        there = thresholds < torch.inf

        counts = torch.ones(before.shape, dtype=torch.int32, device=self.device)
        counts[at, item] = 0
        left_out = np.flatnonzero(own != NONE)
        counts[self._here(left_out), self._here(own[left_out])] = 0
        places = 2 * width + 1
        # One point more, for items whose turn does not come.
        moves = torch.zeros((rows, (points + 1) * places), dtype=torch.int32, device=self.device)
        place = torch.searchsorted(thresholds, before, right=True)
        moves.scatter_add_(1, place, counts)
        moves.scatter_add_(1, place + turn * places, -counts)
        place = torch.searchsorted(thresholds, after, right=True)
        moves.scatter_add_(1, place + turn * places, counts)
        standing = moves.view(rows, points + 1, places)[:, :points].cumsum(1, dtype=torch.int32)
        ahead = _from_the_top(standing)[:, :, 1:]
        time = torch.arange(points, device=self.device)[None, :, None]
        active = ((turned_at[:, None] <= time) == is_after[:, None]) & there[:, None]
        met = _from_the_top(active) - active.int()
        first = self._here(block.starts)[:, None, None]
        target = (time * total + first + met)[active]
        ranks = torch.empty(points * total, dtype=torch.int32, device=self.device)
        ranks[target] = (ahead + met + 1)[active]
        graded = None
        if grades is not None:
            given = torch.zeros((rows, width), dtype=torch.float64, device=self.device)
            given[at, where] = self._here(grades)
            spread = given.gather(1, order // 2)[:, None].expand(active.shape)
            out = torch.empty(points * total, dtype=torch.float64, device=self.device)
            out[target] = spread[active]
            graded = out.view(points, total).cpu().numpy()
        return ranks.view(points, total).cpu().numpy(), graded

    def _here(self, x: NDArray[np.generic]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(x)).to(self.device)


def _from_the_top(x: torch.Tensor) -> torch.Tensor:
    """Sums over the last axis of each entry and all after it."""
    return x.flip(2).cumsum(2, dtype=torch.int32).flip(2)
