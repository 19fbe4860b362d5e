"""Vector stores: one contract, one file per store.

Imports go by need: a LanceDB user has no psycopg.
"""

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
from crossfade.stores.opening import open_store

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
    "WholeColumns",
    "open_store",
]
