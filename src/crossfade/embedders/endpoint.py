"""New vectors from an OpenAI-compatible HTTP endpoint: `POST {base}/embeddings`."""

from __future__ import annotations

import math
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from crossfade.embedders.address import address_of
from crossfade.embedders.answer import Answer, Unreadable, read_answer
from crossfade.embedders.contract import Id, Vectors
from crossfade.embedders.pace import Pace
from crossfade.embedders.post import Passing, Post, Refused
from crossfade.embedders.spend import Spend
from crossfade.errors import BadInput, EmbedderError, shortened

_LONGEST_TIMEOUT = 86_400.0


@dataclass(frozen=True)
class EndpointSettings:
    """How an endpoint is asked, how often, and for how much."""

    model: str = ""
    key_env: str | None = None
    """The environment variable that holds the API key."""
    batch_size: int = 64
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


class Endpoint:
    """Texts go out in batches, vectors come back.

    Timeouts, broken connections, answers cut short, 429 and 5xx are tried again, after waits that
    double and that are never shorter than the server's Retry-After. Anything else is an error.

    One call of `embed` with at most `batch_size` items is one request, so that nothing that was
    paid for is lost when the next one fails.

    >>> Endpoint("https://example.com/v1", EndpointSettings(model="small"))
    Endpoint('https://example.com/v1', model='small')
    """

    needs_source = True

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
        self.spend = Spend(settings.cost_per_million_tokens, settings.max_spend)
        self._pace = Pace(
            settings.requests_per_second, settings.tokens_per_minute, sleep=sleep, clock=clock
        )
        self._post = Post(self._address, timeout=settings.timeout, most_bytes=settings.most_bytes)
        self._sleep = sleep
        self._chance = secrets.SystemRandom().random

    def __repr__(self) -> str:
        return f"Endpoint({self.name!r}, model={self.settings.model!r})"

    def embed(self, ids: Sequence[Id], sources: Sequence[str] | None) -> Vectors:
        """Vectors of all texts; `BudgetSpent` before anything is sent that would pass the cap."""
        texts = list(sources or ())
        for one, text in zip(ids, texts, strict=True):
            if not text.strip():
                # One empty text makes such servers refuse its whole batch without saying which.
                raise EmbedderError(
                    f"item {shortened(one)} has an empty text, which endpoints refuse",
                    where=self.name,
                    step="give it a text, or delete it",
                )
        self.spend.allow(texts, self.name)
        size = self.settings.batch_size
        found = [
            self._request(ids[start : start + size], texts[start : start + size])
            for start in range(0, len(texts), size)
        ]
        widths = sorted({vectors.shape[1] for vectors in found})
        if len(widths) > 1:
            raise EmbedderError(
                f"answered with vectors of {widths[0]} and of {widths[-1]} dimensions",
                where=self.name,
                step="check that one model alone answers at this address",
            )
        return np.concatenate(found) if found else np.empty((0, 0), np.float32)

    def _request(self, ids: Sequence[Id], texts: list[str]) -> Vectors:
        payload: dict[str, Any] = {
            "model": self.settings.model,
            "input": texts,
            "encoding_format": self.settings.encoding,
        }
        if self.settings.dimensions is not None:
            payload["dimensions"] = self.settings.dimensions
        tries = self.settings.retries + 1
        for attempt in range(tries):
            try:
                return self._attempt(payload, ids, texts).vectors
            except Passing as failure:
                if attempt + 1 == tries:
                    raise EmbedderError(
                        f"{failure}, {tries} times; the first item of the batch is "
                        f"{shortened(ids[0])}",
                        where=self.name,
                        step="see whether the service is up, then resume",
                    ) from failure
                self._sleep(self._wait(attempt, failure))
        raise AssertionError("unreachable")

    def _attempt(self, payload: dict[str, Any], ids: Sequence[Id], texts: list[str]) -> Answer:
        expected = self.spend.estimate(texts)
        self._pace.wait(expected)
        # Whatever happens from here on is paid for, unless it is known that it was not.
        self.spend.reserve(texts, self.name)
        try:
            body = self._post.send(payload)
        except (Passing, Refused) as failure:
            if failure.free:
                self.spend.release()
            raise
        try:
            answer = read_answer(body, ids, self.name)
        except Unreadable as problem:
            raise Passing(str(problem)) from problem
        tokens = self.spend.settle(texts, answer.tokens)
        if tokens is not None:
            self._pace.correct(tokens - expected)
        return answer

    def _wait(self, attempt: int, failure: Passing) -> float:
        backoff = min(self.settings.first_wait * 2.0**attempt, self.settings.longest_wait)
        backoff *= 1 - self._chance() / 2
        if failure.wait is None:
            return backoff
        if failure.wait > self.settings.longest_wait:
            raise EmbedderError(
                f"{failure}, and asks to be left alone for {failure.wait:.0f} s",
                where=self.name,
                step="resume after that time",
            ) from failure
        return max(failure.wait, backoff)
