"""Work on rows in threads of our own, each with a BLAS of one thread.

BLAS's own threads help with a product only, and spin for a while after it, in the way of whatever
comes next. Where products alternate with passes over their results, it is faster to give every
thread rows of its own for both.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


def cores() -> int:
    """Processors this process may use: what OMP_NUM_THREADS says, or all it is allowed to."""
    told = os.environ.get("OMP_NUM_THREADS", "")
    return int(told) if told.isdigit() and int(told) > 0 else len(os.sched_getaffinity(0))


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
def _blas() -> Any:
    # Looking for the libraries of a process takes milliseconds: once is enough.
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")
