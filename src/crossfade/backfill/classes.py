"""Class names of a gallery as codes, those of the classes a plan was made on first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from crossfade.errors import BadInput

_NAMED = 5


def encoded(values: pa.Array | NDArray[Any], where: object) -> pa.DictionaryArray:
    """Labels as a dictionary of their names, a fraction of ten million strings."""
    if isinstance(values, pa.DictionaryArray):
        return values
    column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_floating(column.type):
        column = _whole(column, where)
    return column.dictionary_encode()


def class_codes(
    values: pa.Array | NDArray[Any], known: Sequence[str | int], where: object
) -> tuple[NDArray[np.int32], int]:
    """The class of each label, -1 for a missing one, and how many classes there are.

    Those `known` come first, in their order, then those that the gallery alone has.

    >>> codes, classes = class_codes(np.array(["dog", "cow"]), ["cat", "dog"], "labels.npy")
    >>> codes.tolist(), classes
    ([1, 2], 3)
    """
    column = encoded(values, where)
    places = {name: place for place, name in enumerate(known)}
    names = column.dictionary.to_pylist()
    # One more, for labels that are missing.
    codes = [*(places.setdefault(name, len(places)) for name in names), -1]
    indices = np.asarray(column.indices.fill_null(len(names)))
    return np.asarray(codes, np.int32)[indices], len(places)


def check_classes(
    column: pa.DictionaryArray, known: Sequence[str | int], where: object
) -> list[str]:
    """Raise if no class is among those `known`; gives notes on those of one side alone."""
    names, there = column.dictionary.to_pylist(), set(known)
    unknown = [name for name in names if name not in there]
    if names and len(unknown) == len(names):
        raise BadInput(
            f"none of its classes ({_list(names)}) is among the plan's ({_list(known)})",
            where=where,
            step="name classes in the gallery as in the pairs",
        )
    found = set(names)
    lacking = [name for name in known if name not in found]
    notes = []
    if unknown:
        notes.append(
            f"{len(unknown)} of the gallery's {len(names)} classes {_are(unknown)} unknown to the "
            f"plan, whose curve does not speak of them ({_list(unknown)})"
        )
    if lacking:
        notes.append(
            f"{len(lacking)} of the plan's {len(known)} classes {_are(lacking)} not in the gallery "
            f"({_list(lacking)})"
        )
    return notes


def class_names(values: NDArray[Any]) -> list[str | int]:
    """The classes of an array of labels, sorted, as JSON can hold them.

    >>> class_names(np.array([3, 1, 3]))
    [1, 3]
    """
    names: list[str | int] = np.unique(values).tolist()
    return names


def _whole(column: pa.Array, where: object) -> pa.Array:
    """Whole numbers that came as floats, as they do where some are missing."""
    try:
        return pc.if_else(pc.is_nan(column), None, column).cast(pa.int64())
    except pa.ArrowInvalid:
        raise BadInput(
            "a label is not a whole number", where=where, step="give whole numbers or strings"
        ) from None


def _are(names: Sequence[Any]) -> str:
    return "is" if len(names) == 1 else "are"


def _list(names: Sequence[Any]) -> str:
    shown = ", ".join(repr(name) for name in names[:_NAMED])
    return f"{shown}, …" if len(names) > _NAMED else shown
