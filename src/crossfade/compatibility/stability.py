"""How far B is from keeping the new model's geometry (Section 3.3, Appendix E)."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossfade.maps import Map, Mlp
from crossfade.maps.near_orthogonal import column_angles, deviation


def stability(backward: Map) -> dict[str, Any]:
    """‖WWᵀ−I‖_F, the range of the singular values, and the angles between columns in degrees.

    Empty for an mlp, which has no single W.

    >>> from crossfade.maps import Orthogonal
    >>> stability(Orthogonal(np.eye(2, dtype=np.float32)))["deviation"]
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
