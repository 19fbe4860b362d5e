"""What a report is made from: folders, files and addresses, told apart by what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from crossfade.backfill.plan import PLAN, Plan
from crossfade.backfill.record import PlanRecord
from crossfade.errors import BadInput
from crossfade.files.guards import reading
from crossfade.journal.journal import load_journal
from crossfade.journal.opening import open_migrating
from crossfade.migration.status import Status, read_status
from crossfade.upgrade import Upgrade
from crossfade.upgrade.artefact import CONFIG, TENSORS, Config

EVALUATION = "evaluation.json"
# More than any evaluation with its classes one by one.
_LARGEST = 64 << 20
_SUFFIX = ".lance"


class _Loose(BaseModel):
    """Read as far as a report shows it; what else is there is another reader's."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Difference(_Loose):
    """Against old/old, in points."""

    difference: float | None
    ci95: tuple[float | None, float | None]


class Judged(_Loose):
    """The verdict on a case."""

    verdict: str
    metrics: dict[str, Difference]


class Of(_Loose):
    """The upgrade that was evaluated."""

    hash: str
    old: str
    new: str


class Evaluation(_Loose):
    """What `crossfade evaluate --json` wrote."""

    upgrade: Of
    data: dict[str, Any]
    distance: str
    metrics: list[str]
    judged: bool
    cases: dict[str, dict[str, float | dict[str, tuple[float | None, float | None]] | None]]
    verdicts: dict[str, Judged]
    asking: str | None
    failed: list[str]
    warnings: list[str]
    decisive_metrics: list[str] = []
    today: float | None = None
    """The level that was given of today's search, in the one metric that decides."""
    sample: Evaluation | None = None
    """Where this was measured on a whole store: the same on held-out rows."""

    def measured(self, case: str, metric: str) -> tuple[float, float, float] | None:
        """Low end, mean and high end in percent; None where there is no number."""
        found = self.cases[case]
        mean, ends = found.get(metric), found.get("ci95")
        if not isinstance(mean, float) or not isinstance(ends, dict):
            return None
        low, high = ends.get(metric, (None, None))
        return None if low is None or high is None else (low, mean, high)


@dataclass(frozen=True)
class Sources:
    """What was given, each with the place it came from."""

    upgrade: Config | None = None
    upgrade_place: str | None = None
    evaluation: Evaluation | None = None
    evaluation_place: str | None = None
    plan: PlanRecord | None = None
    plan_place: str | None = None
    migration: Status | None = None
    store_place: str | None = None

    @property
    def models(self) -> tuple[str, str]:
        """The names of the old model and of the new one, where anything tells them."""
        if self.upgrade is not None:
            return self.upgrade.old.model, self.upgrade.new.model
        if self.evaluation is not None:
            return self.evaluation.upgrade.old, self.evaluation.upgrade.new
        if self.migration is not None:
            return self.migration.old_model, self.migration.new_model
        return "", ""


def gather(places: Sequence[str | Path]) -> Sources:
    """Read all places; raise for one that is nothing, for two of a kind, and for parts of
    different upgrades."""
    found = Sources()
    for place in places:
        for kind, one in _recognized(place):
            if getattr(found, f"{kind}_place") is not None:
                name = "store" if kind == "store" else kind
                raise BadInput(
                    f"is a second {name}, after {getattr(found, f'{kind}_place')}",
                    where=one,
                    step="report on one of each",
                )
            found = _with(found, kind, one)
    _check_same(found)
    return found


def _recognized(place: str | Path) -> list[tuple[str, str]]:
    """The kinds of things at a place: itself, or what a folder holds of them."""
    path = Path(place)
    with reading(path):
        if path.is_file():
            return [("evaluation", str(place))]
        if not path.is_dir() or path.suffix == _SUFFIX:
            return [("store", str(place))]
        own = _kind_of_folder(path)
        if own is not None:
            return [(own, str(place))]
        inside = [
            (kind, str(child))
            for child in sorted(path.iterdir())
            if child.is_dir() and (kind := _kind_of_folder(child)) is not None
        ]
        if (path / EVALUATION).is_file():
            inside.append(("evaluation", str(path / EVALUATION)))
        if not inside and any(path.glob("*.parquet")):
            return [("store", str(place))]
    if not inside:
        raise BadInput(
            "holds no upgrade, evaluation or plan, and is no store",
            where=place,
            step="name a folder of `crossfade fit` or `plan`, a file of `evaluate --json`, or the "
            "address of a store",
        )
    return inside


def _kind_of_folder(path: Path) -> str | None:
    if (path / PLAN).is_file():
        return "plan"
    there = (path / CONFIG).is_file() and (path / TENSORS).is_file()
    return "upgrade" if there else None


def _with(found: Sources, kind: str, place: str) -> Sources:
    if kind == "upgrade":
        return replace(found, upgrade=Upgrade.load(place).config_, upgrade_place=place)
    if kind == "plan":
        return replace(found, plan=Plan.load(place).record, plan_place=place)
    if kind == "evaluation":
        return replace(found, evaluation=read_evaluation(Path(place)), evaluation_place=place)
    store = open_migrating(place)
    try:
        journal = load_journal(store)
        known = None if journal is None else read_status(store, journal)
        return replace(found, migration=known, store_place=store.name)
    finally:
        store.close()


def read_evaluation(path: Path) -> Evaluation:
    """What `crossfade evaluate --json` wrote, checked."""
    with reading(path):
        if path.stat().st_size > _LARGEST:
            raise BadInput("is too large to be an evaluation", where=path)
        text = path.read_bytes()
    try:
        return Evaluation.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise BadInput(
            f"is no evaluation ({first['msg']}{f' at {where}' if where else ''})",
            where=path,
            step="write it with: crossfade evaluate UPGRADE PAIRS --json FILE",
        ) from None


def _check_same(found: Sources) -> None:
    """All parts are to be of one upgrade."""
    hashes = {
        place: value
        for place, value in (
            (found.upgrade_place, found.upgrade and found.upgrade.content_hash),
            (found.evaluation_place, found.evaluation and found.evaluation.upgrade.hash),
            (found.plan_place, found.plan and found.plan.upgrade),
            (found.store_place, found.migration and found.migration.upgrade),
        )
        if value
    }
    if len(set(hashes.values())) > 1:
        told = ", ".join(f"{place} of {str(value)[:12]}" for place, value in hashes.items())
        raise BadInput(
            f"these are parts of different upgrades: {told}",
            step="report on the parts of one upgrade",
        )
