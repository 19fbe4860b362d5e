"""Is this store made of the upgrade's old vectors, and is the upgrade good enough for it?"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.plan import Plan, upper_at_start
from crossfade.backfill.record import PlanRecord
from crossfade.backfill.start import OLD
from crossfade.badrows import bad_rows
from crossfade.errors import BadInput
from crossfade.spaces import cosine
from crossfade.stores import Description, Store
from crossfade.stores.rows import matrix
from crossfade.stores.sampling import draw_ids
from crossfade.upgrade import Upgrade

# The verdicts that matter: new queries on old vectors now, on lifted ones after `forward`.
INTENDED = ("B(new)/old", "B(new)/F(old)")
BOTH = "both/old"
SAMPLE = 1024
# A sample's mean turns with luck; another model's mean points somewhere else altogether.
_SAME_MEAN = 0.5
_TELLING_MEAN = 0.1
_UNIT = 0.01


@dataclass(frozen=True)
class Findings:
    """What was found: `refusals` stop a migration unless forced, `warnings` are told."""

    refusals: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def check_store(store: Store, found: Description, upgrade: Upgrade, source: str | None) -> Findings:
    """Dimension, distance, normalization, and whether a sample looks like the old model's."""
    refusals, warnings = [], []
    if found.rows == 0:
        raise BadInput("is empty", where=store.name, step="there is nothing to migrate")
    if found.dim != upgrade.old_dim_:
        raise BadInput(
            f"{found.vector!r} has {found.dim} dimensions, and the upgrade's old model "
            f"{upgrade.old_dim_}",
            where=store.name,
            step="name the column of old vectors with --vector, or use this store's own upgrade",
        )
    if source is not None and source not in found.columns:
        raise BadInput(
            f"has no column {source!r}",
            where=store.name,
            step=f"name the text column with --source: it has {', '.join(found.columns)}",
        )
    sample = draw_sample(store)
    if not len(sample):
        raise BadInput("has no usable old vectors", where=store.name, step="look at its rows")
    lengths = np.linalg.norm(sample, axis=1)
    unit = bool((np.abs(lengths - 1) < _UNIT).all())
    normalization = upgrade.config_.old.normalization
    if found.distance != "cosine" and normalization == "l2" and not unit:
        refusals.append(
            f"the store compares by {found.distance} vectors of lengths {lengths.min():.3g} to "
            f"{lengths.max():.3g}, and the upgrade was made for unit vectors"
        )
    if found.distance == "cosine" and normalization == "none":
        warnings.append("the upgrade keeps lengths, which a cosine store does not look at")
    side = upgrade.forward_.reads
    side.check_fingerprint(sample, upgrade.backward_.reads)
    unit_sample = sample / lengths[:, None] if normalization == "l2" else sample
    own = float(np.linalg.norm(side.mean)) / float(np.sqrt((unit_sample**2).sum(1).mean()))
    likeness = cosine(unit_sample.mean(axis=0, dtype=np.float64), side.mean)
    if own < _TELLING_MEAN:
        warnings.append("the old model's mean tells nothing: whose vectors these are is unchecked")
    elif likeness < _SAME_MEAN:
        refusals.append(
            f"these do not look like vectors of {upgrade.config_.old.model or 'the old model'}: "
            f"their mean has cosine {likeness:.2f} to that of the pairs"
        )
    if upgrade.old_dim_ > upgrade.shared_dim_:
        warnings.append(
            f"before `forward`, new queries see all {upgrade.old_dim_} old dimensions but use "
            f"{upgrade.shared_dim_}: scores differ a little from the evaluated ones"
        )
    return Findings(refusals, warnings)


def check_obstacles(store: Store, step: str) -> None:
    """Refuse where the end of the migration would break what nobody may wave through."""
    final = [found.cause for found in store.obstacles() if found.final]
    if final:
        raise BadInput("; ".join(final), where=store.name, step=f"see to it, then {step} again")


def refuse_duplicates(store: Store) -> None:
    """Rows are known by their id alone: two of one id would end with one vector."""
    twice = store.duplicates()
    if twice:
        some = ", ".join(map(repr, twice))
        raise BadInput(
            f"several rows have the same id: {some}",
            where=store.name,
            step="keep one row of each id",
        )


def draw_sample(store: Store) -> NDArray[np.float32]:
    """About a thousand usable old vectors, by chance: rows are often sorted by kind."""
    batch = store.read(draw_ids(store, SAMPLE), [store.vector])
    vectors = matrix(batch[store.vector])
    good = batch[store.vector].is_valid().to_numpy(zero_copy_only=False)
    good[list(bad_rows(vectors))] = False
    return np.asarray(vectors[good], np.float32)


def check_verdict(
    upgrade: Upgrade, evaluation: Path | None, folder: Path | None, plan: Plan | None
) -> Findings:
    """What an evaluation on held-out pairs, and the plan, say of the upgrade.

    The fit's own validation rows are no evidence: they chose the state that was kept. A plan is
    made on labels or qrels, so that its curve at 0 % can stand for an evaluation where the rows had
    no part in the fit.
    """
    refusals, warnings = [], []
    if folder is not None and plan is not None:
        made = plan.record
        if made.recommendation == "do not upgrade":
            refusals.append(f"the plan says do not upgrade: {made.reason}")
        below = _below_at_start(made, folder)
        if below:
            refusals.append(f"the plan's curve begins below old/old: {below}")
        if evaluation is None and not made.knows_today:
            refusals.append(
                "the plan does not know today's level, for the old model has embedded no queries: "
                "give it to crossfade plan with --today"
            )
        if evaluation is None and not made.held_out:
            refusals.append(
                "the plan was made on the fit's own validation rows, which are no evidence: give "
                "an evaluation, or plan on held-out pairs"
            )
        elif evaluation is None and made.asking == "new" and made.start != OLD:
            warnings.append(
                "B(new)/old, which answers until forward is done, is not judged: the plan does not "
                "begin with old rows, and there is no evaluation"
            )
    if evaluation is not None:
        found = _evaluation(evaluation, upgrade)
        both = found.get(BOTH, {}).get("verdict") or "not judged"
        for case in INTENDED:
            verdict = found.get(case, {}).get("verdict") or "not judged"
            finding = f"{case} is {verdict} by {evaluation.name}"
            if verdict == "compatible":
                continue
            if both in ("compatible", "inconclusive"):
                warnings.append(f"{finding}: ask with both models' queries (`both` is {both})")
            elif verdict == "inconclusive":
                warnings.append(finding)
            else:
                refusals.append(finding)
    elif plan is None:
        refusals.append(
            "no evaluation says that the upgrade is good enough: run crossfade evaluate on "
            "held-out pairs with labels, qrels or lookups, and give its --json file as --evaluation"
        )
    return Findings(refusals, warnings)


def _below_at_start(made: PlanRecord, folder: Path) -> str:
    """Metrics whose curve begins below old/old by more than its 95 % band; empty if none does."""
    return ", ".join(
        f"{metric} {found['at 0 %']:.1f} against {found['old/old']:.1f}"
        for metric, found in made.quality.items()
        if "old/old" in found and upper_at_start(folder, made, metric) < found["old/old"]
    )


def _evaluation(path: Path, upgrade: Upgrade) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        verdicts: dict[str, Any] = {case: dict(one) for case, one in found["verdicts"].items()}
        written = found["upgrade"]["hash"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadInput(
            f"is no evaluation ({error})",
            where=path,
            step="write it with: crossfade evaluate UPGRADE PAIRS --json FILE",
        ) from None
    if written != upgrade.hash_:
        raise BadInput(
            f"is of upgrade {str(written)[:12]}, and this one is {upgrade.hash_[:12]}",
            where=path,
            step="evaluate this upgrade",
        )
    return verdicts
