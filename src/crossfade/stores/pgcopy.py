"""PostgreSQL's binary COPY format, to and from Arrow: the fast way in and out of pgvector.

A stream is a header, then for every row the number of its fields and, for every field, its length
(−1 for null) and its bytes, all big-endian. pgvector's `vector` is two 16-bit numbers, the
dimension and a zero, then float32 values.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.errors import StoreError
from crossfade.files.arrow import to_arrow
from crossfade.stores.rows import matrix

Kind = Literal["integer", "text", "vector", "number", "boolean"]
_SIGNATURE = b"PGCOPY\n\xff\r\n\0"
_HEADER = _SIGNATURE + struct.pack(">ii", 0, 0)
_TRAILER = struct.pack(">h", -1)
_ARROW = {"integer": pa.int64(), "text": pa.string(), "number": pa.float64(), "boolean": pa.bool_()}
_NUMBERS = {"integer": ">i8", "number": ">f8", "boolean": ">u1"}


def encode(columns: Sequence[pa.Array], kinds: Sequence[Kind]) -> bytes:
    """Rows as a COPY stream.

    >>> data = encode([pa.array([1, 2]), pa.array(["a", None])], ["integer", "text"])
    >>> [c.to_pylist() for c in decode(data, ["integer", "text"])]
    [[1, 2], ['a', None]]
    """
    rows = len(columns[0])
    pieces = [_fields(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    count = struct.pack(">h", len(columns))
    if all(isinstance(piece, np.ndarray) for piece in pieces):
        body = np.empty((rows, 2 + sum(p.shape[1] for p in pieces)), np.uint8)  # type: ignore[union-attr]
        body[:, :2] = np.frombuffer(count, np.uint8)
        start = 2
        for piece in pieces:
            assert isinstance(piece, np.ndarray)  # noqa: S101  (checked above)
            body[:, start : start + piece.shape[1]] = piece
            start += piece.shape[1]
        return _HEADER + body.tobytes() + _TRAILER
    parts: list[Any] = [_HEADER]
    for row in zip(*pieces, strict=True):
        parts.append(count)
        parts.extend(row)
    return b"".join([*parts, _TRAILER])


def _fields(column: pa.Array, kind: Kind) -> NDArray[np.uint8] | list[bytes]:
    """Every row's length and bytes: an array where all rows are equally long, else a list."""
    if column.null_count == 0 and kind != "text":
        values = _bytes(column, kind)
        length = np.frombuffer(struct.pack(">i", values.shape[1]), np.uint8)
        return np.hstack([np.broadcast_to(length, (len(column), 4)), values])
    if column.null_count and kind != "text":
        there = iter(_bytes(column.drop_null(), kind))
        return [
            struct.pack(">i", len(found := next(there).tobytes())) + found if valid else b"\xff" * 4
            for valid in column.is_valid().to_pylist()
        ]
    texts = [None if text is None else text.encode() for text in column.to_pylist()]
    fields = [b"\xff" * 4 if t is None else struct.pack(">i", len(t)) + t for t in texts]
    if len({len(field) for field in fields}) == 1:
        return np.frombuffer(b"".join(fields), np.uint8).reshape(len(fields), -1)
    return fields


def _bytes(column: pa.Array, kind: Kind) -> NDArray[np.uint8]:
    if kind == "vector":
        vectors = matrix(column)
        head = np.frombuffer(struct.pack(">hh", vectors.shape[1], 0), np.uint8)
        body = vectors.astype(">f4").view(np.uint8)
        return np.hstack([np.broadcast_to(head, (len(vectors), 4)), body])
    values = column.to_numpy(zero_copy_only=False).astype(_NUMBERS[kind])
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(column), -1)


def decode(data: bytes, kinds: Sequence[Kind], dims: Sequence[int] = ()) -> list[pa.Array]:
    """The columns of a COPY stream; `dims` has the dimension of every vector column in turn."""
    if not data.startswith(_SIGNATURE):
        raise StoreError("the server's COPY stream is not PostgreSQL's binary format")
    view = memoryview(data)
    cells: list[list[Any]] = [[] for _ in kinds]
    at = len(_SIGNATURE) + 8 + struct.unpack_from(">i", data, len(_SIGNATURE) + 4)[0]
    length_at, end = struct.Struct(">i").unpack_from, len(data) - 2
    while at < end:
        at += 2
        for cell in cells:
            (length,) = length_at(data, at)
            at += 4
            if length < 0:
                cell.append(None)
            else:
                cell.append(view[at : at + length])
                at += length
    vector_dims = iter(dims)
    return [_column(c, k, vector_dims) for c, k in zip(cells, kinds, strict=True)]


def _column(cells: list[Any], kind: Kind, dims: Any) -> pa.Array:
    if kind == "text":
        return pa.array([None if c is None else str(c, "utf-8") for c in cells], pa.string())
    missing = np.array([c is None for c in cells], bool)
    there = [c for c in cells if c is not None]
    if kind == "vector":
        dim = next(dims)
        raw = np.frombuffer(b"".join(there), np.uint8).reshape(len(there), 4 + 4 * dim)
        found = np.ascontiguousarray(raw[:, 4:]).view(">f4").astype(np.float32)
        if not missing.any():
            return to_arrow(found)
        vectors = np.zeros((len(cells), dim), np.float32)
        vectors[~missing] = found
        flat = pa.array(vectors.ravel())
        return pa.FixedSizeListArray.from_arrays(flat, dim, mask=pa.array(missing))
    numbers = np.zeros(len(cells), _NUMBERS[kind][1:])
    numbers[~missing] = np.frombuffer(b"".join(there), _NUMBERS[kind])
    values = numbers.astype(bool) if kind == "boolean" else numbers
    return pa.array(values, _ARROW[kind], mask=missing)
