"""The optimum of L_B over O(n) and of L_F over affine maps, each in one solve.

Orthogonal Procrustes: the W in O(n) that minimizes Σ‖W new_i − old_i‖² (Section 3.2) is U Vᵀ from
the SVD of Σ old_i new_iᵀ, with old zero-padded or cut to the shared dimension. Ridge: the affine F
that minimizes Σ‖F(old_i) − B(new_i)‖² (Section 3.4) solves the normal equations. Both need nothing
of the pairs but sums of products, gathered in one streaming pass: the pairs need not fit in memory.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from crossfade.maps import Affine, NearOrthogonal, Orthogonal
from crossfade.maps.near_orthogonal import deviation
from crossfade.solvers.moments import Array, Moments
from crossfade.solvers.problem import BackwardMap, Problem, Solution

# Relative to the mean variance of old: from next to nothing to drowning the data.
PENALTIES = tuple(float(p) for p in 10.0 ** np.arange(-6.0, 2.0))


def procrustes(new_old: Array) -> Array:
    """W in O(n) that maximizes tr(W Σ new oldᵀ) with old padded or cut to n.

    >>> turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    >>> np.allclose(procrustes(np.eye(2) @ turn.T), turn)
    True
    """
    n = len(new_old)
    cross = new_old[:, :n].T
    u, _, vt = scipy.linalg.svd(cross, full_matrices=True)
    w = vt
    w[: len(u)] = u @ vt[: len(u)]
    return np.asarray(w)


def ridge(moments: Moments, penalties: Iterable[float] = PENALTIES) -> list[tuple[Array, Array]]:
    """Affine maps (weight (n, d), bias (n,)) old → new, one for each relative penalty.

    The intercept is not penalized. One eigendecomposition serves every penalty.
    """
    mean_old, mean_new = moments.old / moments.rows, moments.new / moments.rows
    values, vectors = scipy.linalg.eigh(
        moments.old_old - moments.rows * np.outer(mean_old, mean_old)
    )
    cross = (moments.new_old - moments.rows * np.outer(mean_new, mean_old)) @ vectors
    unit = max(float(values.sum()) / len(values), np.finfo(np.float64).tiny)
    maps = []
    for penalty in penalties:
        weight = (cross / (np.maximum(values, 0.0) + penalty * unit)) @ vectors.T
        maps.append((weight, mean_new - weight @ mean_old))
    return maps


def choose_ridge(
    moments: Moments, old: NDArray[np.float32], new: NDArray[np.float32]
) -> tuple[float, Array, Array]:
    """Penalty, weight and bias of the ridge map old → new with the least error on held-out rows."""
    best: tuple[float, float, Array, Array] | None = None
    for penalty, (weight, bias) in zip(PENALTIES, ridge(moments), strict=True):
        error = float(np.mean((old @ weight.T + bias - new) ** 2))
        if best is None or error < best[0]:
            best = (error, penalty, weight, bias)
    assert best is not None  # noqa: S101 - PENALTIES is not empty
    return best[1], best[2], best[3]


def backward_ridge(moments: Moments, rotation: Array, penalty: float) -> tuple[Array, Array]:
    """The affine B nearest to old: ridge new → old in the rows old reaches, `rotation` below."""
    n = len(moments.new)
    flipped = Moments(
        moments.rows,
        moments.new,
        moments.old,
        moments.new_new,
        moments.new_old.T,
        moments.old_old,
    )
    ((weight, bias),) = ridge(flipped, [penalty])
    reached = min(n, len(weight))
    out_weight, out_bias = rotation.copy(), np.zeros(n)
    out_weight[:reached], out_bias[:reached] = weight[:reached], bias[:reached]
    return out_weight, out_bias


def at_distance(rotation: Array, weight: Array, lam: float) -> float:
    """The largest t in [0, 1] with ‖WWᵀ−I‖_F ≤ λ at W = (1−t)·rotation + t·weight."""

    def distance(t: float) -> float:
        return deviation((1 - t) * rotation + t * weight)

    if distance(1.0) <= lam:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if distance(middle) <= lam else (low, middle)
    return low


def as_kind(weight: Array, kind: str, bias: Array | None = None) -> BackwardMap:
    """The map of that kind with this weight, and this bias or none."""
    w = weight.astype(np.float32)
    if kind == "orthogonal":
        return Orthogonal(w)
    b = np.zeros(len(w), dtype=np.float32) if bias is None else bias.astype(np.float32)
    return Affine(w, b) if kind == "affine" else NearOrthogonal(w, b)


def backward_map(kind: str, moments: Moments, rotation: Array, lam: float) -> BackwardMap:
    """The closed form's B of that kind.

    Near-orthogonal: the point on the straight line from the rotation to the ridge map where
    ‖WWᵀ−I‖_F reaches λ, so that λ is met exactly where it binds.
    """
    if kind == "orthogonal":
        return as_kind(rotation, kind)
    weight, bias = backward_ridge(moments, rotation, penalty=1e-3)
    t = 1.0 if kind == "affine" else at_distance(rotation, weight, lam)
    return as_kind((1 - t) * rotation + t * weight, kind, t * bias)


def compose(backward: BackwardMap, weight: Array, bias: Array) -> Affine:
    """F = B∘R for the ridge map R: old → new.

    Ridge is linear in its target, so B∘R *is* the ridge map onto B(new), for every B of these.
    """
    w = backward.weight.astype(np.float64)
    shift = 0.0 if isinstance(backward, Orthogonal) else backward.bias.astype(np.float64)
    return Affine((w @ weight).astype(np.float32), (w @ bias + shift).astype(np.float32))


def start(rotation: Array, ridge_map: tuple[Array, Array]) -> tuple[Orthogonal, Affine]:
    """The closed form's orthogonal B and its F: where `fast` starts, and what it must beat."""
    backward = Orthogonal(rotation.astype(np.float32))
    return backward, compose(backward, *ridge_map)


def solve(problem: Problem, axes: Array | None) -> Solution:
    """B and F of the kinds asked for, without a gradient."""
    settings = problem.settings
    moments = problem.moments if axes is None else problem.moments.rotated(axes)
    backward = backward_map(settings.backward_map, moments, problem.rotation, settings.lam)
    forward = compose(backward, *problem.ridge)
    return Solution(backward, forward)
