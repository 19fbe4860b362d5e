"""Whether old, new and labels belong together, and which of their rows can be used."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from crossfade.badrows import bad_rows
from crossfade.errors import BadInput, BadRow
from crossfade.pairs.files import Found, PairSide, Vectors
from crossfade.pairs.labels import MISSING, check_classes

FEWEST = 4


def named_as_swapped(found: Found, models: tuple[str, str]) -> bool:
    """Whether old comes from what is named new, and new from what is named old.

    Names are those of files and arrays, and of the models where the caller and the files name them.
    Both sides have to contradict: a chain of upgrades has a new model on either side.
    """
    texts = [f"{side.where} {side.called}".lower() for side in (found.old, found.new)]
    words = [set(re.split(r"[^a-z]+", text)) for text in texts]
    only = words[0] - words[1], words[1] - words[0]
    if {"old", "new"} & only[0] == {"new"} and {"old", "new"} & only[1] == {"old"}:
        return True
    old, new = (name.lower() for name in models)
    if not old or not new or old in new or new in old:
        return False
    named = [(old in text, new in text) for text in texts]
    return named == [(False, True), (True, False)]


def refuse_bad_rows(side: PairSide, x: Vectors, start: int) -> None:
    """Raise for the first bad row of a block that begins with the file's row `start`."""
    for row, problem in bad_rows(x).items():
        raise BadRow(
            start + row,
            problem,
            where=side.where,
            side=side.name,
            step="drop it with --drop-bad-rows or re-embed it",
        )


def good_rows(found: Found) -> NDArray[np.bool_]:
    """Mask of the rows to keep when bad ones are dropped, from one pass over the vectors."""
    keep = np.ones(found.old.rows, bool)
    for start, old, new in found.blocks(found.batch_rows()):
        keep[[start + row for x in (old, new) for row in bad_rows(x)]] = False
    if found.labels is not None:
        keep &= found.labels.codes != MISSING
        keep &= ~found.labels.single(keep)
        check_classes(found.labels.counts(keep), found.labels.where)
    if keep.sum() < FEWEST:
        raise BadInput(
            f"only {keep.sum()} of {len(keep)} rows are good",
            where=found.name,
            step=f"give at least {FEWEST} good pairs",
        )
    return keep


def check_rows(found: Found) -> None:
    """Raise unless both sides and the labels have the same number of rows, and enough of them."""
    rows = found.old.rows
    if rows != found.new.rows:
        raise BadInput(
            f"'old' has {rows} rows and 'new' has {found.new.rows}",
            where=found.name,
            step="give the same items in the same order to both models",
        )
    if found.labels is not None and len(found.labels.codes) != rows:
        raise BadInput(
            f"'labels' has {len(found.labels.codes)} values for {rows} rows",
            where=found.labels.where,
            step="give one label per row, or fit without labels with --no-labels",
        )
    if rows < FEWEST:
        raise BadInput(f"has {rows} rows", where=found.name, step=f"give at least {FEWEST} pairs")
