"""L_contr, the supervised contrastive loss of Eq. 8, and its label-free form of Appendix H."""

from __future__ import annotations

import torch
import torch.nn.functional as functional


def contrastive(
    queries: torch.Tensor,
    candidates: torch.Tensor,
    temperature: float,
    labels: torch.Tensor | None = None,
    *,
    both_ways: bool = False,
) -> torch.Tensor:
    """Mean over queries i of −Σ_j p_ij log q_ij.

    q_i is the softmax of cosine(query_i, candidate_j) / temperature over all candidates j. With
    labels, p_i has equal mass on every candidate of query i's class. Without, p_i sits on
    candidate i alone: the same item seen by the other model, as in CLIP. `both_ways` is the mean
    of this loss and the one with the roles exchanged. Where the dimensions differ the longer
    vectors are cut.

    >>> x = torch.eye(2)
    >>> contrastive(x, x, temperature=1.0, labels=torch.tensor([0, 1]))
    tensor(0.3133)
    """
    dim = min(queries.shape[1], candidates.shape[1])
    q = functional.normalize(queries[:, :dim], dim=1)
    c = functional.normalize(candidates[:, :dim], dim=1)
    logits = q @ c.T / temperature
    same = None if labels is None else (labels[:, None] == labels[None, :]).to(logits.dtype)
    loss = _cross_entropy(logits, same)
    return (loss + _cross_entropy(logits.T, same)) / 2 if both_ways else loss


def _cross_entropy(logits: torch.Tensor, same: torch.Tensor | None) -> torch.Tensor:
    log_q = functional.log_softmax(logits, dim=1)
    if same is None:
        return -log_q.diagonal().mean()
    # `same` is symmetric, so it serves both ways.
    return -((same * log_q).sum(dim=1) / same.sum(dim=1)).mean()
