"""What `crossfade plan` is told, as `crossfade.plan` needs it."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossfade.asking import Asking
from crossfade.backfill.blend import Blend
from crossfade.backfill.simulate import ASKING, BLENDS
from crossfade.backfill.start import STATES, State
from crossfade.errors import BadInput
from crossfade.files import read_values, split_name
from crossfade.files.whole import read_column


def chosen_blends(blends: list[str] | None, volumes: list[str] | None) -> list[Blend] | None:
    """Every blend with every volume; None where neither is named.

    >>> [str(blend) for blend in chosen_blends(["1", "1:0.3"], ["0.8:1"])]
    ['1, volume 0.8→1', '1→0.3, volume 0.8→1']
    """
    if blends is None and volumes is None:
        return None
    firsts = BLENDS if blends is None else [Blend(*_ends(text)) for text in blends]
    return [Blend(a.first, a.last, *_ends(text)) for text in volumes or ["1"] for a in firsts]


def _ends(text: str) -> tuple[float, float]:
    try:
        ends = [float(part) for part in text.split(":")]
        first, last = ends * 2 if len(ends) == 1 else ends
    except ValueError:
        raise BadInput(
            f"{text!r} is neither a number nor two", step="write 0.7, or 1:0.3 for first and last"
        ) from None
    return first, last


def ways_of(names: list[str] | None) -> list[Asking] | None:
    """Ways of asking that were named; None leaves it to the queries.

    >>> ways_of(["both", "both"])
    ['both']
    """
    if names is None:
        return None
    found: list[Asking] = [way for way in ASKING if way in names]
    unknown = [name for name in names if name not in ASKING]
    if unknown:
        raise BadInput(f"a plan does not ask {unknown[0]!r}", step=f"use {', '.join(ASKING)}")
    return found


def start_of(text: str) -> State:
    """A state for all rows, or a file with one for each."""
    return text if text in STATES else np.asarray(column(text).to_pylist()).astype(str)


def column(place: str) -> Any:
    """One value per row, as Arrow holds them."""
    return read_values(*split_name(place))


def numbers(place: str) -> Any:
    """One number per row."""
    values = read_column(place)
    if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        raise BadInput("holds something that is not a number", where=place)
    return values.astype(np.float64)
