"""Is every row what it must be? The end of a migration against the model of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from tests.adversary.history import Content, Float, History, Row
from tests.adversary.maps import Maps, Vector, unit
from tests.adversary.models import D
from tests.adversary.tables import Found, Table

# Float32 products in another order of addition, of vectors of length one.
_CLOSE = 3e-5


@dataclass(frozen=True)
class Violation:
    """Something that must not be, with all that is known of it."""

    what: str
    row: int | None = None
    expected: str = ""
    found: str = ""
    past: list[dict[str, Any]] = field(default_factory=list)
    where: dict[str, Any] = field(default_factory=dict)

    def record(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Finished:
    """What is known of the end of a finished migration.

    `filled` are rows that nobody touched and that were filled before `finish`; `switched` is the
    time of the run that finished, for stores that cannot know of what is written at that moment.
    """

    filled: frozenset[int] = frozenset()
    switched: tuple[float, float] | None = None


class Checker:
    """Compares the rows of a table with what its history allows."""

    def __init__(self, table: Table, history: History, maps: Maps) -> None:
        self._table, self._history, self._maps = table, history, maps
        self.found = table.rows()

    def finished(self, end: Finished) -> list[Violation]:
        """Every row has the vector of what it holds, and nothing of the migration is left."""
        out = list(self._rows(lambda key, row, f: self._final(key, row, f, end)))
        return out + [Violation(f"left over: {name}") for name in self._table.leftovers()]

    def rolled_back(self) -> list[Violation]:
        """Every row is as the application left it, and nothing of the migration is there."""
        out = list(self._rows(lambda key, row, f: self._as_written(row, f)))
        out += [Violation(f"left over: {name}") for name in self._table.leftovers()]
        return out + [Violation(f"lost: {name}") for name in self._table.lost()]

    def _rows(self, right: Any) -> Iterable[Violation]:
        rows = self._history.rows
        for key, times in Counter(found.id for found in self.found).items():
            if times > 1:
                said = f"{times} times"
                yield self._violation("an id is there more than once", key, "once", said)
        there = {found.id: found for found in self.found}
        for key in sorted(there.keys() - rows.keys()):
            yield self._violation("a row came from nowhere", key, "no row", str(there[key]))
        for key, row in sorted(rows.items()):
            found = there.get(key)
            if found is None:
                if None not in row.may_hold:
                    yield self._violation("a row is lost", key, _several(row.may_hold), "no row")
            elif row.may_hold == [None]:
                yield self._violation("a deleted row is there", key, "no row", str(found))
            elif why := right(key, row, found):
                yield self._violation(why[0], key, why[1], self._explained(row, found))

    def _violation(self, what: str, key: int, expected: str, found: str) -> Violation:
        return Violation(what, key, expected, found, self._history.past(key))

    def _final(self, key: int, row: Row, found: Found, end: Finished) -> tuple[str, str] | None:
        held = [content for content in row.may_hold if content is not None]
        columns = [c for c in held if (c.body, c.kind) == (found.body, found.kind)]
        if not columns:
            return "the application's columns are not what it wrote", _several(held)
        late = end.switched is not None and end.switched[0] <= row.last_at <= end.switched[1]
        for content in columns:
            if late and self._equal(found.vector, content.vector):
                return None
            if self._is_final(content, found.vector, lifted=key not in end.filled):
                return None
        return "the vector is not that of the row", _several(columns, filled=key in end.filled)

    def _is_final(self, content: Content, found: Float | None, *, lifted: bool) -> bool:
        if content.vector is not None and len(content.vector) != D:
            # Written after the switch: it is the new model's own.
            return self._equal(found, content.vector)
        if content.vector is None or not content.vector.any():
            return found is None
        made = [self._maps.filled(text, content.vector) for text in content.sources]
        made += [self._maps.lifted(content.vector)] if lifted else []
        return found is not None and any(_near(found, vector) for vector in made)

    def _as_written(self, row: Row, found: Found) -> tuple[str, str] | None:
        for content in row.may_hold:
            if (
                content is not None
                and (content.body, content.kind) == (found.body, found.kind)
                and self._equal(found.vector, content.vector)
            ):
                return None
        return "the row is not as the application left it", _several(row.may_hold)

    def _equal(self, found: Float | None, written: Float | None) -> bool:
        """To the last bit, or in direction where the store may keep vectors at length one."""
        if self._table.zero_is_none and written is not None and not written.any():
            written = None
        if not self._table.unit_length or found is None or written is None:
            return _same(found, written)
        return _near(unit(found), unit(written))

    def _explained(self, row: Row, found: Found) -> str:
        """What it holds, in words where it is something that this row once was."""
        vector = found.vector
        names = []
        if vector is None:
            names = ["none"]
        else:
            for number, content in enumerate(row.ever):
                old = content.vector
                if self._equal(vector, old):
                    names.append(f"as written in content {number}")
                if old is None or len(old) != D or not old.any():
                    continue
                if _near(vector, self._maps.lifted(old)):
                    names.append(f"F(old) of content {number}")
                names += [
                    f"filled with the text of content {n} and the old vector of content {number}"
                    for n, other in enumerate(row.ever)
                    if _near(vector, self._maps.filled(other.body, old))
                ]
        told = " or ".join(names) or f"of nothing it ever was: {np.round(vector, 4).tolist()}"
        ever = [f"{n}: {_told(content)}" for n, content in enumerate(row.ever)]
        return f"{found.body!r}, kind {found.kind}, vector {told}. Contents in turn: {ever}"


def _near(found: Float | Vector, expected: Vector) -> bool:
    return len(found) == len(expected) and bool(np.abs(found - expected).max() < _CLOSE)


def _same(found: Float | None, written: Float | None) -> bool:
    if found is None or written is None:
        return found is written
    return np.array_equal(found, written)


def _told(content: Content) -> str:
    vector = content.vector
    kind = "none" if vector is None else "zero" if not vector.any() else f"of {len(vector)}"
    return f"{content.body!r}, kind {content.kind}, vector {kind}"


def _several(held: Iterable[Content | None], *, filled: bool = False) -> str:
    told = ["no row" if content is None else _told(content) for content in held]
    return " or ".join(told) + (" (it was filled, and nobody touched it)" if filled else "")
