"""Secrets taken out of words that others wrote: a server may well repeat what it was sent, and in
another spelling."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

_GONE = "***"
# Fewer characters of base64 would be found in any text.
_SHORTEST_CORE = 5
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_=%\\")
# An address that was typed, with a user and a password; as a path it has lost a slash.
_TYPED = re.compile(
    r"((?:postgres(?:ql)?|qdrant(?:\+https)?|milvus(?:\+https?)?|https?):/*)[^:@/]*:.*@", re.DOTALL
)


def without_password(place: str) -> str:
    """A place as it was typed, without a password: an address may stand where a file should.

    >>> without_password("postgresql:/me:p@ss@host/db.npz")
    'postgresql:/…@host/db.npz'
    """
    return _TYPED.sub(r"\1…@", place)


def redact(text: str, secrets: Iterable[str]) -> str:
    """`text` without the secrets, be they written plainly, percent-encoded, escaped as in JSON or
    HTML, or within base64, alone or with other things around them.

    >>> redact("bad key 'a-secret', also as %61-secret or \\\\u0061-secret", ["a-secret"])
    "bad key '***', also as *** or ***"
    >>> encoded = base64.b64encode(b"Bearer a-secret").decode()
    >>> redact(f"cannot read {encoded}.", ["a-secret"])
    'cannot read ***.'
    """
    for secret in sorted(set(filter(None, secrets)), key=len, reverse=True):
        text = _spellings(secret).sub(_GONE, text)
        for core in _cores(secret):
            text = _without_runs(text, core)
    return text


@lru_cache(maxsize=64)
def _spellings(secret: str) -> re.Pattern[str]:
    return re.compile("".join(map(_spelled, secret)))


def _spelled(character: str) -> str:
    """A pattern of one character in each of its spellings, which may be mixed."""
    code = ord(character)
    percent = "".join(f"%(?:25)*(?i:{byte:02x})" for byte in character.encode(errors="replace"))
    units = character.encode("utf-16-be", errors="surrogatepass")
    pairs = [units[place : place + 2].hex() for place in range(0, len(units), 2)]
    json = "".join(rf"\\+u(?i:{pair})" for pair in pairs)
    ways = [rf"\\*{re.escape(character)}", percent, json, f"&#0*{code};", f"(?i:&#x0*{code:x};)"]
    if code < 256:
        ways.append(rf"\\+x(?i:{code:02x})")
    if html.escape(character) != character:
        ways.append(html.escape(character))
    if character == " ":
        ways.append(r"\+")
    return f"(?:{'|'.join(ways)})"


@lru_cache(maxsize=64)
def _cores(secret: str) -> tuple[re.Pattern[str], ...]:
    """What any base64 with the secret in it holds, for each of the three ways in which its bytes
    can fall on the characters: those that nothing but the secret has a share in."""
    return tuple(_cores_of(secret.encode(errors="replace")))


def _cores_of(data: bytes) -> Iterator[re.Pattern[str]]:
    for before in range(3):
        coded = base64.b64encode(bytes(before) + data).decode()
        core = coded[-(-8 * before // 6) : 8 * (before + len(data)) // 6]
        if len(core) >= _SHORTEST_CORE:
            # Lines of base64 may be broken anywhere.
            yield re.compile(r"\s*".join(map(_of_base64, core)))


def _of_base64(character: str) -> str:
    return {"+": r"(?:[+-]|%2[Bb])", "/": r"(?:\\*/|_|%2[Ff])"}.get(character, character)


def _without_runs(text: str, core: re.Pattern[str]) -> str:
    """Without the whole of each run of base64 in which the core stands."""
    kept, end = [], 0
    for found in core.finditer(text):
        start, last = found.span()
        if start < end:
            continue
        while start > end and text[start - 1] in _BASE64:
            start -= 1
        while last < len(text) and text[last] in _BASE64:
            last += 1
        kept += [text[end:start], _GONE]
        end = last
    return "".join([*kept, text[end:]])
