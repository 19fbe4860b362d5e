"""Vector stores: one contract, a registry of kinds, a package for each."""

from __future__ import annotations

from crossfade.stores.contract import (
    TOKEN,
    Column,
    Compared,
    Description,
    Hit,
    Id,
    Joinable,
    Obstacle,
    RandomAccess,
    StepwiseSwitch,
    Store,
    TwoSided,
    WholeColumns,
)
from crossfade.stores.names import Range
from crossfade.stores.registry import StoreKind, open_store

__all__ = [
    "TOKEN",
    "Column",
    "Compared",
    "Description",
    "Hit",
    "Id",
    "Joinable",
    "Obstacle",
    "RandomAccess",
    "Range",
    "StepwiseSwitch",
    "Store",
    "StoreKind",
    "TwoSided",
    "WholeColumns",
    "open_store",
]
