"""What a user types to name a store, taken apart; and its name for others, without secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote

from crossfade.errors import BadInput, StoreError

# What tells one database from another, and so has to be there if a name is typed again.
_SHOWN = (
    "host", "hostaddr", "port", "dbname", "user", "service", "options", "sslmode", "sslrootcert",
    "target_session_attrs",
)  # fmt: skip
# The beginning of a query whose last value goes on with an @: these may hold one, and no others.
_WITH_AT = re.compile(
    r"\?(?:[a-z_]+=[^&]*&)*(?:user|password|sslpassword|passfile|options)=[^&]*$", re.DOTALL
)
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.%\w]*\]|[^:\[\]@\s]*)(?::[0-9]*)?")
MOST_LISTED = 20
"""How many tables an error names."""


@dataclass(frozen=True)
class Address:
    """A kind of store, where it is, and for databases the table or collection."""

    kind: str
    at: str
    table: str = ""

    @property
    def name(self) -> str:
        """How messages call it; holds no secret.

        >>> Address("pgvector", "postgresql://app:secret@db/shop", "items").name
        'postgresql://app@db/shop#items'
        """
        return safe_name(f"{self.at}#{self.table}") if self.table else self.at


@dataclass(frozen=True)
class Url:
    """The parts of the address of a server, as they were written."""

    scheme: str
    user: str
    password: str | None
    host: str
    query: str
    table: str

    @classmethod
    def of(cls, text: str) -> Url:
        """The last @ ends a user and a password, whatever they hold; the last # begins a table."""
        scheme, _, rest = text.partition("://")
        end = _end_of_credentials(rest)
        user, colon, password = rest[: max(0, end)].partition(":")
        rest, _, table = _cut_last(rest[end + 1 :], "#")
        host, _, query = rest.partition("?")
        return cls(scheme, user, password if colon else None, host, query, table)

    @property
    def settings(self) -> list[tuple[str, str]]:
        """The settings of the query, as they were written."""
        pairs = (part.partition("=") for part in self.query.split("&") if part)
        return [(name, value) for name, _, value in pairs]

    @property
    def has_host(self) -> bool:
        """Whether what stands in the place of hosts are some, with their ports."""
        return all(map(_HOST.fullmatch, self.host.partition("/")[0].split(",")))

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be told, as it was written and as it is meant."""
        found = [value for name, value in self.settings if name not in _SHOWN]
        if self.password is not None:
            found.append(self.password)
        return tuple({one for value in found if value for one in (value, unquote(value))})

    def written(self) -> str:
        """The address without the table, its user and password so that nobody can misread them."""
        secret = "" if self.password is None else f":{_quoted(self.password)}"
        who = f"{_quoted(self.user)}{secret}@" if self.user or secret else ""
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{who}{self.host}{query}"

    def shown(self) -> str:
        """The address with the table, without what must not be told."""
        # What is no host might be a part of a password.
        host = self.host if self.has_host else "…"
        user = f"{_quoted(self.user)}@" if self.user else ""
        kept = [(n, value) for n, value in self.settings if n in _SHOWN and "@" not in value]
        query = f"?{'&'.join(map('='.join, kept))}" if kept else ""
        table = f"#{self.table}" if self.table else ""
        return f"{self.scheme}://{user}{host}{query}{table}"


def safe_name(url: str) -> str:
    """A URL fit for logs: without its password and any setting that might hold one.

    What tells the database from others stays, so that the name can be typed again, with the
    password where it belongs (`PGPASSWORD` or `~/.pgpass`). A setting with an @ that is not written
    %40 is left out as well: it may be that the @ ends a password.

    >>> safe_name("postgresql://app:secret@db:5432/shop?sslkey=x#items")
    'postgresql://app@db:5432/shop#items'
    >>> safe_name("postgresql:///shop?host=/run/pg&password=secret#items")
    'postgresql:///shop?host=/run/pg#items'
    >>> safe_name("qdrant:shop/db#items")
    'qdrant:shop/db#items'
    """
    return Url.of(url).shown() if "://" in url else url


def _end_of_credentials(rest: str) -> int:
    """The place of the @ behind user and password; -1 where there are none."""
    end = rest.rfind("@")
    query = _WITH_AT.search(rest[: max(0, end)])
    if query is not None:
        end = rest.rfind("@", 0, query.start())
    before = rest[: max(0, end)]
    # An @ in a path, a query or a table is none of them, unless there could be a password.
    if rest.startswith("/") or (":" not in before and re.search(r"[/?#]", before)):
        return -1
    return end


def _quoted(text: str) -> str:
    return quote(re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", text), safe="%", errors="replace")


def _cut_last(text: str, mark: str) -> tuple[str, str, str]:
    return text.rpartition(mark) if mark in text else (text, "", "")


def url_and_table(
    text: str,
    what: str,
    written: str,
    local: bool,
    tables: Callable[[str], list[str]] | None = None,
) -> tuple[str, str]:
    """The address, and the table or collection that it names; a `local` one may be a folder.

    `written` is how such an address is written; `tables` lists what it could name.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadInput("the address is no text", step=f"name {written}") from None
    if "://" not in text:
        url, _, table = _cut_last(text, "#")
        # Only a folder can do without: nothing else is shown, as it may hold a password.
        if not local:
            raise BadInput("the address has no //", step=f"name {written}")
    else:
        parts = Url.of(text)
        if not parts.has_host:
            raise BadInput(
                "the host cannot be read", where=parts.shown(), step="check its brackets and port"
            )
        url, table = parts.written(), parts.table
    if not table:
        raise unnamed(what, text, _listed(url, tables))
    return url, table


def unnamed(what: str, text: str, found: Sequence[str] | None, mark: str = "#") -> BadInput:
    """The error of an address that names no table, with those it could name if they are known.

    >>> str(unnamed("table", "shop", ["docs", "items"]))
    'shop: names no table → add #TABLE to the address: there are docs, items'
    """
    step = f"add {mark}{what.upper()} to the address"
    if found is not None:
        more = ["…"] if len(found) > MOST_LISTED else []
        step += f": there are {', '.join([*found[:MOST_LISTED], *more]) or 'none'}"
    return BadInput(f"names no {what}", where=safe_name(text), step=step)


def _listed(url: str, tables: Callable[[str], list[str]] | None) -> list[str] | None:
    try:
        return None if tables is None else tables(url)
    except StoreError:
        # That there is no server, or that it is busy, is told once the address is whole.
        return None
