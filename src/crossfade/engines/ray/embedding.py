"""New vectors made by actors: a function that each loads once, or an endpoint that all ask.

Of an endpoint everything that counts stays with the caller: the pace, the spend cap, the window of
requests under way, when to try again. The actors send and receive. So there is one rate limit and
one cap for all of them, and they are the same code as without Ray. A request whose actor is lost
counts as paid for, for it may have been.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crossfade.embedders import BaseEmbedder, Embed, Embedder, EndpointSettings, open_embedder
from crossfade.embedders.address import Address
from crossfade.embedders.callable import open_callable
from crossfade.embedders.choose import check_function
from crossfade.embedders.contract import Enough, Id, Part, Vectors
from crossfade.embedders.endpoint import MOST_AT_A_TIME, Endpoint
from crossfade.embedders.post import Passing, Post, Refused
from crossfade.engines.outcome import Failure
from crossfade.engines.ray.cluster import Cluster
from crossfade.engines.ray.pool import Pool, Size
from crossfade.errors import CrossfadeError, EmbedderError


@contextmanager
def spread_embedder(
    cluster: Cluster,
    size: Size,
    given: Embedder | Embed | str | Path,
    endpoint: EndpointSettings | None,
) -> Iterator[BaseEmbedder]:
    """What `given` means, with its work done by actors; what only looks vectors up stays here."""
    text = str(given) if isinstance(given, (str, Path)) else None
    if text is not None and check_function(text, endpoint):
        # It is not loaded here: there may be no GPU, nor room for one model more.
        with closing(SpreadEmbedder(cluster, size, partial(open_callable, text), text)) as found:
            yield found
        return
    opened = open_embedder(given, endpoint=endpoint)
    if isinstance(opened, Endpoint) and text is not None:
        opened.close()
        with closing(SpreadEndpoint(cluster, size, text, opened.settings)) as asked:
            yield asked
    elif opened.prepared or isinstance(opened, Endpoint):
        yield opened
    else:
        made = SpreadEmbedder(cluster, size, partial(_itself, opened), opened.name)
        made.needs_source, made.at_once = opened.needs_source, opened.at_once
        with closing(made):
            yield made


def _itself(embedder: BaseEmbedder) -> BaseEmbedder:
    return embedder


class SpreadEmbedder(BaseEmbedder):
    """Pieces of what is asked for go to actors, each of which opens the embedder once."""

    def __init__(self, cluster: Cluster, size: Size, opens: Any, name: str) -> None:
        self.name = name
        self._pool = Pool(cluster, size, partial(_embedding, opens), name)

    def embed(self, ids: Sequence[Id], sources: Sequence[str] | None) -> Vectors:
        found = [part for parts in self.embed_parts(ids, sources) for part in parts]
        order = np.argsort(np.concatenate([rows for rows, _ in found]))
        out: Vectors = np.concatenate([np.asarray(vectors) for _, vectors in found])[order]
        return out

    def embed_parts(
        self, ids: Sequence[Id], sources: Sequence[str] | None, enough: Enough = lambda: False
    ) -> Iterator[list[Part]]:
        pieces = (
            (
                first,
                list(ids[first : first + self.at_once]),
                None if sources is None else list(sources[first : first + self.at_once]),
            )
            for first in range(0, len(ids), self.at_once)
        )
        found: list[Part] = []
        failure: CrossfadeError | None = None
        try:
            for (first, some, _), vectors in self._pool.run(pieces, enough=enough):
                found.append((np.arange(first, first + len(some)), vectors))
        except CrossfadeError as error:
            failure = error
        if found:
            yield found
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Let the actors go, and their models."""
        self._pool.close()


def _embedding(opens: Any) -> Any:
    embedder = opens()

    def embed(piece: tuple[int, list[Id], list[str] | None]) -> Any:
        _, ids, sources = piece
        vectors = embedder.embed(ids, sources)
        # On its way a matrix is one piece of memory, and lists of lists are millions.
        return vectors if isinstance(vectors, np.ndarray) else np.asarray(vectors, np.float32)

    return embed


class _Passed(NamedTuple):
    """The parts of a `Passing`."""

    cause: str
    kind: str
    wait: float | None
    free: bool
    busy: bool


class Sender:
    """Sends requests from a process of its own, several at a time."""

    def __init__(self, address: Address, settings: EndpointSettings) -> None:
        self._post = Post(
            address,
            timeout=settings.timeout,
            most_bytes=settings.most_bytes,
            connections=settings.concurrency or MOST_AT_A_TIME,
        )
        self._entered = False

    async def send(self, payload: dict[str, Any]) -> Any:
        """The answer, or what kind of failure it was and what is known of it."""
        if not self._entered:
            self._entered = True
            await self._post.__aenter__()
        try:
            return await self._post.send(payload)
        except Passing as passing:
            return _Passed(str(passing), passing.kind, passing.wait, passing.free, passing.busy)
        except Refused as refused:
            return Failure.of(refused), refused.free
        except EmbedderError as error:
            return Failure.of(error), None


class SpreadEndpoint(Endpoint):
    """An endpoint whose requests go out from actors, one after the other in turn."""

    def __init__(self, cluster: Cluster, size: Size, base: str, settings: EndpointSettings) -> None:
        super().__init__(base, settings)
        self._cluster, self._size = cluster, size
        self._senders: Iterator[Any] | None = None
        self._handles: list[Any] = []

    def close(self) -> None:
        if self._handles:
            ray = self._cluster.library()
            for handle in self._handles:
                ray.kill(handle)
        self._handles, self._senders = [], None

    def _send(self, payload: dict[str, Any]) -> Future[bytes]:
        if self._senders is None:
            self._senders = self._start()
        answer: Future[bytes] = Future()
        sent = next(self._senders).send.remote(payload).future()
        sent.add_done_callback(partial(self._arrived, answer))
        return answer

    def _start(self) -> Iterator[Any]:
        ray = self._cluster.library()
        count, cpus = self._size.placed(ray)
        kind = ray.remote(
            num_cpus=cpus,
            max_restarts=-1,
            # Never by Ray: a request that was sent may have been paid for.
            max_task_retries=0,
            max_concurrency=self.settings.concurrency or MOST_AT_A_TIME,
        )(Sender)
        self._handles = [kind.remote(self._address, self.settings) for _ in range(count)]
        return itertools.cycle(self._handles)

    def _arrived(self, answer: Future[bytes], sent: Future[Any]) -> None:
        if not answer.set_running_or_notify_cancel():
            return
        try:
            found = sent.result()
        except Exception as error:
            # Its actor was lost, or is not there yet.
            lost = f"the actor that asked was lost ({type(error).__name__})"
            answer.set_exception(Passing(lost, kind="its actor was lost"))
            return
        if isinstance(found, bytes):
            answer.set_result(found)
        elif isinstance(found, _Passed):
            answer.set_exception(
                Passing(
                    found.cause,
                    kind=found.kind,
                    wait=found.wait,
                    free=found.free,
                    busy=found.busy,
                )
            )
        else:
            failure, free = found
            if free is None:
                answer.set_exception(failure.error())
            else:
                words = {"where": failure.where, "step": failure.step}
                answer.set_exception(Refused(failure.cause, free=free, **words))
