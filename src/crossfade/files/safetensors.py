"""`.safetensors`: named tensors and text metadata, each tensor streamed from its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from crossfade.errors import BadInput
from crossfade.files.choice import check_values, choose, only
from crossfade.files.contract import ArrayInfo, Extra, Layout, Source
from crossfade.files.guards import reading
from crossfade.files.rawrows import as_batches, copy_chunks, read_rows, vector_schema, write_rows
from crossfade.files.tensorheader import BITS, NUMPY, Tensor, read_header, write_header

_STORED = {"float16": "F16", "float32": "F32", "float64": "F64"}


def arrays(path: Path) -> tuple[ArrayInfo, ...]:
    """The tensors of the file, in the order of its header."""
    return tuple(tensor.info() for tensor in read_header(path).tensors.values())


def source(path: Path, column: str | None) -> Source:
    """One tensor as a stream of rows; the others are its extras."""
    header = read_header(path)
    chosen = choose(path, [tensor.info() for tensor in header.tensors.values()], column)
    tensor = header.tensors[chosen.name]
    rows, dim = tensor.shape
    # numpy has no bfloat16; every one of them is exactly a float32.
    dtype = np.dtype(np.float32 if tensor.dtype == "BF16" else chosen.dtype)
    schema = vector_schema(tensor.name, dim, dtype, header.metadata)
    return Source(
        path=path,
        column=tensor.name,
        rows=rows,
        dim=dim,
        dtype=dtype,
        schema=schema,
        reader=partial(_read, path, tensor, schema),
        extras=tuple(
            Extra(
                other.name,
                "safetensors",
                other.nbytes,
                partial(_chunks, path, other),
                dtype=other.dtype,
                shape=other.shape,
            )
            for other in header.tensors.values()
            if other.name != tensor.name
        ),
    )


def values(path: Path, name: str | None) -> pa.Array:
    """One one-dimensional tensor of numbers."""
    tensors = read_header(path).tensors
    info = only(path, [tensor.info() for tensor in tensors.values()], name)
    check_values(path, info)
    tensor = tensors[info.name]
    if tensor.dtype not in NUMPY or tensor.dtype == "BF16":
        raise BadInput(f"{info} holds {tensor.dtype}", where=path, step="give whole numbers")
    data = b"".join(_chunks(path, tensor))
    return pa.array(np.frombuffer(data, np.dtype(info.dtype).newbyteorder("<")))


def write(path: Path, batches: Iterable[pa.RecordBatch], layout: Layout) -> None:
    """Write the vectors and copy the extras; numbers of more bytes first, so all are aligned."""
    extras = {extra.name: extra for extra in layout.extras if extra.format == "safetensors"}
    held = {name: (extra.dtype, extra.shape) for name, extra in extras.items()}
    held[layout.column] = (_STORED[layout.dtype.name], (layout.rows, layout.dim))
    held = dict(sorted(held.items(), key=lambda item: (-BITS[item[1][0]], item[0])))
    with path.open("xb") as file:
        file.write(write_header(held, layout.metadata))
        for name in held:
            if name == layout.column:
                write_rows(file.write, batches, layout)
            else:
                for chunk in extras[name].chunks():
                    file.write(chunk)


def _read(
    path: Path, tensor: Tensor, schema: pa.Schema, size: int, _vectors_only: bool
) -> Iterator[pa.RecordBatch]:
    narrow = tensor.dtype == "BF16"
    dtype: np.dtype[Any] = np.dtype("<u2" if narrow else NUMPY[tensor.dtype]).newbyteorder("<")
    with reading(path), path.open("rb", buffering=0) as file:
        file.seek(tensor.offset)
        shape = (tensor.shape[0], tensor.shape[1])
        blocks = read_rows(file, shape, dtype, size, path)
        if narrow:
            # The sixteen bits of a bfloat16 are the upper half of the same float32.
            blocks = ((block.astype(np.uint32) << 16).view(np.float32) for block in blocks)
        yield from as_batches(blocks, schema)


def _chunks(path: Path, tensor: Tensor) -> Iterator[bytes]:
    with reading(path), path.open("rb") as file:
        file.seek(tensor.offset)
        yield from copy_chunks(file, tensor.nbytes, path)
