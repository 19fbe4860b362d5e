"""Labels as class codes 0..C-1, and the checks that a class means something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.errors import BadInput, BadRow

DROP_STEP = "drop it with --drop-bad-rows, or fit without labels with --no-labels"
MISSING = -1
# Of the names of all classes, as numpy holds them.
_WIDEST_BYTES = 1 << 30


@dataclass(frozen=True, eq=False)
class Labels:
    """`codes` (rows,) index `classes`; a row without a label has the code `MISSING`."""

    codes: NDArray[np.int64]
    classes: NDArray[Any]
    where: str

    def counts(self, keep: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
        """Items of each class, among the rows of the mask `keep`."""
        codes = self.codes if keep is None else self.codes[keep]
        return np.bincount(codes[codes != MISSING], minlength=len(self.classes))

    def single(self, keep: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """Mask of the rows that are alone in their class."""
        alone = np.append(self.counts(keep) == 1, False)  # MISSING picks the last, which is False.
        found: NDArray[np.bool_] = alone[self.codes]
        return found if keep is None else found & keep


def encode(values: pa.Array | NDArray[Any], where: object) -> Labels:
    """Class codes of labels that are whole numbers or strings.

    >>> labels = encode(np.array(["dog", "cat", "dog"]), "pairs.npz")
    >>> labels.codes, labels.classes.tolist()
    (array([1, 0, 1]), ['cat', 'dog'])
    """
    missing, plain = _plain(values, where)
    if isinstance(plain, pa.Array):
        return _encode_text(plain, where)
    codes = np.full(len(plain), MISSING, np.int64)
    classes, codes[~missing] = np.unique(plain[~missing], return_inverse=True)
    return Labels(codes, classes, str(where))


def _encode_text(values: pa.Array, where: object) -> Labels:
    """By the names that there are: numpy would make every row as wide as the longest of them."""
    coded = values.dictionary_encode()
    names = coded.dictionary.to_pylist()
    wide = 4 * len(names) * max(map(len, names), default=0)
    if wide > _WIDEST_BYTES:
        raise BadInput(
            f"{len(names):,} classes have names of up to {max(map(len, names)):,} characters",
            where=where,
            step="give them shorter names",
        )
    order = sorted(range(len(names)), key=names.__getitem__)
    places = np.full(len(names) + 1, MISSING, np.int64)
    places[order] = np.arange(len(names))
    codes = places[np.asarray(coded.indices.fill_null(len(names)))]
    return Labels(codes, np.array([names[place] for place in order], np.str_), str(where))


def check(labels: Labels) -> None:
    """Raise unless every row has a label, there are classes to tell apart, and none is of one."""
    nowhere = np.flatnonzero(labels.codes == MISSING)
    if len(nowhere):
        raise BadRow(
            int(nowhere[0]), "has no value", where=labels.where, side="labels", step=DROP_STEP
        )
    check_classes(labels.counts(), labels.where)
    alone = np.flatnonzero(labels.single())
    if len(alone):
        row = int(alone[0])
        alone_class = labels.classes[labels.codes[row]].item()
        more = f", as have {len(alone) - 1} other classes" if len(alone) > 1 else ""
        raise BadInput(
            f"class {alone_class!r} has a single item, row {row}{more}",
            where=labels.where,
            step=DROP_STEP,
        )


def check_classes(counts: NDArray[np.int64], where: object) -> None:
    """Raise unless there are at least two classes with items."""
    left = int(np.count_nonzero(counts))
    if left < 2:
        raise BadInput(
            f"the labels have {'only one class' if left else 'no class'}",
            where=where,
            step="give labels of at least two classes, or fit without labels with --no-labels",
        )


def _plain(values: pa.Array | NDArray[Any], where: object) -> tuple[NDArray[np.bool_], Any]:
    """Which labels are missing, and all of them as whole numbers, or as Arrow holds strings."""
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise BadInput(
                f"the labels have {values.ndim} dimensions, not 1",
                where=where,
                step="give one label per row",
            )
        try:
            values = pa.array(values.tolist() if values.dtype == object else values)
        except pa.ArrowException as error:
            raise BadInput(
                "the labels mix types", where=where, step="give whole numbers or strings"
            ) from error
    missing = np.asarray(values.is_null(nan_is_null=True))
    kind = values.type
    if pa.types.is_floating(kind):
        numbers = np.where(missing, 0, values.to_numpy(zero_copy_only=False)).astype(np.float64)
        odd = np.flatnonzero(~(np.isfinite(numbers) & (numbers == np.floor(numbers))))
        if len(odd):
            raise BadRow(
                int(odd[0]),
                f"is {numbers[odd[0]]}, not a whole number",
                where=where,
                side="labels",
                step="labels name classes: give whole numbers or strings",
            )
        return missing, numbers.astype(np.int64)
    if pa.types.is_boolean(kind):
        values, kind = values.cast(pa.int64()), pa.int64()
    if pa.types.is_integer(kind):
        return missing, np.asarray(values.fill_null(0))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return missing, values
    raise BadInput(f"the labels hold {kind}", where=where, step="give whole numbers or strings")
