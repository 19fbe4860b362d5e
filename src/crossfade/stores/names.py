"""Names that go into statements: quoted where the store can quote, refused where it cannot."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Range:
    """Numbers of a filter, both ends included; an end that is None is open.

    >>> Range(2020, 2024)
    Range(least=2020, most=2024)
    """

    least: float | None = None
    most: float | None = None

    def __post_init__(self) -> None:
        ends = [end for end in (self.least, self.most) if end is not None]
        if not ends or any(
            isinstance(end, bool) or not isinstance(end, (int, float)) or not math.isfinite(end)
            for end in ends
        ):
            raise BadInput(
                f"a range from {self.least!r} to {self.most!r}",
                step="give one end or both, as numbers",
            )

    def whole(self) -> Range:
        """The same of whole numbers.

        >>> Range(0.5, 2.5).whole()
        Range(least=1, most=2)
        """
        least, most = self.least, self.most
        return Range(
            None if least is None else math.ceil(least), None if most is None else math.floor(most)
        )

    @property
    def ends(self) -> list[tuple[str, float]]:
        """What a value is compared with, as operators of SQL."""
        both = ((">=", self.least), ("<=", self.most))
        return [(sign, end) for sign, end in both if end is not None]


def check_where(
    where: Mapping[str, Any] | None, columns: tuple[str, ...]
) -> dict[str, list[Any] | Range]:
    """A filter as {column: values it may have, or the range they may be in}.

    >>> check_where({"lang": "en", "year": [2024, 2025], "price": Range(most=9)}, ("lang", "year",
    ...     "price"))
    {'lang': ['en'], 'year': [2024, 2025], 'price': Range(least=None, most=9)}
    """
    out: dict[str, list[Any] | Range] = {}
    for name, value in (where or {}).items():
        if name not in columns:
            raise BadInput(
                f"there is no column {name!r} to filter by",
                step=f"use one of {', '.join(columns)}",
            )
        if isinstance(value, Range):
            out[name] = value
            continue
        values = list(value) if isinstance(value, (list, tuple, set, frozenset)) else [value]
        for one in values:
            if not isinstance(one, (str, int, float, bool)):
                raise BadInput(
                    f"a filter on {name!r} by {type(one).__name__}",
                    step="filter by text, numbers, true or false, or by a Range",
                )
        out[name] = values
    return out
