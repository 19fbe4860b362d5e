"""What each voice should count where both models are asked, chosen on queries that tell.

On half of the queries the best of a grid is found; it is kept if the other half says, with 95 %
confidence, that it is better than what needs no data. So a handful of queries changes nothing, and
no weight is judged by the queries that chose it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.asking import DEFAULT, Asked, Both, Weights
from crossfade.compatibility.bootstrap import interval, resampled_means
from crossfade.retrieval import Relevance, measure

Grid = Sequence[dict[str, float]]
_COUNTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
OLD_GRID: Grid = [{"old_backward": count} for count in _COUNTS]
LIFTED_GRID: Grid = [{"lifted_backward": 0.0, "lifted_forward": 0.0}] + [
    {"lifted_backward": round(count * (1 - part), 3), "lifted_forward": round(count * part, 3)}
    for count in _COUNTS[1:]
    for part in (0.0, 0.5, 1.0)
]
FILLED_GRID: Grid = [{"filled_new": count} for count in (0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)]
BLEND_GRID: Grid = [{"blend": count} for count in (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0)]
RESAMPLES = 1000


class Ruler:
    """Measures ways to weigh voices against each other, on all queries or `among` some."""

    def __init__(
        self,
        relevance: Relevance,
        metrics: Sequence[str],
        seed: int = 0,
        among: NDArray[np.integer] | None = None,
        device: str = "cpu",
    ) -> None:
        self.relevance, self.metrics, self.seed, self.device = relevance, metrics, seed, device
        self.among = np.arange(relevance.queries) if among is None else np.asarray(among)

    def of_both(self, both: Both, filled: NDArray[np.float32]) -> Weights:
        """For a gallery that is old, lifted, and filled with `filled`."""
        out = self.best(DEFAULT, OLD_GRID, both.as_old)
        if both.gallery_lifted is not None:
            out = self.best(out, LIFTED_GRID, both.as_lifted)
        return self.best(out, FILLED_GRID, lambda weights: both.as_filled(filled, weights))

    def best(self, now: Weights, grid: Grid, asked: Callable[[Weights], Asked]) -> Weights:
        """`now` with the best of the grid in it, or as it is where that is not surely better."""
        base = self.values(asked(now))
        told = self.among[np.isfinite(base[self.among])]
        np.random.default_rng(self.seed).shuffle(told)
        first, second = told[: len(told) // 2], told[len(told) // 2 :]
        if not len(first):
            return now
        found, gains = now, np.zeros(len(base))
        for changes in grid:
            other = replace(now, **changes)
            if other == now:
                continue
            gain = self.values(asked(other)) - base
            if gain[first].mean() > gains[first].mean():
                found, gains = other, gain
        drawn = resampled_means(gains[second][:, None], RESAMPLES, self.seed)
        return found if interval(drawn[:, 0])[0] > 0 else now

    def values(self, asked: Asked) -> NDArray[np.float64]:
        """The mean of the metrics, for each query; NaN where nothing is relevant."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            found: Any = measure(
                asked.queries,
                asked.items,
                self.relevance,
                self.metrics,
                distance="dot",
                device=self.device,
            )
        return np.asarray(np.mean([found.values[m] for m in self.metrics], axis=0))
