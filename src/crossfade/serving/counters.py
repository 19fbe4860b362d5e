"""What a gateway counts, and how Prometheus reads it."""

from __future__ import annotations

import bisect
import math
import os
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from crossfade._version import __version__

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# Of the last so many requests the page shows percentiles.
_LATEST = 2048


class Histogram:
    """Counts of durations, by upper bounds in seconds.

    >>> histogram = Histogram()
    >>> histogram.add(0.004)
    >>> [line for line in histogram.lines("wait_seconds", {}) if "0.005" in line or "count" in line]
    ['wait_seconds_bucket{le="0.005"} 1', 'wait_seconds_count 1']
    """

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        self.counts[bisect.bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def lines(self, name: str, labels: Mapping[str, str]) -> Iterator[str]:
        running = list(accumulate(self.counts))
        for bound, count in zip([*map(str, BOUNDS), "+Inf"], running, strict=True):
            yield f"{name}_bucket{_labels({**labels, 'le': bound})} {count}"
        yield f"{name}_sum{_labels(labels)} {self.sum!r}"
        yield f"{name}_count{_labels(labels)} {running[-1]}"


class Asked:
    """What became of the requests to one upstream, and what they cost."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.seconds = Histogram()
        self.tokens = 0

    def count(self, outcome: str) -> None:
        self.outcomes[outcome] += 1

    def good(self, seconds: float, tokens: int) -> None:
        self.outcomes["good"] += 1
        self.seconds.add(seconds)
        self.tokens += tokens


class Counters:
    """Of one gateway; touched by its event loop alone."""

    def __init__(self) -> None:
        self.begun = time.time()
        self.in_flight = 0
        self.statuses: Counter[tuple[str, int]] = Counter()
        self.seconds: dict[str, Histogram] = {}
        self.vectors: Counter[str] = Counter()
        self.reloads: Counter[str] = Counter()
        self.upstreams: dict[str, Asked] = {}
        self.latest: deque[float] = deque(maxlen=_LATEST)

    def answered(self, route: str, status: int, seconds: float) -> None:
        self.statuses[route, status] += 1
        histogram = self.seconds.get(route)
        if histogram is None:
            histogram = self.seconds[route] = Histogram()
        histogram.add(seconds)
        self.latest.append(seconds)

    def live(self) -> dict[str, Any]:
        """Totals for the page.

        >>> counters = Counters()
        >>> counters.answered("/v1/embeddings", 200, 0.002)
        >>> counters.live()["latency_ms"]["p50"], counters.live()["errors"]
        (2.0, 0)
        """
        # Copied at one stroke: the page may ask from another thread.
        latest, statuses = list(self.latest) or [0.0], list(self.statuses.items())
        told = np.percentile(latest, [50, 95, 99]) * 1000
        return {
            "requests": sum(n for _, n in statuses),
            "errors": sum(n for (_, status), n in statuses if status >= 500),
            "in_flight": self.in_flight,
            "latency_ms": dict(zip(("p50", "p95", "p99"), told.round(3).tolist(), strict=True)),
        }

    def lines(self) -> Iterator[str]:
        """In Prometheus' text format."""
        yield from _family("crossfade_info", "gauge", "The version that runs.")
        yield f"crossfade_info{_labels({'version': __version__})} 1"
        yield from _family("crossfade_in_flight", "gauge", "Requests under way.")
        yield f"crossfade_in_flight {self.in_flight}"
        yield from _family("crossfade_requests_total", "counter", "Requests by route and status.")
        for (route, status), count in sorted(self.statuses.items()):
            labels = {"route": route, "status": str(status)}
            yield f"crossfade_requests_total{_labels(labels)} {count}"
        yield from _family("crossfade_request_seconds", "histogram", "From request to answer.")
        for route, histogram in sorted(self.seconds.items()):
            yield from histogram.lines("crossfade_request_seconds", {"route": route})
        yield from _counts("crossfade_vectors_total", "Vectors by model.", "model", self.vectors)
        yield from _counts(
            "crossfade_reloads_total",
            "Reloads of the upgrade and the plan.",
            "outcome",
            self.reloads,
        )
        name = "crossfade_upstream_requests_total"
        yield from _family(name, "counter", "Requests to upstreams by outcome.")
        for side, asked in self.upstreams.items():
            for outcome, count in sorted(asked.outcomes.items()):
                yield f"{name}{_labels({'upstream': side, 'outcome': outcome})} {count}"
        name = "crossfade_upstream_tokens_total"
        yield from _family(name, "counter", "Tokens, as the upstreams say.")
        for side, asked in self.upstreams.items():
            yield f"{name}{_labels({'upstream': side})} {asked.tokens}"
        name = "crossfade_upstream_seconds"
        yield from _family(name, "histogram", "Good answers of upstreams.")
        for side, asked in self.upstreams.items():
            yield from asked.seconds.lines(name, {"upstream": side})
        yield from _process(self.begun)


def gauge(name: str, what: str, values: float | Mapping[str, float], label: str = "") -> list[str]:
    """A gauge, or one for each value of a label.

    >>> gauge("up", "Whether.", {"new": 1}, "upstream")
    ['# HELP up Whether.', '# TYPE up gauge', 'up{upstream="new"} 1']
    """
    lines = list(_family(name, "gauge", what))
    if isinstance(values, Mapping):
        return lines + [f"{name}{_labels({label: at})} {_number(n)}" for at, n in values.items()]
    return [*lines, f"{name} {_number(values)}"]


def counter(name: str, what: str, value: float) -> list[str]:
    """A counter without labels."""
    return [*_family(name, "counter", what), f"{name} {_number(value)}"]


def text_of(lines: Iterable[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def _counts(name: str, what: str, label: str, counts: Mapping[str, int]) -> Iterator[str]:
    yield from _family(name, "counter", what)
    for value, count in sorted(counts.items()):
        yield f"{name}{_labels({label: value})} {count}"


def _family(name: str, kind: str, what: str) -> Iterator[str]:
    yield f"# HELP {name} {what}"
    yield f"# TYPE {name} {kind}"


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    shown = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{shown}}}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(value)


def _process(begun: float) -> Iterator[str]:
    times = os.times()
    name = "process_cpu_seconds_total"
    yield from counter(name, "User and system time.", times.user + times.system)
    yield from gauge("process_start_time_seconds", "When it was started.", begun)
    statm = Path("/proc/self/statm")
    if statm.exists():
        resident = int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        yield from gauge("process_resident_memory_bytes", "Memory it has.", resident)
