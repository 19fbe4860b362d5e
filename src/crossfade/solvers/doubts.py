"""What speaks against fitting on these pairs: too few, rows that do not match, sides swapped.

A fit on such pairs goes through without a word, and its table looks like any other's. So they are
refused, unless forced.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import BadInput
from crossfade.pairs import Pairs
from crossfade.pairs.matching import BELONGING, Matching, match, stretches
from crossfade.retrieval import SameClass, measure
from crossfade.solvers.problem import Rows

Float = NDArray[np.float32]
FEWEST = 50
"""Pairs below which nothing can be said: of 50, ten are held out, a percentage of which is good to
30 points, and whether rows belong together is told with a margin of two (docs/guide.md)."""
FEW_VALIDATED = 100
"""Held-out rows below which the table is too rough to compare its numbers."""
# New is called worse than old where its mAP is below nine tenths of old's, by so many standard
# errors: many, since queries that share a small gallery are not independent. A new model that is a
# little worse is a poor upgrade, and no sign of swapped files.
MUCH_WORSE, SURE = 0.9, 4.0


@dataclass(frozen=True)
class Doubts:
    """`refusals` stop a fit unless it is forced, `warnings` are told; each with its next step."""

    refusals: list[tuple[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def settle(self, where: str, *, force: bool) -> list[str]:
        """What is to be told; raises where there is a refusal and no force."""
        if self.refusals and not force:
            causes, steps = zip(*self.refusals, strict=True)
            raise BadInput(
                "; ".join(causes),
                where=where,
                step=f"{', '.join(dict.fromkeys(steps))}; or fit all the same with --force",
            )
        return [f"forced although {cause}" for cause, _ in self.refusals] + self.warnings


class Sample:
    """The rows that are looked at to see whether they match, picked as all pairs stream by."""

    def __init__(self, rows: int) -> None:
        self.stretches = stretches(rows)
        self._rows = np.concatenate([np.arange(s.start, s.stop) for s in self.stretches])
        self._parts: list[tuple[Float, Float]] = []

    def add(self, start: int, old: Float, new: Float) -> None:
        """A batch that begins with row `start` of the pairs."""
        first, last = np.searchsorted(self._rows, [start, start + len(old)])
        chosen = self._rows[first:last] - start
        self._parts.append((old[chosen], new[chosen]))

    def matching(self) -> Matching:
        old, new = (np.concatenate(side) for side in zip(*self._parts, strict=True))
        return match(old, new, self.stretches)


def find_doubts(pairs: Pairs, sample: Sample, held: Rows, models: tuple[str, str]) -> Doubts:
    """All of them; `held` are the validation rows, `models` the names given to old and new."""
    found = Doubts()
    _count(found, pairs, held)
    if pairs.rows >= FEWEST:
        _matching(found, sample.matching())
    _swapped(found, pairs, held, models)
    return found


def _count(found: Doubts, pairs: Pairs, held: Rows) -> None:
    if pairs.rows < FEWEST:
        found.refusals.append(
            (
                f"{pairs.rows} pairs are too few to learn from and to hold any out",
                f"give {FEWEST} pairs at the very least, better a few thousand",
            )
        )
        return
    validated, dims = len(held.old), max(pairs.old_dim, pairs.new_dim)
    if validated < FEW_VALIDATED:
        found.warnings.append(
            f"validated on {validated} rows: its percentages are good to "
            f"{98 / np.sqrt(validated):.0f} points, give more pairs"
        )
    if pairs.rows < dims:
        found.warnings.append(
            f"{pairs.rows} pairs for {dims} dimensions: in directions that no pair has, the maps "
            "are guesses"
        )


def _matching(found: Doubts, seen: Matching) -> None:
    same = "give the same items in the same order to both models"
    if seen.belongs is None:
        found.warnings.append(
            "one side's rows are all alike: whether they belong to the other's cannot be told"
        )
    elif seen.shift:
        part = "" if seen.where is None else f" about rows {_rows(seen.where)}"
        found.refusals.append(
            (
                f"row i of 'old' does not belong to row i of 'new'{part}: row i of 'new' matches "
                f"row i{seen.shift:+d} of 'old'",
                f"look for a row that one side lacks, and {same}",
            )
        )
    elif seen.score is not None:
        found.refusals.append(
            (
                "row i of 'old' does not belong to row i of 'new': the rows agree no better than "
                f"shuffled ones ({seen.score:.1f} standard deviations, where pairs have "
                f"{BELONGING:g} or more)",
                same,
            )
        )
    elif len(seen.loose) > 1:
        named = [_rows(rows) for rows in seen.loose[:3]] + ["…"] * (len(seen.loose) > 3)
        found.warnings.append(
            f"in {len(seen.loose)} stretches of rows ({', '.join(named)}) a row of 'new' matches "
            "its neighbours' rows of 'old' as well as its own: was the order kept there?"
        )


def _rows(rows: range) -> str:
    return f"{rows.start:,} to {rows.stop - 1:,}"


def _swapped(found: Doubts, pairs: Pairs, held: Rows, models: tuple[str, str]) -> None:
    step = "exchange old and new"
    if pairs.named_as_swapped(models):
        old, new = pairs.sources
        found.refusals.append(
            (f"'old' comes from {old} and 'new' from {new}: are they swapped?", step)
        )
        return
    if held.labels is None:
        return
    relevance = SameClass.among(held.labels)
    old_old, new_new = (
        measure(x, x, relevance, ["mAP"]).values["mAP"] for x in (held.old, held.new)
    )
    judged = np.isfinite(old_old)
    gap = new_new[judged] - old_old[judged]
    if len(gap) < 2:
        return
    before, after = float(old_old[judged].mean()), float(new_new[judged].mean())
    sure = float(gap.mean()) < -SURE * float(gap.std(ddof=1)) / np.sqrt(len(gap))
    if sure and after < MUCH_WORSE * before:
        found.refusals.append(
            (
                f"new is worse than old on these pairs (mAP {100 * after:.1f} against "
                f"{100 * before:.1f} on {len(gap):,} validation rows): are they swapped?",
                step,
            )
        )
