"""A plan, and its folder: plan.json, curves.parquet, curve.png, the order's tensors and a card."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, field
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
from crossfade.backfill.orders import Order, load_learned, saved_tensors
from crossfade.backfill.record import PlanRecord
from crossfade.backfill.simulate import Simulation
from crossfade.backfill.volume import Quiet
from crossfade.errors import BadInput
from crossfade.files.atomic import check_parent, refuse_existing, replacing
from crossfade.remote import is_remote, on_disk, to_path
from crossfade.upgrade import Upgrade
from crossfade.upgrade.notebook import render_table

PLAN, CURVES, PICTURE, TENSORS, CARD = (
    "plan.json",
    "curves.parquet",
    "curve.png",
    "order.safetensors",
    "README.md",
)
_CANDIDATE = ("asking", "weights", "order", "blend", "last_blend", "volume", "last_volume")
_LIFT = "lift"
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
    folder = to_path(folder)
    refuse_existing(folder, overwrite=overwrite)
    if not is_remote(folder):
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
    learned: Mapping[str, Order] = field(default_factory=dict)
    """Those of its orders that learn, by name."""
    quiet: Quiet | None = None
    made: Made | None = None
    """What it was made from; None once it was read back."""

    @classmethod
    def of(cls, record: PlanRecord, made: Made) -> Self:
        """A plan that was made just now."""
        found = made.simulation
        return cls(record, found.groups, found.learned, found.quiet, made)

    def __repr__(self) -> str:
        lines = [f"Plan: {self.record.recommendation} ({self.record.reason})"]
        lines += [f"  ask {said(self.record)}"]
        lines += [f"  order {self.record.order}, blend a = {self.record.how}"]
        return "\n".join([*lines, *(f"  {line}" for line in promises(self.record))])

    def _repr_html_(self) -> str:
        made = self.record
        head = ["in percent", "old/old", "at 0 %", f"at the stop ({made.stop:.0%})", "new/new"]
        rows = [
            [
                metric,
                *(
                    "–" if x is None else f"{x:.1f}"
                    for x in (
                        found.get("old/old"),
                        self.quality_at(0.0, metric),
                        self.quality_at(made.stop, metric),
                        found.get("new/new"),
                    )
                ),
            ]
            for metric, found in made.quality.items()
        ]
        return render_table(f"Plan: {made.recommendation} ({made.reason})", head, rows)

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
        target, simulation, choice = to_path(folder), self.made.simulation, self.made.choice
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
        with on_disk(folder) as copy:
            return cls._read(copy, to_path(folder), upgrade)

    @classmethod
    def _read(cls, folder: Path, name: Path, upgrade: Upgrade | None) -> Self:
        """Of the files in `folder`, which messages call `name`."""
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
                f"is not a plan ({error})", where=name, step="name a plan's folder"
            ) from None
        except (ValidationError, SafetensorError, ValueError) as error:
            first = str(error).splitlines()[0]
            raise BadInput(
                f"is damaged ({first})", where=name, step="make the plan again"
            ) from None
        if found != written:
            raise BadInput(
                "was edited since it was made", where=name, step="restore it, or make it again"
            )
        if upgrade is not None and plan.upgrade != upgrade.hash_:
            raise BadInput(
                f"was made for upgrade {plan.upgrade[:12]}, and this one is {upgrade.hash_[:12]}",
                where=name,
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
        quiet = None
        if "quiet.direction" in tensors:
            quiet = Quiet(tensors["quiet.direction"], float(tensors["quiet.loudness"][0]))
        elif not plan.how.loud:
            raise BadInput(
                "is damaged (no quiet direction)", where=name, step="make the plan again"
            )
        return cls(plan, groups, load_learned(plan.order, tensors), quiet)


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
    band = drawn_curves(folder, plan, metric).band
    return band[0][1] if band else plan.quality_at(0.0, metric)


@dataclass(frozen=True)
class DrawnCurves:
    """What curves.parquet adds to a plan's own curve, at the same shares; None or empty if it
    does not: the 95 % band, and the same rows in the same order asked with new queries alone."""

    band: list[tuple[float, float]]
    alone: list[float] | None


def drawn_curves(folder: Path, plan: PlanRecord, metric: str) -> DrawnCurves:
    """Read what there is to draw beside the plan's curve; nothing where the file is gone."""
    how = dict(zip(_CANDIDATE[2:], (plan.order, *astuple(plan.how)), strict=True))
    if plan.lift != 1:
        # The column is not in the curves of plans that know of no other.
        how[_LIFT] = plan.lift
    wanted = [(name, "==", value) for name, value in (how | {"metric": metric}).items()]
    try:
        with (folder / CURVES).open("rb") as file:
            rows = pq.read_table(file, filters=wanted).sort_by("share").to_pylist()
    except (OSError, pa.ArrowException):
        return DrawnCurves([], None)
    shares = plan.curve["share"]
    own = (plan.asking, str(plan.weights))
    chosen = [row for row in rows if (row["asking"], row["weights"]) == own]
    band = [(row["low"], row["high"]) for row in chosen if row["high"] is not None]
    alone = [row["mean"] for row in rows if row["asking"] == "new"][: len(shares)]
    return DrawnCurves(
        band if len(band) == len(shares) else [],
        alone if plan.asking != "new" and len(alone) == len(shares) else None,
    )


def card(plan: PlanRecord) -> str:
    """For the person who finds the folder in a year."""
    lines = [f"# Plan: {plan.recommendation}", "", f"{plan.reason[0].upper()}{plan.reason[1:]}."]
    if plan.queries:
        lines.append(
            f"Simulated on {plan.queries:,} queries and {plan.gallery:,} items of "
            f"`{Path(plan.data).name}`, optimizing {' and '.join(plan.optimize)}."
        )
    lines += ["", f"Ask **{said(plan)}**, order **{plan.order}**, blend a = **{plan.how}**.", ""]
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


def said(plan: PlanRecord) -> str:
    """How to ask, by the share that is filled."""
    later = [f"{way} from {first:.0%} on" for first, way in plan.asked[1:]]
    return ", ".join([plan.asking, *later])


def promises(plan: PlanRecord) -> list[str]:
    """What the voices count, what rows store before they are filled, the worst moment on the way,
    and when the old model can go."""
    out = []
    if plan.lift == 0:
        out.append("do not lift: until they are filled, rows do better as they are than by F(old)")
    elif plan.lift != 1:
        out.append(
            f"until they are filled, rows store {plan.lift:g}·F(old) + {1 - plan.lift:g}·old"
        )
    if plan.asking in ("both", "blend") and plan.weights != DEFAULT:
        out.append(f"the new model counts, by the state of a row: {plan.weights}")
    if plan.lowest and not plan.knows_today:
        out.append("today's level is not known: the old model has embedded no queries")
    return [*out, *plan.promises.of_the_way()]


def _table(simulation: Simulation, choice: Choice) -> pa.Table:
    columns: dict[str, list[Any]] = {
        k: []
        for k in (
            *_CANDIDATE,
            *(_LIFT, "share", "metric", "mean", "low", "high"),
        )
    }
    for candidate in choice.among(simulation):
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
                    candidate.lift,
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
    return out | saved_tensors(simulation.learned.values())
