"""Backfilling: in which order the gallery is re-embedded, and what each share of it buys."""

from crossfade.backfill.blend import Blend, blend, stored
from crossfade.backfill.curve import Curve, curves
from crossfade.backfill.items import Groups, Items
from crossfade.backfill.orders import ORDERS, AlignmentError, combined, positions

__all__ = [
    "ORDERS",
    "AlignmentError",
    "Blend",
    "Curve",
    "Groups",
    "Items",
    "blend",
    "combined",
    "curves",
    "positions",
    "stored",
]
