"""What a trial has measured: a mean, and the interval in which it lies with 95 % confidence."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Measured:
    """Something per item, measured a few times: the mean, and where it lies with 95 % confidence.

    >>> Measured.of([1.0, 2.0, 3.0])
    Measured(mean=2.0, low=0.0, high=4.484...)
    """

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float], *, least: float = 0.0) -> Measured:
        """Of two values or more, of something that is never below `least`."""
        from scipy.stats import t

        mean = statistics.fmean(values)
        error = statistics.stdev(values) / math.sqrt(len(values))
        gap = float(t.ppf(0.975, len(values) - 1)) * error
        return cls(*(max(least, one) for one in (mean, mean - gap, mean + gap)))

    def times(self, items: int) -> Measured:
        """Of so many items."""
        return Measured(self.mean * items, self.low * items, self.high * items)

    def plus(self, other: Measured) -> Measured:
        """Of two things one after the other, each as far off as it can be."""
        return Measured(self.mean + other.mean, self.low + other.low, self.high + other.high)

    def later(self, fixed: float) -> Measured:
        """With something that is the same however many items there are."""
        return self.plus(Measured(fixed, fixed, fixed))
