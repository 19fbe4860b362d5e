"""The identity, for the side a method does not map, and the solution made with it."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossfade.maps import Affine, Mlp, Orthogonal
from crossfade.solvers.closed_form import start
from crossfade.solvers.prepare import Prepared
from crossfade.solvers.problem import BackwardMap, ForwardMap, Solution


def same(n: int) -> Orthogonal:
    """B of the methods whose shared space is the new model's."""
    return Orthogonal(np.eye(n, dtype=np.float32))


def padded(d: int, n: int) -> Affine:
    """F of the methods that leave old vectors alone: cut or padded with zeros to n.

    >>> padded(2, 3)(np.array([[1.0, 2.0]], dtype=np.float32))
    array([[1., 2., 0.]], dtype=float32)
    """
    return Affine(np.eye(n, d, dtype=np.float32), np.zeros(n, dtype=np.float32))


def solution(
    prepared: Prepared,
    backward: BackwardMap | Mlp,
    forward: ForwardMap,
    history: list[dict[str, Any]] | None = None,
) -> Solution:
    """Both maps, scored on validation beside the closed form."""
    problem = prepared.problem
    closed = problem.selection.scores(*start(problem.rotation, problem.ridge))
    scores = problem.selection.scores(backward, forward)
    return Solution(backward, forward, scores, closed, history or [])
