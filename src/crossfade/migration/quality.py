"""What the plan's curve says of the share that is backfilled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from crossfade.backfill.folder import CURVES, PLAN, Plan
from crossfade.errors import BadInput


@dataclass(frozen=True)
class Predicted:
    """Quality in percent, by metric: before, now, at the plan's stop, and with every row new."""

    old: dict[str, float]
    now: dict[str, float]
    at_stop: dict[str, float]
    new: dict[str, float]


def predicted(folder: Path, share: float) -> Predicted:
    """Read off the plan's own curve at `share` of the gallery."""
    try:
        plan = Plan.model_validate_json((folder / PLAN).read_text(encoding="utf-8"))
        table = pq.read_table(folder / CURVES)
    except (OSError, ValueError) as error:
        raise BadInput(f"is no plan ({error})", where=folder, step="give --plan again") from None
    ours = table.filter(
        pc.and_(
            pc.equal(table["order"], plan.order),
            pc.less(pc.abs(pc.subtract(table["blend"], plan.blend)), 1e-9),
        )
    )
    now, at_stop = {}, {}
    for metric in plan.quality:
        rows = ours.filter(pc.equal(ours["metric"], metric))
        shares, means = rows["share"].to_numpy(), rows["mean"].to_numpy()
        now[metric] = float(np.interp(share, shares, means))
        at_stop[metric] = float(np.interp(plan.stop, shares, means))
    return Predicted(
        old={m: q["old/old"] for m, q in plan.quality.items()},
        now=now,
        at_stop=at_stop,
        new={m: q["new/new"] for m, q in plan.quality.items()},
    )
