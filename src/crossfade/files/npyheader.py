"""The header of an array in numpy's own format, read from a file or from a member of an npz."""

from __future__ import annotations

import io
import math
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from crossfade.errors import BadInput
from crossfade.files.contract import ArrayInfo
from crossfade.files.guards import check_unpacked, truncated
from crossfade.files.rawrows import copy_chunks

# How many bytes tell the length of a header, by version; and how long one of ours may be.
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4}
_LONGEST_HEADER = 1 << 16
# What numpy and the parser of Python's own words that it uses make of a header that is none.
_UNPARSED = (
    ValueError, TypeError, SyntaxError, RecursionError, MemoryError, tokenize.TokenError,
)  # fmt: skip
# Bytes of one value, and of those that are unpacked at a time.
_WIDEST = 1 << 20
_CHUNK_BYTES = 16 << 20
# Of strings; more have places that take eight bytes each.
_LARGE = 1 << 30


@dataclass(frozen=True)
class NpyHeader:
    """Shape and type of the array, and the byte at which its numbers begin."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool
    offset: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def info(self, name: str) -> ArrayInfo:
        kind = "Python objects" if self.dtype.hasobject else self.dtype.newbyteorder("=").name
        return ArrayInfo(name, self.shape, kind)


def read_header(stream: BinaryIO, nbytes: int, path: Path) -> NpyHeader:
    """Parse the header at the start of `stream`, which holds `nbytes` bytes in all."""
    try:
        version = npy_format.read_magic(stream)
        if version not in _LENGTH_BYTES:
            raise ValueError(f"version {version[0]}.{version[1]} of the format is not for numbers")
        # numpy would read all that the file says the header takes, and only then refuse it.
        length = stream.read(_LENGTH_BYTES[version])
        size = int.from_bytes(length, "little")
        if size > _LONGEST_HEADER:
            raise ValueError(f"a header of {size} bytes")
        header_bytes = io.BytesIO(length + stream.read(size))
        if version == (1, 0):
            shape, fortran, dtype = npy_format.read_array_header_1_0(header_bytes)
        else:
            shape, fortran, dtype = npy_format.read_array_header_2_0(header_bytes)
    except _UNPARSED as error:
        words = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise BadInput(
            f"is not an array in numpy's format ({words})",
            where=path,
            step="write it with np.save or np.savez",
        ) from error
    header = NpyHeader(shape, dtype, fortran, stream.tell())
    if min(shape, default=0) < 0:
        raise BadInput(f"claims the shape {shape}", where=path, step="write it again with np.save")
    if not dtype.hasobject and header.offset + header.nbytes > nbytes:
        raise truncated(
            path,
            f"an array of shape {shape} takes {header.nbytes} bytes "
            f"and {nbytes - header.offset} are there",
        )
    return header


def read_values(
    stream: BinaryIO, header: NpyHeader, path: Path, name: str, packed: int
) -> pa.Array:
    """A whole one-dimensional array of numbers or strings, which takes `packed` bytes of the file.

    Strings are read a few at a time: numpy makes each as wide as the longest, and a zip packs what
    is empty of it into next to nothing.
    """
    kind, width = header.dtype.kind, header.dtype.itemsize
    if header.dtype.hasobject:
        raise BadInput(
            f"'{name}' holds pickled Python objects, which are not loaded",
            where=path,
            step=f"save plain numbers or strings: np.asarray({name}.tolist())",
        )
    if kind not in "biufUS" or not 0 < width <= _WIDEST:
        raise BadInput(
            f"'{name}' holds {header.dtype}", where=path, step="give whole numbers or strings"
        )
    if kind not in "US":
        check_unpacked(path, name, header.nbytes, packed)
    found, held = [], 0
    rows = max(1, _CHUNK_BYTES // width)
    for first in range(0, header.shape[0], rows):
        wanted = min(rows, header.shape[0] - first) * width
        data = b"".join(copy_chunks(stream, wanted, path))
        found.append(_as_arrow(np.frombuffer(data, header.dtype), path, name))
        held += found[-1].nbytes
        check_unpacked(path, name, held, packed)
    if held > _LARGE and kind in "US":
        found = [one.cast(pa.large_string()) for one in found]
    return pa.concat_arrays(found)


def _as_arrow(values: NDArray[Any], path: Path, name: str) -> pa.Array:
    try:
        if values.dtype.kind == "S":
            values = np.char.decode(values, "utf-8", "replace")
        return pa.array(values.astype(values.dtype.newbyteorder("=")))
    except (ValueError, pa.ArrowException) as error:
        raise BadInput(
            f"'{name}' holds what is neither text nor a number ({error})",
            where=path,
            step="give whole numbers or strings",
        ) from error
