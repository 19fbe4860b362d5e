"""Exact search: by `vec0` where it can answer, else by sqlite-vec's distances over the rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.distance import Distance
from crossfade.errors import BadInput
from crossfade.stores.contract import Hit, Id, Where
from crossfade.stores.names import Range, check_where
from crossfade.stores.rows import similarities
from crossfade.stores.sqlite.rows import Seen, conditions
from crossfade.stores.sqlite.schema import Schema, quoted

_FUNCTIONS = {"cosine": "vec_distance_cosine", "l2": "vec_distance_L2"}
# What vec0 gives at most.
_MOST = 4096
# Vectors that are brought to numpy at a time, where SQLite has no function for a distance.
_TOGETHER = 4096
# Rows beyond those asked for, in case some are of rows that have gone.
_SPARE = 16
Found = list[tuple[Id, float]]


def search(
    seen: Seen,
    query: NDArray[np.float32],
    distance: Distance,
    *,
    column: str,
    k: int,
    where: Where | None,
    missing: str | None,
    columns: Sequence[str],
) -> list[Hit]:
    """The `k` nearest rows."""
    found = _nearest(seen, np.ascontiguousarray(query, "<f4"), distance, column, k, where, missing)
    brought = [name for name in columns if name != seen.schema.id]
    rows = seen.of([key for key, _ in found], brought).to_pylist() if brought else []
    known = {row[seen.schema.id]: row for row in rows}
    return [
        Hit(key, score, {n: key if n == seen.schema.id else known[key][n] for n in columns})
        for key, score in found
    ]


def _nearest(
    seen: Seen,
    query: NDArray[np.float32],
    distance: Distance,
    column: str,
    k: int,
    where: Where | None,
    missing: str | None,
) -> Found:
    schema = seen.schema
    kept = list(conditions(where, schema))
    added = column in seen.side.columns
    if not added and column != schema.vector:
        raise BadInput(f"has no vector column {column!r}", where=seen.name)
    dim = seen.side.columns[column].dim if added else schema.dim(seen.connection)
    if dim is not None and dim != len(query):
        raise BadInput(
            f"{column!r} has vectors of {dim} dimensions, and the query {len(query)}",
            where=seen.name,
        )
    if added and not kept and missing is None:
        return _beside(seen, query, distance, column, k)
    if not added and missing is None and k <= _MOST:
        pushed = _for_vec0(schema, distance, where)
        if pushed is not None:
            found = _by_vec0(seen, query, distance, k, *pushed)
            if found is not None:
                return found
    joins = ""
    terms: list[str] = []
    given: list[Any] = []
    vector = f"t.{quoted(column)}"
    if missing is not None:
        join, lacking = seen.lacking(missing)
        joins, terms = joins + join, [*terms, lacking]
    if added:
        beside, vector = seen.side.table_of(column), seen.side.named(column)
        joins += f" JOIN {beside} ON {beside}.id = {seen.id}" if beside not in joins else ""
    for term, values in kept:
        terms.append(term)
        given += values
    source = f"{seen.table}{joins}"
    return _through_all(seen, query, distance, seen.id, vector, source, terms, given, k)


def _beside(
    seen: Seen, query: NDArray[np.float32], distance: Distance, column: str, k: int
) -> Found:
    """Among the added vectors alone; then a look at which of the best are still rows.

    To look each of them up first would take longer than to compare them.
    """
    beside, vector = seen.side.table_of(column), seen.side.named(column)
    more = k + _SPARE
    while True:
        best = _through_all(seen, query, distance, f"{beside}.id", vector, beside, [], [], more)
        there = seen.there([key for key, _ in best])
        found = [one for one in best if one[0] in there]
        if len(found) >= k or len(best) < more:
            return found[:k]
        more *= 4


def _through_all(
    seen: Seen,
    query: NDArray[np.float32],
    distance: Distance,
    key: str,
    vector: str,
    source: str,
    terms: Sequence[str],
    given: Sequence[Any],
    k: int,
) -> Found:
    """By a look at every row that passes; one whose distance is no number is none of them."""
    length = f"length({vector}) = {4 * len(query)}"
    kept = " AND ".join([f"{vector} IS NOT NULL", length, *terms])
    if distance == "dot":
        return _by_dot(seen, query, f"SELECT {key}, {vector} FROM {source} WHERE {kept}", given, k)  # noqa: S608
    asked = (
        f"SELECT {key}, {_FUNCTIONS[distance]}({vector}, ?) AS d FROM {source} WHERE {kept} "  # noqa: S608
        f"ORDER BY d NULLS LAST, {key} LIMIT ?"
    )
    # Not by a condition: then SQLite would compute each distance twice.
    found = seen.connection.execute(asked, (query.tobytes(), *given, k))
    return [(found_id, _score(distance, d)) for found_id, d in found if d is not None]


def _by_dot(
    seen: Seen, query: NDArray[np.float32], asked: str, given: Sequence[Any], k: int
) -> Found:
    """By numpy: sqlite-vec has no inner product."""
    rows = seen.connection.execute(asked, tuple(given))
    best: Found = []
    while part := list(islice(rows, _TOGETHER)):
        vectors = np.frombuffer(b"".join(row[1] for row in part), "<f4").reshape(len(part), -1)
        scores = similarities("dot", vectors, query)
        first = np.argsort(-scores, kind="stable")[:k].tolist()
        best += [(part[i][0], float(scores[i])) for i in first if np.isfinite(scores[i])]
        best = sorted(best, key=lambda one: -one[1])[:k]
    return best


def _by_vec0(
    seen: Seen,
    query: NDArray[np.float32],
    distance: Distance,
    k: int,
    terms: Sequence[str],
    given: Sequence[Any],
) -> Found | None:
    """By the table itself; None where a row without a direction came in between."""
    kept = "".join(f" AND {term}" for term in terms)
    asked = (
        f"SELECT {quoted(seen.schema.id)}, distance FROM {quoted(seen.schema.table)} "  # noqa: S608
        f"WHERE {quoted(seen.schema.vector)} MATCH ? AND k = ?{kept}"
    )
    found = seen.connection.execute(asked, (query.tobytes(), k, *given)).fetchall()
    if any(d is None for _, d in found):
        # Vectors of zeros are ranked anywhere by it, perhaps in the place of others.
        return None
    best = sorted(found, key=lambda row: row[1])
    return [(key, _score(distance, d)) for key, d in best]


def _for_vec0(
    schema: Schema, distance: Distance, where: Where | None
) -> tuple[list[str], list[Any]] | None:
    """The filter as vec0 understands it; None where the rows must be gone through instead."""
    if schema.vec0 is None or schema.vec0.metrics[schema.vector] != distance:
        return None
    terms: list[str] = []
    given: list[Any] = []
    for name, wanted in check_where(where, schema.names).items():
        field, column = schema.field(name), quoted(name)
        if field.kind == "metadata" and field.type in ("integer", "int") and _whole(wanted):
            if isinstance(wanted, Range):
                # It compares whole numbers with whole numbers alone.
                ends = wanted.whole().ends
                terms += [f"{column} {sign} ?" for sign, _ in ends]
                given += [int(end) for _, end in ends]
            else:
                terms.append(f"{column} IN ({', '.join('?' * len(wanted))})")
                given += wanted
        elif (
            field.kind in ("metadata", "partition")
            and field.type == "text"
            and isinstance(wanted, list)
            and len(wanted) == 1
            and isinstance(wanted[0], str)
        ):
            terms.append(f"{column} = ?")
            given += wanted
        else:
            return None
    return terms, given


def _whole(wanted: Any) -> bool:
    return isinstance(wanted, Range) or (bool(wanted) and all(type(one) is int for one in wanted))


def _score(distance: Distance, d: float) -> float:
    return -(d**2) if distance == "l2" else 1.0 - d
