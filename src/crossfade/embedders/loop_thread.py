"""An event loop in a thread of its own, for work that is asked for by code without one."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines while `held` is entered in the loop; it ends with `close`, or with its owner.

    >>> from contextlib import AsyncExitStack
    >>> async def add(a: int, b: int) -> int:
    ...     return a + b
    >>> loop = LoopThread(AsyncExitStack())
    >>> loop.submit(add(1, 2)).result()
    3
    >>> loop.close()
    """

    def __init__(self, held: AbstractAsyncContextManager[Any]) -> None:
        running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()
        thread = threading.Thread(
            target=lambda: asyncio.run(_hold(held, running)), name="crossfade-loop", daemon=True
        )
        thread.start()
        self._loop, self._stop = running.result()
        self._end = weakref.finalize(self, _end, self._loop, self._stop, thread)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin `work` in the loop; cancelling what is given back cancels it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def close(self) -> None:
        """Cancel what is under way, and end the thread."""
        self._end()


async def _hold(
    held: AbstractAsyncContextManager[Any],
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]],
) -> None:
    stop = asyncio.Event()
    try:
        async with held:
            running.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()
            mine = asyncio.current_task()
            others = [task for task in asyncio.all_tasks() if task is not mine]
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
    except BaseException as error:
        if running.done():
            raise
        running.set_exception(error)


def _end(loop: asyncio.AbstractEventLoop, stop: asyncio.Event, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(stop.set)
    # An owner may be collected in any thread, this one included.
    if threading.current_thread() is not thread:
        thread.join()
