"""A migration from its start to its end, with a look at every stage."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from tests.migration.conftest import Function, unit


def stages(world, migration) -> Iterator[str]:
    """Carries the migration on between two looks."""
    migration.start(source="body", force=True)
    yield "started"
    migration.forward(size=70)
    yield "lifted"
    migration.backfill(Function(world.models), share=0.5)
    yield "half filled"
    migration.backfill(Function(world.models), share=1.0)
    yield "filled"
    migration.finish(force=True)
    yield "finished"


def are_nearest(found: list, query, gallery: dict) -> bool:
    """Whether these ids are the nearest by a brute force over all vectors, by cosine.

    By their scores: the old model gives some texts one vector, and either may come first.
    """
    scores = {key: float(unit(vector) @ np.asarray(query)) for key, vector in gallery.items()}
    best = sorted(scores.values(), reverse=True)[: len(found)]
    return np.allclose([scores[key] for key in found], best, atol=1e-5)


def asked(world, query, k: int = 5) -> list:
    """Ids by the application's own client."""
    table = world.app._open()
    found = table.search(np.asarray(query, np.float32)).distance_type("cosine").limit(k)
    return [row["id"] for row in found.to_list()]
