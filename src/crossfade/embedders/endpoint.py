"""New vectors from an OpenAI-compatible HTTP endpoint: `POST {base}/embeddings`."""

from __future__ import annotations

import logging
import math
import os
import queue
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from crossfade.embedders.address import address_of
from crossfade.embedders.answer import Unreadable, read_answer
from crossfade.embedders.backoff import Backoff
from crossfade.embedders.contract import BaseEmbedder, Enough, Id, Part, Vectors
from crossfade.embedders.loop_thread import LoopThread
from crossfade.embedders.pace import Pace
from crossfade.embedders.post import Passing, Post, Refused
from crossfade.embedders.spend import Purse, Reservation, Spend
from crossfade.embedders.window import Window
from crossfade.errors import BadInput, BudgetSpent, CrossfadeError, EmbedderError, shortened

log = logging.getLogger(__name__)
_LONGEST_TIMEOUT = 86_400.0
# Where nobody says how many requests an endpoint takes, it is found out, up to this many.
MOST_AT_A_TIME = 64
# Whoever waits for an answer looks up so often, so that a signal finds it awake on any system.
_LOOK_UP = 1.0
# Clocks that are added to and subtracted from differ by less.
_NO_TIME = 1e-6


@dataclass(frozen=True)
class EndpointSettings:
    """How an endpoint is asked, how often, and for how much."""

    model: str = ""
    key_env: str | None = None
    """The environment variable that holds the API key."""
    batch_size: int = 64
    """Items of one request."""
    concurrency: int | None = None
    """Requests under way at a time, at most; fewer where the endpoint says that it is asked too
    much (429, 503, no answer in time). None is as many as make it answer more in a second."""
    timeout: float = 60.0
    """Seconds for one request, from its connection to the last byte of its answer."""
    retries: int = 6
    first_wait: float = 1.0
    """Seconds before the first retry; they double with each, and up to half is left to chance."""
    longest_wait: float = 120.0
    """A server that asks to be left alone for longer ends the run."""
    requests_per_second: float | None = None
    tokens_per_minute: float | None = None
    cost_per_million_tokens: float | None = None
    max_spend: float | None = None
    """In the currency of the price. A request that could pass it ends the run, unsent, with
    `BudgetSpent`; what earlier runs of the same migration spent counts too."""
    dimensions: int | None = None
    """Asks models that can for shorter vectors."""
    encoding: Literal["float", "base64"] = "float"
    most_bytes: int = 64 << 20
    """An answer larger than this is refused."""
    allow_insecure: bool = False
    """Sends a key over plain http to another machine."""

    def __post_init__(self) -> None:
        for name in (
            "batch_size",
            "concurrency",
            "timeout",
            "most_bytes",
            "requests_per_second",
            "tokens_per_minute",
            "dimensions",
        ):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise BadInput(f"{name} is {value}", step="give a number above 0")
        for name in (
            "retries",
            "first_wait",
            "longest_wait",
            "cost_per_million_tokens",
            "max_spend",
        ):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise BadInput(f"{name} is {value}", step="give a number of 0 or more")
        if self.timeout > _LONGEST_TIMEOUT:
            raise BadInput(f"timeout is {self.timeout}", step="give at most a day of seconds")


class Endpoint(BaseEmbedder):
    """Texts go out in batches, several at a time, and vectors come back.

    Timeouts, broken connections, answers cut short, 429 and 5xx are tried again, after waits that
    double and that are never shorter than the server's Retry-After. Anything else is an error:
    nothing more is sent then, and what is under way is still taken.

    Requests go over connections that are kept until `close`, or until nobody has the endpoint.

    >>> Endpoint("https://example.com/v1", EndpointSettings(model="small"))
    Endpoint('https://example.com/v1', model='small')
    """

    def __init__(
        self,
        base: str,
        settings: EndpointSettings,
        *,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._address = address_of(
            base, settings.key_env, environment, allow_insecure=settings.allow_insecure
        )
        self.name = self._address.name
        if not settings.model:
            raise BadInput("no model was named", where=self.name, step="name it with --model")
        self.settings = settings
        most = settings.concurrency or MOST_AT_A_TIME
        self.at_once = settings.batch_size * most
        self.spend = Spend(settings.cost_per_million_tokens, settings.max_spend)
        self._pace = Pace(settings.requests_per_second, settings.tokens_per_minute, clock=clock)
        self._window = Window(most, seeks=settings.concurrency is None, clock=clock)
        self._backoff = Backoff(settings.first_wait, settings.longest_wait)
        self._post = Post(
            self._address,
            timeout=settings.timeout,
            most_bytes=settings.most_bytes,
            connections=most,
        )
        self._loop: LoopThread | None = None
        self._sleep, self._clock = sleep, clock
        self._resumes = clock()
        """The server asked to be left alone until then."""

    def __repr__(self) -> str:
        return f"Endpoint({self.name!r}, model={self.settings.model!r})"

    def close(self) -> None:
        """Close its connections; it opens others when it is asked again."""
        if self._loop is not None:
            self._loop.close()
            self._loop = None

    @property
    def spent(self) -> float:
        return self.spend.spent

    @property
    def tokens(self) -> float:
        return self.spend.tokens

    @property
    def items_per_request(self) -> int:
        return self.settings.batch_size

    def keeping_spend(
        self, already: float, keep: Callable[[float], object]
    ) -> AbstractContextManager[None]:
        return self.spend.kept(already, keep)

    def sharing_spend(self, purse: Purse) -> AbstractContextManager[Callable[[], float]]:
        return self.spend.shared(purse)

    def embed(self, ids: Sequence[Id], sources: Sequence[str] | None) -> Vectors:
        """Vectors of all texts; `BudgetSpent` before anything is sent that would pass the cap."""
        texts = self._texts(ids, sources)
        self.spend.allow(texts, self.name)
        found = [part for parts in _Requests(self, ids, texts).parts() for part in parts]
        widths = sorted({vectors.shape[1] for _, vectors in found})
        if len(widths) > 1:
            raise EmbedderError(
                f"answered with vectors of {widths[0]} and of {widths[-1]} dimensions",
                where=self.name,
                step="check that one model alone answers at this address",
            )
        out = np.empty((len(texts), widths[0] if widths else 0), np.float32)
        for rows, vectors in found:
            out[rows] = vectors
        return out

    def embed_parts(
        self, ids: Sequence[Id], sources: Sequence[str] | None, enough: Enough = lambda: False
    ) -> Iterator[list[Part]]:
        """As many of the first texts as there is money for, then `BudgetSpent`."""
        texts = self._texts(ids, sources)
        yield from _Requests(self, ids, texts, enough, as_many_as_affordable=True).parts()

    def _texts(self, ids: Sequence[Id], sources: Sequence[str] | None) -> list[str]:
        texts = list(sources or ())
        for one, text in zip(ids, texts, strict=True):
            if not text.strip():
                # One empty text makes such servers refuse its whole batch without saying which.
                raise EmbedderError(
                    f"item {shortened(one)} has an empty text, which endpoints refuse",
                    where=self.name,
                    step="give it a text, or delete it",
                )
        return texts

    def _begin(self, texts: list[str]) -> Future[bytes]:
        payload: dict[str, Any] = {
            "model": self.settings.model,
            "input": texts,
            "encoding_format": self.settings.encoding,
        }
        if self.settings.dimensions is not None:
            payload["dimensions"] = self.settings.dimensions
        return self._send(payload)

    def _send(self, payload: dict[str, Any]) -> Future[bytes]:
        if self._loop is None:
            self._loop = LoopThread(self._post)
        return self._loop.submit(self._post.send(payload))


@dataclass(eq=False)
class _Request:
    first: int
    ids: Sequence[Id]
    texts: list[str]
    attempt: int = 0
    due: float = -math.inf
    """When it is sent (again), by the endpoint's clock."""
    turn: int = 0
    expected: float = 0.0
    reserved: Reservation | None = None


class _Requests:
    """The requests of one call: which are under way, which wait for another try, what has come.

    All that counts is done in the thread of the caller, so that what is spent is written down
    where the caller's other work is; the thread of the loop does nothing but send and receive.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        ids: Sequence[Id],
        texts: list[str],
        enough: Enough = lambda: False,
        *,
        as_many_as_affordable: bool = False,
    ) -> None:
        self._of, self._ids, self._texts = endpoint, ids, texts
        self._enough, self._cut = enough, as_many_as_affordable
        self._next = 0
        self._again: list[_Request] = []
        self._flying: dict[_Request, Future[bytes]] = {}
        self._landed: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        self._failure: CrossfadeError | None = None
        endpoint._window.begin()

    def parts(self) -> Iterator[list[Part]]:
        """What has come since the last time, until all has; then the failure, if there was one."""
        try:
            while True:
                found = self._collect()
                self._send()
                if found:
                    yield found
                elif self._flying:
                    self._wait_for_answer()
                elif self._more():
                    self._of._sleep(self._delay())
                else:
                    break
        finally:
            for request, future in self._flying.items():
                future.cancel()
                if request.reserved is not None:
                    self._of.spend.lose(request.reserved)
        if self._failure is not None:
            raise self._failure

    def _more(self) -> bool:
        """Whether anything is left to send."""
        if self._failure is not None:
            return False
        # The first request is begun whatever happens: else a hurried caller would get nowhere.
        return bool(self._again) or (
            self._next < len(self._texts) and not (self._next and self._enough())
        )

    def _send(self) -> None:
        """Send what may be sent now, after what it can cost was written down."""
        spend, pace, window = self._of.spend, self._of._pace, self._of._window
        ready: list[_Request] = []
        while len(self._flying) + len(ready) < window.size and self._delay() <= 0:
            try:
                request = self._pick(len(self._flying) + len(ready))
            except BudgetSpent as spent:
                self._failure = spent
                break
            if request is None:
                break
            request.turn, request.expected = window.turn, spend.estimate(request.texts)
            pace.begin(request.expected)
            ready.append(request)
        spend.write_down()
        for request in ready:
            future = self._of._begin(request.texts)
            self._flying[request] = future
            future.add_done_callback(partial(self._land, request))

    def _land(self, request: _Request, _: Future[bytes]) -> None:
        # In the thread of the loop: no more is done there.
        self._landed.put(request)

    def _pick(self, others: int) -> _Request | None:
        """The next request beside `others`, its money reserved; None if there is none for now."""
        if not self._more():
            return None
        spend, where = self._of.spend, self._of.name
        due = [one for one in self._again if one.due <= self._of._clock() + _NO_TIME]
        if due:
            request = due[0]
            if others and spend.affordable(request.texts) < len(request.texts):
                return None
            request.reserved = spend.reserve(request.texts, where)
            self._again.remove(request)
            return request
        if self._next == len(self._texts) or (self._next and self._enough()):
            return None
        # Those that wait for another try keep their place.
        if others + len(self._again) >= self._of._window.size:
            return None
        texts = self._texts[self._next : self._next + self._of.settings.batch_size]
        affordable = spend.affordable(texts)
        if affordable < len(texts):
            if others:
                # What is under way may turn out to cost less than was put by for it.
                return None
            if self._cut:
                # Not even one, and it is said so.
                texts = texts[: max(1, affordable)]
        reserved = spend.reserve(texts, where)
        ids = self._ids[self._next : self._next + len(texts)]
        request = _Request(self._next, ids, texts, reserved=reserved)
        self._next += len(texts)
        return request

    def _delay(self) -> float:
        """Seconds until something may be sent; 0 where it is not time that is missing."""
        now = self._of._clock()
        delay = max(self._of._pace.wait, self._of._resumes - now)
        full = len(self._flying) + len(self._again) >= self._of._window.size
        if self._again and (full or self._next == len(self._texts) or self._enough()):
            delay = max(delay, min(one.due for one in self._again) - now)
        return delay if delay > _NO_TIME else 0.0

    def _wait_for_answer(self) -> None:
        try:
            request = self._landed.get(timeout=min(self._delay() or _LOOK_UP, _LOOK_UP))
        except queue.Empty:
            return
        self._landed.put(request)

    def _collect(self) -> list[Part]:
        """The vectors of all requests that were answered."""
        found: list[Part] = []
        while not self._landed.empty():
            request = self._landed.get()
            future = self._flying.pop(request)
            try:
                found.append(self._answered(request, future.result()))
            except Passing as passing:
                self._count_lost(request, free=passing.free)
                self._try_again(request, passing)
            except EmbedderError as failure:
                self._count_lost(request, free=isinstance(failure, Refused) and failure.free)
                self._failure = self._failure or failure
        return found

    def _answered(self, request: _Request, body: bytes) -> Part:
        try:
            answer = read_answer(body, request.ids, self._of.name)
        except Unreadable as problem:
            raise Passing(str(problem), kind="an answer that cannot be read") from problem
        if request.reserved is not None:
            tokens = self._of.spend.settle(request.reserved, answer.tokens)
            if tokens is not None:
                self._of._pace.correct(tokens - request.expected)
        self._of._window.widen(len(request.ids))
        return np.arange(request.first, request.first + len(request.ids)), answer.vectors

    def _count_lost(self, request: _Request, *, free: bool) -> None:
        """Whatever happened is paid for, unless it is known that it was not."""
        if request.reserved is None:
            return
        if free:
            self._of.spend.release(request.reserved)
        else:
            self._of.spend.lose(request.reserved)
        request.reserved = None

    def _try_again(self, request: _Request, passing: Passing) -> None:
        settings, name = self._of.settings, self._of.name
        window, before = self._of._window, self._of._window.size
        if passing.busy:
            window.halve(request.turn)
        if window.size < before:
            log.info("%s: asked too much, %d requests at a time from now on", name, window.size)
        if self._failure is not None:
            return
        if passing.wait is not None and passing.wait > settings.longest_wait:
            self._failure = EmbedderError(
                f"{passing}, and asks to be left alone for {passing.wait:.0f} s",
                where=name,
                step="resume after that time",
            )
            return
        request.attempt += 1
        if request.attempt > settings.retries:
            self._failure = EmbedderError(
                f"{passing}, {request.attempt} times; the first item of the batch is "
                f"{shortened(request.ids[0])}",
                where=name,
                step="see whether the service is up, then resume",
            )
            return
        wait = self._of._backoff.wait(request.attempt - 1, passing.wait)
        request.due = self._of._clock() + wait
        # What a server says may hold what it was sent: it is not logged.
        log.info(
            "%s: %s; try %d of %d for %d items in %.1f s",
            name,
            passing.kind,
            request.attempt + 1,
            settings.retries + 1,
            len(request.ids),
            wait,
        )
        if passing.wait is not None:
            self._of._resumes = max(self._of._resumes, self._of._clock() + passing.wait)
        self._again.append(request)
