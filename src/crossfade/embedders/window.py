"""How many requests an endpoint is asked at a time: found out by asking."""

from __future__ import annotations

import time
from collections.abc import Callable

# A round that answers so much more in a second than the best before it was worth its requests.
_GAIN = 1.1
# So many rounds that gain nothing are no accident; so many later it may be another endpoint.
_PATIENCE, _HELD = 2, 16


class Window:
    """Begins with one request. Each good answer makes room for one more, up to `most`, until the
    endpoint says that it is too many: then for half as many, and one more for each full round of
    good answers.

    The first alone tells whether the key and the model are right, before others are sent.

    One that `seeks` also looks at how much is answered in a second. Where more requests at a time
    have gained nothing twice in a row, it goes back to as many as were worth it, and tries one more
    after a while.

    >>> window = Window(8)
    >>> for _ in range(5):
    ...     window.widen()
    >>> window.size
    6
    >>> window.halve(window.turn)
    >>> window.size
    3
    """

    def __init__(
        self, most: int, *, seeks: bool = False, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most, self._seeks, self._clock = most, seeks, clock
        self._room = 1.0
        self._known_good: float = most
        self.turn = 0
        """Counts the times it was halved; a request remembers the one it was sent in."""
        self._held = self._idle = self._best_size = 0
        self._best = 0.0
        self.begin()

    @property
    def size(self) -> int:
        """Requests that may be under way."""
        return int(self._room)

    def begin(self) -> None:
        """Requests are sent again, after a time in which there may have been none."""
        self._since, self._answers, self._items = self._clock(), 0, 0
        self._round = self.size

    def widen(self, items: int = 1) -> None:
        """A request was answered, of so many items."""
        if self._seeks:
            self._measure(items)
        if self._held:
            return
        step = 1.0 if self._room < self._known_good else 1.0 / self._room
        self._room = min(self._room + step, float(self._most))

    def halve(self, turn: int) -> None:
        """A request that was sent in `turn` was one too many.

        Of those that were under way together each may be refused: they count once.
        """
        if turn != self.turn:
            return
        self.turn += 1
        self._room = self._known_good = max(1.0, self._room / 2)
        self._held = 0
        self._forget()

    def _measure(self, items: int) -> None:
        """A round is over when as many requests are answered as could be under way at its start.

        Fewer, as at the end of a call, say nothing about the endpoint.
        """
        self._answers, self._items = self._answers + 1, self._items + items
        if self._answers < self._round:
            return
        seconds, size = self._clock() - self._since, self._round
        rate = self._items / seconds if seconds > 0 else None
        self.begin()
        if self._held:
            self._held -= 1
            if not self._held:
                # One more at a time from here on, against what is answered now.
                self._known_good = self._room
                self._forget()
        elif rate is None or rate > _GAIN * self._best:
            self._best, self._best_size, self._idle = rate or self._best, size, 0
        elif size > self._best_size:
            self._idle += 1
            if self._idle >= _PATIENCE:
                self._room, self._held = float(self._best_size), _HELD

    def _forget(self) -> None:
        self._best, self._best_size, self._idle = 0.0, 0, 0
        self.begin()
