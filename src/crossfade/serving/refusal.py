"""What a client is told when it gets no vectors: a status, and words in OpenAI's shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crossfade.errors import BadInput, CrossfadeError, StoreError

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}


class Refusal(Exception):
    """An answer other than 200.

    >>> refusal = Refusal(400, "no input", param="input")
    >>> refusal.body()["error"]
    {'message': 'no input', 'type': 'invalid_request_error', 'param': 'input', 'code': None}
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        close: bool = False,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code
        self.retry_after, self.close = retry_after, close

    @property
    def type(self) -> str:
        """OpenAI's word for this kind of error."""
        if self.status in _TYPES:
            return _TYPES[self.status]
        return "invalid_request_error" if self.status < 500 else "server_error"

    def body(self) -> Mapping[str, Any]:
        """OpenAI's shape; Voyage's client looks for `detail`, Cohere's for `message`."""
        error = {
            "message": self.message,
            "type": self.type,
            "param": self.param,
            "code": self.code,
        }
        return {"error": error, "detail": self.message, "message": self.message}

    def headers(self) -> list[tuple[bytes, bytes]]:
        found = []
        if self.retry_after is not None:
            found.append((b"retry-after", str(max(1, round(self.retry_after))).encode()))
        if self.close:
            found.append((b"connection", b"close"))
        return found


def refused_by(error: CrossfadeError) -> Refusal:
    """What a client is told of an error of ours.

    >>> refused_by(BadInput("k is 0", step="ask for at least one")).status
    400
    """
    if isinstance(error, BadInput):
        return Refusal(400, str(error))
    if isinstance(error, StoreError):
        return Refusal(503, str(error), code="store_unavailable", retry_after=1)
    return Refusal(502, str(error), code="upstream_error")
