"""A small features file, and the command line of the experiments."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file


@pytest.fixture(scope="session")
def features(made, tmp_path_factory) -> Path:
    """240 rows for training, 160 for test, a classifier, zero-shot rows, a third model."""
    old, new, labels = made(rows=480, d=6, n=8, classes=8)
    rng = np.random.default_rng(0)
    third = old @ rng.normal(size=(6, 4)).astype(np.float32)
    split = {"train": slice(0, 240), "test": slice(240, 400), "zeroshot": slice(400, 480)}
    tensors = {}
    for name, rows in split.items():
        tensors |= {
            f"old_{name}": old[rows],
            f"new_{name}": new[rows],
            f"third_{name}": third[rows],
            f"labels_{name}": labels[rows].astype(np.int32),
        }
    means = np.stack([new[labels == c].mean(axis=0) for c in range(8)])
    tensors["new_classifier_weight"] = means
    tensors["new_classifier_bias"] = -np.square(means).sum(axis=1) / 2
    path = tmp_path_factory.mktemp("features") / "small.safetensors"
    save_file({k: np.ascontiguousarray(v) for k, v in tensors.items()}, path)
    return path


@pytest.fixture(scope="session")
def cache(tmp_path_factory) -> Path:
    """Shared by all tests: what one has fitted, the others need not."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def experiments(capsys):
    """Runs `python -m experiments ARGUMENTS`; gives what it printed."""
    from experiments.__main__ import main

    def run(*arguments: object) -> str:
        capsys.readouterr()
        main([str(a) for a in arguments])
        return capsys.readouterr().out

    return run


@pytest.fixture(scope="session")
def digits(tmp_path_factory) -> Path:
    """A folder of MNIST's files with a few of scikit-learn's digits."""
    from experiments import idx

    folder = tmp_path_factory.mktemp("mnist")
    images, labels = idx.digits()
    for split, rows in (("train", slice(0, 300)), ("t10k", slice(300, 500))):
        idx.write(folder / f"{split}-images-idx3-ubyte", images[rows])
        idx.write(folder / f"{split}-labels-idx1-ubyte", labels[rows].astype(np.uint8))
    return folder
