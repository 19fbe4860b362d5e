"""What an upgrade says of itself: its maps, λ asked and reached, and what B does to angles."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from crossfade.maps import Map, Mlp
from crossfade.maps.near_orthogonal import column_angles, deviation

if TYPE_CHECKING:
    from crossfade.upgrade.upgrade import Upgrade


def describe(upgrade: Upgrade) -> dict[str, Any]:
    """Directions, dimensions, λ asked and reached, losses, and the angles between B's columns."""
    config, backward, forward = upgrade.config_, upgrade.backward_.map, upgrade.forward_.map
    geometry = measure_stability(backward)
    losses = {}
    for entry in upgrade.history_:
        if entry["losses"]:
            losses[entry["block"]] = {k: round(v, 4) for k, v in entry["losses"].items()}
    return {
        "hash": upgrade.hash_,
        "version": config.crossfade_version,
        "solver": config.settings["solver"],
        "backward": f"new ({upgrade.new_dim_}) → shared ({upgrade.shared_dim_}), {backward.kind}",
        "forward": f"old ({upgrade.old_dim_}) → shared ({upgrade.shared_dim_}), {forward.kind}"
        + (f" {forward.hidden}" if isinstance(forward, Mlp) else ""),
        "old": config.old.model_dump(),
        "new": config.new.model_dump(),
        # An mlp has no single W.
        "lambda": {
            "asked": config.lambda_asked,
            "reached": None if math.isnan(config.lambda_reached) else config.lambda_reached,
        },
        "singular_values": geometry.get("singular_values"),
        "column_angles_degrees": geometry.get("column_angles_degrees"),
        "fit": config.fit,
        "last_losses": losses,
        "notes": config.notes,
        "validation": upgrade.validation_,
    }


def measure_stability(backward: Map) -> dict[str, Any]:
    """How far B is from keeping the new model's geometry (Section 3.3, Appendix E): ‖WWᵀ−I‖_F, the
    range of the singular values, and the angles between columns in degrees.

    Empty for an mlp, which has no single W.

    >>> from crossfade.maps import Orthogonal
    >>> measure_stability(Orthogonal(np.eye(2, dtype=np.float32)))["deviation"]
    0.0
    """
    if isinstance(backward, Mlp):
        return {}
    weight = backward.weight
    angles = column_angles(weight)
    singular = np.linalg.svd(np.asarray(weight, dtype=np.float64), compute_uv=False)
    return {
        "deviation": float(deviation(weight)),
        "singular_values": {"min": float(singular.min()), "max": float(singular.max())},
        "column_angles_degrees": {
            "min": float(angles.min(initial=90.0)),
            "max": float(angles.max(initial=90.0)),
            "std": float(angles.std()) if len(angles) else 0.0,
        },
    }
