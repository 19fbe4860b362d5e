"""One POST request: its answer within bounds of time and size, or what went wrong and may pass."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from crossfade.embedders.address import Address
from crossfade.embedders.deadline import Deadline, TimedHttp, TimedHttps, TimedRequest
from crossfade.errors import EmbedderError, shortened

_STEPS = {
    400: "check the model name and the length of the texts",
    401: "check the key and the variable that holds it",
    403: "check what the key is allowed to do",
    404: "check the address, which ends before /embeddings, and the model name",
    413: "use smaller batches",
    429: "check the plan and the billing of the account",
}
_REPEATABLE = (408, 425, 429)
# Of what a server says about an error.
_MOST_SAID = 1 << 14


class Passing(Exception):
    """A failure that may not come again."""

    def __init__(self, cause: str, *, wait: float | None = None, free: bool = False):
        super().__init__(cause)
        self.wait = wait
        """Seconds that the server asks to be left alone."""
        self.free = free
        """Whether the server cannot have done any work, nor charged for it."""


class Refused(EmbedderError):
    """A failure that will come again; `free` as of `Passing`."""

    def __init__(self, cause: str, *, free: bool, where: object, step: str):
        super().__init__(cause, where=where, step=step)
        self.free = free


class Post:
    """Sends JSON to an address and reads what comes back, without following redirects."""

    def __init__(self, address: Address, *, timeout: float, most_bytes: int) -> None:
        self._address, self._timeout, self._most = address, timeout, most_bytes
        # A redirect would carry the key to another host. A proxy cannot reach our own loopback.
        handlers: list[Any] = [_NoRedirect(), TimedHttp(), TimedHttps()]
        if address.loopback:
            handlers.append(urllib.request.ProxyHandler({}))
        self._opener = urllib.request.build_opener(*handlers)

    def send(self, payload: dict[str, Any]) -> bytes:
        """The body of a good answer; `Passing` or `EmbedderError` otherwise."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "crossfade",
        }
        if self._address.authorization is not None:
            headers["Authorization"] = self._address.authorization
        data = json.dumps(payload).encode()
        with Deadline(self._timeout) as deadline:
            # The scheme was checked when the address was made.
            request = TimedRequest(
                self._address.url, deadline, data=data, headers=headers, method="POST"
            )
            try:
                with self._opener.open(request, timeout=self._timeout) as response:
                    return self._body(response, deadline)
            except urllib.error.HTTPError as error:
                with error:
                    raise self._refused(error) from None
            except urllib.error.URLError as error:
                reason = TimeoutError() if deadline.passed else error.reason
                raise self._unreached(reason) from None
            except (OSError, http.client.HTTPException) as error:
                raise self._lost(TimeoutError() if deadline.passed else error) from None

    def _body(self, response: http.client.HTTPResponse, deadline: Deadline) -> bytes:
        pieces, size = [], 0
        while piece := response.read1(1 << 16):
            pieces.append(piece)
            size += len(piece)
            if size > self._most:
                raise EmbedderError(
                    f"answered with more than {self._most} bytes",
                    where=self._address.name,
                    step="use smaller batches, or raise the limit",
                )
        if deadline.passed:
            raise TimeoutError
        if response.length:
            raise http.client.IncompleteRead(b"", response.length)
        return b"".join(pieces)

    def _refused(self, error: urllib.error.HTTPError) -> Exception:
        code, said = error.code, self._said(error)
        cause = f"answered {code}{f': {said}' if said else ''}"
        # The others are answered before any work; behind these there may be a model that did it.
        repeatable = code in _REPEATABLE or code >= 500
        # Waiting does not fill an empty account.
        if repeatable and not (code == 429 and "insufficient_quota" in said):
            return Passing(cause, wait=_wait_asked(error.headers.get("Retry-After")))
        step = _STEPS.get(code, "check the address")
        return Refused(cause, free=not repeatable, where=self._address.name, step=step)

    def _said(self, error: urllib.error.HTTPError) -> str:
        """The server's own words, short and without secrets."""
        try:
            body = error.read(_MOST_SAID)
        except (OSError, http.client.HTTPException):
            return ""
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

    def _unreached(self, reason: object) -> Exception:
        if isinstance(reason, ssl.SSLCertVerificationError):
            return Refused(
                f"its certificate is not trusted ({reason.verify_message})",
                free=True,
                where=self._address.name,
                step="check the address, or set SSL_CERT_FILE to the authority that signed it",
            )
        if isinstance(reason, TimeoutError):
            return Passing(f"no connection within {self._timeout:g} s", free=True)
        return Passing(f"no connection ({self._words(reason)})", free=True)

    def _lost(self, error: Exception) -> Passing:
        if isinstance(error, TimeoutError):
            return Passing(f"no answer within {self._timeout:g} s")
        return Passing(f"the connection broke ({self._words(error)})")

    def _words(self, reason: object) -> str:
        if isinstance(reason, OSError) and reason.strerror:
            return reason.strerror
        words = self._address.scrubbed(str(reason)) or type(reason).__name__
        return shortened(words).strip("'\"")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


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
