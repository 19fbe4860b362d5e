"""What the application's own vector column takes at present, whichever framework asks.

Until a migration is finished that column holds old vectors: new queries are asked as
`Upgrade.query_for_old`, and items that come are still written with the old model, for `forward`
lifts them from there. Once it is finished it is a column of the new model.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossfade.errors import BadInput
from crossfade.search import QueryVectors
from crossfade.stores import Store
from crossfade.upgrade import Upgrade

Float = NDArray[np.float32]


class OwnColumn:
    """The column that an application asks and writes, of a store or, without one, of any index of
    old vectors that is left as it is."""

    def __init__(
        self,
        upgrade: Upgrade | str | Path,
        store: Store | str | Path | None = None,
        refresh: float = 1.0,
    ) -> None:
        self.upgrade = upgrade if isinstance(upgrade, Upgrade) else Upgrade.load(upgrade)
        self._vectors = (
            None if store is None else QueryVectors(store, self.upgrade, refresh=refresh)
        )

    def query(self, new: ArrayLike) -> Float:
        """New vectors (rows, n), or one (n,), as the queries that it takes."""
        # Frameworks hand lists over, which numpy would take for float64.
        vectors = np.asarray(new, np.float32)
        ask = self.upgrade.query_for_old if self._vectors is None else self._vectors
        return ask(vectors)

    def holds_new(self) -> bool:
        """Whether items are written with the new model."""
        return self._vectors is not None and self._vectors.stage.journal().finished

    def need_old(self) -> BadInput:
        """What is wrong where items are to be written and there is nothing to embed them with."""
        return BadInput(
            "items are written with the old model until the migration is finished, and none is "
            "given",
            step="pass old=, the old model's embeddings",
        )
