"""Rows of Milvus as those of the contract: filters, columns, hashes, and what a shadow keeps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.errors import BadInput
from crossfade.sketch import row_hashes
from crossfade.stores.contract import Column, Id, Where
from crossfade.stores.milvus.schema import SEEN_FIELDS, SEEN_VECTOR, WRITTEN, Field, Shape
from crossfade.stores.names import PREFIX, Range, check_name, check_where

Row = Mapping[str, Any]
# Milvus 2.3 has no null: an integer that no fingerprint is, and texts have a sign before them.
_NO_INTEGER = -(2**63)
_TEXT = "="


def literal(value: Any) -> str:
    """A value in an expression, whatever it holds.

    >>> literal('it"s'), literal(7), literal(True)
    ('"it\\\\"s"', '7', 'true')
    """
    return json.dumps(value, ensure_ascii=False)


def one_of(name: str, ids: Iterable[Any]) -> str:
    """
    >>> one_of("id", [3, 4])
    'id in [3, 4]'
    """
    return f"{name} in [{', '.join(map(literal, ids))}]"


def both(*conditions: str) -> str:
    """
    >>> both("a == 1", "", "b == 2")
    '(a == 1) and (b == 2)'
    """
    told = [condition for condition in conditions if condition]
    return told[0] if len(told) == 1 else " and ".join(f"({condition})" for condition in told)


def condition(where: Where | None, shape: Shape, dynamic: Sequence[str]) -> str | None:
    """A filter as an expression of Milvus; None where no row can pass it.

    `dynamic` are the names among those of the filter that rows have beside the fields.
    """
    out = []
    for name, wanted in check_where(where, (*shape.fields, *dynamic)).items():
        field = shape.fields.get(check_name(name, "field"))
        if isinstance(wanted, Range):
            within = wanted.whole() if field is not None and field.is_whole else wanted
            if field is not None and not field.is_number:
                return None
            out.append(both(*(f"{name} {sign} {literal(end)}" for sign, end in within.ends)))
            continue
        values = [value for value in wanted if field is None or _can_hold(field, value)]
        if not values:
            return None
        if field is not None and field.is_whole:
            values = [int(value) for value in values]
        out.append(" or ".join(f"{name} == {literal(value)}" for value in values))
        if all(isinstance(value, (str, int)) and not isinstance(value, bool) for value in values):
            out[-1] = one_of(name, values)
    return both(*out) if out else ""


def _can_hold(field: Field, value: Any) -> bool:
    """Whether a field can have this value: Milvus refuses to compare others."""
    if field.kind == "BOOL":
        return isinstance(value, bool)
    if field.is_number:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return number and (not field.is_whole or float(value).is_integer())
    return isinstance(value, str) if field.kind == "VARCHAR" else True


def vectors_of(rows: Sequence[Row], name: str, dim: int) -> NDArray[np.float32]:
    """Vectors as (rows, dim); zeros where there is none."""
    out = np.zeros((len(rows), dim), np.float32)
    for at, row in enumerate(rows):
        found = row.get(name)
        if found is not None and len(found) == dim:
            out[at] = found
    return out


def hashes(
    rows: Sequence[Row], shape: Shape, vector: str
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """63 bits of each row's old vector, and 63 of all else that the application has in it."""
    dim = shape.fields[vector].dim
    found = (row_hashes(vectors_of(rows, vector, dim)) >> np.uint64(1)).astype(np.int64)
    made = {name for name, field in shape.fields.items() if field.made} | {vector}
    others = np.zeros(len(rows), np.int64)
    for at, row in enumerate(rows):
        own = {name: value for name, value in row.items() if name not in made}
        text = json.dumps(own, sort_keys=True, default=_plain).encode()
        others[at] = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big") >> 1
    return found, others


def _plain(value: Any) -> Any:
    """What JSON has no word for: arrays, bytes, sparse vectors."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    return [_plain(one) if not isinstance(one, (int, float, str)) else one for one in value]


def column_of(rows: Sequence[Row], name: str, field: Field | None, where: str) -> pa.Array:
    """One column of the application's; null where a row has it not."""
    values = [row.get(name) for row in rows]
    if field is not None and field.kind == "FLOAT_VECTOR":
        # Milvus wants a vector of every row, and zeros are how one says that there is none.
        found = [None if v is None else np.asarray(v, np.float32) for v in values]
        shown = [None if v is None or not v.any() else v for v in found]
        return pa.array(shown, Column(name, "vector", field.dim).arrow)
    try:
        return pa.array(values, _arrow(field))
    except (pa.ArrowException, TypeError, ValueError):
        raise BadInput(
            f"{name!r} holds values of several kinds", where=where, step="leave this field out"
        ) from None


def _arrow(field: Field | None) -> pa.DataType | None:
    if field is None:
        return None
    if field.is_whole:
        return pa.int64()
    kinds = {"VARCHAR": pa.string(), "BOOL": pa.bool_(), "FLOAT": pa.float64()}
    return kinds.get(field.kind, pa.float64() if field.kind == "DOUBLE" else None)


def added_of(marks: Sequence[Row | None], column: Column) -> pa.Array:
    """One added column, of rows of a shadow: null where nothing was written."""
    return pa.array([added_value(mark, column) for mark in marks], column.arrow)


def added_value(mark: Row | None, column: Column) -> Any:
    """What a row of a shadow says; None where nothing was written."""
    if mark is None or not mark[WRITTEN]:
        return None
    value = mark[column.name]
    if column.kind == "vector":
        return np.asarray(value, np.float32)
    if column.kind == "text":
        return value[len(_TEXT) :] if value else None
    return None if value == _NO_INTEGER else value


def mark_of(
    id: tuple[str, Id],
    values: Mapping[str, Any] | None,
    added: Mapping[str, Column],
    seen: tuple[int, int],
) -> dict[str, Any]:
    """A row of a shadow: what was written, or without `values` only what the row was seen to be."""
    out: dict[str, Any] = {id[0]: id[1], WRITTEN: int(bool(values))}
    out[SEEN_VECTOR], out[SEEN_FIELDS] = seen
    told = values or {}
    for name, column in added.items():
        value = told.get(name)
        if column.kind == "vector":
            out[name] = np.zeros(column.dim, np.float32) if value is None else value
        elif column.kind == "text":
            out[name] = "" if value is None else f"{_TEXT}{value}"
        else:
            out[name] = _NO_INTEGER if value is None else int(value)
    return out


def seen_in(mark: Row) -> tuple[int, int]:
    """The hashes that a row of a shadow keeps."""
    return int(mark[SEEN_VECTOR]), int(mark[SEEN_FIELDS])


def is_ours(name: str) -> bool:
    """Whether this is the name of an added column."""
    return name.startswith(PREFIX)
