"""No more requests, and no more tokens, in a time than were agreed."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """Holds requests back. Each takes up the time its share of the limit stands for.

    There are no bursts: after a request of 100 tokens at 600 tokens a minute, ten seconds pass.

    >>> pace = Pace(tokens_per_minute=600, clock=lambda: 0.0)
    >>> pace.begin(100)
    >>> pace.wait
    10.0
    """

    def __init__(
        self,
        requests_per_second: float | None = None,
        tokens_per_minute: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._request_seconds = 1 / requests_per_second if requests_per_second else 0.0
        self._token_seconds = 60 / tokens_per_minute if tokens_per_minute else 0.0
        self._clock = clock
        self._requests_free = self._tokens_free = clock()

    @property
    def wait(self) -> float:
        """Seconds until the next request is allowed."""
        return max(0.0, max(self._requests_free, self._tokens_free) - self._clock())

    def begin(self, tokens: float) -> None:
        """A request of about so many tokens is sent now."""
        now = self._clock()
        self._requests_free = max(now, self._requests_free) + self._request_seconds
        self._tokens_free = max(now, self._tokens_free) + tokens * self._token_seconds

    def correct(self, tokens: float) -> None:
        """A request took so many tokens more (or fewer) than was thought."""
        self._tokens_free += tokens * self._token_seconds
