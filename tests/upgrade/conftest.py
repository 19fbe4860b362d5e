"""An upgrade to be, small pairs, and one that is fitted on them."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade import Upgrade

DIMS = [(5, 8), (7, 7), (9, 6)]
KINDS = ["orthogonal", "near-orthogonal", "affine"]


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def closed(**options):
    return Upgrade(solver="closed_form", **options)


def quick(**options):
    return Upgrade(**{"epochs": 1, "hidden": (4,), "device": "cpu"} | options)


@pytest.fixture(scope="module")
def data(made):
    return made()


@pytest.fixture(scope="module")
def fitted(data):
    return closed().fit(*data)
