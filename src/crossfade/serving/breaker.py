"""A circuit breaker: whoever keeps failing is left alone for a while, then tried once."""

from __future__ import annotations

import time
from collections.abc import Callable


class Breaker:
    """Opens after so many failures in a row, for so many seconds; then one request is let through,
    and what becomes of it decides.

    >>> now = [0.0]
    >>> breaker = Breaker(failures=2, rest=5, clock=lambda: now[0])
    >>> breaker.failed(), breaker.failed(), breaker.wait()
    (None, None, 5.0)
    >>> now[0] = 6.0
    >>> breaker.wait(), breaker.wait()
    (0.0, 5.0)
    >>> breaker.succeeded(), breaker.wait()
    (None, 0.0)
    """

    def __init__(
        self, *, failures: int, rest: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._failures, self._rest, self._clock = failures, rest, clock
        self._in_a_row = 0
        self._until: float | None = None

    @property
    def open(self) -> bool:
        """Whether requests are refused, but for a trial."""
        return self._until is not None

    @property
    def failing(self) -> bool:
        """Whether the last request failed."""
        return self._in_a_row > 0

    def wait(self) -> float:
        """Seconds until it is worth asking; 0 lets the caller through."""
        if self._until is None:
            return 0.0
        left = self._until - self._clock()
        if left > 0:
            return left
        # This caller is the trial; the others wait for what comes of it.
        self._until = self._clock() + self._rest
        return 0.0

    def succeeded(self) -> None:
        self._in_a_row, self._until = 0, None

    def failed(self) -> None:
        self._in_a_row += 1
        if self._in_a_row >= self._failures:
            self._until = self._clock() + self._rest
