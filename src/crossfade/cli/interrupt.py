"""How commands end when they are told to: Ctrl-C exits with 130, SIGTERM with 143, and a line says
that it is not done. Work that goes in batches finishes the one at hand first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from crossfade.cli.output import note

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(BaseException):
    """A signal has ended the work. No `Exception`, so that nothing on the way takes it for one."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.exit_code = 128 + number


class Stopping:
    """Whether someone has asked for an end, and how.

    >>> Stopping()()
    False
    """

    def __init__(self) -> None:
        self._number: int | None = None

    def __call__(self) -> bool:
        return self._number is not None

    def ask(self, number: int, _: Any = None) -> None:
        """The first time it is noted, the second time it happens."""
        if self._number is not None:
            raise Stopped(number)
        self._number = number
        note("stopping after this batch; once more to stop at once")

    def end(self, stopped: bool) -> None:
        """Leave the command with the code of the signal, if the work was `stopped` by it."""
        if stopped and self._number is not None:
            raise Stopped(self._number)


@contextmanager
def ending_at_once() -> Iterator[None]:
    """Signals raise `Stopped`, wherever they meet the work."""

    def end(number: int, _: Any) -> None:
        raise Stopped(number)

    with _handled(end):
        yield


@contextmanager
def stopping() -> Iterator[Stopping]:
    """Signals ask for an end after this batch; a second one ends the work at once.

    >>> with stopping() as stop:
    ...     stop()
    False
    """
    stop = Stopping()
    with _handled(stop.ask):
        yield stop


@contextmanager
def _handled(handler: Any) -> Iterator[None]:
    # Signals reach the main thread alone; elsewhere the caller has its own way to stop.
    before: dict[int, Any] = {}
    raised: list[Stopped] = []

    def handle(number: int, frame: Any) -> None:
        try:
            handler(number, frame)
        except Stopped as stopped:
            raised.append(stopped)
            raise

    if threading.current_thread() is threading.main_thread():
        # What runs behind nohup or a shell's & is not to be disturbed by Ctrl-C.
        heard = [one for one in _SIGNALS if signal.getsignal(one) != signal.SIG_IGN]
        before = {one: signal.signal(one, handle) for one in heard}
    try:
        yield
    except Exception as error:
        if raised:
            # Raised in a callback of a library in another language, which made its own error of it.
            raise raised[0] from error
        raise
    finally:
        for one, old in before.items():
            signal.signal(one, old)
