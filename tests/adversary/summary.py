"""What a run of the harness did and found."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.adversary.checking import Violation

_SHOWN = 20


@dataclass
class Summary:
    """Counts, and violations in full."""

    store: str
    seed: int
    kills: Counter[str] = field(default_factory=Counter)
    """SIGKILLs of the migrating process, by the step it was at."""
    backends_ended: int = 0
    servers_killed: int = 0
    acts: Counter[str] = field(default_factory=Counter)
    """Durable acts of each step of an undisturbed migration."""
    points: Counter[str] = field(default_factory=Counter)
    """Crash points tried, by step."""
    migrations: Counter[str] = field(default_factory=Counter)
    """By how they ended."""
    proven: int = 0
    """Migrations that were finished without force."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Steps that said no and were run again, by what they said."""
    calmed: int = 0
    """Endings for which the application had to pause."""
    searches: int = 0
    searches_raised: int = 0
    searches_missed: int = 0
    operations: Counter[str] = field(default_factory=Counter)
    not_done: Counter[str] = field(default_factory=Counter)
    """Operations that the store refused, or whose outcome is not known, by why."""
    rows_checked: int = 0
    violations: list[Violation] = field(default_factory=list)
    begun: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun

    def refused(self, step: str, said: str) -> None:
        self.refusals[f"{step}: {_general(said)}"] += 1

    def record(self) -> dict[str, Any]:
        """For a file."""
        named = vars(self) | {"seconds": round(self.seconds, 1)}
        named["violations"] = [violation.record() for violation in self.violations]
        del named["begun"]
        return {k: dict(v) if isinstance(v, Counter) else v for k, v in named.items()}

    def text(self) -> str:
        """For people."""
        kills = self.kills.total()
        each = self.kills or self.points
        rate = (kills or self.points.total()) / max(self.seconds, 1e-9)
        lines = [
            f"{self.store}, seed {self.seed}: {self.seconds:.0f} s, {rate:.2f} a second",
            f"  migrations      {_counts(self.migrations)}; {self.proven} finished without force",
            f"  {'kills' if kills else 'crash points':<16}{each.total()} ({_counts(each)})",
        ]
        if self.acts:
            acts = f"{self.acts.total()} of an undisturbed migration ({_counts(self.acts)})"
            lines.append(f"  durable acts    {acts}")
        if self.backends_ended or self.servers_killed:
            lines.append(
                f"  PostgreSQL      {self.backends_ended} backends ended, "
                f"{self.servers_killed} servers killed"
            )
        lines += [
            f"  application     {self.operations.total()} operations ({_counts(self.operations)})",
            *(f"                  {n} × not done: {why}" for why, n in _most(self.not_done)),
            f"  searches        {self.searches}: {self.searches_raised} raised, "
            f"{self.searches_missed} missed the row they asked for",
            f"  rows checked    {self.rows_checked}",
            f"  run again       {self.refusals.total()} steps that said no; "
            f"the application paused for {self.calmed} endings",
            *(f"                  {n} × {why}" for why, n in _most(self.refusals)),
            f"  violations      {len(self.violations)}",
        ]
        kinds = Counter(_general(violation.what) for violation in self.violations)
        lines += [f"                  {n} × {what}" for what, n in kinds.most_common()]
        for violation in self.violations[:_SHOWN]:
            lines += ["", *_shown(violation)]
        if len(self.violations) > _SHOWN:
            lines += ["", f"… and {len(self.violations) - _SHOWN} more: --json FILE has them all"]
        return "\n".join(lines)


def _shown(violation: Violation) -> list[str]:
    row = "" if violation.row is None else f" (row {violation.row})"
    lines = [f"VIOLATION: {violation.what}{row}"]
    lines += [f"  {name}: {value}" for name, value in violation.where.items()]
    if violation.expected:
        lines.append(f"  expected: {violation.expected}")
    if violation.found:
        lines.append(f"  found: {violation.found}")
    return lines + [f"  {line}" for line in violation.past]


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"


def _most(counts: Counter[str]) -> list[tuple[str, int]]:
    return counts.most_common(12)


def _general(said: str) -> str:
    """Without what differs from time to time: paths, ids, numbers."""
    said = re.sub(r" \(first ids: [^)]*\)", "", said.split("\n")[0])
    said = re.sub(r"tmp[\w-]*", "tmp…", said)
    said = re.sub(r"(/[\w.\-]+)+(#\w+)?", "…", said)
    return re.sub(r"\d[\d,.]*", "N", said)[:160]
