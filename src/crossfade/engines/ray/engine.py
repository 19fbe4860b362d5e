"""`RayEngine`: the work of a step, done by the workers of a cluster."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from crossfade.embedders import BaseEmbedder, Embed, Embedder, EndpointSettings
from crossfade.engines.outcome import outcome, value_of
from crossfade.engines.ray.cluster import Cluster
from crossfade.engines.ray.embedding import spread_embedder
from crossfade.engines.ray.pool import Pool, Size
from crossfade.errors import BadInput, StoreError

T = TypeVar("T")
R = TypeVar("R")


class RayEngine:
    """A cluster that is joined by its `address`, or one that is started here and ended by `close`.

    `num_actors` is one for each processor (or GPU) if it is not given.

    >>> RayEngine(num_actors=2).name
    'ray'
    """

    name = "ray"

    def __init__(
        self,
        *,
        address: str | None = None,
        num_actors: int | None = None,
        gpus_per_actor: float = 0.0,
    ) -> None:
        if num_actors is not None and num_actors < 1:
            raise BadInput(f"{num_actors} actors", step="give --num-actors a number above 0")
        if gpus_per_actor < 0:
            raise BadInput(f"{gpus_per_actor} GPUs", step="give --gpus-per-actor 0 or more")
        self._cluster = Cluster(address)
        self._size = Size(num_actors, gpus_per_actor)

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def each(self, work: Callable[[T], R], parts: Sequence[T]) -> Generator[R, None, None]:
        if not parts:
            return
        ray = self._cluster.library()
        with warnings.catch_warnings():
            # Ray Data warns of defaults that it sets itself.
            warnings.simplefilter("ignore", DeprecationWarning)
            from ray.data import DataContext, TaskPoolStrategy, from_items

            # It sets up its own logging as it is imported.
            logging.getLogger("ray.data").setLevel(logging.ERROR)
            context = DataContext.get_current()
            context.enable_progress_bars = False
            context.print_on_execution_start = False
        found = from_items(
            [{"part": number} for number in range(len(parts))], override_num_blocks=len(parts)
        ).map(partial(_row, work, list(parts)), compute=TaskPoolStrategy(self._size.actors))
        try:
            for row in found.iter_rows():
                yield value_of(row["made"].value)
        except ray.exceptions.RayError as error:
            raise StoreError(
                f"Ray gave up ({type(error).__name__})",
                where="ray",
                step="see what `ray status` says, then resume",
            ) from error

    def in_order(self, work: Callable[[T], R], items: Iterable[T]) -> Iterator[tuple[T, R]]:
        with closing(Pool(self._cluster, self._size, partial(_given, work), "ray")) as pool:
            yield from pool.run(items, ordered=True)

    @contextmanager
    def embedder(
        self, given: Embedder | Embed | str | Path, endpoint: EndpointSettings | None
    ) -> Iterator[BaseEmbedder]:
        with spread_embedder(self._cluster, self._size, given, endpoint) as found:
            yield found

    def close(self) -> None:
        self._cluster.close()


def _given(work: Any) -> Any:
    return work


@dataclass(frozen=True)
class Boxed:
    """A value that Ray Data takes as it is, and makes no column of."""

    value: Any


def _row(work: Callable[[Any], Any], parts: list[Any], row: dict[str, Any]) -> dict[str, Any]:
    return {"made": Boxed(outcome(work, parts[int(row["part"])]))}
