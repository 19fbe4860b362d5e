"""Work on rows in threads of our own, each with a BLAS of one thread.

BLAS's own threads help with a product only, and spin for a while after it, in the way of whatever
comes next. Where products alternate with passes over their results, it is faster to give every
thread rows of its own for both.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
U = TypeVar("U")
_ALONE = 1 << 18
_KEPT = 32


def cores() -> int:
    """Processors this process may use: what OMP_NUM_THREADS says, or all it is allowed to."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdigit() and int(told) > 0 else _allowed()


def _allowed() -> int:
    # The first is of Python 3.13, the second of Linux alone.
    if hasattr(os, "process_cpu_count"):
        return os.process_cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_parts(rows: int, work: Callable[[int, int], None], threads: int | None = None) -> None:
    """Call `work(begin, end)` on consecutive parts of `rows`, one part to a thread.

    >>> seen = []
    >>> in_parts(5, lambda begin, end: seen.append((begin, end)), threads=2)
    >>> sorted(seen)
    [(0, 2), (2, 5)]
    """
    threads = max(1, min(cores() if threads is None else threads, rows))
    if threads == 1:
        work(0, rows)
        return
    bounds = [rows * i // threads for i in range(threads + 1)]
    with _blas().limit(limits=1), ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, bounds[:-1], bounds[1:]))


def product_alone(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """a @ b.T by this thread alone, for few rows of `a`.

    BLAS shares a product of more than some 2¹⁸ multiplications out among threads, which on a busy
    machine wait for each other a hundred times as long as it takes.

    >>> product_alone(np.eye(2), np.ones((3, 2))).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """
    out = np.empty((len(a), len(b)), np.result_type(a, b))
    step = max(1, _ALONE // max(1, a.size))
    for first in range(0, len(b), step):
        out[:, first : first + step] = a @ b[first : first + step].T
    return out


def at_once(first: Callable[[], T], second: Callable[[], U]) -> tuple[T, U]:
    """What both give; the second is done by a thread that is kept, for to start one takes as long
    as many a search. Neither goes on when this is over, whatever becomes of the other.

    >>> at_once(lambda: 1, lambda: 2)
    (1, 2)
    """
    works: list[Callable[[], Any]] = [first, second]
    done, coming = all_at_once(works)
    return done, coming


def all_at_once(works: Sequence[Callable[[], T]]) -> list[T]:
    """What each gives. None goes on when this is over. Not for work that does the same: all share
    the threads that are kept, and would wait for each other.

    >>> all_at_once([lambda: 1, lambda: 2, lambda: 3])
    [1, 2, 3]
    """
    coming = [_kept().submit(work) for work in works[1:]]
    try:
        done = [work() for work in works[:1]]
    finally:
        wait(coming)
    return done + [one.result() for one in coming]


@contextmanager
def every(seconds: float, act: Callable[[], object]) -> Iterator[None]:
    """Call `act` every so many seconds while this lasts, until it gives False; it is not under way
    any more when this is over."""
    ended = threading.Event()

    def again() -> None:
        while not ended.wait(seconds):
            if act() is False:
                return

    thread = threading.Thread(target=again, daemon=True, name="crossfade-every")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, each fetched while the one before it is worked on.

    >>> list(ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    end = object()
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, items, end)
        while (item := coming.result()) is not end:
            coming = pool.submit(next, items, end)
            yield item  # type: ignore[misc]


@cache
def _kept() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_KEPT, "crossfade")


# A child has no threads of its parent's.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_kept.cache_clear)


@cache
def _blas() -> Any:
    # Looking for the libraries of a process takes milliseconds: once is enough.
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
