"""Actors that hold the same work, and items that are handed to whichever of them is free.

An actor may be lost with its process or its node, in the middle of an item or with the result on
its way. Ray starts another in its place where there is room; the item goes to any that is there.
Ray's own retries would wait for that very actor, and send what costs money twice without a word.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossfade.engines.outcome import Failure, outcome, value_of
from crossfade.engines.ray.cluster import Cluster
from crossfade.errors import BadInput, CrossfadeError, StoreError

Make = Callable[[], Callable[[Any], Any]]
# One in work and one that waits, so that no actor is idle while a result travels.
_EACH = 2
# An item that takes its worker with it so often would take all of them.
_ATTEMPTS = 4
# A cluster that grows by demand takes minutes to give the first actor its place.
_PLACE_SECONDS = 600.0
_LOOK_UP, _PAUSE = 1.0, 0.2


@dataclass(frozen=True)
class Size:
    """How many actors, and what each of them takes; None is one for each processor."""

    actors: int | None = None
    gpus: float = 0.0

    def placed(self, ray: Any) -> tuple[int, float]:
        """How many actors, and the share of a processor that each of them counts as.

        Half of the processors are left: to what Ray runs beside them, and so that all actors find
        a place on what is left when a node is lost.
        """
        there = ray.cluster_resources()
        cpus, gpus = float(there.get("CPU", 0.0)), float(there.get("GPU", 0.0))
        if self.gpus > gpus:
            raise BadInput(
                f"an actor wants {self.gpus:g} GPUs, and the cluster has {gpus:g}",
                step="give --gpus-per-actor what there is",
            )
        if self.actors is not None:
            count = self.actors
        else:
            count = int(gpus / self.gpus) if self.gpus else max(1, int(cpus))
        return count, max(0.01, int(min(1.0, cpus / (2 * count)) * 100) / 100)


class Worker:
    """Lives in a process of its own, and makes its work once."""

    def __init__(self, make: Make, folder: str) -> None:
        # A module that is named on the command line may be in the folder it was called in.
        if folder not in sys.path and Path(folder).is_dir():
            sys.path.insert(0, folder)
        self._work: Any = outcome(lambda _: make(), None)

    def ready(self) -> Failure | None:
        return self._work if isinstance(self._work, Failure) else None

    def call(self, item: Any) -> Any:
        return self._work if isinstance(self._work, Failure) else outcome(self._work, item)


@dataclass(eq=False)
class _Actor:
    handle: Any
    calls: int = 0
    there: bool = False


@dataclass(eq=False)
class _Item:
    number: int
    value: Any
    attempts: int = 0


@dataclass(eq=False)
class Pool:
    """`make` is called once in each actor; what it gives is called with the items."""

    cluster: Cluster
    size: Size
    make: Make
    where: str
    """What messages call the work."""
    _actors: list[_Actor] = field(default_factory=list)
    _coming: dict[Any, _Actor] = field(default_factory=dict)
    """Actors that were asked whether they are there."""

    def run(
        self,
        items: Iterable[Any],
        *,
        ordered: bool = False,
        enough: Callable[[], bool] = lambda: False,
    ) -> Iterator[tuple[Any, Any]]:
        """Items and what was made of them. Once `enough()` no more are begun, but for the first.

        After an error of the work no more are begun; what is under way is given, then it is raised.
        """
        ray = self.cluster.library()
        self._start(ray)
        waiting: deque[_Item] = deque()
        flying: dict[Any, tuple[_Actor, _Item]] = {}
        made: dict[int, tuple[Any, Any]] = {}
        source, begun, given, more = iter(items), 0, 0, True
        failure: CrossfadeError | None = None
        try:
            while True:
                room = _EACH * len(self._actors) + 1
                while actor := self._free():
                    # What was begun is ended, but for what its worker was lost with after an error.
                    more = more and failure is None and not (begun and enough())
                    if failure is not None:
                        waiting.clear()
                    if not waiting and more and (not ordered or begun - given < room):
                        try:
                            waiting.append(_Item(begun, next(source)))
                            begun += 1
                        except StopIteration:
                            more = False
                    if not waiting:
                        break
                    item = waiting.popleft()
                    item.attempts += 1
                    actor.calls += 1
                    flying[actor.handle.call.remote(item.value)] = actor, item
                while made and (not ordered or given in made):
                    at = given if ordered else next(iter(made))
                    given += 1
                    yield made.pop(at)
                if not flying and (failure is not None or not (more or waiting or made)):
                    break
                for ref in self._wait(ray, list(flying)):
                    actor, item = flying.pop(ref)
                    actor.calls -= 1
                    try:
                        made[item.number] = item.value, value_of(ray.get(ref))
                    except CrossfadeError as error:
                        failure = failure or error
                        more = False
                    except ray.exceptions.RayError as error:
                        self._lost(actor)
                        if item.attempts >= _ATTEMPTS:
                            failure = failure or self._given_up(error)
                        waiting.append(item)
        finally:
            for actor, _ in flying.values():
                # They finish what they have; nobody waits for it.
                actor.calls -= 1
        if failure is not None:
            raise failure

    def close(self) -> None:
        if self._actors:
            ray = self.cluster.library()
            for actor in self._actors:
                ray.kill(actor.handle)
        self._actors.clear()
        self._coming.clear()

    def _start(self, ray: Any) -> None:
        if self._actors:
            return
        count, cpus = self.size.placed(ray)
        kind = ray.remote(
            num_cpus=cpus, num_gpus=self.size.gpus, max_restarts=-1, max_task_retries=0
        )(Worker)
        for _ in range(count):
            actor = _Actor(kind.remote(self.make, str(Path.cwd())))
            self._actors.append(actor)
            self._lost(actor)

    def _free(self) -> _Actor | None:
        """The actor that has least to do, if it may have more."""
        there = [actor for actor in self._actors if actor.there and actor.calls < _EACH]
        return min(there, key=lambda actor: actor.calls) if there else None

    def _lost(self, actor: _Actor) -> None:
        """Ask an actor to say when it is there (again), if it was not asked already."""
        actor.there = False
        if actor not in self._coming.values():
            # This one call waits for as long as it takes.
            asked = actor.handle.ready.options(max_task_retries=-1).remote()
            self._coming[asked] = actor

    def _wait(self, ray: Any, flying: list[Any]) -> list[Any]:
        """Those that have come; actors that are there by now are noted."""
        until = time.monotonic() + _PLACE_SECONDS
        while True:
            asked = [*flying, *self._coming]
            done = ray.wait(asked, num_returns=1, timeout=_LOOK_UP)[0] if asked else []
            for ref in [one for one in done if one in self._coming]:
                actor = self._coming.pop(ref)
                try:
                    value_of(ray.get(ref))
                except ray.exceptions.RayError as error:
                    if getattr(error, "actor_init_failed", False):
                        raise self._unable(error) from error
                    time.sleep(_PAUSE)
                    self._lost(actor)
                else:
                    actor.there = True
            found = [one for one in done if one in flying]
            if found or any(actor.there for actor in self._actors):
                return found
            if time.monotonic() > until:
                raise StoreError(
                    f"no actor found a place within {_PLACE_SECONDS:.0f} s",
                    where=self.where,
                    step="see `ray status`; give fewer --num-actors or --gpus-per-actor",
                )

    def _unable(self, error: Exception) -> StoreError:
        """Its process came up and could not make sense of what it was given."""
        said = (str(error).strip().splitlines() or [""])[-1][:200]
        return StoreError(
            f"an actor could not begin ({said})",
            where=self.where,
            step="install crossfade[ray] and the model's module on every node",
        )

    def _given_up(self, error: Exception) -> StoreError:
        return StoreError(
            f"{_ATTEMPTS} workers were lost with the same items ({type(error).__name__})",
            where=self.where,
            step="give workers more memory or smaller batches, then resume",
        )
