"""Vector stores: one contract, a registry of kinds, a package for each."""

from __future__ import annotations

from crossfade.stores.contract import (
    METRICS,
    TOKEN,
    Column,
    Description,
    Hit,
    Id,
    Metric,
    Obstacle,
    Store,
    WholeColumns,
)
from crossfade.stores.names import Range
from crossfade.stores.registry import StoreKind, open_store

__all__ = [
    "METRICS",
    "TOKEN",
    "Column",
    "Description",
    "Hit",
    "Id",
    "Metric",
    "Obstacle",
    "Range",
    "Store",
    "StoreKind",
    "WholeColumns",
    "open_store",
]
