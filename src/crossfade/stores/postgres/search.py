"""The nearest rows, with filters that keep their promise.

A vector index knows no filters. It is asked for more rows than are wanted, as many as should hold
enough that pass; if enough of them do, these are the nearest. If not, the filter and the vectors go
together in a way that no index helps with, and the rows that pass are gone through one by one,
which is exact. That is also the first choice where the planner says that it costs little.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.stores.contract import Hit
from crossfade.stores.names import PREFIX, Range
from crossfade.stores.postgres.catalog import Catalog
from crossfade.stores.postgres.connection import Connection, Pool, sql
from crossfade.stores.postgres.statements import OPERATORS, Said, Statements

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


@dataclass(frozen=True, eq=False)
class Question:
    """What is searched for; `where` as `check_where` gives it."""

    query: NDArray[np.float32]
    column: str
    k: int
    where: Mapping[str, list[Any] | Range]
    missing: bool
    columns: Sequence[str]

    @property
    def filtered(self) -> bool:
        return self.missing or bool(self.where)


def search(pool: Pool, words: Statements, catalog: Catalog, question: Question) -> list[Hit]:
    """The `k` nearest rows that pass, or all that pass where there are fewer."""
    asking = _Asking(words, catalog, question)
    found = pool.retry(asking)
    hits = [
        Hit(row[0], _score(words.metric, row[1]), dict(zip(question.columns, row[2:], strict=True)))
        for row in found
    ]
    # By cosine, a zero vector is neither near nor far; the server puts it last.
    return [hit for hit in hits if not math.isnan(hit.score)]


def _kept(name: str, values: list[Any] | Range) -> list[Said]:
    """The terms of a filter on one column."""
    column = sql.Identifier(name)
    if isinstance(values, Range):
        return [
            sql.SQL("t.{} {} {}").format(column, sql.SQL(sign), sql.Literal(end))
            for sign, end in values.ends
        ]
    return [sql.SQL("t.{} = ANY({})").format(column, sql.Literal(values))]


class _Asking:
    """One search, which may take two statements."""

    def __init__(self, words: Statements, catalog: Catalog, question: Question) -> None:
        self.words, self.catalog, self.question = words, catalog, question
        self.aside = question.column.startswith(PREFIX)
        self.home = words.say("{side}" if self.aside else "{table}")

    def __call__(self, connection: Connection) -> list[Any]:
        k, depth = self.question.k, max(_LEAST, 2 * self.question.k)
        if self.question.filtered:
            share, cost = self._estimated(connection)
            depth = max(depth, math.ceil(_SPARE * k / share))
            if cost < _CHEAP or depth > max(_MOST, 2 * k):
                return _fetched(connection, self._exact())
        connection.set("hnsw.ef_search", str(min(depth, _MOST)))
        connection.set("ivfflat.probes", str(self.catalog.probes))
        found = _fetched(connection, self._by_index(depth))
        return found if len(found) >= k else _fetched(connection, self._exact())

    def _estimated(self, connection: Connection) -> tuple[float, float]:
        """The share of rows that pass, and what it costs to go through them, by the planner."""
        explain = sql.SQL("EXPLAIN (FORMAT JSON) {}").format(self._exact())
        plan = connection.execute(explain).fetchone()
        rows = connection.execute(
            "SELECT reltuples FROM pg_class WHERE oid = to_regclass(%s)",
            [self.words.say("{table}").as_string(None)],
        ).fetchone()
        top = (plan or [[{"Plan": {}}]])[0][0]["Plan"]
        passing = top.get("Plans", [top])[0].get("Plan Rows", 1)
        total = max(rows[0] if rows else 1.0, passing, 1.0)
        return max(passing, 1.0) / total, float(top.get("Total Cost", 0.0))

    def _by_index(self, depth: int) -> Said:
        """The nearest `depth` rows, and of those the nearest that pass."""
        near = sql.SQL(
            "(SELECT n.*, {distance} AS crossfade_distance FROM {home} n "
            "WHERE {vector} IS NOT NULL ORDER BY {distance} LIMIT {depth})"
        ).format(
            distance=self._distance("n"),
            home=self.home,
            vector=self._vector("n"),
            depth=sql.Literal(depth),
        )
        return self._select(near, sql.SQL("{}.crossfade_distance").format(self._letter), [])

    def _exact(self) -> Said:
        # An expression that no index is made of.
        distance = sql.SQL("({} + 0)").format(self._distance(self._letter.as_string(None)))
        there = sql.SQL("{} IS NOT NULL").format(self._vector(self._letter.as_string(None)))
        return self._select(self.home, distance, [there])

    @property
    def _letter(self) -> sql.SQL:
        return sql.SQL("s" if self.aside else "t")

    def _select(self, home: Said, distance: Said, terms: list[Said]) -> Said:
        question, words = self.question, self.words
        joined = "{home} s JOIN {table} t USING ({id})" if self.aside else "{home} t"
        if question.missing:
            # Whoever locks both tables begins with the one beside, and so does this.
            joined = "{side} s RIGHT JOIN {home} t USING ({id})"
            terms = [words.say("s.{id} IS NULL"), *terms]
        elif not self.aside and any(name.startswith(PREFIX) for name in question.columns):
            joined = "{side} s RIGHT JOIN {home} t USING ({id})"
        terms = [
            *(term for name, values in question.where.items() for term in _kept(name, values)),
            *terms,
        ]
        return words.say(
            "SELECT t.{id}{cast}, {distance}{values} FROM {joined}{where} "
            "ORDER BY {distance} LIMIT {k}",
            joined=words.say(joined, home=home),
            cast=sql.SQL("" if words.integer_ids else "::text"),
            values=sql.SQL("").join(
                sql.SQL(", {}.{}").format(
                    sql.SQL("s" if c.startswith(PREFIX) else "t"), sql.Identifier(c)
                )
                for c in question.columns
            ),
            where=sql.SQL(" WHERE {}").format(sql.SQL(" AND ").join(terms))
            if terms
            else sql.SQL(""),
            distance=distance,
            k=sql.Literal(question.k),
        )

    def _vector(self, letter: str) -> Said:
        return sql.SQL("{}.{}").format(sql.SQL(letter), sql.Identifier(self.question.column))

    def _distance(self, letter: str) -> Said:
        numbers = map(repr, np.asarray(self.question.query, np.float32).tolist())
        return sql.SQL("({} {} {}::{})").format(
            self._vector(letter),
            sql.SQL(OPERATORS[self.words.metric]),
            sql.Literal(f"[{','.join(numbers)}]"),
            sql.SQL("halfvec" if self.catalog.halves and not self.aside else "vector"),
        )


def _fetched(connection: Connection, statement: Said) -> list[Any]:
    """Rows with vectors as lists: the server gives values of its extensions as text."""
    cursor = connection.execute(statement)
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


def _score(metric: str, distance: float) -> float:
    # pgvector gives 1 − cosine, the distance itself, and minus the inner product.
    if metric == "l2":
        return -distance * distance
    return -distance if metric == "dot" else 1.0 - distance
