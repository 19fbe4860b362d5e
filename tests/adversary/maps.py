"""What a shared vector must be, by ten lines of numpy that share nothing with Crossfade's code.

The tensors are read from the saved upgrade, the blend from the plan; products are made in float64,
row by row.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file
from tests.adversary import models

Vector = NDArray[np.float64]


def unit(x: NDArray[np.floating]) -> Vector:
    """At length one; zero stays zero."""
    x = np.asarray(x, np.float64)
    length = np.sqrt((x * x).sum())
    return x / length if length > 0 else x


class Maps:
    """B, F and the blend."""

    def __init__(self, upgrade: Path, plan: Path) -> None:
        tensors = load_file(upgrade / "upgrade.safetensors")
        config = json.loads((upgrade / "config.json").read_text(encoding="utf-8"))
        told = json.loads((plan / "plan.json").read_text(encoding="utf-8"))
        if (config["backward"], config["forward"], "old.axes" in tensors) != (
            "orthogonal",
            "affine",
            False,
        ) or (told["blend"], told["last_blend"], told["volume"]) != (models.BLEND,) * 2 + (1.0,):
            raise RuntimeError("the model knows an orthogonal B, an affine F and one blend for all")
        self._b = tensors["backward.weight"].astype(np.float64)
        self._f = tensors["forward.weight"].astype(np.float64)
        self._bias = tensors["forward.bias"].astype(np.float64)

    def lifted(self, old: NDArray[np.floating]) -> Vector:
        """F(old), turned back into the new model's own space."""
        return self._b.T @ unit(self._f @ unit(old) + self._bias)

    def filled(self, text: str, old: NDArray[np.floating]) -> Vector:
        """The plan's blend of the new model's vector and the lifted one."""
        new = unit(models.new([text])[0])
        return unit(models.BLEND * new + (1 - models.BLEND) * self.lifted(old))
