"""The address of an endpoint, and the secrets that go with it but never into a message."""

from __future__ import annotations

import base64
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from crossfade.errors import BadInput
from crossfade.redaction import redact

_OPENAI = ("api.openai.com", "OPENAI_API_KEY")
# Of a query: shorter ones are in any text, and no keys.
_SHORTEST_VALUE = 4


@dataclass(frozen=True)
class Address:
    """Where requests go, what authorizes them, and a name that is safe to print."""

    name: str
    url: str = field(repr=False)
    """With its query, which some services use for a key."""
    loopback: bool
    authorization: str | None = field(default=None, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def scrubbed(self, text: str) -> str:
        """`text` without any secret: a server may well repeat the key it refuses.

        >>> Address("a", "https://a", False, secrets=("sk-123",)).scrubbed("bad key 'sk-123'")
        "bad key '***'"
        """
        return redact(text, self.secrets)


def address_of(
    base: str, key_env: str | None, environment: Mapping[str, str], *, allow_insecure: bool = False
) -> Address:
    """The address of `{base}/embeddings`, authorized by a key that a variable holds.

    `key_env` names the variable. Without it OPENAI_API_KEY is used for api.openai.com and for no
    other host, so that the key of one service is never sent to another. A user and password in the
    URL are sent as basic authorization.

    >>> address = address_of("https://me:pw@example.com/v1?tag=x", None, {})
    >>> address
    Address(name='https://example.com/v1', loopback=False)
    >>> address.url
    'https://example.com/v1/embeddings?tag=x'
    """
    parts, host, port = _parts(base)
    authority = f"{'[' + host + ']' if ':' in host else host}{'' if port is None else f':{port}'}"
    name = f"{parts.scheme}://{authority}{parts.path.rstrip('/')}"
    key = _key(key_env, host, environment, name)
    authorization = None
    values = [value for _, value in parse_qsl(parts.query) if len(value) >= _SHORTEST_VALUE]
    secrets = [secret for secret in (key, parts.query, *values) if secret]
    if parts.password is not None or parts.username:
        if key is not None and key_env is not None:
            raise BadInput(
                "has a user in its URL and a key in the environment", where=name, step="give one"
            )
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
        authorization = f"Basic {encoded}"
        # A key may stand in the place of the user.
        secrets += [secret for secret in (encoded, password or user) if secret]
    elif key is not None:
        authorization = f"Bearer {key}"
    loopback = _is_loopback(host)
    if authorization and parts.scheme == "http" and not loopback and not allow_insecure:
        raise BadInput(
            "the key would travel unencrypted", where=name, step="use https, or allow it explicitly"
        )
    query = f"?{parts.query}" if parts.query else ""
    return Address(name, f"{name}/embeddings{query}", loopback, authorization, tuple(secrets))


def _parts(base: str) -> tuple[SplitResult, str, int | None]:
    # The text itself stays out of these messages: it may hold a password.
    try:
        parts = urlsplit(base)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise BadInput("the URL of the endpoint cannot be read", step="check it") from None
    if parts.scheme not in ("http", "https") or not host:
        raise BadInput(
            "the URL of the endpoint is not of the form https://host/path", step="check it"
        )
    rest = host + parts.path + parts.query
    # `urlsplit` takes line breaks out without a word: the whole is looked at.
    broken = any(unicodedata.category(one) == "Cc" for one in base)
    if broken or not rest.isascii() or not rest.isprintable() or " " in rest:
        raise BadInput("the URL of the endpoint holds odd characters", step="percent-encode them")
    return parts, host, port


def _key(key_env: str | None, host: str, environment: Mapping[str, str], name: str) -> str | None:
    if key_env is None:
        key = environment.get(_OPENAI[1], "") if host == _OPENAI[0] else ""
        key_env = _OPENAI[1]
        if not key.strip():
            return None
    key = environment.get(key_env, "").strip()
    if not key:
        raise BadInput(
            f"the environment variable {key_env} holds no key", where=name, step="export it"
        )
    if not key.isascii() or not key.isprintable() or " " in key:
        raise BadInput(
            f"the environment variable {key_env} holds odd characters",
            where=name,
            step="export the key alone, without quotes or line breaks",
        )
    return key


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
