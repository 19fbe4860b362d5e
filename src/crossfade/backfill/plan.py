"""A plan, and its folder: plan.json, curves.parquet, curve.png, the order's tensors and a card."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from crossfade.asking import DEFAULT
from crossfade.backfill.blend import stored
from crossfade.backfill.choose import Choice
from crossfade.backfill.items import Groups
from crossfade.backfill.orders import AlignmentError
from crossfade.backfill.record import PlanRecord
from crossfade.backfill.simulate import Simulation
from crossfade.backfill.volume import Quiet
from crossfade.errors import BadInput
from crossfade.files.atomic import check_parent, refuse_existing, replacing
from crossfade.upgrade import Upgrade

PLAN, CURVES, PICTURE, TENSORS, CARD = (
    "plan.json",
    "curves.parquet",
    "curve.png",
    "order.safetensors",
    "README.md",
)
_CANDIDATE = ("asking", "weights", "order", "blend", "last_blend", "volume", "last_volume")
"""What tells a candidate from the others, as columns of its curves."""
HASH = "hash"
ORDER = "order.parquet"
"""The ids of the real gallery, most urgent first; there if the plan was given one."""


@dataclass(frozen=True, eq=False)
class Made:
    """The curves a plan was chosen from, and the choice."""

    simulation: Simulation
    choice: Choice


def check_plan_target(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that could not be written, or that is something else than a plan."""
    refuse_existing(folder, overwrite=overwrite)
    check_parent(folder)
    if folder.exists() and not (folder / PLAN).is_file():
        raise BadInput("is there and is not a plan", where=folder, step="name another folder")


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """How to ask, whom to re-embed first, what to store, where to stop, and what it costs.

    `crossfade.plan` makes one, `Plan.load` reads one back. `record` is what plan.json holds; the
    rest is what carrying it out needs.
    """

    record: PlanRecord
    groups: Groups | None = None
    alignment: AlignmentError | None = None
    quiet: Quiet | None = None
    made: Made | None = None
    """What it was made from; None once it was read back."""

    @classmethod
    def of(cls, record: PlanRecord, made: Made) -> Self:
        """A plan that was made just now."""
        found = made.simulation
        return cls(record, found.groups, found.alignment, found.quiet, made)

    def __repr__(self) -> str:
        lines = [f"Plan: {self.record.recommendation} ({self.record.reason})"]
        lines += [f"  order {self.record.order}, blend a = {self.record.how}"]
        return "\n".join([*lines, *(f"  {line}" for line in promises(self.record))])

    def stored(
        self,
        mapped: NDArray[np.float32],
        lifted: NDArray[np.float32],
        places: NDArray[np.integer],
        items: int,
    ) -> NDArray[np.float32]:
        """What the items at `places` of the order (from 0, of `items` in all) store.

        `mapped` is B(new), `lifted` F(old). An item that the order does not name, because it came
        later, is stored as B(new).
        """
        return stored(mapped, lifted, self.record.how, np.asarray(places) / items, self.quiet)

    def quality_at(self, share: float, metric: str) -> float:
        """What the simulated gallery reaches at a share from 0 to 1, in percent."""
        return self.record.quality_at(share, metric)

    def save(
        self,
        folder: str | Path,
        *,
        overwrite: bool = False,
        more: Callable[[Path], object] | None = None,
    ) -> None:
        """Write the folder: whole, or not at all.

        `more` is called with the unfinished folder, to add to it; if it fails, there is no folder.
        """
        from crossfade.backfill.picture import draw

        if self.made is None:
            raise BadInput("was read from a folder", where="the plan", step="copy that folder")
        target, simulation, choice = Path(folder), self.made.simulation, self.made.choice
        check_plan_target(target, overwrite=overwrite)
        with replacing(target, overwrite=overwrite) as temporary:
            temporary.mkdir()
            pq.write_table(_table(simulation, choice), temporary / CURVES)
            draw(simulation, choice, temporary / PICTURE)
            write_record(self.record, temporary, _tensors(simulation))
            if more is not None:
                more(temporary)

    @classmethod
    def load(cls, folder: str | Path, upgrade: Upgrade | None = None) -> Self:
        """Read a plan back; with `upgrade`, refuse a plan that was made for another one."""
        folder = Path(folder)
        try:
            record = json.loads((folder / PLAN).read_text(encoding="utf-8"))
            if not isinstance(record, dict):
                raise ValueError("plan.json is no record")
            written = record.pop(HASH, None)
            plan = PlanRecord.model_validate(record)
            tensors = load_file(folder / TENSORS)
            found = content_hash(record, folder)
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(
                f"is not a plan ({error})", where=folder, step="name a plan's folder"
            ) from None
        except (ValidationError, SafetensorError, ValueError) as error:
            first = str(error).splitlines()[0]
            raise BadInput(
                f"is damaged ({first})", where=folder, step="make the plan again"
            ) from None
        if found != written:
            raise BadInput(
                "was edited since it was made", where=folder, step="restore it, or make it again"
            )
        if upgrade is not None and plan.upgrade != upgrade.hash_:
            raise BadInput(
                f"was made for upgrade {plan.upgrade[:12]}, and this one is {upgrade.hash_[:12]}",
                where=folder,
                step="make a plan for this upgrade",
            )
        groups = None
        if "groups.means" in tensors:
            present = tensors.get("groups.present")
            groups = Groups(
                tensors["groups.means"],
                labelled=bool(tensors["groups.labelled"][0]),
                present=None if present is None else present.astype(bool),
            )
        alignment = None
        if "alignment.weight" in tensors:
            alignment = AlignmentError(
                tensors["alignment.weight"],
                float(tensors["alignment.bias"][0]),
                tensors["alignment.centre"],
                tensors["alignment.scale"],
            )
        quiet = None
        if "quiet.direction" in tensors:
            quiet = Quiet(tensors["quiet.direction"], float(tensors["quiet.loudness"][0]))
        elif not plan.how.loud:
            raise BadInput(
                "is damaged (no quiet direction)", where=folder, step="make the plan again"
            )
        return cls(plan, groups, alignment, quiet)


def write_record(record: PlanRecord, folder: Path, tensors: dict[str, NDArray[Any]]) -> None:
    """plan.json, the tensors of its order, and a card, into a folder that is being made."""
    save_file(tensors, folder / TENSORS)
    text = record.model_dump()
    text |= {HASH: content_hash(text, folder)}
    written = json.dumps(text, indent=1, ensure_ascii=False) + "\n"
    (folder / PLAN).write_text(written, encoding="utf-8")
    (folder / CARD).write_text(card(record), encoding="utf-8")


def content_hash(record: dict[str, Any], folder: Path) -> str:
    """Of all that carrying the plan out depends on; numbers as JSON writes them."""
    text = json.dumps(record, sort_keys=True, ensure_ascii=False)
    tensors = (folder / TENSORS).read_bytes()
    return hashlib.sha256(text.encode() + b"\0" + tensors).hexdigest()


def upper_at_start(folder: Path, plan: PlanRecord, metric: str) -> float:
    """The upper end of the 95 % band of the plan's curve at 0 %, or the curve itself without one.

    The curves are in a file of their own, which a plan can be carried out without.
    """
    chosen = dict(
        zip(
            _CANDIDATE,
            (plan.asking, str(plan.weights), plan.order, *astuple(plan.how)),
            strict=True,
        )
    )
    wanted = [(name, "==", value) for name, value in (chosen | {"metric": metric}).items()]
    try:
        rows = pq.read_table(folder / CURVES, filters=[*wanted, ("share", "==", 0.0)]).to_pylist()
    except (OSError, pa.ArrowException):
        rows = []
    found = [row["high"] for row in rows if row["high"] is not None]
    return float(found[0]) if found else plan.quality_at(0.0, metric)


def card(plan: PlanRecord) -> str:
    """For the person who finds the folder in a year."""
    lines = [f"# Plan: {plan.recommendation}", "", f"{plan.reason[0].upper()}{plan.reason[1:]}."]
    if plan.queries:
        lines.append(
            f"Simulated on {plan.queries:,} queries and {plan.gallery:,} items of "
            f"`{Path(plan.data).name}`, optimizing {' and '.join(plan.optimize)}."
        )
    lines += ["", f"Ask **{plan.asking}**, order **{plan.order}**, blend a = **{plan.how}**.", ""]
    lines += [f"- {line}" for line in promises(plan)]
    if plan.quality:
        names = list(next(iter(plan.quality.values())))
        lines += ["", "| metric | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
        for metric, values in plan.quality.items():
            lines.append(f"| {metric} | " + " | ".join(f"{v:.2f}" for v in values.values()) + " |")
        lines += ["", "| to | items | cost | seconds |", "|---|---|---|---|"]
        for name, cost in plan.costs.items():
            cells = (
                "–" if cost[k] is None else f"{cost[k]:,.6g}" for k in ("items", "cost", "seconds")
            )
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines += ["", "![curve](curve.png)"]
    lines += ["", *(f"Warning: {w}.\n" for w in plan.warnings)]
    lines.append(f"For upgrade `{plan.upgrade}`.\n")
    return "\n".join(lines)


def promises(plan: PlanRecord) -> list[str]:
    """What the voices count, the worst moment on the way, and when the old model can go."""
    out = []
    if plan.asking in ("both", "blend") and plan.weights != DEFAULT:
        out.append(f"the new model counts, by the state of a row: {plan.weights}")
    if plan.lowest and not plan.knows_today:
        out.append("today's level is not known: the old model has embedded no queries")
    for metric, low in plan.lowest.items():
        if low["ci95"] is None:
            lowest = f"the lowest point is at {low['share']:.0%}, {low['quality']:.1f}"
            out.append(f"{metric}: {lowest}")
            continue
        least, most = low["ci95"]
        out.append(
            f"{metric}: the lowest point is at {low['share']:.0%}, {low['against_today']:+.1f} "
            f"[{least:+.1f}, {most:+.1f}] against today"
        )
    for metric, one in plan.alone.items() if plan.knows_today else ():
        reaches = one["reaches"]
        until = "never are" if reaches is None else f"are from {reaches:.0%} on"
        out.append(f"{metric}: new queries alone {until} no longer below old/old")
    return out


def _table(simulation: Simulation, choice: Choice) -> pa.Table:
    columns: dict[str, list[Any]] = {
        k: []
        for k in (
            *_CANDIDATE,
            *("share", "metric", "mean", "low", "high"),
        )
    }
    for candidate in simulation.candidates:
        for metric in candidate.curve.values:
            means = candidate.curve.means(metric)
            chosen = candidate is choice.best and metric in choice.bands
            low, high = choice.bands[metric] if chosen else (None, None)
            for t, share in enumerate(candidate.curve.shares):
                row = (
                    candidate.asking,
                    str(candidate.weights),
                    candidate.order,
                    *astuple(candidate.blend),
                    share,
                    metric,
                    means[t],
                )
                ends = (None, None) if low is None or high is None else (low[t], high[t])
                for name, value in zip(columns, (*row, *ends), strict=True):
                    columns[name].append(value)
    return pa.table(columns)


def _tensors(simulation: Simulation) -> dict[str, NDArray[Any]]:
    out: dict[str, NDArray[Any]] = {"format": np.ones(1, np.int64)}
    if simulation.groups is not None:
        out["groups.means"] = np.ascontiguousarray(simulation.groups.means)
        out["groups.labelled"] = np.array([simulation.groups.labelled], np.uint8)
        out["groups.present"] = simulation.groups.present.astype(np.uint8)
    if simulation.quiet is not None:
        out["quiet.direction"] = simulation.quiet.direction
        out["quiet.loudness"] = np.array([simulation.quiet.loudness])
    if simulation.alignment is not None:
        out["alignment.weight"] = simulation.alignment.weight
        out["alignment.bias"] = np.array([simulation.alignment.bias])
        out["alignment.centre"] = simulation.alignment.centre
        out["alignment.scale"] = simulation.alignment.scale
    return out
