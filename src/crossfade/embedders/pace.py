"""No more requests, and no more tokens, in a time than were agreed."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """Holds requests back. Each takes up the time its share of the limit stands for.

    There are no bursts: after a request of 100 tokens at 600 tokens a minute, ten seconds pass.

    >>> waits = []
    >>> pace = Pace(tokens_per_minute=600, sleep=waits.append, clock=lambda: 0.0)
    >>> pace.wait(100)
    >>> pace.wait(50)
    >>> waits
    [10.0]
    """

    def __init__(
        self,
        requests_per_second: float | None = None,
        tokens_per_minute: float | None = None,
        *,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._request_seconds = 1 / requests_per_second if requests_per_second else 0.0
        self._token_seconds = 60 / tokens_per_minute if tokens_per_minute else 0.0
        self._sleep, self._clock = sleep, clock
        self._requests_free = self._tokens_free = clock()

    def wait(self, tokens: float) -> None:
        """Sleep until a request of about so many tokens is allowed, and count it."""
        now = self._clock()
        start = max(now, self._requests_free, self._tokens_free)
        if start > now:
            self._sleep(start - now)
        self._requests_free = start + self._request_seconds
        self._tokens_free = start + tokens * self._token_seconds

    def correct(self, tokens: float) -> None:
        """The last request took so many tokens more (or fewer) than was thought."""
        self._tokens_free += tokens * self._token_seconds
