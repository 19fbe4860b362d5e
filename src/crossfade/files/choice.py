"""Which of a file's arrays is meant, and whether it holds vectors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from crossfade.errors import BadInput, BadRow
from crossfade.files.contract import ArrayInfo

FLOATS = ("float16", "float32", "float64", "bfloat16")
# Bytes of a label or an id; and dimensions of a vector. Beyond that it is something else.
LONGEST, WIDEST = 4096, 1 << 20
USUAL_NAMES = ("vector", "vectors", "embedding", "embeddings")


def choose(path: Path, arrays: Sequence[ArrayInfo], column: str | None) -> ArrayInfo:
    """The array to read: the one named, else the only one with vectors, else a usual name.

    >>> names = [ArrayInfo("id", (9,), "int64"), ArrayInfo("text", (9, 64), "float16")]
    >>> choose(Path("docs.npz"), names, None).name
    'text'
    """
    if column is not None:
        found = named(path, arrays, column)
    elif len(arrays) == 1:
        found = arrays[0]
    else:
        fitting = [array for array in arrays if len(array.shape) == 2 and array.dtype in FLOATS]
        usual = [array for array in fitting if array.name in USUAL_NAMES]
        if len(fitting) != 1 and len(usual) != 1:
            raise BadInput(
                f"holds {_list(arrays)}, and it is not clear which are the vectors",
                where=path,
                step="name one, with --column or as FILE:NAME",
            )
        found = fitting[0] if len(fitting) == 1 else usual[0]
    check_vectors(path, found)
    return found


def named(path: Path, arrays: Sequence[ArrayInfo], name: str) -> ArrayInfo:
    """The array called `name`, or an error that lists the names there are."""
    for array in arrays:
        if array.name == name:
            return array
    raise BadInput(f"has no '{name}', only {_list(arrays)}", where=path, step="name one of these")


def only(path: Path, arrays: Sequence[ArrayInfo], name: str | None) -> ArrayInfo:
    """The array called `name`, or the only one there is."""
    if name is not None:
        return named(path, arrays, name)
    if len(arrays) != 1:
        raise BadInput(f"holds {_list(arrays)}", where=path, step=f"name one as {path}:NAME")
    return arrays[0]


def check_vectors(path: object, array: ArrayInfo) -> None:
    """Raise unless the array is two-dimensional, of floats, and not empty."""
    if len(array.shape) != 2:
        raise BadInput(
            f"{array} has {len(array.shape)} dimension{'s' * (len(array.shape) != 1)}, not 2",
            where=path,
            step="give one row per item: an array of shape (rows, dimension)",
        )
    if array.dtype not in FLOATS:
        raise BadInput(
            f"{array} holds {array.dtype}, not floats",
            where=path,
            step="give the model's own float16, float32 or float64 vectors",
        )
    if 0 in array.shape:
        raise BadInput(f"{array} is empty", where=path, step="give at least one vector")
    if (array.shape[1] or 0) > WIDEST:
        raise BadInput(
            f"{array} has vectors of more than {WIDEST:,} dimensions",
            where=path,
            step="give one row per item: an array of shape (rows, dimension)",
        )


def check_values(path: Path, array: ArrayInfo) -> None:
    """Raise unless the array is one-dimensional and not empty."""
    if len(array.shape) != 1:
        raise BadInput(
            f"{array} has {len(array.shape)} dimensions, not 1",
            where=path,
            step="give one value per row",
        )
    if array.shape[0] == 0:
        raise BadInput(f"{array} is empty", where=path, step="give one value per row")


def check_lengths(path: Path, name: str | None, values: pa.Array) -> None:
    """Raise for a string that is longer than labels and ids are."""
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return
    longest = pc.max(pc.binary_length(values)).as_py() or 0
    if longest > LONGEST:
        lengths = pc.binary_length(values).fill_null(0)
        raise BadRow(
            int(pc.index(lengths, longest).as_py()),
            f"has {longest:,} bytes",
            where=path,
            side=name,
            step=f"labels and ids are shorter: give at most {LONGEST:,}",
        )


def _list(arrays: Sequence[ArrayInfo]) -> str:
    return ", ".join(str(array) for array in arrays) or "nothing"
