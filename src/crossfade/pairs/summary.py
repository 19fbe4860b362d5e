"""What is in a set of pairs: sizes, norms, bad rows and classes, gathered in one pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.badrows import bad_rows
from crossfade.pairs.files import Found
from crossfade.pairs.labels import MISSING, Labels

SHOWN = 5


@dataclass
class _Norms:
    """Smallest, mean and largest norm of the good rows, and the first bad ones."""

    smallest: float = np.inf
    largest: float = 0.0
    total: float = 0.0
    good: int = 0
    bad: int = 0
    first: list[dict[str, Any]] = field(default_factory=list)

    def add(self, start: int, x: NDArray[np.float32]) -> None:
        problems = bad_rows(x)
        self.bad += len(problems)
        for row, problem in problems.items():
            if len(self.first) < SHOWN:
                self.first.append({"row": start + row, "problem": problem})
        good = np.delete(x, list(problems), axis=0) if problems else x
        if len(good):
            norms = np.sqrt(np.einsum("ij,ij->i", good, good, dtype=np.float64))
            self.smallest = min(self.smallest, float(norms.min()))
            self.largest = max(self.largest, float(norms.max()))
            self.total += float(norms.sum())
            self.good += len(good)

    def as_dict(self) -> dict[str, Any]:
        norms = (
            {"min": self.smallest, "mean": self.total / self.good, "max": self.largest}
            if self.good
            else None
        )
        return {"norms": norms, "bad_rows": {"count": self.bad, "first": self.first}}


def summarize(found: Found) -> dict[str, Any]:
    """A dict that JSON can hold."""
    sides = {"old": _Norms(), "new": _Norms()}
    for start, old, new in found.blocks(found.batch_rows()):
        sides["old"].add(start, old)
        sides["new"].add(start, new)
    summary: dict[str, Any] = {"name": found.name, "rows": found.old.rows}
    for side in (found.old, found.new):
        summary[side.name] = {
            "dim": side.dim,
            "dtype": side.dtype.name,
            **sides[side.name].as_dict(),
        }
    summary["labels"] = None if found.labels is None else _classes(found.labels)
    return summary


def _classes(labels: Labels) -> dict[str, Any]:
    counts = labels.counts()
    alone = np.flatnonzero(labels.single())
    return {
        "classes": int(np.count_nonzero(counts)),
        "smallest": _one(labels, counts, np.argmin),
        "largest": _one(labels, counts, np.argmax),
        "single_item": {
            "count": len(alone),
            "first": [
                {"class": labels.classes[labels.codes[row]].item(), "row": int(row)}
                for row in alone[:SHOWN]
            ],
        },
        "missing": int(np.count_nonzero(labels.codes == MISSING)),
    }


def _one(labels: Labels, counts: NDArray[np.int64], pick: Any) -> dict[str, Any] | None:
    if not len(counts):
        return None
    place = int(pick(counts))
    return {"class": labels.classes[place].item(), "items": int(counts[place])}
