"""Fragments of a Lance table: each batch that is written is one more, and a search opens them all.

A backfill writes thousands of small batches. Left alone, they make every search slower for good;
merged now and then, it stays as fast as it was.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from crossfade.errors import StoreError

# Few enough to be opened in no time; a table of some size has one for each so many rows anyway.
FEW = 4
MANY = 20_000
_ROWS_EACH = MANY // 2
# So many more may gather between two batches: merging costs a rewrite of the small ones.
SPARE = 12
_PARTS = 16
# How often a listing may break off before it counts as an error, and seconds between the first two.
_LOOKS, _PAUSE = 10, 0.02
T = TypeVar("T")
CONFLICTS = ("concurrent writers", "conflict", "preempted")


def tidy(dataset: Any, spare: int = 0) -> bool:
    """Merge small fragments if there are too many; whether they were.

    Readers are not disturbed: they keep the version they have open. Who writes at the same time
    goes first, and the fragments wait for the next occasion.
    """
    rows = dataset.count_rows()
    if len(dataset.get_fragments()) <= FEW + rows // _ROWS_EACH + spare:
        return False
    try:
        dataset.optimize.compact_files(target_rows_per_fragment=max(MANY, rows // _PARTS))
    except (OSError, RuntimeError) as error:
        if is_conflict(error):
            return False
        raise
    return True


def enter_moved(dataset: Any, moved: int) -> bool:
    """Enter rows that were moved into the indexes they fell out of, if they are many; whether so.

    A search reads all rows that its index does not know. It pays for each addition too, so there
    should be few of them; at the end of a backfill the index is built anew.
    """
    if moved < max(MANY // 2, dataset.count_rows() // 20) or not dataset.describe_indices():
        return False
    try:
        dataset.optimize.optimize_indices(num_indices_to_merge=0)
    except (OSError, RuntimeError) as error:
        if is_conflict(error):
            return False
        raise
    return True


def in_use(uri: str, names: Collection[str]) -> set[str]:
    """Those of some data files that the table has now.

    Where an answer can be lost on its way, a commit that failed may have been done.
    """
    import lance

    fragments = looked_up(lambda: lance.dataset(uri)).get_fragments()
    there = {file.path for part in fragments for file in part.data_files()}
    return there & set(names)


def discard(uri: str, folder: Path, names: Collection[str]) -> None:
    """Delete data files that were written in vain; one that may be in use stays."""
    with suppress(OSError, RuntimeError, ValueError, StoreError):
        for name in set(names) - in_use(uri, names) if names else ():
            (folder / "data" / name).unlink(missing_ok=True)


def is_conflict(error: Exception) -> bool:
    """Whether someone else wrote the same rows first."""
    return any(word in str(error).lower() for word in CONFLICTS)


def is_cut_off(error: Exception) -> bool:
    """Whether the answer to a listing broke off: an object store's client repeats all other
    requests, and a commit begins with a look at the versions there are."""
    return "list response body" in str(error).lower()


def looked_up(look: Callable[[], T]) -> T:
    """What is only read, again if the answer broke off."""
    for tried in range(1, _LOOKS):
        try:
            return look()
        except (OSError, RuntimeError, ValueError) as error:
            if not is_cut_off(error):
                raise
            time.sleep(_PAUSE * tried)
    return look()
