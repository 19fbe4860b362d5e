"""Features of both models: a training and a test split, perhaps a classifier and zero-shot rows.

A file holds `old_train`, `new_train`, `labels_train`, the same with `_test`, and where there are
any `new_classifier_weight`, `new_classifier_bias`, `new_zeroshot`, `labels_zeroshot`. Another
prefix than `old` or `new` (a file of several models) is named by --old and --new.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

from crossfade import BadInput, Held, Pairs
from crossfade.retrieval import SameClass
from crossfade.retrieval.relevance import Relevance

Float = NDArray[np.float32]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Split:
    """Rows embedded by both models, with their classes."""

    old: Float
    new: Float
    labels: Index

    def some(self, rows: int | None, seed: int = 0) -> Split:
        """A random sample of about that many rows, in their order, no class with a single one."""
        if rows is None or rows >= len(self.labels):
            return self
        kept = np.sort(np.random.default_rng(seed).permutation(len(self.labels))[:rows])
        _, place, counts = np.unique(self.labels[kept], return_inverse=True, return_counts=True)
        kept = kept[counts[place] > 1]
        return Split(self.old[kept], self.new[kept], self.labels[kept])


@dataclass(frozen=True, eq=False)
class Features:
    """Everything an experiment is run on."""

    name: str
    models: tuple[str, str]
    train: Split
    test: Split
    classifier: tuple[Float, Float] | None = None
    zero_shot: tuple[Float, Relevance] | None = None
    side: tuple[Float, Float] | None = None
    """Side information of FCT for the training and test rows."""

    @property
    def held(self) -> Held:
        return Held.of(Pairs.from_arrays(self.test.old, self.test.new, self.test.labels))

    @property
    def hash(self) -> str:
        """Of the training rows: what a fit depends on."""
        digest = hashlib.sha256()
        for x in (self.train.old, self.train.new, self.train.labels, *(self.classifier or ())):
            digest.update(np.ascontiguousarray(x).tobytes())
        return digest.hexdigest()[:16]

    def facts(self) -> dict[str, Any]:
        return {
            "data": self.name,
            "old": f"{self.models[0]} ({self.train.old.shape[1]}-d)",
            "new": f"{self.models[1]} ({self.train.new.shape[1]}-d)",
            "training rows": len(self.train.labels),
            "test rows": len(self.test.labels),
        }


def read(
    path: Path,
    old: str = "old",
    new: str = "new",
    *,
    side: str | None = None,
    rows: int | None = None,
    test_rows: int | None = None,
) -> Features:
    """The features of a file; `rows` and `test_rows` take a sample for a quicker run."""
    if not path.is_file():
        raise BadInput("is not there", where=path, step="name a safetensors file of features")
    with safe_open(path, framework="numpy") as tensors:
        names = set(tensors.keys())
        about = tensors.metadata() or {}

        def get(name: str) -> NDArray[Any]:
            if name not in names:
                raise BadInput(
                    f"has no tensor {name!r}",
                    where=path,
                    step=f"there are {', '.join(sorted(names))}",
                )
            return np.asarray(tensors.get_tensor(name))

        def split(part: str) -> Split:
            return Split(
                get(f"{old}_{part}").astype(np.float32),
                get(f"{new}_{part}").astype(np.float32),
                get(f"labels_{part}").astype(np.int64),
            )

        classifier = zero_shot = beside = None
        if f"{new}_classifier_weight" in names:
            parts = (get(f"{new}_classifier_{p}").astype(np.float32) for p in ("weight", "bias"))
            classifier = (next(parts), next(parts))
        if f"{new}_zeroshot" in names:
            labels = get("labels_zeroshot").astype(np.int64)
            zero_shot = (get(f"{new}_zeroshot").astype(np.float32), SameClass.among(labels))
        if side is not None:
            beside = tuple(get(f"{side}_{p}").astype(np.float32) for p in ("train", "test"))
        found = Features(
            path.stem,
            (about.get("old", old), about.get("new", new)),
            split("train"),
            split("test"),
            classifier,
            zero_shot,
            beside,
        )
    if side is not None and (rows or test_rows):
        raise BadInput("side information and a sample of the rows", step="use one of them")
    return replace(found, train=found.train.some(rows), test=found.test.some(test_rows))
