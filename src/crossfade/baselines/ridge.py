"""Ridge regression of new on old: the best affine F in the sense of L_F, in one solve."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from crossfade.baselines.baseline import Baseline

if TYPE_CHECKING:
    from crossfade.pairs import Pairs
    from crossfade.solvers.preparation import Prepared
    from crossfade.solvers.problem import Solution


class Ridge(Baseline):
    """F is the affine map that minimizes Σ‖F(old) − new‖² plus a penalty; B is the identity.

    Chosen here: the penalty, from eight powers of ten, has the least error on the validation split;
    the intercept is not penalized; vectors are of unit length.

    Examples
    --------
    >>> old = np.random.default_rng(0).normal(size=(80, 3))
    >>> lifted = Ridge().fit(old, old @ np.diag([1.0, 2.0, 3.0])).forward(old)
    >>> lifted.shape
    (80, 3)
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
        from crossfade.baselines.identity import same
        from crossfade.maps import Affine
        from crossfade.solvers.problem import Solution

        weight, bias = (x.astype(np.float32) for x in prepared.problem.ridge)
        return Solution(same(pairs.new_dim), Affine(weight, bias))
