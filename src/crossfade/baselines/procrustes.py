"""Plain orthogonal Procrustes (Wang and Mahadevan, ICML 2008): one SVD, no labels, no training."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from crossfade.baselines.baseline import Baseline

if TYPE_CHECKING:
    from crossfade.pairs import Pairs
    from crossfade.solvers.preparation import Prepared
    from crossfade.solvers.problem import Solution


class Procrustes(Baseline):
    """B is the orthogonal matrix nearest to old, min Σ‖B new − old‖²; old is left as it is.

    Nothing had to be chosen but what the paper says of dimensions: the longer vector is cut, which
    is old padded with zeros here. Vectors are of unit length and not centred.

    Examples
    --------
    >>> import numpy as np
    >>> new = np.random.default_rng(0).normal(size=(50, 3))
    >>> turned = Procrustes().fit(new[:, [1, 2, 0]], new)
    >>> bool(np.allclose(turned.backward(new), turned.forward(new[:, [1, 2, 0]]), atol=1e-5))
    True
    """

    trained: ClassVar[bool] = False

    def __init__(
        self,
        *,
        validation: float | None = None,
        seed: int = 0,
        old_model: str = "",
        new_model: str = "",
    ) -> None:
        self._set(**{k: v for k, v in locals().items() if k in self._names()})

    def _solve(self, prepared: Prepared, pairs: Pairs) -> Solution:
        from crossfade.baselines.identity import padded
        from crossfade.solvers.closed_form import as_kind
        from crossfade.solvers.problem import Solution

        backward = as_kind(prepared.problem.rotation, "orthogonal")
        return Solution(backward, padded(pairs.old_dim, pairs.new_dim))
