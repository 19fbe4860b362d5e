"""Where new vectors come from: what every embedder is, and the check that every answer passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from crossfade.badrows import bad_rows
from crossfade.errors import EmbedderError, shortened

Id = str | int
Vectors = NDArray[np.float32]

_SOURCES_STEP = "name the column that holds the text to embed"
_MODEL_STEP = "make sure that this is the new model of the upgrade"


@runtime_checkable
class Embedder(Protocol):
    """Makes the new model's vectors of some items.

    An embedder that has no vector for some of the ids raises `MissingVectors`, which lists them;
    one that may spend no more raises `BudgetSpent` before it spends it.
    """

    @property
    def name(self) -> str:
        """What messages and journals call it; never holds a secret."""

    @property
    def needs_source(self) -> bool:
        """Whether `embed` reads the items' text, or their ids are enough."""

    def embed(self, ids: Sequence[Id], sources: Sequence[str] | None) -> Vectors:
        """Vectors (n, dim) float32 of `n` items, rows in the order of `ids`."""


def embed_checked(
    embedder: Embedder, ids: Sequence[Id], sources: Sequence[str] | None, dimension: int | None
) -> Vectors:
    """The vectors (n, dimension) of `ids`, or an error about the first of them that is no good.

    Any dimension will do where none is asked for.

    >>> class Lengths:
    ...     name, needs_source = "lengths", True
    ...     def embed(self, ids, sources):
    ...         return np.array([[len(text), 0.0] for text in sources])
    >>> embed_checked(Lengths(), ["a", "b"], ["one", "three"], 2).tolist()
    [[3.0, 0.0], [5.0, 0.0]]
    >>> embed_checked(Lengths(), ["a", "b"], ["one", ""], 2)
    Traceback (most recent call last):
    crossfade.errors.EmbedderError: lengths: the vector of item 'b' is all zeros → ...
    """
    if embedder.needs_source:
        _check_sources(embedder, ids, sources)
    if not len(ids):
        return np.empty((0, dimension or 0), np.float32)
    vectors = _as_array(embedder, embedder.embed(ids, sources))
    if vectors.ndim != 2 or len(vectors) != len(ids):
        shape = " × ".join(map(str, vectors.shape)) or "a single number"
        raise EmbedderError(
            f"answered with {shape} for {len(ids)} items, the first of them {shortened(ids[0])}",
            where=embedder.name,
            step="it has to give one row for each item, in their order",
        )
    if dimension is not None and vectors.shape[1] != dimension:
        raise EmbedderError(
            f"the vector of item {shortened(ids[0])} has {vectors.shape[1]} dimensions "
            f"where the upgrade's new model has {dimension}",
            where=embedder.name,
            step=_MODEL_STEP,
        )
    found = bad_rows(vectors)
    if found:
        row, problem = next(iter(found.items()))
        more = f", and {len(found) - 1} others are bad too" if len(found) > 1 else ""
        raise EmbedderError(
            f"the vector of item {shortened(ids[row])} {problem}{more}",
            where=embedder.name,
            step="look at the item's source, and embed it again",
        )
    return vectors


def _check_sources(embedder: Embedder, ids: Sequence[Id], sources: Sequence[str] | None) -> None:
    if sources is None:
        raise EmbedderError(
            "needs the items' text, and none was given", where=embedder.name, step=_SOURCES_STEP
        )
    if len(sources) != len(ids):
        raise EmbedderError(
            f"was asked for {len(ids)} items with {len(sources)} texts",
            where=embedder.name,
            step="give one text for each id",
        )
    for one, text in zip(ids, sources, strict=True):
        if not isinstance(text, str):
            raise EmbedderError(
                f"item {shortened(one)} has no text but {shortened(text)}",
                where=embedder.name,
                step="give it a text, or delete it",
            )


def _as_array(embedder: Embedder, answer: Any) -> Vectors:
    # A float64 beyond float32's range becomes infinite here, and is then found as a bad row.
    try:
        with np.errstate(over="ignore"):
            return np.asarray(answer, np.float32, order="C")
    except (TypeError, ValueError) as error:
        raise EmbedderError(
            f"answered with something that is no array of numbers ({error})",
            where=embedder.name,
            step="it has to give an array of shape (items, dimension)",
        ) from error
