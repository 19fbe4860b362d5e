"""Rows in bulk, into PostgreSQL and out of it, as arrays and not one by one.

In: the binary COPY format. A stream is a header, then for every row the number of its fields and,
for every field, its length (−1 for null) and its bytes, all big-endian. pgvector's `vector` is two
16-bit numbers, the dimension and a zero, then float32 values.

Out: each column as one value, its rows' bytes end to end, which the server puts together far
faster than a client can take rows apart.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.files.arrow import to_arrow
from crossfade.stores.rows import matrix

Kind = Literal["integer", "int4", "text", "vector", "number", "boolean"]
_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
_TRAILER = struct.pack(">h", -1)
_NULL = struct.pack(">i", -1)
_ARROW = {"integer": pa.int64(), "text": pa.string(), "number": pa.float64(), "boolean": pa.bool_()}
_NUMBERS = {"integer": ">i8", "int4": ">i4", "number": ">f8", "boolean": ">u1"}


def encode_vector(vector: NDArray[Any]) -> bytes:
    """One vector, as the server sends and takes it."""
    return struct.pack(">HH", len(vector), 0) + np.asarray(vector, ">f4").tobytes()


def encode(columns: Sequence[pa.Array], kinds: Sequence[Kind]) -> bytes | memoryview:
    """Rows as a COPY stream."""
    types = [_even(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    if None in types or not len(columns[0]):
        return _row_by_row(columns, kinds)
    layout: list[Any] = [("count", ">i2")]
    for i, kind in enumerate(types):
        layout += [(f"n{i}", ">i4"), (f"v{i}", kind)]
    row = np.dtype(layout)
    # Rows of one length are one array: each field goes to its place in a single pass.
    out = np.empty(len(_HEADER) + row.itemsize * len(columns[0]) + len(_TRAILER), np.uint8)
    out[: len(_HEADER)] = np.frombuffer(_HEADER, np.uint8)
    out[-len(_TRAILER) :] = np.frombuffer(_TRAILER, np.uint8)
    body = out[len(_HEADER) : -len(_TRAILER)].view(row)
    body["count"] = len(columns)
    for i, (column, kind) in enumerate(zip(columns, kinds, strict=True)):
        body[f"n{i}"] = row[f"v{i}"].itemsize
        field = body[f"v{i}"]
        if kind == "vector":
            field["dim"], field["zero"] = column.type.list_size, 0
            field["values"] = matrix(column)
        elif kind == "text":
            field[...] = np.array([t.encode() for t in column.to_pylist()], row[f"v{i}"])
        else:
            field[...] = column.to_numpy(zero_copy_only=False)
    return out.data


def _even(column: pa.Array, kind: Kind) -> Any:
    """The type of a field where all rows have one of the same length; else None."""
    if column.null_count:
        return None
    if kind == "vector":
        return [("dim", ">i2"), ("zero", ">i2"), ("values", ">f4", (column.type.list_size,))]
    if kind != "text":
        return _NUMBERS[kind]
    lengths = {len(text.encode()) for text in column.unique().to_pylist()}
    return f"V{lengths.pop()}" if len(lengths) == 1 and 0 not in lengths else None


def _row_by_row(columns: Sequence[pa.Array], kinds: Sequence[Kind]) -> bytes:
    count = struct.pack(">h", len(columns))
    out: list[bytes] = [_HEADER]
    for row in zip(*(_cut(c, k) for c, k in zip(columns, kinds, strict=True)), strict=True):
        out += (count, *row)
    return b"".join([*out, _TRAILER])


def _cut(column: pa.Array, kind: Kind) -> list[bytes]:
    """Each value's length and bytes."""
    if kind == "text":
        texts = [None if text is None else text.encode() for text in column.to_pylist()]
        return [_NULL if t is None else struct.pack(">i", len(t)) + t for t in texts]
    there = column.drop_null()
    if kind == "vector":
        vectors = matrix(there).astype(">f4")
        head = struct.pack(">ihh", 4 + 4 * vectors.shape[1], vectors.shape[1], 0)
        size, data = 4 * vectors.shape[1], vectors.tobytes()
    else:
        values = there.to_numpy(zero_copy_only=False).astype(_NUMBERS[kind])
        head = struct.pack(">i", values.dtype.itemsize)
        size, data = values.dtype.itemsize, values.tobytes()
    pieces = iter(head + data[at : at + size] for at in range(0, len(data), size))
    return [next(pieces) if valid else _NULL for valid in column.is_valid().to_pylist()]


def scattered(values: Sequence[bytes | None], kind: Kind, dim: int = 0) -> pa.Array:
    """The column again, from what `statements.gathered` selects; nothing at all is no rows.

    >>> scattered([b"\\0\\0\\1", b"onethree", b"\\0\\0\\0\\3\\0\\0\\0\\5"], "text").to_pylist()
    ['one', 'three', None]
    """
    missing = np.frombuffer(values[0] or b"", np.uint8).astype(bool)
    data = values[1] or b""
    if kind == "vector":
        raw = np.frombuffer(data, np.uint8).reshape(-1, 4 + 4 * dim)[:, 4:]
        found = np.ascontiguousarray(raw).view(">f4").astype(np.float32)
        return to_arrow(found) if not missing.any() else _with_nulls(found, missing, dim)
    if kind == "text":
        lengths = np.frombuffer(values[2] or b"", ">i4")
        ends = np.zeros(len(missing) + 1, np.int64)
        whole = np.zeros(len(missing), np.int64)
        whole[~missing] = lengths
        np.cumsum(whole, out=ends[1:])
        valid = pa.array(~missing).buffers()[1]
        offsets = pa.py_buffer(ends)
        kept = pa.LargeStringArray.from_buffers(len(missing), offsets, pa.py_buffer(data), valid)
        return kept.cast(pa.string())
    numbers = np.frombuffer(data, _NUMBERS[kind])
    native = numbers.astype(bool if kind == "boolean" else numbers.dtype.newbyteorder("="))
    return pa.array(native, _ARROW[kind], mask=missing)


def empty(rows: int, kind: Kind, dim: int = 0) -> pa.Array:
    """A column of nulls.

    >>> empty(2, "text").to_pylist()
    [None, None]
    """
    return pa.nulls(rows, pa.list_(pa.float32(), dim) if kind == "vector" else _ARROW[kind])


def _with_nulls(found: NDArray[np.float32], missing: NDArray[np.bool_], dim: int) -> pa.Array:
    vectors = np.zeros((len(missing), dim), np.float32)
    vectors[~missing] = found
    flat = pa.array(vectors.ravel())
    return pa.FixedSizeListArray.from_arrays(flat, dim, mask=pa.array(missing))
