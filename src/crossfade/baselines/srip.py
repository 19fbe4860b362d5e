"""SRIP (Bansal et al., NeurIPS 2018): the spectral norm of WᵀW − I as a term of the loss."""

from __future__ import annotations

from typing import ClassVar, Literal

from crossfade.baselines.regularized import Regularized


class SRIP(Regularized):
    """B with `weight` times the largest singular value of WᵀW − I added to the loss (Appendix E).

    The original finds that value by two steps of power iteration from a random vector, afresh at
    every step of training; so it is here (`losses/orthogonality.py`). The constant weight and the
    place, B alone, are the λ-orthogonality paper's.

    Examples
    --------
    >>> import numpy as np
    >>> new = np.random.default_rng(0).normal(size=(60, 4))
    >>> SRIP(weight=0.1, epochs=2, device="cpu").fit(new[:, :3] + 0.1, new).backward(new).shape
    (60, 4)
    """

    penalty: ClassVar[Literal["so", "srip"]] = "srip"
