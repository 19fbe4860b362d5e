"""How long to wait before a request is sent again: longer each time, with chance in it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Backoff:
    """Waits that double, of which up to half is left to chance so that not all come back at once.

    >>> backoff = Backoff(first=1.0, longest=120.0, chance=lambda: 0.0)
    >>> [backoff.wait(attempt) for attempt in range(3)]
    [1.0, 2.0, 4.0]
    >>> backoff.wait(0, asked=17.0)
    17.0
    """

    first: float
    longest: float
    chance: Callable[[], float] = field(default=secrets.SystemRandom().random, repr=False)

    def wait(self, attempt: int, asked: float | None = None) -> float:
        """Seconds after the failure of `attempt` (from 0); never fewer than a server `asked`."""
        backoff = min(self.first * 2.0**attempt, self.longest) * (1 - self.chance() / 2)
        return backoff if asked is None else max(asked, backoff)
