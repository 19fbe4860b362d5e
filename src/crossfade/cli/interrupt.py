"""Ctrl-C as a request: finish the batch, write the journal, end. A second one ends at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from crossfade.cli.output import note


@contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """A function that says whether the user, or the system, has asked for an end.

    >>> with stopping() as stop:
    ...     stop()
    False
    """
    asked = threading.Event()
    before: dict[int, Any] = {}

    def ask(number: int, _: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        note("stopping after this batch; once more to stop at once")

    # Signals reach the main thread alone; elsewhere the caller has its own way to stop.
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, ask)
    try:
        yield asked.is_set
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
