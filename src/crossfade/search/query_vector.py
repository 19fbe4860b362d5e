"""Which vector a column of a store needs, at the present stage, for a query of the new model.

| stage | `journal.vector`, the application's own column | `crossfade_vector`, the shared one |
|---|---|---|
| started, forward under way | `query_for_old` | not yet |
| lifted, backfill under way | `query_for_old` | the new vector, or B of it |
| finishing | `query_for_old`, until the columns change places | the new vector, or B of it |
| finished | the new vector, or B of it | is the application's own by now |
| rolled back | `query_for_old` | gone |

The new vector itself, normalized as the upgrade normalizes, where the shared column is in the new
model's own coordinates (`journal.space`); B of it where it is not.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossfade.errors import BadInput
from crossfade.journal.columns import VECTOR
from crossfade.journal.journal import Journal
from crossfade.journal.opening import open_migrating
from crossfade.journal.space import new_as_asked
from crossfade.search.stage import Stage
from crossfade.stores import Store
from crossfade.upgrade import Upgrade

Float = NDArray[np.float32]


def query_column(journal: Journal) -> str:
    """The column that a query of the new model alone is best put to at this stage."""
    return VECTOR if journal.lifted else journal.vector


def query_vector(
    journal: Journal, upgrade: Upgrade, new: ArrayLike, *, column: str | None = None
) -> Float:
    """New vectors (rows, n), or one (n,), as the queries that a column takes at this stage.

    Without `column` those for the application's own, which is the one it can ask without knowing
    the stage: old vectors until the migration is finished. Whoever follows `query_column` from one
    column to the other names it.

    >>> from crossfade import Upgrade
    >>> new = np.random.default_rng(0).normal(size=(500, 6)).astype("f4")
    >>> upgrade = Upgrade(solver="closed_form").fit(new[:, :4], new)
    >>> journal = Journal(stage="started", upgrade="", upgrade_folder="", old_model="",
    ...     new_model="", id="id", vector="v", source=None, distance="cosine", shared_dim=6)
    >>> query_vector(journal, upgrade, new[0]).shape
    (4,)
    >>> query_vector(journal.after(stage="finished"), upgrade, new[0]).shape
    (6,)
    """
    name = journal.vector if column is None else column
    if name == VECTOR and journal.lifted:
        return new_as_asked(upgrade, journal.space)(new)
    if name != journal.vector:
        raise BadInput(
            f"{name!r} cannot be asked in the stage {journal.stage!r}",
            step=f"ask {journal.vector!r}",
        )
    if journal.finished:
        return new_as_asked(upgrade, journal.space)(new)
    return upgrade.query_for_old(new)


class QueryVectors:
    """`query_vector` for a store, given open or by its address, whatever stage it is in.

    `refresh` is how long, in seconds, it trusts what it last saw of the migration's stage.
    """

    def __init__(
        self,
        store: Store | str | Path,
        upgrade: Upgrade,
        *,
        column: str | None = None,
        refresh: float = 1.0,
    ) -> None:
        self.store = open_migrating(store) if isinstance(store, (str, Path)) else store
        self.upgrade, self.named = upgrade, column
        self.stage = Stage(self.store, upgrade, refresh)

    @property
    def column(self) -> str:
        """The column that the vectors are for at present."""
        return self.named or self.stage.journal().vector

    def __call__(self, new: ArrayLike) -> Float:
        """New vectors (rows, n), or one (n,), as the queries that the column takes now."""
        return query_vector(self.stage.journal(), self.upgrade, new, column=self.named)
