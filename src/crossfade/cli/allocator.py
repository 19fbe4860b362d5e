"""Memory that does not grow with the rows.

The C library gives threads that allocate at the same time heaps of their own, and what one of them
has freed is of no use to the others. LanceDB's threads write buffers of megabytes and take turns:
with two heaps ten million rows were lifted in half the memory, in the same time. What is free
within a heap it keeps: of many rows more than of few, for the pieces lie apart.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from crossfade.threads import every

_HEAPS = 2
# M_ARENA_MAX of <malloc.h>.
_LARGEST_NUMBER = -8
_NAMED = "MALLOC_ARENA_MAX"
# Seconds; to look through some hundred megabytes takes milliseconds.
_PAUSE = 0.25


def share_heaps() -> None:
    """For this process and those it starts; said before a store's library starts its threads.

    Whoever has set the C library's own variable is left alone, and other systems are.
    """
    if sys.platform != "linux" or _NAMED in os.environ:
        return
    os.environ[_NAMED] = str(_HEAPS)
    library = ctypes.CDLL(None)
    # Other C libraries of Linux have one heap.
    if hasattr(library, "mallopt"):
        library.mallopt(_LARGEST_NUMBER, _HEAPS)


@contextmanager
def give_back_memory() -> Iterator[None]:
    """While this lasts, what was freed goes back to the system now and then, wherever it lies."""
    library: Any = ctypes.CDLL(None) if sys.platform == "linux" else None
    if not hasattr(library, "malloc_trim"):
        yield
        return
    with every(_PAUSE, lambda: library.malloc_trim(0)):
        yield
