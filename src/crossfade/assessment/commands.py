"""The commands that carry an upgrade out, to be typed as they are."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from crossfade.assessment.models import Named
from crossfade.assessment.parts import EVALUATION, PAIRS, PLAN, UPGRADE
from crossfade.embedders import Endpoint


@dataclass(frozen=True)
class Carrying:
    """What the commands have to name."""

    store: str
    folder: Path
    new: Named
    source: str | None
    labels: str | None
    id: str | None
    vector: str | None
    judged: bool
    """Whether the evaluation holds verdicts."""
    force: bool
    """Whether `start` has to be told to go on without a comparison with today."""
    fills: bool
    keep_old: bool

    def commands(self) -> list[str]:
        """start, forward, backfill, verify, finish."""
        start = ["start", self.store, str(self.folder / UPGRADE)]
        start += self._options(id=self.id, vector=self.vector, source=self.source)
        if self.judged:
            start += ["--evaluation", str(self.folder / EVALUATION)]
        start += ["--plan", str(self.folder / PLAN)]
        if self.force:
            start.append("--force")
        steps = [start, ["forward", self.store]]
        if self.fills:
            fill = ["backfill", self.store, "--plan", str(self.folder / PLAN), *self.new.words]
            if self.new.embedder.needs_source:
                # The pairs were embedded for the sample: they need not be paid for again.
                fill += ["--known", f"{self.folder / PAIRS}:new"]
            steps.append(fill + self._options(labels=self.labels))
        check = ["verify", self.store]
        if self.fills and not isinstance(self.new.embedder, Endpoint):
            check += self.new.words
        finish = ["finish", self.store, *(["--keep-old"] if self.keep_old else [])]
        return [shlex.join(["crossfade", "migrate", *step]) for step in (*steps, check, finish)]

    def _options(self, **values: str | None) -> list[str]:
        named = ((name, value) for name, value in values.items() if value is not None)
        return [word for name, value in named for word in (f"--{name}", value)]
