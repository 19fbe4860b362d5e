"""Class names of a gallery, as codes of the classes a plan was made on."""

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
) -> tuple[NDArray[np.int32], list[str]]:
    """The place of each label in `known`, -1 for a missing one; and what is worth a note.

    >>> codes, notes = class_codes(np.array(["dog", "cat"]), ["cat", "dog", "owl"], "labels.npy")
    >>> codes.tolist(), notes
    ([1, 0], ["1 of the plan's 3 classes is not in the gallery ('owl')"])
    """
    column = encoded(values, where)
    notes = check_classes(column, known, where)
    places = {name: place for place, name in enumerate(known)}
    names = column.dictionary.to_pylist()
    # One more, for labels that are missing.
    codes = np.asarray([*(places[name] for name in names), -1], np.int32)
    return codes[np.asarray(column.indices.fill_null(len(names)))], notes


def check_classes(
    column: pa.DictionaryArray, known: Sequence[str | int], where: object
) -> list[str]:
    """Raise if a class is not among those `known`; gives a note if one of those is not here."""
    names, there = column.dictionary.to_pylist(), set(known)
    unknown = [name for name in names if name not in there]
    if names and len(unknown) == len(names):
        raise BadInput(
            f"none of its classes ({_list(names)}) is among the plan's ({_list(known)})",
            where=where,
            step="name classes in the gallery as in the pairs",
        )
    if unknown:
        raise BadInput(
            f"{len(unknown)} of its {len(names)} classes {_are(unknown)} unknown to the plan "
            f"({_list(unknown)})",
            where=where,
            step="plan on pairs that hold these classes, or with orders that need no classes",
        )
    found = set(names)
    lacking = [name for name in known if name not in found]
    if not lacking:
        return []
    text = f"{len(lacking)} of the plan's {len(known)} classes {_are(lacking)} not in the gallery"
    return [f"{text} ({_list(lacking)})"]


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
