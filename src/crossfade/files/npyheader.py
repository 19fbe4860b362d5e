"""The header of an array in numpy's own format, read from a file or from a member of an npz."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from numpy.lib import format as npy_format

from crossfade.errors import BadInput
from crossfade.files.contract import ArrayInfo
from crossfade.files.guards import truncated


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
        if version == (1, 0):
            shape, fortran, dtype = npy_format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, fortran, dtype = npy_format.read_array_header_2_0(stream)
        else:
            raise ValueError(f"version {version[0]}.{version[1]} of the format is not for numbers")
    except ValueError as error:
        raise BadInput(
            f"is not an array in numpy's format ({error})",
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


def read_values(stream: BinaryIO, header: NpyHeader, path: Path, name: str) -> pa.Array:
    """A whole one-dimensional array of numbers or strings."""
    if header.dtype.hasobject:
        raise BadInput(
            f"'{name}' holds pickled Python objects, which are not loaded",
            where=path,
            step=f"save plain numbers or strings: np.asarray({name}.tolist())",
        )
    data = stream.read(header.nbytes)
    if len(data) < header.nbytes:
        raise truncated(path, f"'{name}' is not all there")
    found = np.frombuffer(data, header.dtype).reshape(header.shape)
    if found.dtype.kind not in "biufUS":
        raise BadInput(
            f"'{name}' holds {found.dtype}", where=path, step="give whole numbers or strings"
        )
    if found.dtype.kind == "S":
        found = np.char.decode(found, "utf-8", "replace")
    return pa.array(found.astype(found.dtype.newbyteorder("=")))
