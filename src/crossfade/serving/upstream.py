"""Embeddings from an upstream in OpenAI's shape: `POST {base}/embeddings`, over aiohttp."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import orjson
from yarl import URL

from crossfade.embedders.address import Address
from crossfade.serving.breaker import Breaker
from crossfade.serving.counters import Asked
from crossfade.serving.limits import Limits
from crossfade.serving.refusal import Refusal
from crossfade.serving.vectors import Answer, Nonsense, read_answer, tokens_of

Inputs = str | Sequence[str] | Sequence[int] | Sequence[Sequence[int]]
_LOG = logging.getLogger("crossfade.serving.upstream")
# An answer may have so many bytes for each input: as numbers, 6,000 of the longest.
_BYTES_EACH, _BYTES_MORE = 1 << 17, 1 << 20
_REPEATABLE = (408, 425, 429, 500, 502, 503, 504)
# What an upstream says about a request that the client should mend.
_CLIENTS_FAULT = (400, 413, 422)
_MOST_SAID = 1 << 14
SEND_TEXTS = "send texts; LangChain's OpenAIEmbeddings does with check_embedding_ctx_length=False"
_PROBE_SECONDS = 2.0


class _Passing(Exception):
    """A failure that may not come again."""

    def __init__(self, refusal: Refusal, why: str, wait: float | None = None) -> None:
        super().__init__(why)
        self.refusal, self.why, self.wait = refusal, why, wait


class Upstream:
    """One model behind an address. Keys go to that address alone: no redirect is followed."""

    def __init__(
        self, side: str, address: Address, model: str, limits: Limits, counts: Asked
    ) -> None:
        self.side, self.address, self.model, self.counts = side, address, model, counts
        self.breaker = Breaker(failures=limits.failures, rest=limits.rest)
        self._limits = limits
        self._url = URL(address.url, encoded=True)
        query = address.url.removeprefix(f"{address.name}/embeddings")
        self._models = URL(f"{address.name}/models{query}", encoded=True)
        self._encoding = "base64"
        self._proven = False
        """Whether base64 has come back once."""
        self._session: aiohttp.ClientSession | None = None
        self._chance = random.SystemRandom()

    def __repr__(self) -> str:
        return f"Upstream({self.side!r}, {self.address.name!r}, model={self.model!r})"

    async def start(self) -> None:
        """Make the connections' keeper; within the loop that will use it."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "crossfade",
        }
        if self.address.authorization is not None:
            headers["Authorization"] = self.address.authorization
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=self._limits.in_flight, keepalive_timeout=30),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            # A proxy cannot reach our own loopback.
            trust_env=not self.address.loopback,
        )

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    @property
    def state(self) -> str:
        """`ok`, `down` after a failure, `open` while it is left alone."""
        if self.breaker.open:
            return "open"
        return "down" if self.breaker.failing else "ok"

    async def embed(
        self, inputs: Inputs, count: int, more: Mapping[str, Any], deadline: float
    ) -> Answer:
        """The vectors of `count` inputs, or a `Refusal`."""
        tries = self._limits.retries + 1
        for attempt in range(tries):
            wait = self.breaker.wait()
            if wait > 0:
                self.counts.count("refused")
                raise Refusal(
                    503,
                    f"{self._name} has failed {self._limits.failures} times in a row and is left "
                    f"alone for {wait:.0f} s",
                    code="upstream_unavailable",
                    retry_after=wait,
                )
            try:
                return await self._counted(inputs, count, more, deadline)
            except _Passing as failure:
                _LOG.warning(
                    "upstream failed",
                    extra={"upstream": self.address.name, "why": failure.why, "attempt": attempt},
                )
                pause = self._pause(attempt, failure)
                if attempt + 1 == tries or time.monotonic() + pause >= deadline:
                    raise failure.refusal from None
                self.counts.count("retried")
                await asyncio.sleep(pause)
        raise AssertionError("unreachable")

    async def reachable(self) -> bool:
        """Whether anything answers at the address; what it says of `GET /models` is its affair."""
        if self.breaker.open:
            return False
        assert self._session is not None  # noqa: S101
        try:
            async with self._session.get(
                self._models,
                timeout=aiohttp.ClientTimeout(total=_PROBE_SECONDS),
                allow_redirects=False,
            ) as response:
                return response.status not in (502, 503, 504)
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    @property
    def _name(self) -> str:
        return f"the upstream of the {self.side} model ({self.address.name})"

    async def _counted(
        self, inputs: Inputs, count: int, more: Mapping[str, Any], deadline: float
    ) -> Answer:
        begin = time.perf_counter()
        try:
            answer = await self._attempt(inputs, count, more, deadline)
        except _Passing as failure:
            self.counts.count("failed")
            # One that is busy is not broken.
            if failure.refusal.status != 429:
                self.breaker.failed()
            raise
        except Refusal as refusal:
            if refusal.status >= 500:
                self.counts.count("failed")
                self.breaker.failed()
            else:
                self.counts.count("turned down")
                self.breaker.succeeded()
            raise
        self.counts.good(time.perf_counter() - begin, tokens_of(answer.usage))
        self.breaker.succeeded()
        return answer

    async def _attempt(
        self, inputs: Inputs, count: int, more: Mapping[str, Any], deadline: float
    ) -> Answer:
        encoding = self._encoding
        asked = {"model": self.model, "input": inputs, "encoding_format": encoding, **more}
        status, body, headers = await self._post(orjson.dumps(asked), count, deadline)
        if status in _CLIENTS_FAULT and encoding == "base64" and not self._proven:
            # It may be the encoding that it does not know.
            asked["encoding_format"] = "float"
            status, body, headers = await self._post(orjson.dumps(asked), count, deadline)
            if status == 200:
                self._encoding = "float"
        if status != 200:
            raise self._refused(status, body, headers, _is_tokens(inputs))
        try:
            answer = read_answer(body, count)
        except Nonsense as nonsense:
            refusal = Refusal(502, f"{self._name} sent {nonsense}", code="upstream_error")
            if nonsense.whole:
                raise refusal from None
            raise _Passing(refusal, str(nonsense)) from None
        self._proven = self._proven or answer.base64
        return answer

    async def _post(
        self, data: bytes, count: int, deadline: float
    ) -> tuple[int, bytes, Mapping[str, str]]:
        assert self._session is not None  # noqa: S101
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._late()
        try:
            async with self._session.post(
                self._url,
                data=data,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=left),
            ) as response:
                body = await self._read(response, count)
                return response.status, body, response.headers
        except TimeoutError:
            raise self._late() from None
        except (aiohttp.ClientError, OSError) as error:
            # Words of such errors may hold the address, and with it a key.
            kind = type(error).__name__
            refusal = Refusal(
                502, f"{self._name} cannot be reached, or broke off ({kind})", code="upstream_error"
            )
            raise _Passing(refusal, kind) from None

    def _late(self) -> Refusal:
        words = f"{self._name} did not answer in {self._limits.seconds:g} s"
        return Refusal(504, words, code="timeout")

    async def _read(self, response: aiohttp.ClientResponse, count: int) -> bytes:
        most = count * _BYTES_EACH + _BYTES_MORE if response.status == 200 else _MOST_SAID
        length = response.content_length
        if length is not None and length <= most:
            return await response.read()
        pieces, size = [], 0
        async for piece in response.content.iter_any():
            pieces.append(piece)
            size += len(piece)
            if size > most:
                if response.status != 200:
                    break
                raise Refusal(
                    502, f"{self._name} sent more than {most} bytes", code="upstream_error"
                )
        return b"".join(pieces)[:most]

    def _refused(
        self, status: int, body: bytes, headers: Mapping[str, str], tokens: bool
    ) -> Exception:
        words = self._words(body)
        if status in _CLIENTS_FAULT:
            if tokens:
                return Refusal(
                    400,
                    f"{self._name} takes no token arrays{f' ({words})' if words else ''} → "
                    f"{SEND_TEXTS}",
                    param="input",
                    code="token_arrays_not_supported",
                )
            return Refusal(400, words or f"{self._name} refused the request", code="upstream_said")
        if 300 <= status < 400:
            return Refusal(
                502,
                f"{self._name} answers {status}, a redirect, which is not followed",
                code="upstream_error",
            )
        if status in (401, 403):
            return Refusal(
                502, f"{self._name} refuses the gateway's key ({status})", code="upstream_error"
            )
        if status == 404:
            return Refusal(
                502,
                f"{self._name} does not know the address or the model {self.model!r} (404)",
                code="upstream_error",
            )
        if status not in _REPEATABLE:
            return Refusal(502, f"{self._name} answered {status}", code="upstream_error")
        wait = _seconds(headers.get("Retry-After"))
        if status == 429:
            refusal = Refusal(
                429, f"{self._name} is busy (429)", code="upstream_busy", retry_after=wait or 1
            )
            # Waiting does not fill an empty account.
            if "insufficient_quota" in words:
                return refusal
            return _Passing(refusal, "429", wait)
        refusal = Refusal(502, f"{self._name} answered {status}", code="upstream_error")
        return _Passing(refusal, str(status), wait)

    def _words(self, body: bytes) -> str:
        """The upstream's own words, short and without secrets: for the client, never for a log."""
        try:
            found = orjson.loads(body)
        except orjson.JSONDecodeError:
            return ""
        detail = found.get("error", found) if isinstance(found, dict) else None
        if isinstance(detail, dict):
            said = [detail.get(part) for part in ("message", "detail", "type", "code")]
            detail = ", ".join(word for word in said if isinstance(word, str))
        text = self.address.scrubbed(detail) if isinstance(detail, str) else ""
        return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300]

    def _pause(self, attempt: int, failure: _Passing) -> float:
        backoff = self._limits.first_wait * 2.0**attempt * (1 - self._chance.random() / 2)
        return backoff if failure.wait is None else max(failure.wait, backoff)


def _is_tokens(inputs: Inputs) -> bool:
    return not isinstance(inputs, str) and not isinstance(inputs[0], str)


def _seconds(header: str | None) -> float | None:
    """Of a Retry-After header; dates are for pages, not for models.

    >>> _seconds("7"), _seconds("soon"), _seconds("-1")
    (7.0, None, None)
    """
    try:
        seconds = float(header or "")
    except ValueError:
        return None
    return seconds if 0 <= seconds < 86_400 else None
