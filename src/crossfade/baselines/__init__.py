"""The peers the paper compares with, each a class with the interface of `Upgrade`.

A baseline is fitted, applied, saved and evaluated as an upgrade is: `fit(old, new, labels)`,
`forward`, `backward`, `save`, and `crossfade.evaluate` gives the same table of cases. Where a
method has no B or no F of its own, that map is the identity and its docstring says so.

| class | B (new → shared) | F (old → shared) | shared space |
|---|---|---|---|
| `FCT` | identity | mlp, L_F | new |
| `FastFill` | identity | mlp, alignment + classifier, with uncertainty | new |
| `DriftAdapter` | rotation, low-rank affine or residual mlp | identity | old |
| `Procrustes` | rotation | identity, padded | old, in new's dimension |
| `Ridge` | identity | affine | new |
| `SoftOrthogonality`, `SRIP` | affine, regularized | mlp | as the paper's |
"""

from crossfade.baselines.drift_adapter import DriftAdapter
from crossfade.baselines.fastfill import FastFill
from crossfade.baselines.fct import FCT
from crossfade.baselines.procrustes import Procrustes
from crossfade.baselines.ridge import Ridge
from crossfade.baselines.soft_orthogonality import SoftOrthogonality
from crossfade.baselines.srip import SRIP

__all__ = [
    "FCT",
    "SRIP",
    "DriftAdapter",
    "FastFill",
    "Procrustes",
    "Ridge",
    "SoftOrthogonality",
]
