"""Filling without a plan: a random order, the new model's own vectors, both models asked.

It is written down as a plan is, so that everything that carries plans out carries this out too; it
promises nothing, and says so.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crossfade.backfill.plan import Plan, write_record
from crossfade.backfill.record import PlanRecord
from crossfade.files.atomic import replacing
from crossfade.upgrade import Upgrade


def unplanned(upgrade: Upgrade, beside: Path, share: float) -> Path:
    """The folder of a plan to fill `share` of a gallery, next to the upgrade's own."""
    folder = beside.with_name(f"{beside.name}.unplanned-{share:g}")
    if folder.exists():
        Plan.load(folder, upgrade)
        return folder
    made = PlanRecord(
        upgrade=upgrade.hash_,
        data="",
        queries=0,
        gallery=0,
        held_out=False,
        optimize=[],
        budget=share,
        asking="both",
        order="random",
        blend=1.0,
        last_blend=1.0,
        recommendation=f"ask both, backfill {share:.0%}",
        reason="asked for, and not simulated: nothing is known of the quality on the way",
        stop=share,
        peak=share,
        reach={},
        quality={},
        curve={"share": [0.0, 1.0]},
        costs={},
        candidates=[],
        warnings=["nothing was simulated"],
    )
    with replacing(folder) as temporary:
        temporary.mkdir()
        write_record(made, temporary, {"format": np.ones(1, np.int64)})
    return folder
