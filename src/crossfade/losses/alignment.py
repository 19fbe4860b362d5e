"""L_B (Section 3.2) and L_F (Section 3.4): the squared distance between mapped pairs."""

from __future__ import annotations

import torch


def alignment(mapped: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Mean over rows of ‖mapped_i − target_i‖²; the longer of the two is cut (Section 3.2).

    >>> alignment(torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([[1.0, 0.0]]))
    tensor(4.)
    """
    dim = min(mapped.shape[1], target.shape[1])
    return (mapped[:, :dim] - target[:, :dim]).square().sum(dim=1).mean()
