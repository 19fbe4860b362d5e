"""The gateway over HTTP: routes, limits, and what is said of every request."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from crossfade.errors import CrossfadeError
from crossfade.serving.gateway import Embedded, Gateway
from crossfade.serving.keys import Keys, Locked
from crossfade.serving.refusal import Refusal, refused_by
from crossfade.serving.shapes import cohere, openai, search, tei

_LOG = logging.getLogger("crossfade.serving")
_JSON = (b"content-type", b"application/json")
# How long, and how much, one goes on reading what a refused client sends, so that it sees why.
_LINGER_SECONDS, _LINGER_BYTES = 1.0, 64 << 20

Headers = tuple[tuple[bytes, bytes], ...]
Handle = Callable[[dict[str, Any], float], Awaitable[tuple[bytes, Headers]]]


class Endpoint:
    """One route that takes JSON: reads the body within limits, calls, answers, counts."""

    def __init__(
        self,
        gateway: Gateway,
        route: str,
        handle: Handle,
        *,
        refused: Callable[[Refusal], Mapping[str, Any]] = Refusal.body,
        access_log: bool = False,
    ) -> None:
        self._gateway, self._route, self._handle, self._refused = gateway, route, handle, refused
        self._access_log = access_log
        self._counter = itertools.count(1)
        self._run = secrets.token_hex(6)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begin = time.perf_counter()
        counters, limits = self._gateway.counters, self._gateway.limits
        number = f"{self._run}-{next(self._counter):x}"
        status, refusal = 200, None
        more: Headers = ()
        counters.in_flight += 1
        try:
            if counters.in_flight > limits.in_flight:
                raise Refusal(
                    429,
                    f"{limits.in_flight} requests are under way",
                    code="too_many_requests",
                    retry_after=1,
                    close=True,
                )
            deadline = time.monotonic() + limits.seconds
            asked = _parsed(await _body(scope, receive, limits.body_bytes, deadline))
            body, more = await self._handle(asked, deadline)
        except Refusal as error:
            refusal = error
        except CrossfadeError as error:
            refusal = refused_by(error)
        finally:
            counters.in_flight -= 1
        if refusal is not None:
            status, more = refusal.status, tuple(refusal.headers())
            body = orjson.dumps(self._refused(refusal))
        seconds = time.perf_counter() - begin
        counters.answered(self._route, status, seconds)
        if status >= 500 or self._access_log:
            _LOG.log(
                logging.ERROR if status >= 500 else logging.INFO,
                "request",
                extra={
                    "request": number,
                    "route": self._route,
                    "status": status,
                    "code": None if refusal is None else refusal.code,
                    "ms": round(seconds * 1000, 3),
                },
            )
        headers = [
            _JSON,
            (b"content-length", str(len(body)).encode()),
            (b"x-request-id", number.encode()),
            *more,
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        if refusal is not None and refusal.close:
            await send({"type": "http.response.body", "body": body, "more_body": True})
            await _linger(receive)
            await send({"type": "http.response.body", "body": b""})
        else:
            await send({"type": "http.response.body", "body": body})


async def _body(scope: Scope, receive: Receive, most: int, deadline: float) -> bytes:
    """The whole body, unless it is too large or too slow; it is never held beyond the limit."""
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > most:
            raise _too_large(most)
        if name == b"content-encoding" and value.lower() != b"identity":
            raise Refusal(415, "the body is compressed → send it as it is", close=True)
    message = await _within(receive, deadline)
    body: bytes = message.get("body", b"")
    if not message.get("more_body", False) and len(body) <= most:
        return body
    pieces, size = [body], len(body)
    while message.get("more_body", False):
        if size > most:
            raise _too_large(most)
        message = await _within(receive, deadline)
        if message["type"] == "http.disconnect":
            raise Refusal(400, "the body was cut short", close=True)
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
    if size > most:
        raise _too_large(most)
    return b"".join(pieces)


def _too_large(most: int) -> Refusal:
    words = f"the body has more than {most} bytes"
    return Refusal(413, words, code="body_too_large", close=True)


async def _within(receive: Receive, deadline: float) -> Any:
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            return await receive()
    except TimeoutError:
        raise Refusal(408, "the body did not come in time", code="timeout", close=True) from None


async def _linger(receive: Receive) -> None:
    """A connection that is closed on unread bytes is reset, and the answer may be lost with it."""
    size = 0
    try:
        async with asyncio.timeout(_LINGER_SECONDS):
            while size < _LINGER_BYTES:
                message = await receive()
                size += len(message.get("body", b""))
                if message["type"] == "http.disconnect" or not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        asked = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Refusal(400, f"the body is no JSON ({error.msg})", code="invalid_json") from None
    if not isinstance(asked, dict):
        raise Refusal(400, "the body is no JSON object", code="invalid_json")
    return asked


class Stoppable:
    """Ends answers that would go on for ever, such as a page's events, when the gateway ends."""

    def __init__(self, app: ASGIApp, stopping: asyncio.Event) -> None:
        self._app, self._stopping = app, stopping

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # What is posted has a time limit of its own.
        if scope["type"] != "http" or scope["method"] == "POST":
            await self._app(scope, receive, send)
            return
        answering = asyncio.ensure_future(self._app(scope, receive, send))
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({answering, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not answering.done():
                answering.cancel()
        if not answering.cancelled() and answering.done():
            # Raises what went wrong with it.
            answering.result()
            return
        await asyncio.gather(answering, return_exceptions=True)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def make_app(gateway: Gateway, *, keys: Keys | None = None, access_log: bool = False) -> Starlette:
    """All routes of a gateway as one ASGI application."""
    middleware = [Middleware(Stoppable, stopping=gateway.stopping)]
    if keys is not None:
        middleware.insert(0, Middleware(Locked, keys=keys))
    return Starlette(
        routes=_routes(gateway, access_log),
        middleware=middleware,
        exception_handlers={
            404: _not_found,
            405: _not_allowed,
            Exception: _unexpected,
        },
        lifespan=lambda _: _running(gateway),
    )


def _routes(gateway: Gateway, access_log: bool) -> list[BaseRoute]:
    most = gateway.limits.inputs

    async def embed(request: openai.Request, deadline: float) -> Embedded:
        return await gateway.embed(
            request.model,
            request.inputs,
            request.count,
            dimensions=request.dimensions,
            more=request.more,
            deadline=deadline,
        )

    async def as_openai(asked: dict[str, Any], deadline: float) -> tuple[bytes, Headers]:
        request = openai.read_request(asked, most)
        found = await embed(request, deadline)
        return openai.write_answer(request, found), found.headers

    async def as_cohere(asked: dict[str, Any], deadline: float) -> tuple[bytes, Headers]:
        request, types = cohere.read_request(asked, most)
        found = await embed(request, deadline)
        return cohere.write_answer(request, types, found), found.headers

    async def as_tei(asked: dict[str, Any], deadline: float) -> tuple[bytes, Headers]:
        request, normalize = tei.read_request(asked, most, gateway.usual)
        found = await embed(request, deadline)
        return tei.write_answer(found, normalize), found.headers

    async def searched(asked: dict[str, Any], deadline: float) -> tuple[bytes, Headers]:
        query = search.read_request(asked, gateway.limits.hits)
        return search.write_answer(await gateway.search(query, deadline)), ()

    def posted(path: str, handle: Handle, **options: Any) -> Route:
        endpoint = Endpoint(gateway, path, handle, access_log=access_log, **options)
        return Route(path, endpoint, methods=["POST"])

    async def models(_: HttpRequest) -> Response:
        return _json(openai.list_models(gateway.names))

    async def model(request: HttpRequest) -> Response:
        name = request.path_params["name"]
        if name not in gateway.names:
            refusal = Refusal(404, "there is no such model", param="model", code="model_not_found")
            return _json(orjson.dumps(refusal.body()), 404)
        return _json(orjson.dumps(openai.describe_model(name)))

    async def healthy(_: HttpRequest) -> Response:
        return _json(b'{"status":"ok"}')

    async def ready(_: HttpRequest) -> Response:
        told = await gateway.ready()
        return _json(orjson.dumps(told), 200 if told["ready"] else 503)

    async def metrics(_: HttpRequest) -> Response:
        return Response(gateway.metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    page: list[BaseRoute] = []
    if gateway.binding is not None:
        from crossfade.serving.dashboard import Watch, dashboard_routes

        watch = Watch(gateway.binding.store, gateway.sources.plan, live=gateway.live)
        page = dashboard_routes(watch)
    return [
        posted("/v1/embeddings", as_openai),
        posted("/v1/search", searched),
        posted("/v2/embed", as_cohere),
        posted("/embed", as_tei, refused=tei.write_refusal),
        Route("/v1/models", models),
        Route("/v1/models/{name:path}", model),
        Route("/healthz", healthy),
        Route("/readyz", ready),
        Route("/metrics", metrics),
        *page,
    ]


@asynccontextmanager
async def _running(gateway: Gateway) -> AsyncIterator[None]:
    await gateway.start()
    try:
        yield
    finally:
        await gateway.close()


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")


async def _not_found(request: HttpRequest, _: Exception) -> Response:
    refusal = Refusal(404, f"there is nothing at {request.url.path[:200]}", code="not_found")
    return _json(orjson.dumps(refusal.body()), 404)


async def _not_allowed(request: HttpRequest, _: Exception) -> Response:
    refusal = Refusal(405, f"{request.method} is not for this address", code="method_not_allowed")
    return _json(orjson.dumps(refusal.body()), 405)


async def _unexpected(_: HttpRequest, __: Exception) -> Response:
    refusal = Refusal(500, "the gateway failed, and has logged where", code="internal_error")
    return _json(orjson.dumps(refusal.body()), 500)
