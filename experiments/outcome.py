"""What an experiment found: rows beside the paper's, claims with their verdicts, all as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

# Points of percent below which a difference says nothing: with some thousand queries, about one
# standard error of a paired difference.
NOISE = 0.3
Runs = list[float]


@dataclass
class Row:
    """One line of a table: what it is, the paper's numbers, and one number for each seed."""

    name: tuple[str, ...]
    paper: dict[str, float]
    runs: dict[str, Runs]
    claims: list[str] = field(default_factory=list)

    def mean(self, metric: str) -> float:
        return float(np.mean(self.runs[metric]))

    def spread(self, metric: str) -> float:
        return float(np.std(self.runs[metric]))


@dataclass
class Claim:
    """A claim of the paper, and whether it holds in this run."""

    text: str
    verdict: str
    measured: str


@dataclass
class Outcome:
    """All of a run."""

    experiment: str
    title: str
    paper: str
    substitution: str
    columns: tuple[str, ...]
    metrics: tuple[str, ...]
    rows: list[Row] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    series: dict[str, Any] = field(default_factory=dict)

    def row(self, *name: str) -> Row:
        """The row of that name."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(name)

    def add(
        self,
        name: Sequence[str],
        paper: Sequence[float] | None,
        runs: dict[str, Runs],
        metrics: Sequence[str] | None = None,
    ) -> None:
        """A row; `paper` in the order of `metrics`, by default this outcome's own."""
        names = tuple(metrics or self.metrics)[: None if paper is None else len(paper)]
        known = {} if paper is None else dict(zip(names, paper, strict=True))
        self.rows.append(Row(tuple(name), known, runs))

    def claim(
        self,
        text: str,
        more: Sequence[tuple[tuple[str, ...], tuple[str, ...]]],
        metrics: Sequence[str] | None = None,
        *,
        level: bool = False,
    ) -> None:
        """That the first of each pair of rows is above the second, or `level` with it.

        "holds" where every pair differs by more than its spread over seeds and `NOISE`; "level"
        where none says otherwise.
        """
        words, said = set(), []
        for first, second in more:
            for metric in metrics or self.metrics:
                a, b = self.row(*first), self.row(*second)
                gaps = np.array(a.runs[metric]) - np.array(b.runs[metric])
                gap, sure = float(gaps.mean()), max(float(gaps.std()), NOISE)
                word = "above" if gap > sure else "below" if gap < -sure else "level"
                words.add(word)
                said.append(
                    f"{' '.join(first)} {a.mean(metric):.2f} against "
                    f"{' '.join(second)} {b.mean(metric):.2f} ({metric})"
                )
        if level:
            verdict = "holds" if words == {"level"} else "does not hold"
        elif "below" in words:
            verdict = "holds in part" if "above" in words else "does not hold"
        else:
            verdict = "holds" if words == {"above"} else "level"
        self.judge(text, verdict, "; ".join(said), more[0][0])

    def judge(self, text: str, verdict: str, measured: str, row: tuple[str, ...] | None) -> None:
        """A claim judged by the experiment itself; `row` is where the table shows it."""
        self.claims.append(Claim(text, verdict, measured))
        if row is not None:
            self.row(*row).claims.append(f"({len(self.claims)}) {verdict}")

    def write(self, folder: Path) -> Path:
        """JSON under the experiment's name, whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.experiment}.json"
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n")
        temporary.replace(path)
        return path

    @classmethod
    def read(cls, path: Path) -> Outcome:
        """What `write` wrote."""
        found = json.loads(path.read_text())
        found["rows"] = [Row(**row | {"name": tuple(row["name"])}) for row in found["rows"]]
        found["claims"] = [Claim(**claim) for claim in found["claims"]]
        for name in ("columns", "metrics"):
            found[name] = tuple(found[name])
        return cls(**found)
