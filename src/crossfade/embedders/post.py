"""POST requests: their answers within bounds of time and size, or what went wrong and may pass."""

from __future__ import annotations

import json
import os
import socket
import ssl
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from crossfade.embedders.address import Address
from crossfade.errors import EmbedderError, MissingExtra, shortened

if TYPE_CHECKING:
    import aiohttp

_STEPS = {
    400: "check the model name and the length of the texts",
    401: "check the key and the variable that holds it",
    403: "check what the key is allowed to do",
    404: "check the address, which ends before /embeddings, and the model name",
    413: "use smaller batches",
    429: "check the plan and the billing of the account",
}
_REPEATABLE = (408, 425, 429)
_BUSY = (429, 503)
# Less than servers keep a connection that nobody uses (uvicorn 5 s): one that is closed as a
# request goes out takes the request with it, and nobody knows whether it was worked on.
_KEPT_SECONDS = 4.0
# Of what a server says about an error.
_MOST_SAID = 1 << 14


class Passing(Exception):
    """A failure that may not come again."""

    def __init__(
        self,
        cause: str,
        *,
        kind: str,
        wait: float | None = None,
        free: bool = False,
        busy: bool = False,
    ) -> None:
        super().__init__(cause)
        self.kind = kind
        """What went wrong in our own words, for a log: no server's, which may quote what it was
        sent."""
        self.wait = wait
        """Seconds that the server asks to be left alone."""
        self.busy = busy
        """Whether the server is asked too much: it says so, or does not answer in time."""
        self.free = free
        """Whether the server cannot have done any work, nor charged for it."""


class Refused(EmbedderError):
    """A failure that will come again; `free` as of `Passing`."""

    def __init__(self, cause: str, *, free: bool, where: object, step: str):
        super().__init__(cause, where=where, step=step)
        self.free = free


@dataclass
class _Way:
    """How far a request has come."""

    connected: bool = False


class Post:
    """Sends JSON to an address and reads what comes back, over connections that are kept.

    Redirects are not followed, cookies not kept. It is entered in the event loop that it is used
    in, and may be entered again after that.
    """

    def __init__(
        self, address: Address, *, timeout: float, most_bytes: int, connections: int = 100
    ) -> None:
        """`timeout` is for a whole request: for its connection, its headers and its body."""
        self._address, self._timeout, self._most = address, timeout, most_bytes
        self._connections = connections
        self._http = _library()
        self._session: aiohttp.ClientSession | None = None
        self._proxy = None if address.loopback else _proxy_of(address.url)

    async def __aenter__(self) -> Post:
        http, trace = self._http, self._http.TraceConfig()

        async def connected(_: Any, context: Any, __: Any) -> None:
            context.trace_request_ctx.connected = True

        trace.on_connection_create_end.append(connected)
        trace.on_connection_reuseconn.append(connected)
        self._session = http.ClientSession(
            connector=http.TCPConnector(
                limit=self._connections, keepalive_timeout=_KEPT_SECONDS, ttl_dns_cache=60
            ),
            timeout=http.ClientTimeout(total=self._timeout, ceil_threshold=float("inf")),
            cookie_jar=http.DummyCookieJar(),
            # What was packed small could be large: nothing that was packed is asked for or read.
            auto_decompress=False,
            trace_configs=[trace],
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, payload: dict[str, Any]) -> bytes:
        """The body of a good answer; `Passing` or `EmbedderError` otherwise."""
        if self._session is None:
            raise RuntimeError("a Post is entered before it sends")
        from yarl import URL

        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "crossfade",
        }
        if self._address.authorization is not None:
            headers["Authorization"] = self._address.authorization
        way = _Way()
        try:
            async with self._session.post(
                URL(self._address.url, encoded=True),
                data=json.dumps(payload).encode(),
                headers=headers,
                # A redirect would carry the key to another host.
                allow_redirects=False,
                proxy=self._proxy,
                trace_request_ctx=way,
            ) as response:
                if not 200 <= response.status < 300:
                    raise await self._refused(response)
                return await self._body(response)
        except (self._http.ClientError, OSError, ValueError) as error:
            # The error itself could show what was sent: nothing of it is kept.
            raise self._lost(error, way) from None

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        pieces, size = [], 0
        async for piece in response.content.iter_any():
            pieces.append(piece)
            size += len(piece)
            if size > self._most:
                response.close()
                raise EmbedderError(
                    f"answered with more than {self._most} bytes",
                    where=self._address.name,
                    step="use smaller batches, or raise the limit",
                )
        return b"".join(pieces)

    async def _refused(self, response: aiohttp.ClientResponse) -> Exception:
        code, said = response.status, await self._said(response)
        cause = f"answered {code}{f': {said}' if said else ''}"
        # The others are answered before any work; behind these there may be a model that did it.
        repeatable = code in _REPEATABLE or code >= 500
        # Waiting does not fill an empty account.
        if repeatable and not (code == 429 and "insufficient_quota" in said):
            wait = _wait_asked(response.headers.get("Retry-After"))
            return Passing(cause, kind=f"answered {code}", wait=wait, busy=code in _BUSY)
        step = _STEPS.get(code, "check the address")
        return Refused(cause, free=not repeatable, where=self._address.name, step=step)

    async def _said(self, response: aiohttp.ClientResponse) -> str:
        """The server's own words, short and without secrets."""
        body = b""
        try:
            while len(body) < _MOST_SAID and (piece := await response.content.readany()):
                body += piece
        except (self._http.ClientError, OSError):
            return ""
        finally:
            if not response.content.at_eof():
                response.close()
        body = body[:_MOST_SAID]
        try:
            found = json.loads(body)
            detail = found.get("error", found) if isinstance(found, dict) else found
            if isinstance(detail, dict):
                words = [detail.get(part) for part in ("message", "detail", "type", "code")]
                text = ", ".join(word for word in words if isinstance(word, str))
            else:
                text = str(detail)
        except (ValueError, RecursionError):
            text = body.decode(errors="replace")
        text = self._address.scrubbed(text)
        if len(body) == _MOST_SAID:
            # It goes on, and a key that is cut in two is not known for one.
            text = text[: len(text) // 2]
        return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:300]

    def _lost(self, error: Exception, way: _Way) -> Exception:
        certificate = getattr(error, "certificate_error", None)
        if isinstance(certificate, ssl.SSLCertVerificationError):
            return Refused(
                f"its certificate is not trusted ({certificate.verify_message})",
                free=True,
                where=self._address.name,
                step="check the address, or set SSL_CERT_FILE to the authority that signed it",
            )
        late = isinstance(error, TimeoutError)
        if not way.connected:
            why = f" within {self._timeout:g} s" if late else f" ({self._words(error)})"
            return Passing(f"no connection{why}", kind="no connection", free=True, busy=late)
        if late:
            none = f"no answer within {self._timeout:g} s"
            return Passing(none, kind=none, busy=True)
        broke = "the connection broke"
        return Passing(f"{broke} ({self._words(error)})", kind=broke)

    def _words(self, error: Exception) -> str:
        reason = getattr(error, "os_error", error)
        number = reason.errno if isinstance(reason, OSError) else None
        # The numbers of these are of a table of their own.
        own = isinstance(reason, socket.gaierror | ssl.SSLError)
        if number is not None and number > 0 and not own:
            return os.strerror(number)
        words = " ".join(self._address.scrubbed(str(reason)).split()) or type(reason).__name__
        return shortened(words).strip("'\"")


def _library() -> Any:
    try:
        import aiohttp
    except ImportError as error:
        raise MissingExtra("aiohttp", extra="endpoint", need="an HTTP endpoint") from error
    return aiohttp


def _proxy_of(url: str) -> str | None:
    """The proxy that the environment names for this address.

    It is not left to the client, which would look for keys in ~/.netrc too.
    """
    parts = urlsplit(url)
    if urllib.request.proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    proxy = urllib.request.getproxies().get(parts.scheme)
    return proxy if not proxy or "://" in proxy else f"http://{proxy}"


def _wait_asked(header: str | None) -> float | None:
    """Seconds of a Retry-After header, which has a number or a date.

    >>> _wait_asked("7"), _wait_asked("soon"), _wait_asked("Thu, 01 Jan 1970 00:00:00 GMT")
    (7.0, None, 0.0)
    """
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            date = parsedate_to_datetime(header)
        except ValueError:
            return None
        seconds = (date.astimezone(UTC) - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if seconds < float("inf") else None
