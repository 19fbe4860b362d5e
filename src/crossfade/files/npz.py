"""`.npz`: named arrays in a zip, each streamed from its member without unpacking the rest."""

from __future__ import annotations

import lzma
import struct
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
from numpy.lib import format as npy_format

from crossfade.errors import BadInput
from crossfade.files.choice import check_values, choose, only
from crossfade.files.contract import ArrayInfo, Extra, Layout, Source
from crossfade.files.guards import file_size, reading
from crossfade.files.npy import header_of
from crossfade.files.npyheader import NpyHeader, read_header, read_values
from crossfade.files.rawrows import (
    as_batches,
    copy_chunks,
    read_rows,
    vector_schema,
    write_rows,
)


def arrays(path: Path) -> tuple[ArrayInfo, ...]:
    """The arrays of the file, in its order."""
    return tuple(header.info(name) for name, header in _headers(path).items())


def source(path: Path, column: str | None) -> Source:
    """One array as a stream of rows; the others are its extras."""
    headers = _headers(path)
    chosen = choose(path, [header.info(name) for name, header in headers.items()], column)
    header = headers[chosen.name]
    rows, dim = header.shape
    if header.fortran and rows > 1 and dim > 1:
        raise BadInput(
            f"{chosen} is stored column by column, which cannot be streamed from a zip",
            where=path,
            step=f"save it again with np.ascontiguousarray({chosen.name})",
        )
    schema = vector_schema(chosen.name, dim, header.dtype)
    with _opened(path) as archive:
        extras = tuple(
            Extra(name, "npz", size, partial(_chunks, path, name, size))
            for name in headers
            if name != chosen.name
            for size in (archive.getinfo(f"{name}.npy").file_size,)
        )
    return Source(
        path=path,
        column=chosen.name,
        rows=rows,
        dim=dim,
        dtype=header.dtype.newbyteorder("="),
        schema=schema,
        reader=partial(_read, path, chosen.name, header, schema),
        extras=extras,
    )


def values(path: Path, name: str | None) -> pa.Array:
    """One one-dimensional array."""
    headers = _headers(path)
    info = only(path, [header.info(found) for found, header in headers.items()], name)
    check_values(path, info)
    header = headers[info.name]
    with _opened(path) as archive, archive.open(f"{info.name}.npy") as member:
        member.seek(header.offset)
        packed = archive.getinfo(f"{info.name}.npy").compress_size
        return read_values(cast(BinaryIO, member), header, path, info.name, packed)


def write(path: Path, batches: Iterable[pa.RecordBatch], layout: Layout) -> None:
    """Write the vectors as one member, uncompressed as np.savez does, and copy the extras."""
    with path.open("xb") as file, zipfile.ZipFile(file, "w") as archive:
        with archive.open(_member(layout.column), "w", force_zip64=True) as member:
            npy_format.write_array_header_1_0(cast(BinaryIO, member), header_of(layout))
            write_rows(member.write, batches, layout)
        for extra in layout.extras:
            if extra.format == "npz":
                with archive.open(_member(extra.name), "w", force_zip64=True) as member:
                    for chunk in extra.chunks():
                        member.write(chunk)


def _member(name: str) -> zipfile.ZipInfo:
    # The oldest date of the zip format, as numpy writes it: the same vectors make the same bytes.
    return zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    file_size(path)
    with reading(path):
        try:
            with zipfile.ZipFile(path) as archive:
                yield archive
        except (struct.error, UnicodeDecodeError, OverflowError, lzma.LZMAError) as error:
            raise BadInput(
                f"is damaged ({error})", where=path, step="write it with np.savez"
            ) from error
        except RuntimeError as error:
            # The zip module's way to tell of a password and of a packer it does not know.
            raise BadInput(
                f"cannot be unpacked ({error})", where=path, step="write it with np.savez"
            ) from error


def _headers(path: Path) -> dict[str, NpyHeader]:
    found = {}
    with _opened(path) as archive:
        for info in archive.infolist():
            if info.filename.endswith(".npy"):
                with archive.open(info) as member:
                    header = read_header(cast(BinaryIO, member), info.file_size, path)
                found[info.filename.removesuffix(".npy")] = header
    return found


def _read(
    path: Path, name: str, header: NpyHeader, schema: pa.Schema, size: int, _vectors_only: bool
) -> Iterator[pa.RecordBatch]:
    with _opened(path) as archive, archive.open(f"{name}.npy") as member:
        member.seek(header.offset)
        shape = (header.shape[0], header.shape[1])
        yield from as_batches(read_rows(member, shape, header.dtype, size, path), schema)


def _chunks(path: Path, name: str, size: int) -> Iterator[bytes]:
    with _opened(path) as archive, archive.open(f"{name}.npy") as member:
        yield from copy_chunks(member, size, path)
