"""The labelled upgrades among the feature files: which tensors are old, new and labels."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file


@dataclass(frozen=True)
class Feature:
    """One upgrade: its file and the prefixes of its old and new tensors."""

    title: str
    file: str
    old: str
    new: str


FEATURES = {
    "banking77-minilm": Feature(
        "banking77: wordllama 256 → MiniLM 384", "banking77-text", "wordllama", "minilm"
    ),
    "banking77-mpnet": Feature(
        "banking77: MiniLM 384 → mpnet 768", "banking77-text", "minilm", "mpnet"
    ),
    "architecture": Feature(
        "tinyimagenet-architecture: 512 → 1024", "tinyimagenet-architecture", "old", "new"
    ),
    "extending-classes": Feature(
        "tinyimagenet-extending-classes: 128 → 128", "tinyimagenet-extending-classes", "old", "new"
    ),
    "flowers102": Feature("flowers102: 1280 → 1280", "flowers102-downstream", "old", "new"),
}

Array = NDArray[np.float32]


def load(folder: Path, name: str, split: str) -> tuple[Array, Array, NDArray[np.int64]]:
    """Old, new and labels of one split (`train` or `test`)."""
    feature = FEATURES[name]
    tensors = load_file(folder / f"{feature.file}.safetensors")
    return (
        tensors[f"{feature.old}_{split}"].astype(np.float32),
        tensors[f"{feature.new}_{split}"].astype(np.float32),
        tensors[f"labels_{split}"].astype(np.int64),
    )
