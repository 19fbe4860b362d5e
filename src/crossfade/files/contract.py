"""What a file of vectors is to the rest of the package, whatever its format.

A `Source` is read as a stream of Arrow record batches in which one column, the vector column, is a
fixed-size list of float16, float32 or float64. A `Layout` says what a file to be written holds. A
`Format` is one module of this folder: four functions with the same names and meanings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa

from crossfade.files.arrow import to_numpy

Floats = np.ndarray[tuple[int, int], np.dtype[Any]]


@dataclass(frozen=True)
class ArrayInfo:
    """Name, shape and type of one array or column of a file.

    >>> str(ArrayInfo("new", (100, 64), "float16"))
    "'new' (100 × 64 float16)"
    """

    name: str
    shape: tuple[int | None, ...]
    """A length that only the data can tell, as that of a variable-size list, is None."""
    dtype: str

    def __str__(self) -> str:
        sizes = " × ".join("?" if size is None else str(size) for size in self.shape)
        return f"'{self.name}' ({sizes} {self.dtype})" if sizes else f"'{self.name}' ({self.dtype})"


@dataclass(frozen=True)
class Extra:
    """An array that lies beside the vectors and is copied byte for byte, never interpreted."""

    name: str
    format: Literal["npz", "safetensors"]
    nbytes: int
    chunks: Callable[[], Iterator[bytes]]
    dtype: str = ""
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Layout:
    """What a file to be written holds: the columns, how many rows, and the arrays beside them."""

    schema: pa.Schema
    column: str
    rows: int
    extras: tuple[Extra, ...] = ()

    @property
    def dim(self) -> int:
        return int(self.schema.field(self.column).type.list_size)

    @property
    def dtype(self) -> np.dtype[Any]:
        value = self.schema.field(self.column).type.value_type
        dtype: np.dtype[Any] = np.dtype(value.to_pandas_dtype())
        return dtype

    @property
    def metadata(self) -> dict[str, str]:
        return text_metadata(self.schema)


@dataclass(frozen=True)
class Source:
    """Vectors in a file. It holds no open handle, so it can be streamed any number of times."""

    path: Path
    column: str
    rows: int
    dim: int
    dtype: np.dtype[Any]
    schema: pa.Schema
    reader: Callable[[int, bool], Iterator[pa.RecordBatch]]
    """Called with the most rows of a batch, and whether only the vector column is wanted."""
    extras: tuple[Extra, ...] = ()

    @property
    def metadata(self) -> dict[str, str]:
        return text_metadata(self.schema)

    @property
    def others(self) -> tuple[str, ...]:
        """Names of the columns and arrays beside the vectors."""
        columns = [name for name in self.schema.names if name != self.column]
        return (*columns, *(extra.name for extra in self.extras))

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """All columns, at most `rows` rows at a time."""
        return self.reader(rows, False)

    def vectors(self, rows: int) -> Iterator[Floats]:
        """The vectors alone, exactly `rows` at a time but for the last piece."""
        kept: list[Floats] = []
        held = 0
        for batch in self.reader(rows, True):
            piece = to_numpy(batch.column(self.column))
            while held + len(piece) >= rows:
                cut = rows - held
                # Most formats already give pieces of the right size: pass those on uncopied.
                yield np.concatenate([*kept, piece[:cut]]) if kept else piece[:cut]
                piece, kept, held = piece[cut:], [], 0
            if len(piece):
                kept.append(piece)
                held += len(piece)
        if kept:
            yield np.concatenate(kept)


class Format(Protocol):
    """One file format. A module of this folder is an instance of it."""

    def arrays(self, path: Path) -> tuple[ArrayInfo, ...]:
        """What the file holds, without reading it."""

    def source(self, path: Path, column: str | None) -> Source:
        """The vectors of one column."""

    def values(self, path: Path, name: str | None) -> pa.Array:
        """A one-dimensional array, whole."""

    def write(self, path: Path, batches: Iterable[pa.RecordBatch], layout: Layout) -> None:
        """Write to `path`, which does not exist yet and which the caller puts in place."""


def text_metadata(schema: pa.Schema) -> dict[str, str]:
    """The schema's metadata that is text, as text."""
    found = {}
    for key, value in (schema.metadata or {}).items():
        try:
            found[key.decode()] = value.decode()
        except UnicodeDecodeError:
            continue
    return found
