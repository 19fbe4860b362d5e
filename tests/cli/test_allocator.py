"""Commands that go through all rows keep the C library from giving each thread a heap, and from
keeping what was freed."""

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

# 200 MB in pieces, freed but for every tenth: the heap has no end to be cut off.
FREED = """
import contextlib, ctypes, sys, time
from crossfade.cli.allocator import give_back_memory
library = ctypes.CDLL(None)
library.malloc.restype = ctypes.c_void_p
size = 100_000
def resident():
    with open("/proc/self/statm") as told:
        return int(told.read().split()[1]) * 4096
kept = give_back_memory() if sys.argv[1] == "back" else contextlib.nullcontext()
with kept:
    before = resident()
    pieces = [library.malloc(ctypes.c_size_t(size)) for _ in range(2000)]
    for piece in pieces: ctypes.memset(ctypes.c_void_p(piece), 1, size)
    for at, piece in enumerate(pieces):
        if at % 10: library.free(ctypes.c_void_p(piece))
    until = time.monotonic() + (20 if sys.argv[1] == "back" else 1)
    while resident() - before > 60e6 and time.monotonic() < until: time.sleep(0.05)
    print(resident() - before)
"""


def heaps(**environment: str) -> int:
    clean = {key: value for key, value in os.environ.items() if key != "MALLOC_ARENA_MAX"}
    told = subprocess.check_output([sys.executable, "-c", HEAPS], env=clean | environment)
    return len(re.findall(rb"<heap nr=", told))


def test_threads_share_heaps():
    assert heaps() == 2


def test_what_the_user_has_set_stays():
    assert heaps(MALLOC_ARENA_MAX="5") == 5


def test_what_was_freed_in_the_midst_goes_back():
    def held(how: str) -> int:
        return int(subprocess.check_output([sys.executable, "-c", FREED, how]))

    assert held("kept") > 150e6
    assert held("back") < 60e6
