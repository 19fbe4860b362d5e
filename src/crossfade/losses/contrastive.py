"""L_contr, the supervised contrastive loss of Eq. 7, and its label-free form of Appendix H."""

from __future__ import annotations

import torch
import torch.nn.functional as functional


def contrastive(
    queries: torch.Tensor,
    candidates: torch.Tensor,
    temperature: float,
    labels: torch.Tensor | None = None,
) -> torch.Tensor:
    """Mean over queries i of −Σ_j p_ij log q_ij.

    q_i is the softmax of cosine(query_i, candidate_j) / temperature over all candidates j. With
    labels, p_i has equal mass on every candidate of query i's class. Without, p_i sits on
    candidate i alone: the same item seen by the other model, as in CLIP. Where the dimensions
    differ the longer vectors are cut.

    >>> x = torch.eye(2)
    >>> contrastive(x, x, temperature=1.0, labels=torch.tensor([0, 1]))
    tensor(0.3133)
    """
    dim = min(queries.shape[1], candidates.shape[1])
    q = functional.normalize(queries[:, :dim], dim=1)
    c = functional.normalize(candidates[:, :dim], dim=1)
    log_q = functional.log_softmax(q @ c.T / temperature, dim=1)
    if labels is None:
        return -log_q.diagonal().mean()
    same = (labels[:, None] == labels[None, :]).to(log_q.dtype)
    return -((same * log_q).sum(dim=1) / same.sum(dim=1)).mean()
