"""Square affine maps near O(n): B_λ of Section 3.3, with ‖WWᵀ − I‖_F held at about λ."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from crossfade.maps.affine import Affine


class NearOrthogonal(Affine):
    """x ↦ W x + b with W square and near-orthogonal.

    >>> shift = NearOrthogonal(np.eye(2, dtype=np.float32), np.ones(2, dtype=np.float32))
    >>> shift(np.zeros((1, 2), dtype=np.float32))
    array([[1., 1.]], dtype=float32)
    """

    kind: ClassVar[str] = "near-orthogonal"


def deviation(weight: NDArray[np.floating]) -> float:
    """‖WWᵀ − I‖_F, the distance that λ bounds (Eq. 6); 0 for an orthogonal W.

    >>> deviation(np.diag([1.0, 2.0]))
    3.0
    """
    w = np.asarray(weight, dtype=np.float64)
    gram = w @ w.T
    gram.flat[:: len(gram) + 1] -= 1.0
    return float(np.linalg.norm(gram))


def column_angles(weight: NDArray[np.floating]) -> NDArray[np.float64]:
    """Angles in degrees between all pairs of columns of W (Figure 2c); 90 where orthogonal.

    >>> column_angles(np.eye(2))
    array([90.])
    """
    w = np.asarray(weight, dtype=np.float64)
    w = w / np.maximum(np.linalg.norm(w, axis=0, keepdims=True), np.finfo(np.float64).tiny)
    cosines = (w.T @ w)[np.triu_indices(w.shape[1], 1)]
    return np.asarray(np.degrees(np.arccos(np.clip(cosines, -1.0, 1.0))))
