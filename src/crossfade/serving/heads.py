"""Connections that are slow about the head of a request are closed.

uvicorn waits for a head as long as the client likes, and takes as many bytes of it: a few hundred
connections that send one letter a minute would hold the sockets of a gateway for ever. Here the
time runs from the connection, or from the first byte after an answer, to the end of the head; then
the limits of the request itself hold, and between requests uvicorn's own of an idle connection.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from crossfade.serving.limits import Limits

_CLOSED = b"content-length: 0\r\nconnection: close\r\n\r\n"
_LATE = b"HTTP/1.1 408 Request Timeout\r\n" + _CLOSED
_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\n" + _CLOSED


class TimedHeads(HttpToolsProtocol):
    """uvicorn's protocol, with a limit of time and of size for the head of a request."""

    def __init__(self, *, limits: Limits, **given: Any) -> None:
        super().__init__(**given)
        self._limits = limits
        self._waiting: asyncio.TimerHandle | None = None
        self._bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._come()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        # A request that is being answered may still send its body.
        if self.cycle is None or self.cycle.response_complete:
            if self._waiting is None:
                self._wait()
            self._bytes += len(data)
        super().data_received(data)
        if self._waiting is not None and self._bytes > self._limits.head_bytes:
            self._refuse(_LARGE)

    def on_headers_complete(self) -> None:
        self._come()
        super().on_headers_complete()

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self._limits.head_seconds, self._late)

    def _come(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        self._waiting, self._bytes = None, 0

    def _late(self) -> None:
        # Nothing was asked on a connection that sent nothing, and nothing is answered.
        self._refuse(_LATE if self._bytes else b"")

    def _refuse(self, answer: bytes) -> None:
        self._come()
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()
