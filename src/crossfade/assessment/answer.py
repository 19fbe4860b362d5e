"""The answer: upgrade or not, how to ask meanwhile, what to fill, what it costs, what to run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from crossfade.assessment.promise import Stage

ASKED = {
    "new": "the new model alone",
    "both": "both models, each on its own column",
    "blend": "one vector of both models, on the old column",
    "old": "as today",
}
NO_OLD_MODEL = (
    "today's search was not measured, for no old model has embedded the lookups: give it as "
    "--embed-old, or its level as --today"
)


@dataclass(frozen=True)
class Fill:
    """How much is to be embedded; cost and seconds are None where nobody said what an item takes.

    `known` rows were embedded for the sample already.
    """

    share: float
    rows: int
    known: int
    to_embed: int
    cost: float | None
    seconds: float | None

    @classmethod
    def of(
        cls, share: float, rows: int, known: int, per_1k: float | None, per_second: float | None
    ) -> Fill:
        """
        >>> Fill.of(0.5, 10_000, 2000, per_1k=0.1, per_second=100.0)
        Fill(share=0.5, rows=5000, known=2000, to_embed=3000, cost=0.3, seconds=30.0)
        """
        wanted = int(share * rows + 1e-9)
        known = min(known, wanted)
        left = wanted - known
        return cls(
            share,
            wanted,
            known,
            left,
            None if per_1k is None else round(left / 1000 * per_1k, 6),
            None if per_second is None else round(left / per_second, 3),
        )

    def __str__(self) -> str:
        if not self.rows:
            return "nothing to embed"
        said = f"{self.share:.0%}, {self.rows:,} rows: {self.to_embed:,} to embed"
        if self.known:
            said += f", {self.known:,} are embedded already"
        if self.cost is not None:
            said += f"; cost {self.cost:,.2f}"
        if self.seconds is not None:
            said += f"; about {duration(self.seconds)}"
        return said


@dataclass(frozen=True)
class Answer:
    """What `quickstart` found; `answer.json` holds it.

    `upgrade` is None where today's search could not be measured.
    """

    store: str
    rows: int
    old_model: str
    new_model: str
    old_dim: int
    new_dim: int
    upgrade: bool | None
    reason: str
    plan: str
    asking: str
    alone_from: float | None
    keep_old: bool
    stages: list[Stage]
    fill: Fill
    everything: Fill
    """What embedding every row would take."""
    storage_bytes: int | None
    forward_seconds: float | None
    spent: float
    seconds: dict[str, float]
    """What each part took, in this run or in the one that made it."""
    commands: list[str]
    files: dict[str, str]
    warnings: list[str]
    notes: list[str]
    """What was kept of an earlier run, or made again."""

    def record(self) -> dict[str, Any]:
        return {"format": 1} | asdict(self)

    @property
    def headline(self) -> str:
        """Upgrade or not, and why."""
        words = {True: "upgrade", False: "do not upgrade", None: "not judged"}
        return f"{words[self.upgrade]}: {self.reason}"

    def lines(self) -> list[str]:
        """What to know beside the headline and the stages."""
        out = [f"ask meanwhile: {ASKED[self.asking]} (`{self.asking}`)"]
        if self.asking != "new":
            if self.keep_old:
                out[0] += ", also after `finish --keep-old`: new queries alone stay below today"
            elif self.alone_from:
                out[0] += f"; new queries alone are not below today from {self.alone_from:.0%} on"
        out.append(f"fill: {self.fill}")
        out.append(f"to embed every row: {self.everything}")
        if self.storage_bytes is not None:
            out.append(
                f"while it is under way: {self.storage_bytes / 1e6:,.1f} MB more storage; `forward`"
                f" takes about {duration(self.forward_seconds or 0.0)}"
            )
        if self.spent:
            out.append(f"spent on the sample: {self.spent:.4g}")
        return out

    @property
    def before_commands(self) -> str:
        """What the commands are for."""
        words = {
            True: "to carry it out:",
            False: "to carry it out all the same:",
            None: "to carry it out without knowing:",
        }
        return words[self.upgrade]

    def __str__(self) -> str:
        commands = [f"  {command}" for command in self.commands]
        last = [self.before_commands, *commands] if commands else []
        return "\n".join([self.headline, *self.lines(), *last])


def duration(seconds: float) -> str:
    """
    >>> duration(0.4), duration(90), duration(7200), duration(400000)
    ('1 s', '2 min', '2.0 h', '4.6 days')
    """
    for size, unit, digits in ((86_400, "days", 1), (3600, "h", 1), (60, "min", 0)):
        if seconds >= size:
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{max(1, round(seconds))} s"


def judge(stages: list[Stage], refusals: list[str]) -> tuple[bool | None, str]:
    """Upgrade or not, and why: by what `migrate start` would refuse, then by the last stage.

    A gain that is not above chance is no reason to upgrade.
    """
    end = stages[-1]
    if any(level.ci95 is None for level in end.levels.values()):
        return None, NO_OLD_MODEL
    if refusals:
        return False, "; ".join(refusals)
    said = ", ".join(f"{metric} {level}" for metric, level in end.levels.items())
    last = f"{said} against today once it is {end.name}"
    if any(level.worse for level in end.levels.values()):
        return False, f"it ends below today's search: {last}"
    if not any(level.better for level in end.levels.values()):
        return False, f"no gain is shown: {last}"
    return True, last
