"""The paper's method with another regularizer on B: what SO and SRIP share."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from crossfade.baselines.baseline import Baseline
from crossfade.solvers.settings import Settings

if TYPE_CHECKING:
    from crossfade.pairs import Pairs
    from crossfade.solvers.preparation import Prepared
    from crossfade.solvers.problem import Solution


class Regularized(Baseline):
    """An affine B with `weight` times the regularizer of this name, and F, trained together."""

    penalty: ClassVar[Literal["so", "srip"]]

    def __init__(
        self,
        *,
        weight: float = 1.0,
        solver: str = "paper",
        forward_map: str = "mlp",
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        temperature: float | None = None,
        validation: float | None = None,
        seed: int = 0,
        device: str = "auto",
        old_model: str = "",
        new_model: str = "",
    ) -> None:
        self._set(**{k: v for k, v in locals().items() if k in self._names()})

    def _settings(self) -> Settings:
        params = self.get_params()
        return Settings(
            backward_map="near-orthogonal",
            regularizer=self.penalty,
            regularizer_weight=params.pop("weight"),
            **params,
        )

    def _solve(self, prepared: Prepared, pairs: Pairs) -> Solution:
        from crossfade.upgrade.learning import solve

        return solve(prepared)
