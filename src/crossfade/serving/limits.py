"""What a gateway allows one request, and all of them together."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from crossfade.errors import BadInput


@dataclass(frozen=True)
class Limits:
    """
    >>> Limits(seconds=5).body_bytes
    16777216
    >>> Limits(in_flight=0)
    Traceback (most recent call last):
    crossfade.errors.BadInput: in_flight is 0 → give a number above 0
    """

    seconds: float = 30.0
    """For one request, from its first byte to its answer, retries included."""
    head_seconds: float = 10.0
    """For its head: who is slower, or sends nothing, is hung up on."""
    head_bytes: int = 64 << 10
    body_bytes: int = 16 << 20
    in_flight: int = 2000
    """Requests beyond these are told to come again: 429, with Retry-After."""
    inputs: int = 2048
    """Texts of one request, as OpenAI allows."""
    hits: int = 1000
    """The most that one search may ask for."""
    threads: int = 16
    """Searches that the store is asked side by side."""
    retries: int = 2
    """Of an upstream that is away or says to come again; always within the seconds."""
    first_wait: float = 0.1
    failures: int = 5
    """In a row, after which an upstream is left alone for `rest` seconds."""
    rest: float = 5.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name in ("retries", "first_wait") else math.ulp(0.0)
            if not least <= value < math.inf:
                step = "give a number above 0" if least else "give a number of 0 or more"
                raise BadInput(f"{field.name} is {value}", step=step)
