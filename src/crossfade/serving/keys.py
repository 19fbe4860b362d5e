"""Keys that clients show, compared in constant time."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable

import orjson
from starlette.types import ASGIApp, Receive, Scope, Send

from crossfade.errors import BadInput
from crossfade.serving.refusal import Refusal

OPEN = ("/healthz", "/readyz")


class Keys:
    """Some keys, of which hashes are kept.

    >>> keys = Keys(["a-key"])
    >>> keys.allow(b"Bearer a-key"), keys.allow(b"Bearer b-key"), keys.allow(b"")
    (True, False, False)

    A browser sends one as a password:

    >>> keys.allow(b"Basic " + base64.b64encode(b"me:a-key"))
    True
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._hashes = [hashlib.sha256(key.encode()).digest() for key in keys]
        if not self._hashes:
            raise BadInput("no client key was given", step="give one, or leave the option out")

    def allow(self, authorization: bytes) -> bool:
        """Whether a header shows one of them."""
        scheme, _, shown = authorization.partition(b" ")
        key = shown.strip()
        if scheme.lower() == b"basic":
            try:
                key = base64.b64decode(key, validate=True).partition(b":")[2]
            except binascii.Error:
                return False
        elif scheme.lower() != b"bearer":
            return False
        found = hashlib.sha256(key).digest()
        # All are compared, whichever fits.
        return any([hmac.compare_digest(found, known) for known in self._hashes])  # noqa: C419


class Locked:
    """Lets through who shows a key; whether the gateway lives may be asked without."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self._app, self._keys = app, keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN:
            await self._app(scope, receive, send)
            return
        shown = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if self._keys.allow(shown):
            await self._app(scope, receive, send)
            return
        refusal = Refusal(401, "no key, or one that is not known", code="invalid_api_key")
        body = orjson.dumps(refusal.body())
        scheme = b"Bearer" if scope["path"].startswith(("/v1", "/v2", "/embed")) else b"Basic"
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"www-authenticate", scheme + b' realm="crossfade"'),
            (b"connection", b"close"),
        ]
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": body})
