"""What a number was measured on, and how it was measured."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np


def machine() -> str:
    """One line for the head of every table."""
    model = platform.processor() or platform.machine()
    listing = Path("/proc/cpuinfo")
    for line in listing.read_text().splitlines() if listing.exists() else ():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, Python {platform.python_version()}, numpy {np.__version__}"


def clear_peak() -> None:
    """The peak of this process's memory starts again from here."""
    Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> float:
    """The most this process has had in memory, in MB."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if "VmHWM" in line) / 1024


def alternate(
    ours: Callable[[], object], peer: Callable[[], object], repeats: int
) -> tuple[float, float, float]:
    """Median seconds of each and the median ratio, run in turns so that noise is shared."""
    ours(), peer()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        ours()
        middle = time.perf_counter()
        peer()
        times.append((middle - begin, time.perf_counter() - middle))
    mine, other = zip(*times, strict=True)
    ratio = statistics.median(a / b for a, b in times)
    return statistics.median(mine), statistics.median(other), ratio
