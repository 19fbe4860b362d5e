"""Where new vectors come from: what every embedder is, and the check that every answer passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from crossfade.badrows import bad_rows
from crossfade.errors import CrossfadeError, EmbedderError, shortened

Id = str | int
Vectors = NDArray[np.float32]
Rows = NDArray[np.int64]
Part = tuple[Rows, Vectors]
"""Some of the items that were asked for, by their place from 0, and their vectors."""
Enough = Callable[[], bool]

_SOURCES_STEP = "name the column that holds the text to embed"
_MODEL_STEP = "make sure that this is the new model of the upgrade"


@runtime_checkable
class Embedder(Protocol):
    """Makes the new model's vectors of some items. This much is enough; `BaseEmbedder` is for
    those who have more to say of themselves.

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


class BaseEmbedder(ABC):
    """An embedder with all that is asked of one, as it is for a model that is free and at hand.

    >>> class Lengths(BaseEmbedder):
    ...     name, at_once = "lengths", 2
    ...     def embed(self, ids, sources):
    ...         return np.array([[len(text)] for text in sources], np.float32)
    >>> turns = Lengths().embed_parts("abc", ["one", "three", "seven"])
    >>> [(rows.tolist(), vectors.tolist()) for parts in turns for rows, vectors in parts]
    [([0, 1], [[3.0], [5.0]]), ([2], [[5.0]])]
    """

    name: str
    needs_source: bool = True
    at_once: int = 256
    """Items that it is asked for at a time: the memory of a model may be small."""
    prepared: bool = False
    """Whether its vectors were made beforehand, of the ids that it `has` and of no others."""

    @abstractmethod
    def embed(self, ids: Sequence[Id], sources: Sequence[str] | None) -> Vectors:
        """Vectors (n, dim) float32 of all of `ids`, in their order."""

    def embed_parts(
        self, ids: Sequence[Id], sources: Sequence[str] | None, enough: Enough = lambda: False
    ) -> Iterator[list[Part]]:
        """The same piece by piece: all that has come since the last time, in any order.

        Once `enough()` says so nothing more is begun. What came before a failure is given first.
        """
        found: list[Part] = []
        failure: CrossfadeError | None = None
        # A store writes a few large batches with less work than many small ones: what costs
        # nothing to make again is given at the end.
        for first in range(0, len(ids), self.at_once):
            if found and enough():
                break
            some = slice(first, min(first + self.at_once, len(ids)))
            try:
                made = self.embed(ids[some], None if sources is None else sources[some])
            except CrossfadeError as error:
                failure = error
                break
            found.append((np.arange(some.start, some.stop), made))
        if found:
            yield found
        if failure is not None:
            raise failure

    def has(self, ids: Sequence[Id]) -> NDArray[np.bool_]:
        """Which of `ids` it has, or can make, a vector of."""
        return np.ones(len(ids), bool)

    @property
    def spent(self) -> float:
        """What it has cost so far."""
        return 0.0

    @property
    def tokens(self) -> float | None:
        """Tokens that it was asked for so far; None where nobody counts them."""
        return None

    @property
    def items_per_request(self) -> int | None:
        """Items of one request; None where there are no requests."""
        return None

    def keeping_spend(
        self, already: float, keep: Callable[[float], object]
    ) -> AbstractContextManager[None]:
        """Count what earlier runs have spent, and tell `keep` what is spent before it is.

        `keep` has to write it down where it outlives this process. It is called in the thread that
        asks for vectors.
        """
        return nullcontext()

    def sharing_spend(
        self, purse: Callable[[float, float | None], float]
    ) -> AbstractContextManager[Callable[[], float]]:
        """Spend from a purse that other processes spend from too (`Spend.shared`).

        It is asked in the thread that asks for vectors; what is given tells what was spent since.
        """
        return nullcontext(lambda: 0.0)


class PlainEmbedder(BaseEmbedder):
    """An embedder that has but the members of the protocol, with the others as they are in
    `BaseEmbedder`."""

    def __init__(self, embedder: Embedder) -> None:
        self.name, self.needs_source = embedder.name, embedder.needs_source
        self._embedder = embedder

    def __repr__(self) -> str:
        return repr(self._embedder)

    def embed(self, ids: Sequence[Id], sources: Sequence[str] | None) -> Vectors:
        return self._embedder.embed(ids, sources)


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
    return _checked(embedder, ids, embedder.embed(ids, sources), dimension)


def embed_parts_checked(
    embedder: BaseEmbedder,
    ids: Sequence[Id],
    sources: Sequence[str] | None,
    dimension: int | None,
    enough: Enough = lambda: False,
) -> Generator[list[Part], None, None]:
    """What `embed_parts` gives, every part with the check of `embed_checked`.

    A part that is no good ends it, after the parts that were under way.

    >>> class Lengths(BaseEmbedder):
    ...     name, at_once = "lengths", 1
    ...     def embed(self, ids, sources):
    ...         return np.array([[len(text)] for text in sources])
    >>> turns = embed_parts_checked(Lengths(), ["a", "b"], ["one", ""], 1)
    >>> next(turns)
    [(array([0]), array([[3.]], dtype=float32))]
    >>> next(turns)
    Traceback (most recent call last):
    crossfade.errors.EmbedderError: lengths: the vector of item 'b' is all zeros → ...
    """
    if embedder.needs_source:
        _check_sources(embedder, ids, sources)
    failures: list[EmbedderError] = []
    turns = embedder.embed_parts(ids, sources, lambda: bool(failures) or enough())
    for parts in turns:
        good = []
        for rows, vectors in parts:
            some = [ids[row] for row in rows.tolist()]
            try:
                good.append((rows, _checked(embedder, some, vectors, dimension)))
            except EmbedderError as failure:
                failures.append(failure)
        if good:
            yield good
    if failures:
        raise failures[0]


def _checked(embedder: Embedder, ids: Sequence[Id], answer: Any, dimension: int | None) -> Vectors:
    vectors = _as_array(embedder, answer)
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
