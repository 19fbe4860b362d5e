"""The training every learned baseline shares with the solver `paper`: Adam, a fixed number of
epochs over shuffled batches, the last state taken as it is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

Loss = Callable[[torch.Tensor], dict[str, torch.Tensor]]


def train(
    module: torch.nn.Module,
    rows: int,
    loss: Loss,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    weight_decay: float,
    block: str,
    report: Callable[[dict[str, Any]], None],
) -> list[dict[str, Any]]:
    """Minimize the sum of what `loss` gives for the rows of a batch; returns the history."""
    optimizer = torch.optim.Adam(module.parameters(), lr=lr, weight_decay=weight_decay)
    device = next(module.parameters()).device
    batch_size = min(batch_size, rows)
    steps = math.ceil(rows / batch_size)
    history: list[dict[str, Any]] = []
    for epoch in range(1, epochs + 1):
        sums: dict[str, torch.Tensor] = {}
        order = torch.randperm(rows).to(device)
        for first in range(0, rows, batch_size):
            terms = loss(order[first : first + batch_size])
            optimizer.zero_grad(set_to_none=True)
            torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            for name, value in terms.items():
                sums[name] = sums.get(name, torch.zeros((), device=device)) + value.detach()
        entry: dict[str, Any] = {"block": block, "epoch": epoch, "epochs": epochs}
        entry |= {"kept": epoch == epochs, "deviation": 0.0}
        entry["losses"] = {name: float(value) / steps for name, value in sums.items()}
        history.append(entry)
        report(entry)
    return history
