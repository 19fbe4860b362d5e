"""Vectors in files: npy, npz, safetensors, parquet, lance and FAISS, read and written as streams.
A folder of Parquet files is read as one table.

The extension chooses the format. Reading and writing hold a batch in memory, never a file, but for
indexes of FAISS that only its own library can read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import pyarrow as pa

from crossfade.errors import BadInput
from crossfade.files.atomic import refuse_existing, replacing
from crossfade.files.choice import check_lengths
from crossfade.files.contract import ArrayInfo, Extra, Format, Layout, Source
from crossfade.remote import is_remote, to_path

__all__ = [
    "ArrayInfo",
    "Extra",
    "Layout",
    "Source",
    "is_folder",
    "is_lance",
    "left_out",
    "list_arrays",
    "open_source",
    "read_values",
    "refuse_existing",
    "replacing",
    "split_name",
    "write_batches",
]

Kind = Literal["npy", "npz", "safetensors", "parquet", "lance", "faiss", "folder"]
_KINDS: dict[str, Kind] = {
    ".npy": "npy",
    ".npz": "npz",
    ".safetensors": "safetensors",
    ".parquet": "parquet",
    ".lance": "lance",
    ".faiss": "faiss",
    ".index": "faiss",
}


def open_source(path: str | Path, column: str | None = None) -> Source:
    """The vectors in a file, as a stream.

    `column` names one of several arrays or columns. Without it the only one with vectors is taken,
    or the one called vector, vectors, embedding or embeddings.

    >>> import numpy as np, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "old.npy"
    >>> np.save(path, np.ones((5, 3), dtype=np.float16))
    >>> source = open_source(path)
    >>> source.rows, source.dim, source.dtype.name
    (5, 3, 'float16')
    >>> [len(block) for block in source.vectors(2)]
    [2, 2, 1]
    """
    path = to_path(path)
    return _format(path).source(path, column)


def write_batches(
    path: str | Path,
    batches: Iterable[pa.RecordBatch],
    layout: Layout,
    *,
    overwrite: bool = False,
) -> None:
    """Write a stream of batches to a file that is there in whole at the end, or not at all.

    >>> import numpy as np, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> np.save(folder / "old.npy", np.ones((5, 3), dtype=np.float16))
    >>> source = open_source(folder / "old.npy")
    >>> layout = Layout(source.schema, source.column, source.rows)
    >>> write_batches(folder / "old.parquet", source.batches(2), layout)
    >>> open_source(folder / "old.parquet").rows
    5
    """
    path = to_path(path)
    form = _format(path)
    if _kind(path) == "lance" and is_remote(path):
        # Its commit is what makes it appear.
        refuse_existing(path, overwrite=overwrite)
        form.write(path, batches, layout)
        return
    if _kind(path) != "lance" and path.is_dir():
        raise BadInput("is a folder", where=path, step="name a file")
    with replacing(path, overwrite=overwrite) as temporary:
        form.write(temporary, batches, layout)


def list_arrays(path: str | Path) -> tuple[ArrayInfo, ...]:
    """Names, shapes and types of what a file holds.

    >>> import numpy as np, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "pairs.npz"
    >>> np.savez(path, old=np.ones((5, 3)), labels=np.arange(5))
    >>> [str(array) for array in list_arrays(path)]
    ["'old' (5 × 3 float64)", "'labels' (5 int64)"]
    """
    path = to_path(path)
    return _format(path).arrays(path)


def read_values(path: str | Path, name: str | None = None) -> pa.Array:
    """A one-dimensional array of numbers or short strings, whole; nulls stay nulls.

    >>> import numpy as np, tempfile
    >>> path = Path(tempfile.mkdtemp()) / "labels.npy"
    >>> np.save(path, np.array(["cat", "dog"]))
    >>> read_values(path).to_pylist()
    ['cat', 'dog']
    """
    path = to_path(path)
    values = _format(path).values(path, name)
    check_lengths(path, name, values)
    return values


def left_out(path: str | Path, layout: Layout) -> tuple[str, ...]:
    """Names of what the layout has beside the vectors and the format of `path` cannot hold."""
    kind = _kind(to_path(path))
    columns = [name for name in layout.schema.names if name != layout.column]
    lost = [] if kind in ("parquet", "lance") else columns
    if kind == "faiss":
        from crossfade.files.faiss import ID, holds_ids

        lost = [name for name in columns if name != ID or not holds_ids(layout)]
    return (*lost, *(extra.name for extra in layout.extras if extra.format != kind))


def is_folder(path: str | Path) -> bool:
    """Whether this is a folder that is read as one table, and no table by itself."""
    path = to_path(path)
    return path.suffix.lower() not in _KINDS and path.is_dir() and _kind(path) == "folder"


def is_lance(path: str | Path) -> bool:
    """Whether this is the folder of a Lance dataset, or is to be one."""
    return _kind(to_path(path)) == "lance"


def split_name(text: str | Path) -> tuple[Path, str | None]:
    """A file and the array of it that is meant, from `FILE` or `FILE:NAME`.

    >>> path, name = split_name("data/banking.safetensors:minilm_train")
    >>> path.name, name
    ('banking.safetensors', 'minilm_train')
    """
    endings = "|".join(kind.removeprefix(".") for kind in _KINDS)
    found = re.fullmatch(rf"(.*?\.(?:{endings})):(.+)", str(text), re.I)
    return (Path(found[1]), found[2]) if found else (Path(text), None)


def _kind(path: Path) -> Kind:
    kind = _KINDS.get(path.suffix.lower())
    if kind is None and (path / "_versions").is_dir():
        kind = "lance"
    if kind is None and path.is_dir():
        kind = "folder"
    if kind is None:
        raise BadInput(
            f"the extension '{path.suffix}' is not known",
            where=path,
            step=f"name a file that ends in {', '.join(_KINDS)}",
        )
    return kind


def _format(path: Path) -> Format:
    # Each format is imported when a file needs it: pyarrow's parquet reader and lance are slow to.
    match _kind(path):
        case "npy":
            from crossfade.files import npy

            return npy
        case "npz":
            from crossfade.files import npz

            return npz
        case "safetensors":
            from crossfade.files import safetensors

            return safetensors
        case "parquet":
            from crossfade.files import parquet

            return parquet
        case "lance":
            from crossfade.files import lance

            return lance
        case "faiss":
            from crossfade.files import faiss

            return faiss
        case "folder":
            from crossfade.files import folder

            return folder
