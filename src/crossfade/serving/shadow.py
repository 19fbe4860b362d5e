"""Live queries asked another way as well: what the plan promised on held-out rows, seen on live
traffic.

A share of searches is put into a short queue once it is answered. A task takes them from there, so
that no answer waits for a shadow, and none fails with it. What does not fit is dropped and counted.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from crossfade.asking import WAYS, Asking
from crossfade.errors import BadInput, CrossfadeError
from crossfade.serving.counters import counter, gauge
from crossfade.serving.refusal import Refusal
from crossfade.stores import Hit

_LOG = logging.getLogger("crossfade.serving.shadow")
_QUEUE = 64
FIRST = 10


@dataclass(frozen=True)
class ShadowSettings:
    """What share of searches is asked another way, and which.

    >>> ShadowSettings(0.1, "new")
    ShadowSettings(share=0.1, way='new')
    """

    share: float
    way: Asking = "new"

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise BadInput(f"a share of {self.share} for the shadow", step="give one from 0 to 1")
        if self.way not in WAYS:
            raise BadInput(f"there is no way {self.way!r} to ask", step=f"say {', '.join(WAYS)}")


@dataclass(frozen=True, eq=False)
class Answered:
    """A search that was answered: how it was asked, what it found, and how long that took."""

    way: Asking
    hits: list[Hit]
    seconds: float
    again: Callable[[Asking], Awaitable[tuple[list[Hit], float]]]
    """Asks it another way; gives the hits and the seconds it took."""


class Shadow:
    """Asks again, compares and counts."""

    def __init__(self, settings: ShadowSettings) -> None:
        self.settings = settings
        self.asked = self.dropped = self.failed = 0
        self._agreed = self._slower = self._change = 0.0
        self._on_one_scale = 0
        self._queue: asyncio.Queue[Answered] = asyncio.Queue(_QUEUE)
        self._chance = random.SystemRandom()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def offer(self, answered: Answered) -> None:
        """Perhaps ask this one again, later."""
        if self._chance.random() >= self.settings.share:
            return
        try:
            self._queue.put_nowait(answered)
        except asyncio.QueueFull:
            self.dropped += 1

    async def _work(self) -> None:
        while True:
            answered = await self._queue.get()
            try:
                hits, seconds = await answered.again(self.settings.way)
            except (CrossfadeError, Refusal) as error:
                self.failed += 1
                _LOG.warning("shadow failed", extra={"why": type(error).__name__})
            else:
                self._compare(answered, hits, seconds)

    def _compare(self, answered: Answered, hits: list[Hit], seconds: float) -> None:
        self.asked += 1
        self._agreed += agreement(answered.hits, hits)
        self._slower += seconds - answered.seconds
        # Scores of both models joined are deviations; any other way gives a store's own.
        if (answered.way == "both") == (self.settings.way == "both"):
            before = {hit.id: hit.score for hit in answered.hits[:FIRST]}
            both = [hit.score - before[hit.id] for hit in hits[:FIRST] if hit.id in before]
            if both:
                self._on_one_scale += 1
                self._change += sum(both) / len(both)

    def live(self) -> dict[str, Any]:
        """For the page."""

        def mean(total: float, count: int) -> float | None:
            return round(total / count, 4) if count else None

        return {
            "asked": self.asked,
            "share": self.settings.share,
            "way": self.settings.way,
            "agreement": mean(self._agreed, self.asked),
            "score_change": mean(self._change, self._on_one_scale),
            "latency_ms": mean(self._slower * 1000, self.asked),
        }

    def lines(self) -> list[str]:
        """In Prometheus' text format."""
        totals = {
            "asked": (self.asked, "Searches that were asked again."),
            "dropped": (self.dropped, "Searches that found the queue full."),
            "failed": (self.failed, "Searches that failed when asked again."),
            "agreement_sum": (self._agreed, "Shares of the first ten that both found, summed."),
        }
        lines = []
        for name, (value, what) in totals.items():
            lines += counter(f"crossfade_shadow_{name}_total", what, value)
        told = {"latency_ms": "more", "score_change": "higher"}
        for name, word in told.items():
            value = self.live()[name]
            if value is not None:
                what = f"How much {word} than the live answer, on average."
                lines += gauge(f"crossfade_shadow_{name}", what, value)
        return lines


def agreement(first: list[Hit], second: list[Hit]) -> float:
    """The share of the first ten that two answers have in common; of two empty ones, all.

    >>> agreement([Hit(1, 0.9), Hit(2, 0.8)], [Hit(2, 0.7), Hit(3, 0.6)])
    0.5
    """
    a, b = ({hit.id for hit in hits[:FIRST]} for hits in (first, second))
    return len(a & b) / max(len(a), len(b)) if a or b else 1.0
