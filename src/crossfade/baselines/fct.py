"""FCT: forward-compatible training (Ramanujan et al., CVPR 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossfade.baselines.baseline import Baseline, check_training
from crossfade.errors import BadInput
from crossfade.solvers.settings import HIDDEN, Settings
from crossfade.spaces import normalized

if TYPE_CHECKING:
    from crossfade.pairs import Pairs
    from crossfade.solvers.preparation import Prepared
    from crossfade.solvers.problem import Solution


class FCT(Baseline):
    """F maps old vectors, and perhaps side information, onto the new model's; B is the identity.

    The original: F minimizes ‖F(old, side) − new‖²; side information is a second vector kept with
    each item when it is first indexed, from a self-supervised model (SimCLR, 128-d); without it F
    reads the old vector alone. F there has a branch of two layers for each input and a mixer of
    2048 units with batch normalization, trained 80 epochs with Adam at 0.0005, batches of 1024 and
    a cosine schedule.

    Chosen here, so that every method has the same F and the same budget: the mlp of `Upgrade`, one
    input in place of two branches, no batch normalization; Adam at 0.001, as the λ-orthogonality
    paper trains all adapters, 30 epochs, batches of 1000, no schedule. Vectors are of unit length.

    With `side_dim` the last that many columns of `old` are side information: make such rows with
    `FCT.join`. The cases of `evaluate` with a plain `old` leave them out; the validation table on
    the card, a guide only, does not.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> new = rng.normal(size=(60, 6))
    >>> old, side = new[:, :4] + 0.1, new[:, 4:] + 0.1
    >>> fct = FCT(side_dim=2, hidden=(8,), epochs=2, device="cpu")
    >>> fct.fit(FCT.join(old, side), new).forward(FCT.join(old, side)).shape
    (60, 6)
    """

    def __init__(
        self,
        *,
        side_dim: int = 0,
        hidden: Sequence[int] | None = None,
        epochs: int = 30,
        batch_size: int = 1000,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        validation: float | None = None,
        seed: int = 0,
        device: str = "auto",
        old_model: str = "",
        new_model: str = "",
    ) -> None:
        self._set(**{k: v for k, v in locals().items() if k in self._names()})

    @staticmethod
    def join(old: ArrayLike, side: ArrayLike) -> NDArray[np.float32]:
        """Rows of `old` (rows, d) and `side` (rows, s), each of unit length, beside each other."""
        parts = [np.asarray(x, dtype=np.float32) for x in (old, side)]
        if any(x.ndim != 2 for x in parts) or len(parts[0]) != len(parts[1]):
            shapes = " and ".join(str(x.shape) for x in parts)
            raise BadInput(
                f"old and side have shapes {shapes}", step="pass (rows, d) and (rows, s)"
            )
        names = ("old", "side")
        return np.hstack([normalized(x, "l2", n) for x, n in zip(parts, names, strict=True)])

    def as_stored(self, old: ArrayLike) -> NDArray[np.float32]:
        """Old vectors without their side information, of unit length."""
        rows = super().as_stored(old)
        side: int = self.get_params()["side_dim"]
        if not side:
            return rows
        whole = np.atleast_2d(rows)[:, :-side]
        whole = normalized(np.ascontiguousarray(whole), "l2", "old")
        return whole if rows.ndim == 2 else whole[0]

    def _settings(self) -> Settings:
        check_training(self)
        return super()._settings()

    def _solve(self, prepared: Prepared, pairs: Pairs) -> Solution:
        import torch

        from crossfade.baselines.identity import same
        from crossfade.baselines.training import train
        from crossfade.losses.alignment import alignment
        from crossfade.solvers.device import pick_device, seeded
        from crossfade.solvers.problem import Solution
        from crossfade.solvers.trainable import TrainableMlp

        p, rows = self.get_params(), prepared.problem.train
        if not 0 <= p["side_dim"] < pairs.old_dim:
            raise BadInput(
                f"side_dim={p['side_dim']} of rows of {pairs.old_dim}",
                step="make rows with FCT.join(old, side)",
            )
        device = pick_device(p["device"])
        old, new = (torch.from_numpy(x).to(device) for x in (rows.old, rows.new))
        with seeded(p["seed"]):
            hidden = tuple(p["hidden"] or HIDDEN)
            module = TrainableMlp(pairs.old_dim, pairs.new_dim, hidden, None, 1.0).to(device)
            history = train(
                module,
                len(old),
                lambda batch: {"L_F": alignment(module(old[batch]), new[batch])},
                **{k: p[k] for k in ("epochs", "batch_size", "lr", "weight_decay")},
                block="fct",
                report=prepared.problem.report,
            )
        return Solution(same(pairs.new_dim), module.frozen(), history)
