"""What an order is: urgencies of items, and for those that learn, what they have learned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crossfade.backfill.items import Float, Groups, Items

Array = NDArray[np.float64]


class Order(ABC):
    """Who is re-embedded first. An order gives every item an urgency, larger first.

    One that learns says so, overrides `learn`, `save` and `load`, and is asked to learn before it
    is called.
    """

    name: ClassVar[str]
    by_groups: ClassVar[bool] = False
    """Whether it compares items with the means of classes or clusters."""
    by_vectors: ClassVar[bool] = True
    """Whether it looks at vectors at all."""
    by_old: ClassVar[bool] = False
    """Whether at old ones, which a gallery that was lifted has no more."""
    by_priority: ClassVar[bool] = False
    """Whether at the user's own numbers."""
    learns: ClassVar[bool] = False
    saved_as: ClassVar[str] = ""
    """Begins the names of its tensors in a plan; its name, unless it is another."""

    @abstractmethod
    def __call__(self, items: Items, groups: Groups | None = None, /) -> Array:
        """Urgencies of some items; `groups` are those of the whole gallery."""

    def learn(self, items: Items, mapped: Float) -> Order:
        """The order that pairs teach which F was not trained on; `mapped` is B(new) of `items`."""
        return self

    def save(self) -> dict[str, NDArray[Any]]:
        """What was learned, as tensors."""
        return {}

    def load(self, tensors: Mapping[str, NDArray[Any]]) -> Order:
        """The order that `save` gave these tensors of."""
        return self


def cross_fit(order: Order, items: Items, mapped: Float, seed: int) -> tuple[Order, Array]:
    """The order learned from all pairs, and urgencies that no item's own pair has told."""
    fold = np.random.default_rng(seed).permutation(len(mapped)) % 2
    urgency = np.empty(len(mapped))
    for side in (0, 1):
        learn, tell = fold == side, fold != side
        learned = order.learn(_some(items, learn), mapped[learn])
        urgency[tell] = learned(_some(items, tell))
    return order.learn(items, mapped), urgency


def _some(items: Items, rows: NDArray[np.bool_]) -> Items:
    return Items(items.ids[rows], items.old[rows], items.lifted[rows])
