"""What a step asks of an engine that does its work elsewhere; without one it is done here.

The work is always the same pure function that runs here. What must be done once and in one place
stays with whoever asks: the journal, the lock, every write and commit, what is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

from crossfade.embedders import BaseEmbedder, Embed, Embedder, EndpointSettings

T = TypeVar("T")
R = TypeVar("R")


class Engine(Protocol):
    """Workers that can be lost at any time: what one of them had in hand is done by another."""

    name: str

    def each(self, work: Callable[[T], R], parts: Sequence[T]) -> Generator[R, None, None]:
        """What `work` makes of parts that workers read by themselves, in any order.

        A part may be worked on twice, so whatever `work` writes has a name of its own. What it
        gives is small: a count, the name of a file.
        """
        ...

    def in_order(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[tuple[T, R]]:
        """Items that are handed out here, each with what `work` made of it, in their order.

        A few items for each worker are under way at a time, however many there are.
        """
        ...

    def embedder(
        self, given: Embedder | Embed | str | Path, endpoint: EndpointSettings | None
    ) -> AbstractContextManager[BaseEmbedder]:
        """What `open_embedder` opens, with its work done by the workers: a function is loaded once
        by each of them, an endpoint is asked by them at one pace and under one spend cap."""
        ...

    def close(self) -> None:
        """Let the workers go."""
        ...
