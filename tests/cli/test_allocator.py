"""Commands that go through all rows keep the C library from giving each thread a heap."""

from __future__ import annotations

import os
import re
import subprocess
import sys

# Threads that hold memory at the same time; then the C library's own count of its heaps.
HEAPS = """
import ctypes, threading
from crossfade.cli.allocator import share_heaps
share_heaps()
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
here = threading.Barrier(16)
def hold():
    here.wait()
    for _ in range(1000):
        library.malloc(ctypes.c_size_t(1000))
    here.wait()
threads = [threading.Thread(target=hold) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
library.fdopen.restype = ctypes.c_void_p
out = ctypes.c_void_p(library.fdopen(1, b"w"))
library.malloc_info(0, out)
library.fflush(out)
"""


def heaps(**environment: str) -> int:
    clean = {key: value for key, value in os.environ.items() if key != "MALLOC_ARENA_MAX"}
    told = subprocess.check_output([sys.executable, "-c", HEAPS], env=clean | environment)
    return len(re.findall(rb"<heap nr=", told))


def test_threads_share_heaps():
    assert heaps() == 2


def test_what_the_user_has_set_stays():
    assert heaps(MALLOC_ARENA_MAX="5") == 5
