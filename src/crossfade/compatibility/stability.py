"""How far B is from keeping the new model's geometry (Section 3.3, Appendix E)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.maps.near_orthogonal import column_angles, deviation


def stability(weight: NDArray[np.floating]) -> dict[str, Any]:
    """‖WWᵀ−I‖_F, the range of the singular values, and the angles between columns in degrees.

    >>> stability(np.eye(2, dtype=np.float32))["deviation"]
    0.0
    """
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
