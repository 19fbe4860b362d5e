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
    if all(isinstance(piece, np.ndarray) for piece in pieces):
        # Rows of one length are one array: each field is put in its place in a single pass.
        parts = [(f"{i}", piece.dtype, piece.shape[1:]) for i, piece in enumerate(pieces)]  # type: ignore[union-attr]
        lengths = [(f"n{i}", ">i4") for i in range(len(pieces))]
        layout = [("count", ">i2")]
        layout += [field for pair in zip(lengths, parts, strict=True) for field in pair]  # type: ignore[misc]
        body = np.empty(rows, layout)
        body["count"] = len(columns)
        for i, piece in enumerate(pieces):
            body[f"n{i}"] = body.dtype[f"{i}"].itemsize
            body[f"{i}"] = piece
        return b"".join([_HEADER, body.tobytes(), _TRAILER])
    out: list[Any] = [_HEADER]
    count = struct.pack(">h", len(columns))
    for row in zip(*(_listed(piece) for piece in pieces), strict=True):
        out.append(count)
        out.extend(row)
    return b"".join([*out, _TRAILER])


def _fields(column: pa.Array, kind: Kind) -> NDArray[Any] | list[bytes]:
    """The values as the server reads them: an array where all are equally long, else a list of
    lengths with their bytes."""
    if kind == "text":
        texts = [None if text is None else text.encode() for text in column.to_pylist()]
        if texts and None not in texts and len(set(map(len, texts))) == 1 and texts[0]:  # type: ignore[arg-type]
            return np.array(texts, f"V{len(texts[0])}")
        return [b"\xff" * 4 if t is None else struct.pack(">i", len(t)) + t for t in texts]
    if column.null_count == 0:
        return _values(column, kind)
    there = iter(_cut(_values(column.drop_null(), kind)))
    return [next(there) if valid else b"\xff" * 4 for valid in column.is_valid().to_pylist()]


def _values(column: pa.Array, kind: Kind) -> NDArray[Any]:
    if kind != "vector":
        values = column.to_numpy(zero_copy_only=False)
        return np.asarray(values.astype(_NUMBERS[kind]))
    vectors = matrix(column)
    dim = vectors.shape[1]
    out = np.zeros(len(vectors), [("dim", ">i2"), ("zero", ">i2"), ("values", ">f4", (dim,))])
    out["dim"], out["values"] = dim, vectors
    return out


def _cut(values: NDArray[Any]) -> list[bytes]:
    """Each value's length and bytes; a single numpy number would lose its byte order."""
    size, data = values.dtype.itemsize, values.tobytes()
    length = struct.pack(">i", size)
    return [length + data[at : at + size] for at in range(0, len(data), size)]


def _listed(piece: NDArray[Any] | list[bytes]) -> list[bytes]:
    if isinstance(piece, list):
        return piece
    return _cut(piece)


def decode(data: bytes, kinds: Sequence[Kind], dims: Sequence[int] = ()) -> list[pa.Array]:
    """The columns of a COPY stream; `dims` has the dimension of every vector column in turn."""
    if not data.startswith(_SIGNATURE):
        raise StoreError("the server's COPY stream is not PostgreSQL's binary format")
    first = len(_SIGNATURE) + 8 + struct.unpack_from(">i", data, len(_SIGNATURE) + 4)[0]
    cells = _even(data, first, len(kinds)) or _uneven(data, first, len(kinds))
    vector_dims = iter(dims)
    return [_column(*c, k, vector_dims) for c, k in zip(cells, kinds, strict=True)]


Cells = tuple[Any, NDArray[np.bool_]]


def _even(data: bytes, first: int, fields: int) -> list[Cells] | None:
    """All rows at once, where they are alike: the same fields null, the others equally long."""
    at, places = first + 2, []
    if len(data) - 2 <= first:
        return None
    for _ in range(fields):
        (length,) = struct.unpack_from(">i", data, at)
        places.append((at - first, length))
        at += 4 + max(length, 0)
    size = at - first
    rows, rest = divmod(len(data) - 2 - first, size)
    if rest:
        return None
    table = np.frombuffer(data, np.uint8, rows * size, first).reshape(rows, size)
    heads = np.r_[0:2, *(np.r_[p : p + 4] for p, _ in places)]
    if not (table[:, heads] == table[0, heads]).all():
        return None
    none = np.zeros(rows, bool)
    return [
        (table[:, p + 4 : p + 4 + n], none) if n >= 0 else (table[:0, :0], ~none) for p, n in places
    ]


def _uneven(data: bytes, first: int, fields: int) -> list[Cells]:
    """Row by row."""
    view, at, end = memoryview(data), first, len(data) - 2
    cells: list[list[Any]] = [[] for _ in range(fields)]
    length_at = struct.Struct(">i").unpack_from
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
    return [
        ([c for c in cell if c is not None], np.array([c is None for c in cell], bool))
        for cell in cells
    ]


def _column(there: Any, missing: NDArray[np.bool_], kind: Kind, dims: Any) -> pa.Array:
    """One column from the bytes of its rows that are not null."""
    rows = len(missing)
    if kind == "text":
        texts = iter(str(bytes(c), "utf-8") for c in there)
        return pa.array([None if null else next(texts) for null in missing], pa.string())
    raw = there if isinstance(there, np.ndarray) else np.frombuffer(b"".join(there), np.uint8)
    if kind == "vector":
        dim = next(dims)
        whole = np.ascontiguousarray(raw.reshape(-1, 4 + 4 * dim)[:, 4:])
        found = whole.view(">f4").astype(np.float32)
        if not missing.any():
            return to_arrow(found)
        vectors = np.zeros((rows, dim), np.float32)
        vectors[~missing] = found
        flat = pa.array(vectors.ravel())
        return pa.FixedSizeListArray.from_arrays(flat, dim, mask=pa.array(missing))
    numbers = np.zeros(rows, _NUMBERS[kind][1:])
    numbers[~missing] = np.ascontiguousarray(raw).reshape(-1).view(_NUMBERS[kind])
    values = numbers.astype(bool) if kind == "boolean" else numbers
    return pa.array(values, _ARROW[kind], mask=missing)
