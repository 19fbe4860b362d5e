"""SO, soft orthogonality (Bansal et al., NeurIPS 2018): ‖WᵀW − I‖_F as a term of the loss."""

from __future__ import annotations

from typing import ClassVar, Literal

from crossfade.baselines.regularized import Regularized


class SoftOrthogonality(Regularized):
    """B with `weight`·‖WᵀW − I‖_F added to the loss: the paper's λ = 0 (Appendix E).

    The original regularizes the layers of a convolutional network, with the square of the norm and
    a weight that falls during training. The λ-orthogonality paper, followed here, takes the norm
    itself on the weight of B alone, with a constant weight of 1, 0.1, 0.01 or 0.001. Nothing ties
    ‖WᵀW − I‖ to a value: it ends where the other losses and the weight balance.

    Examples
    --------
    >>> import numpy as np
    >>> new = np.random.default_rng(0).normal(size=(60, 4))
    >>> so = SoftOrthogonality(weight=0.1, epochs=2, device="cpu").fit(new[:, :3] + 0.1, new)
    >>> so.backward(new).shape
    (60, 4)
    """

    penalty: ClassVar[Literal["so", "srip"]] = "so"
