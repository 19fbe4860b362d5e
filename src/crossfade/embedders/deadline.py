"""A time limit for a whole HTTP request: for its connection, its headers and its body together.

The limit of a socket is for each read alone: a server that sends a byte now and then keeps it for
ever. So a connection is cut when the time is over, wherever it stands.
"""

from __future__ import annotations

import http.client
import socket
import threading
import urllib.request
from contextlib import suppress
from functools import partial
from typing import Any


class Deadline:
    """Cuts the connections of a request so many seconds after it began.

    >>> with Deadline(60.0) as deadline:
    ...     request = TimedRequest("https://example.com", deadline)
    >>> deadline.passed
    False
    """

    def __init__(self, seconds: float) -> None:
        self.passed = False
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            while self._sockets:
                self._sockets.pop().close()

    def watch(self, connected: socket.socket) -> None:
        """Cut this connection too; `TimeoutError` if it is too late already."""
        with self._lock:
            if self.passed:
                connected.close()
                raise TimeoutError
            # A handle of its own: encryption takes the connection away from the one it is given.
            self._sockets.append(connected.dup())

    def _cut(self) -> None:
        with self._lock:
            self.passed = True
            for one in self._sockets:
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)


class TimedRequest(urllib.request.Request):
    """A request with a deadline, for an opener that has the handlers below."""

    def __init__(self, url: str, deadline: Deadline, **options: Any) -> None:
        super().__init__(url, **options)
        self.deadline = deadline


class TimedHttp(urllib.request.HTTPHandler):
    """urllib's own, but for the deadline."""

    def http_open(self, request: Any) -> http.client.HTTPResponse:
        made: Any = partial(_watched, http.client.HTTPConnection, request.deadline)
        return self.do_open(made, request)


class TimedHttps(urllib.request.HTTPSHandler):
    """urllib's own, but for the deadline."""

    def https_open(self, request: Any) -> http.client.HTTPResponse:
        made: Any = partial(_watched, http.client.HTTPSConnection, request.deadline)
        return self.do_open(made, request)


def _watched(kind: Any, deadline: Deadline, host: str, **options: Any) -> Any:
    """A connection that is watched as soon as it stands: what a proxy says and the handshake of
    an encrypted one are read before anybody else has a hold of it."""
    made = kind(host, **options)
    connect = made._create_connection

    def connected(*arguments: Any) -> socket.socket:
        found: socket.socket = connect(*arguments)
        deadline.watch(found)
        return found

    made._create_connection = connected
    return made
