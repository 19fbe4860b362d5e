"""Work that leaves the processors to others for most of the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from crossfade.threads import cores


class Throttle:
    """Counts the processor's time that a piece of work takes, and rests until it is a small share.

    `share` is of all processors; 1 never rests. What runs inside `apart` is not counted: a model
    on this machine is what the user asked for, and takes what it needs.
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self._apart = 0.0

    @contextmanager
    def apart(self) -> Iterator[None]:
        before = time.process_time()
        try:
            yield
        finally:
            self._apart += time.process_time() - before

    @contextmanager
    def after(self, stop: Callable[[], bool]) -> Iterator[None]:
        """Rest after the work inside, for as long as nobody wants to stop."""
        begin, used, apart = time.monotonic(), time.process_time(), self._apart
        yield
        if self.share >= 1:
            return
        work = time.process_time() - used - (self._apart - apart)
        until = begin + work / (self.share * cores())
        while (left := until - time.monotonic()) > 0 and not stop():
            time.sleep(min(left, 0.1))
