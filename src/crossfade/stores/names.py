"""Names that go into statements: quoted where the store can quote, refused where it cannot."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from crossfade.errors import BadInput

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
PREFIX = "crossfade_"


def check_name(name: str, what: str = "column") -> str:
    """A name of letters, digits and underscores; anything else is refused.

    >>> check_name("embedding")
    'embedding'
    """
    if not _PLAIN.fullmatch(name):
        raise BadInput(
            f"{name!r} is no name for a {what}",
            step="use letters, digits and underscores, at most 63, not starting with a digit",
        )
    return name


def check_where(where: Mapping[str, Any] | None, columns: tuple[str, ...]) -> dict[str, list[Any]]:
    """A filter as {column: values it may have}.

    >>> check_where({"lang": "en", "year": [2024, 2025]}, ("lang", "year"))
    {'lang': ['en'], 'year': [2024, 2025]}
    """
    out: dict[str, list[Any]] = {}
    for name, value in (where or {}).items():
        if name not in columns:
            raise BadInput(
                f"there is no column {name!r} to filter by",
                step=f"use one of {', '.join(columns)}",
            )
        values = list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]
        for one in values:
            if not isinstance(one, (str, int, float, bool)):
                raise BadInput(
                    f"a filter on {name!r} by {type(one).__name__}",
                    step="filter by text, numbers, true or false",
                )
        out[name] = values
    return out
