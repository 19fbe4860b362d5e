"""Memory that does not grow with the rows.

The C library gives threads that allocate at the same time heaps of their own, and what one of them
has freed is of no use to the others. LanceDB's threads write buffers of megabytes and take turns:
with two heaps ten million rows were lifted in half the memory, in the same time.
"""

from __future__ import annotations

import ctypes
import os
import sys

_HEAPS = 2
# M_ARENA_MAX of <malloc.h>.
_LARGEST_NUMBER = -8
_NAMED = "MALLOC_ARENA_MAX"


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
