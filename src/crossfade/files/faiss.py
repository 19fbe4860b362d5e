"""`.faiss`, `.index`: an index of FAISS; ids, where it keeps any of its own, are the column `id`.

A flat index, plain or within an `IndexIDMap`, is read and written a batch at a time, without the
library. IVF, HNSW and scalar-quantized indexes are read by the library, which holds them in memory;
what comes out is what they compare with, of codes as near as the codes are.

    IxMp | IxM2   dimension, rows, whether trained, metric; the index within; ids
    IxFI | IxF2   dimension, rows, whether trained, metric; vectors
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.errors import BadInput, MissingExtra
from crossfade.files.arrow import to_arrow, to_numpy
from crossfade.files.choice import check_values, choose, only
from crossfade.files.contract import ArrayInfo, Layout, Source
from crossfade.files.guards import file_size, reading, truncated
from crossfade.files.rawrows import check_rows, read_rows, vector_schema

NAME, ID = "vector", "id"
METRIC = "faiss.metric"
_METRICS = {0: "inner_product", 1: "l2"}
_NUMBERS = {name: number for number, name in _METRICS.items()}
_FLAT = {b"IxFI": 0, b"IxF2": 1}
_MAPPED = (b"IxMp", b"IxM2")
# dimension, rows, two numbers that no reader looks at, whether trained, metric
_HEADER = struct.Struct("<iqqq?i")
_UNUSED = 1 << 20
_COUNT = struct.Struct("<Q")
_FLOAT, _ID = np.dtype("<f4"), np.dtype("<i8")
# Types that give their vectors back; asked for them, some others end the process.
_READABLE = ("IndexFlat", "IndexIVF", "IndexHNSW", "IndexScalarQuantizer")
# What a vector of an index may take in memory, for each byte of its file.
_TIMES = 16


@dataclass(frozen=True)
class FlatFile:
    """Where vectors and ids lie in a file of a flat index; no ids, no place of them."""

    rows: int
    dim: int
    metric: str
    vectors: int
    ids: int | None


def arrays(path: Path) -> tuple[ArrayInfo, ...]:
    """The vectors, and the ids where the index keeps any."""
    return _infos(find_index(path))


def source(path: Path, column: str | None) -> Source:
    """The vectors in the order in which they were added, or of an IVF index in that of its ids."""
    found = find_index(path)
    infos = _infos(found)
    choose(path, infos, column)
    schema = vector_schema(NAME, found.dim, _FLOAT, {METRIC: found.metric})
    if len(infos) > 1:
        schema = schema.insert(0, pa.field(ID, pa.int64()))
    return Source(
        path=path,
        column=NAME,
        rows=found.rows,
        dim=found.dim,
        dtype=np.dtype(np.float32),
        schema=schema,
        reader=partial(_read, path, schema),
    )


def values(path: Path, name: str | None) -> pa.Array:
    """The ids, whole."""
    found = find_index(path)
    check_values(path, only(path, _infos(found), name or ID))
    if isinstance(found, FlatFile):
        with reading(path), path.open("rb") as file:
            return pa.array(read_ids(file, found, path))
    return pa.array(found.ids)


def write(path: Path, batches: Iterable[pa.RecordBatch], layout: Layout) -> None:
    """Write a flat index, in an `IndexIDMap` where there is a column `id` of whole numbers.

    It compares as the index does that the vectors came from, else by inner product.
    """
    metric = _NUMBERS.get(layout.metadata.get(METRIC, ""), 0)
    head = _HEADER.pack(layout.dim, layout.rows, _UNUSED, _UNUSED, True, metric)
    flat = next(kind for kind, number in _FLAT.items() if number == metric)
    kept = holds_ids(layout)
    ids: list[NDArray[np.int64]] = []
    rows = 0
    with path.open("xb") as file:
        if kept:
            file.write(_MAPPED[0] + head)
        file.write(flat + head + _COUNT.pack(layout.rows * layout.dim))
        for batch in batches:
            block = to_numpy(batch.column(layout.column)).astype(_FLOAT, order="C", copy=False)
            file.write(block.reshape(-1).view(np.uint8).data)
            rows += len(block)
            if kept:
                ids.append(_as_ids(batch.column(ID)))
        check_rows(rows, layout)
        if kept:
            file.write(_COUNT.pack(rows))
            file.write(np.concatenate(ids).astype(_ID, copy=False).view(np.uint8).data)


def holds_ids(layout: Layout) -> bool:
    """Whether there are ids that an index can keep."""
    place = layout.schema.get_field_index(ID)
    return place >= 0 and bool(pa.types.is_integer(layout.schema.field(place).type))


def library(need: str) -> Any:
    """FAISS itself, where there is need of it."""
    try:
        import faiss
    except ImportError:
        raise MissingExtra("faiss", extra="faiss", need=need) from None
    return faiss


def read_index(path: Path) -> Any:
    """An index as the library reads it, which allocates no more than the file has room for."""
    faiss = library("reading this FAISS index")
    size = file_size(path)
    with reading(path), path.open("rb"), _bounded(faiss, size):
        try:
            return faiss.read_index(str(path))
        except (RuntimeError, MemoryError) as error:
            raise BadInput(
                f"is not an index of FAISS, or is damaged ({_reason(error)})",
                where=path,
                step="copy or write it again",
            ) from error


@dataclass(frozen=True, eq=False)
class HeldIndex:
    """An index that the library holds in memory; `ids` are its own, or None for 0, 1, 2, …"""

    rows: int
    dim: int
    metric: str
    ids: NDArray[np.int64] | None
    inner: Any
    """What gives vectors back, by its own numbers or by `keys`."""
    keys: NDArray[np.int64] | None
    owner: Any
    """The index as it was read: what is within it goes with it."""

    def blocks(self, size: int) -> Iterator[tuple[int, NDArray[np.float32]]]:
        for start in range(0, self.rows, size):
            count = min(size, self.rows - start)
            if self.keys is None:
                yield start, self.inner.reconstruct_n(start, count)
            else:
                yield start, self.inner.reconstruct_batch(self.keys[start : start + count])


def find_index(path: Path) -> FlatFile | HeldIndex:
    """Where vectors and ids of an index lie in its file, or the index as the library holds it."""
    return _flat_file(path) or _held_index(path)


def _infos(found: FlatFile | HeldIndex) -> tuple[ArrayInfo, ...]:
    vectors = ArrayInfo(NAME, (found.rows, found.dim), "float32")
    return (vectors,) if found.ids is None else (vectors, ArrayInfo(ID, (found.rows,), "int64"))


def _flat_file(path: Path) -> FlatFile | None:
    """The places in a file of a flat index, checked against its size; None if it is another."""
    size = file_size(path)
    with reading(path), path.open("rb") as file:
        kind = file.read(4)
        mapped = kind in _MAPPED
        outer = _header(file, path) if mapped else None
        if mapped:
            kind = file.read(4)
        if kind not in _FLAT:
            return None
        dim, rows, metric = _header(file, path)
        if outer not in (None, (dim, rows, metric)) or metric != _FLAT[kind]:
            raise _damaged(path, "two headers that differ")
        count = _count(file, path)
        begin = file.tell()
    if dim < 1 or rows < 0 or count != rows * dim:
        raise _damaged(path, f"{rows} rows of {dim} numbers, and {count} numbers")
    end = begin + count * _FLOAT.itemsize
    ids = end + _COUNT.size if mapped else None
    needed = end if ids is None else ids + rows * _ID.itemsize
    if size < needed:
        raise truncated(path, f"{needed - size:,} bytes are missing")
    if size > needed:
        raise _damaged(path, f"{size - needed:,} bytes more than it says")
    return FlatFile(rows, dim, _METRICS[metric], begin, ids)


def _header(file: BinaryIO, path: Path) -> tuple[int, int, int]:
    data = file.read(_HEADER.size)
    if len(data) < _HEADER.size:
        raise truncated(path, "it ends within its header")
    dim, rows, _, _, _, metric = _HEADER.unpack(data)
    if metric not in _METRICS:
        raise BadInput(
            f"compares by metric {metric}",
            where=path,
            step="give an index that compares by inner product or L2",
        )
    return dim, rows, metric


def _count(file: BinaryIO, path: Path) -> int:
    data = file.read(_COUNT.size)
    if len(data) < _COUNT.size:
        raise truncated(path, "it ends within its header")
    return int(_COUNT.unpack(data)[0])


def read_ids(file: BinaryIO, flat: FlatFile, path: Path) -> NDArray[np.int64]:
    """The ids in a file of a flat index."""
    if flat.ids is None:
        raise BadInput("keeps no ids", where=path)
    file.seek(flat.ids - _COUNT.size)
    if _count(file, path) != flat.rows:
        raise _damaged(path, "not one id for each row")
    data = file.read(flat.rows * _ID.itemsize)
    return np.frombuffer(data, _ID).astype(np.int64)


def _held_index(path: Path) -> HeldIndex:
    faiss = library("reading this FAISS index")
    owner = read_index(path)
    index, ids = faiss.downcast_index(owner), None
    with reading(path):
        if isinstance(index, (faiss.IndexIDMap, faiss.IndexIDMap2)):
            ids = faiss.vector_to_array(index.id_map).astype(np.int64)
            index = faiss.downcast_index(index.index)
        readable: Any = tuple(getattr(faiss, name) for name in _READABLE)
        if not isinstance(index, readable):
            raise BadInput(
                f"is an {type(index).__name__}, which does not give its vectors back",
                where=path,
                step="give a flat, IVF, HNSW or scalar-quantized index, or the vectors it is of",
            )
        if index.metric_type not in _METRICS:
            raise BadInput(
                f"compares by metric {index.metric_type}",
                where=path,
                step="give an index that compares by inner product or L2",
            )
        if getattr(index, "invlists", index) is None or getattr(index, "storage", index) is None:
            raise _damaged(path, "an index without its vectors")
        rows, dim, metric = int(index.ntotal), int(index.d), _METRICS[index.metric_type]
        keys = None
        if isinstance(index, faiss.IndexIVF):
            keys = _listed(faiss, index)
            if len(keys) != rows or len(np.unique(keys)) != rows:
                raise BadInput(
                    f"lists {len(keys)} ids for {rows} vectors, or one of them twice",
                    where=path,
                    step="build it again, with an id for each vector",
                )
            # By a table of its own it finds the list that a vector is in. One that is in the file
            # has wrong ids where vectors were added without any after it was made.
            index.set_direct_map_type(faiss.DirectMap.NoMap)
            index.set_direct_map_type(faiss.DirectMap.Hashtable)
            if ids is None and not np.array_equal(keys, np.arange(rows)):
                ids = keys
        if ids is not None and len(ids) != rows:
            raise _damaged(path, "not one id for each row")
    return HeldIndex(rows, dim, metric, ids, index, keys, owner)


def _listed(faiss: Any, index: Any) -> NDArray[np.int64]:
    """The ids in all lists of an IVF index, ascending."""
    lists, found = index.invlists, [np.zeros(0, np.int64)]
    for number in range(index.nlist):
        size = lists.list_size(number)
        if size:
            place = lists.get_ids(number)
            found.append(faiss.rev_swig_ptr(place, size).astype(np.int64))
            lists.release_ids(number, place)
    return np.sort(np.concatenate(found))


def _read(path: Path, schema: pa.Schema, size: int, vectors_only: bool) -> Iterator[pa.RecordBatch]:
    found = find_index(path)
    with_ids = ID in schema.names and not vectors_only
    wanted = schema if with_ids or ID not in schema.names else schema.remove(0)
    if isinstance(found, HeldIndex):
        for start, block in found.blocks(size):
            yield _batch(block, wanted, found.ids if with_ids else None, start)
        return
    with reading(path), path.open("rb", buffering=0) as file:
        ids = read_ids(file, found, path) if with_ids else None
        file.seek(found.vectors)
        start = 0
        for block in read_rows(file, (found.rows, found.dim), _FLOAT, size, path):
            yield _batch(block, wanted, ids, start)
            start += len(block)


def _batch(
    block: NDArray[Any], schema: pa.Schema, ids: NDArray[np.int64] | None, start: int
) -> pa.RecordBatch:
    columns = [to_arrow(block)]
    if ids is not None:
        columns.insert(0, pa.array(ids[start : start + len(block)]))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_ids(column: pa.Array) -> NDArray[np.int64]:
    if column.null_count:
        raise BadInput("a row has no id", step="give every row one, or leave the column out")
    try:
        return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)
    except pa.ArrowInvalid:
        raise BadInput("an id is beyond 64 bits with a sign", step="give smaller ids") from None


@contextmanager
def _bounded(faiss: Any, size: int) -> Iterator[None]:
    """What a file says of sizes is believed as far as the file itself is large."""
    before = faiss.get_deserialization_vector_byte_limit(), faiss.get_deserialization_loop_limit()
    faiss.set_deserialization_vector_byte_limit(_TIMES * size + (1 << 20))
    faiss.set_deserialization_loop_limit(size)
    try:
        yield
    finally:
        faiss.set_deserialization_vector_byte_limit(before[0])
        faiss.set_deserialization_loop_limit(before[1])


def _damaged(path: Path, detail: str) -> BadInput:
    return BadInput(f"is damaged: {detail}", where=path, step="copy or write it again")


def _reason(error: BaseException) -> str:
    """FAISS names its own source first; what is wrong comes last."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text.rsplit(".cpp:", 1)[-1][:200]
