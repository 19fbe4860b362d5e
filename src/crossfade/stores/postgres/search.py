"""The nearest rows, with filters that keep their promise.

A vector index knows no filters. It is asked for more rows than are wanted, as many as should hold
enough that pass; if enough of them do, these are the nearest. If not, the filter and the vectors go
together in a way that no index helps with, and the rows that pass are gone through one by one,
which is exact. That is also the first choice where the planner says that it costs little.

Both models are asked at once, each over a connection of its own: the rows that a search finds are
compared with both queries where they are.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.stores.contract import Compared, Hit
from crossfade.stores.names import Range
from crossfade.stores.postgres.catalog import Catalog
from crossfade.stores.postgres.connection import Connection, Pool
from crossfade.stores.postgres.copy import encode_vector
from crossfade.stores.postgres.statements import (
    ROWS_AND_DEAD,
    Nearest,
    Statement,
    Statements,
    written_out,
)

# What an index is asked for at least; it looks at as many, and knows the first of them best.
_LEAST = 100
# pgvector's own limit of `ef_search`.
_MOST = 1000
# Rows that should pass a filter for each one wanted, or the index is not worth asking.
_SPARE = 4
# In the planner's units, a few microseconds each: not worth a question to an index.
_CHEAP = 4000.0
# Types with numbers from here on are not PostgreSQL's own.
_FIRST_FOREIGN = 16384
Float = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Question:
    """What is searched for; `where` as `check_where` gives it."""

    query: Float
    column: str
    k: int
    where: Mapping[str, list[Any] | Range]
    missing: bool
    columns: Sequence[str]

    @property
    def filtered(self) -> bool:
        return self.missing or bool(self.where)


def search(pool: Pool, statements: Statements, catalog: Catalog, question: Question) -> list[Hit]:
    """The `k` nearest rows that pass, or all that pass where there are fewer."""

    # Filters hold values, and so make another statement each time.
    how = {"again": not question.where}

    def act(connection: Connection) -> list[Any]:
        one = _Search(statements, catalog, question)
        depth = one.depth(connection)
        if depth is not None:
            _look_deep(connection, catalog, depth)
            found = _fetch(connection, _statement_of(one.nearest, depth), [question.query], **how)
            if len(found) >= question.k:
                return found
        return _fetch(connection, _statement_of(one.nearest, None), [question.query], **how)

    hits = [
        Hit(
            row[0],
            _score(statements.distance, row[1]),
            dict(zip(question.columns, row[2:], strict=True)),
        )
        for row in pool.retry(act)
    ]
    # By cosine, a zero vector is neither near nor far; the server puts it last.
    return [hit for hit in hits if not math.isnan(hit.score)]


def search_both(
    pool: Pool,
    statements: Statements,
    catalog: Catalog,
    question: Question,
    *,
    backward: Float,
    shared: Float | None,
    column: str,
    state: str,
) -> Compared:
    """`question` is the old query on the old vectors; `shared` a query on the added `column`, or
    None where that is not in use yet and `backward` is asked instead; see `TwoSided`."""
    vectors = [question.query, backward, *([] if shared is None else [shared])]
    other = replace(
        question,
        query=vectors[-1],
        column=question.column if shared is None else column,
    )
    told = _Told(question.column, column if shared is not None else None, state)

    def near(connection: Connection, one: _Search) -> list[Any]:
        how = {"binary": not question.columns, "again": not question.where}
        depth = one.depth(connection)
        if depth is not None:
            _look_deep(connection, catalog, depth)
            found = _fetch(connection, _told_of(one.nearest, depth, told), vectors, **how)
            # What an index finds too little of is gone through one by one.
            if len(found) >= question.k:
                return found
        return _fetch(connection, _told_of(one.nearest, None, told), vectors, **how)

    def act(connection: Connection) -> list[Any]:
        sides = [
            _Search(statements, catalog, question),
            _Search(statements, catalog, other, parameter=len(vectors)),
        ]
        return pool.side_by_side(connection, near, sides)

    return _compared(
        pool.retry(act),
        statements.distance,
        question.columns,
        dim=len(question.query),
        lifted=shared is not None,
    )


def _compared(
    sides: list[list[Any]], distance: str, columns: Sequence[str], *, dim: int, lifted: bool
) -> Compared:
    """In the order of the old side's ranks, then of the other's."""
    found: dict[Any, Any] = {}
    for side in sides:
        # By cosine, a zero vector is neither near nor far.
        ranked = [row for row in side if not math.isnan(row[1])]
        for row in sorted(ranked, key=lambda row: row[1]):
            found.setdefault(row[0], row)
    rows = list(found.values())
    first = 7 if lifted else 5

    def of(at: int) -> NDArray[np.float64]:
        return np.array([_similarity(distance, row[at]) for row in rows], np.float64)

    return Compared(
        hits=[Hit(row[0], 0.0, dict(zip(columns, row[first:], strict=True))) for row in rows],
        old=of(2),
        backward=of(3),
        shared=of(5) if lifted else np.full(len(rows), np.nan),
        vectors=_vectors([row[4] for row in rows], dim),
        states=[row[6] for row in rows] if lifted else [None] * len(rows),
    )


def _vectors(sent: list[bytes | None], dim: int) -> Float:
    """Vectors as `encode_vector` writes them; zeros where a row has none."""
    none = encode_vector(np.zeros(dim))
    raw = np.frombuffer(b"".join(none if one is None else one for one in sent), np.uint8)
    return raw.reshape(len(sent), len(none))[:, 4:].copy().view(">f4").astype(np.float32)


class _Search:
    """One search, by an index or without."""

    def __init__(
        self, statements: Statements, catalog: Catalog, question: Question, parameter: int = 1
    ) -> None:
        self.question, self.statements = question, statements
        self.nearest = Nearest(
            statements,
            column=question.column,
            k=question.k,
            columns=tuple(question.columns),
            halves=catalog.halves,
            parameter=parameter,
            where=question.where,
            missing=question.missing,
        )

    def depth(self, connection: Connection) -> int | None:
        """How many rows an index is asked for; None where it is better not asked at all."""
        k = self.question.k
        depth = max(_LEAST, 2 * k)
        if self.question.filtered:
            share, cost = self._estimate(connection)
            depth = max(depth, math.ceil(_SPARE * k / share))
            if cost < _CHEAP or depth > max(_MOST, 2 * k):
                return None
        return depth

    def _estimate(self, connection: Connection) -> tuple[float, float]:
        """The share of rows that pass, and what it costs to go through them, by the planner."""
        explain = replace(self.nearest, parameter=1).explain()
        plan = connection.search(explain, [self.question.query]).fetchone()
        which = [self.statements.table_name]
        rows = connection.execute(ROWS_AND_DEAD, which).fetchone()
        top = (plan or [[{"Plan": {}}]])[0][0]["Plan"]
        passing = top.get("Plans", [top])[0].get("Plan Rows", 1)
        total = max(rows[0] if rows else 1.0, passing, 1.0)
        return max(passing, 1.0) / total, float(top.get("Total Cost", 0.0))


def _compose(nearest: Nearest, depth: int | None) -> Statement:
    return nearest.exact() if depth is None else nearest.by_index(depth)


@dataclass(frozen=True)
class _Told:
    """Columns by which rows are compared, where both models are asked."""

    old: str
    shared: str | None
    state: str


def _compose_told(nearest: Nearest, depth: int | None, told: _Told) -> Statement:
    return nearest.statements.score(
        nearest.candidates(depth),
        old=told.old,
        halves=nearest.halves,
        shared=told.shared,
        state=told.state,
        columns=nearest.columns,
    )


# Without a filter the same statement is executed again and again, with other vectors; to put it
# together takes as long as many a search. Filters hold values: 1 and True would be taken for one.
@lru_cache(maxsize=256)
def _known(nearest: Nearest, depth: int | None) -> Statement:
    return written_out(_compose(nearest, depth))


@lru_cache(maxsize=256)
def _known_told(nearest: Nearest, depth: int | None, told: _Told) -> Statement:
    return written_out(_compose_told(nearest, depth, told))


def _statement_of(nearest: Nearest, depth: int | None) -> Statement:
    return (_compose if nearest.where else _known)(nearest, depth)


def _told_of(nearest: Nearest, depth: int | None, told: _Told) -> Statement:
    return (_compose_told if nearest.where else _known_told)(nearest, depth, told)


def _look_deep(connection: Connection, catalog: Catalog, depth: int) -> None:
    connection.set("hnsw.ef_search", str(min(depth, _MOST)))
    connection.set("ivfflat.probes", str(catalog.probes))


def _fetch(
    connection: Connection,
    statement: Statement,
    vectors: Sequence[Float],
    *,
    binary: bool = False,
    again: bool = False,
) -> list[Any]:
    """Rows with vectors as lists: the server gives values of its extensions as text."""
    cursor = connection.search(statement, vectors, binary=binary, again=again)
    foreign = [d.type_code >= _FIRST_FOREIGN for d in cursor.description or ()]
    if not any(foreign):
        return cursor.fetchall()
    return [
        [
            json.loads(value) if other and isinstance(value, str) and value[:1] == "[" else value
            for value, other in zip(row, foreign, strict=True)
        ]
        for row in cursor
    ]


def _score(by: str, distance: float) -> float:
    # pgvector gives 1 − cosine, the distance itself, and minus the inner product.
    if by == "l2":
        return -distance * distance
    return -distance if by == "dot" else 1.0 - distance


def _similarity(by: str, distance: float | None) -> float:
    """NaN where there is no vector; of a zero vector, that it has nothing in common."""
    if distance is None:
        return math.nan
    found = _score(by, distance)
    return 0.0 if math.isnan(found) else found
