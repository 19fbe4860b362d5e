"""The Empirical Compatibility Criterion (Section 4.1): does a cross-model case beat old/old?

A case is compatible when the paired difference of its metric to old/old is above zero with 95 %
confidence over queries, not compatible when it is below, and inconclusive in between. Without
labels, qrels or lookups it is not judged: agreement with the new model's own neighbours favours new
queries by construction, and a verdict that cannot fail is none. Where the old model is gone, and
with it old/old, a level of today's search that is known may stand in for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from crossfade.compatibility.bootstrap import Float, interval, resampled_means
from crossfade.retrieval import Measured, Metric

Word = Literal["compatible", "not compatible", "inconclusive", "not judged"]
BASELINE = "old/old"
UNTOUCHED, FILLED = "B(new)/old", "B(new)/B(new)"
"""New queries alone, of an index before anything is done, and of one whose rows are all filled."""
CROSS_MODEL = ("new/old", "F(old)/old", "B(new)/F(old)", "B(new)/old")
ASKED = ("both/old", "both/new", "blend/old")
"""Both models on the query: of a gallery that is untouched, of one that is filled, and as one
vector on the untouched one."""
JUDGED = (*CROSS_MODEL, *ASKED)
REQUIRED = ("B(new)/F(old)", "B(new)/old")
AT_FIRST = {"new": UNTOUCHED, "both": "both/old", "blend": "blend/old", "old": BASELINE}
"""The case that each way of asking is, on the untouched gallery."""
# Below this many queries a percentile bootstrap is itself unsure.
FEW_QUERIES = 100


@dataclass(frozen=True)
class Difference:
    """A case's metric less another's, old/old's in verdicts, in points, with its 95 % interval."""

    difference: float
    ci95: tuple[float, float]
    verdict: Word

    @classmethod
    def of(cls, difference: float, resampled: Float) -> Difference:
        """
        >>> Difference.of(2.0, np.array([1.0, 2.0, 3.0])).verdict
        'compatible'
        """
        low, high = interval(resampled)
        word: Word = "inconclusive"
        if low > 0:
            word = "compatible"
        elif high < 0:
            word = "not compatible"
        return cls(difference, (low, high), word)

    def queries_needed(self, queries: int) -> int | None:
        """About how many queries would tell this difference from none.

        >>> Difference(1.0, (-1.0, 3.0), "inconclusive").queries_needed(100)
        400
        """
        half = (self.ci95[1] - self.ci95[0]) / 2
        if not self.difference or not half:
            return None
        return int(np.ceil(queries * (half / self.difference) ** 2))


@dataclass(frozen=True)
class Verdict:
    """Compatible when every metric says so, not compatible when one does, else inconclusive.

    Not judged where no metric can decide.

    >>> Verdict({}).record()
    {'compatible': None, 'verdict': 'not judged', 'metrics': {}}
    """

    metrics: dict[str, Difference]

    @property
    def word(self) -> Word:
        if not self.metrics:
            return "not judged"
        verdicts = {found.verdict for found in self.metrics.values()}
        if "not compatible" in verdicts:
            return "not compatible"
        return "compatible" if verdicts == {"compatible"} else "inconclusive"

    def record(self) -> dict[str, Any]:
        """For JSON: `compatible` is null where it is inconclusive or not judged."""
        answer = {"compatible": True, "not compatible": False}
        return {
            "compatible": answer.get(self.word),
            "verdict": self.word,
            "metrics": {name: asdict(found) for name, found in self.metrics.items()},
        }


def deciding(metrics: Sequence[str]) -> tuple[str, ...]:
    """Those of the metrics that can decide a verdict: agreement is shown, never judged by.

    >>> deciding(["mAP", "agreement@10"])
    ('mAP',)
    """
    return tuple(name for name in metrics if Metric.named(name).kind != "agreement")


def judge(
    cases: dict[str, Measured],
    decisive: Sequence[str],
    resamples: int,
    seed: int,
    today: float | None = None,
) -> tuple[
    dict[str, dict[str, tuple[float, float]]],
    dict[str, Verdict],
    dict[str, Difference],
]:
    """Intervals of the means, the verdicts, and new/new against old/old.

    A case that was not measured is not judged; without old/old nothing may be `decisive`, unless
    its level in the one decisive metric is given as `today`.
    """
    names, metrics = list(cases), list(next(iter(cases.values())).values)
    ci95: dict[str, dict[str, tuple[float, float]]] = {case: {} for case in names}
    found: dict[str, dict[str, Difference]] = {case: {} for case in names}
    for metric in metrics:
        values = np.stack([cases[case].values[metric] for case in names], axis=1) * 100.0
        # Relevance does not depend on the case, so neither does who has a value.
        values = values[np.isfinite(values[:, 0])]
        means = values.mean(axis=0)
        resampled = resampled_means(values, resamples, seed)
        for row, case in enumerate(names):
            ci95[case][metric] = interval(resampled[:, row])
            if BASELINE in names:
                base = names.index(BASELINE)
                found[case][metric] = Difference.of(
                    float(means[row] - means[base]), resampled[:, row] - resampled[:, base]
                )
            elif today is not None:
                found[case][metric] = Difference.of(
                    float(means[row] - today), resampled[:, row] - today
                )
    verdicts = {
        case: Verdict({m: found[case][m] for m in decisive if case in names}) for case in JUDGED
    }
    better = {m: found["new/new"][m] for m in decisive if "new/new" in names}
    return ci95, verdicts, better


@dataclass(frozen=True)
class Wait:
    """What new queries alone lack of a metric until all is filled, in percent and points."""

    untouched: float
    filled: float
    missing: Difference

    @classmethod
    def of(cls, cases: dict[str, Measured], metric: str, resamples: int, seed: int) -> Wait:
        """From the same queries on the untouched index and on the filled one."""
        values = np.stack([cases[case].values[metric] for case in (UNTOUCHED, FILLED)], axis=1)
        values = values[np.isfinite(values[:, 0])] * 100.0
        first, last = (float(mean) for mean in values.mean(axis=0))
        gained = resampled_means(values[:, 1:] - values[:, :1], resamples, seed)[:, 0]
        return cls(first, last, Difference.of(last - first, gained))

    def record(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "untouched": self.untouched,
            "filled": self.filled,
            "missing": self.missing.difference,
            "ci95": list(self.missing.ci95),
        }
