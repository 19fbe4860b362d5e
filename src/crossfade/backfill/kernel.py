"""Ranks of one query's relevant items at every point of a backfilling curve.

A gallery item scores `before` until its turn comes and `after` from then on. Each relevant item
thus sets two thresholds. An irrelevant item is looked up among all of them twice, once for each of
its scores, and noted where it stands and when it moves; sums over time and thresholds then give, at
each point, how many irrelevant items stand ahead of each relevant one. Nothing is scored twice.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]


# Slices of the range of thresholds in which a lookup begins: many to each threshold.
SLICES = 2048


@njit(cache=True, nogil=True)
def walk(
    before: Array,
    after: Array,
    turn: Array,
    points: int,
    relevant: Array,
    grades: Array,
    own: int,
    ranks: Array,
    ranked_grades: Array,
) -> None:
    """Fill `ranks` and `ranked_grades` (points, relevant), ascending at each point.

    `turn[j]` is the first point at which item j scores `after`. Of equal scores irrelevant items
    stand first, then relevant ones from the lowest grade on. Without grades both are empty.
    """
    count = len(relevant)
    width = 2 * count
    graded = len(grades) > 0
    # Ascending, and of equal scores the higher grade first: it is met last from above.
    by_grade = np.argsort(-grades, kind="mergesort") if graded else np.arange(count)
    scores = np.empty(width, np.float32)
    for i in range(count):
        item = relevant[by_grade[i]]
        scores[2 * i] = before[item]
        scores[2 * i + 1] = after[item]
    order = np.argsort(scores, kind="mergesort")
    # One more, which no score reaches, so that a lookup need not watch for the end.
    thresholds = np.empty(width + 1, np.float32)
    thresholds[:width] = scores[order]
    thresholds[width] = np.inf
    low, high = thresholds[0], thresholds[width - 1]
    scale = np.float32(SLICES - 1) / (high - low) if high > low else np.float32(0.0)
    # The slice of a number grows with it: thresholds in lower slices are below, none is missed.
    starts = np.zeros(SLICES + 1, np.int32)
    for i in range(width):
        starts[min(int((thresholds[i] - low) * scale), SLICES - 1) + 1] += 1
    for i in range(SLICES):
        starts[i + 1] += starts[i]
    skip = np.zeros(len(before), np.bool_)
    for item in relevant:
        skip[item] = True
    if own >= 0:
        skip[own] = True
    moves = np.zeros((points, width + 1), np.int32)
    for j in range(len(before)):
        value, later = before[j], after[j]
        if skip[j] or (value < low and later < low):
            continue
        here = 0
        if value >= high:
            here = width
        elif value >= low:
            here = starts[min(int((value - low) * scale), SLICES - 1)]
            while thresholds[here] <= value:
                here += 1
        moves[0, here] += 1
        if turn[j] < points:
            there = 0
            if later >= high:
                there = width
            elif later >= low:
                there = starts[min(int((later - low) * scale), SLICES - 1)]
                while thresholds[there] <= later:
                    there += 1
            if there != here:
                moves[turn[j], here] -= 1
                moves[turn[j], there] += 1
    turned_at = np.empty(width, np.int64)
    is_after = np.empty(width, np.bool_)
    for i in range(width):
        turned_at[i] = turn[relevant[by_grade[order[i] // 2]]]
        is_after[i] = order[i] % 2 == 1
    standing = np.zeros(width + 1, np.int32)
    for t in range(points):
        for i in range(width + 1):
            standing[i] += moves[t, i]
        ahead = 0
        met = 0
        for i in range(width - 1, -1, -1):
            ahead += standing[i + 1]
            if (turned_at[i] <= t) == is_after[i]:
                ranks[t, met] = ahead + met + 1
                if graded:
                    ranked_grades[t, met] = grades[by_grade[order[i] // 2]]
                met += 1


@njit(cache=True, nogil=True)
def walk_rows(
    before: Array,
    after: Array,
    turn: Array,
    points: int,
    counts: Array,
    items: Array,
    grades: Array,
    own: Array,
    ranks: Array,
    ranked_grades: Array,
) -> None:
    """`walk` for some queries in a row; what is relevant to each lies one after the other."""
    first = 0
    for row in range(len(counts)):
        last = first + counts[row]
        if counts[row]:
            walk(
                before[row],
                after[row],
                turn,
                points,
                items[first:last],
                grades[first:last],
                own[row],
                ranks[:, first:last],
                ranked_grades[:, first:last],
            )
        first = last
