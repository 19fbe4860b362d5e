"""What `crossfade plan` is told, as the simulation needs it."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossfade.asking import Asking
from crossfade.backfill.blend import Blend
from crossfade.backfill.classes import class_names
from crossfade.backfill.gallery_file import Gallery
from crossfade.backfill.simulate import ASKING, BLENDS
from crossfade.backfill.start import FILLED, LIFTED, OLD
from crossfade.cli.held import read_list
from crossfade.compatibility import Held
from crossfade.errors import BadInput
from crossfade.files import read_values, split_name
from crossfade.pairs import Pairs
from crossfade.retrieval import SameClass
from crossfade.retrieval.relevance import NONE
from crossfade.solvers.split import validation_rows
from crossfade.upgrade import Upgrade


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


def fitting(
    gallery: Gallery, orders: list[str], classes: list[str | int] | None, *, asked: bool
) -> tuple[list[str], list[str]]:
    """The orders that can be made of the gallery, and what to say of it.

    Orders that were asked for have to be possible; of the others those are left out that are not,
    and those by class where the gallery has no labels: their curves are simulated with labels.
    """

    def why_not(name: str) -> str | None:
        if gallery.by_nearness(name, classes):
            return "they go by class, and the gallery has no labels"
        return gallery.lacks(name)

    left = {} if asked else {name: why for name in orders if (why := why_not(name))}
    kept = [name for name in orders if name not in left]
    said = gallery.check_orders(kept or orders, classes)
    if left:
        said.append(f"not tried: {', '.join(left)} ({'; '.join(dict.fromkeys(left.values()))})")
    return kept, said


def unseen(upgrade: Upgrade, held: Held) -> tuple[Held, Any, list[str]]:
    """Rows the upgrade was not fitted on: all of them, or the validation split of its own pairs.

    Then also their numbers, and what to say of it.
    """
    known = upgrade.seen(held.gallery_new)
    if not known.overlap:
        return held, slice(None), []
    fit = upgrade.config_.fit
    if fit["rows"] != held.gallery or held.own is None or held.query_classes is None:
        raise BadInput(
            f"{known.share:.0%} of these pairs were fitted on, and a plan made on them would "
            "promise too much",
            where=held.name,
            step="give pairs the upgrade has not seen, or the very file it was fitted on",
        )
    settings = upgrade.config_.settings
    _, labels = np.unique(held.query_classes, return_inverse=True)
    keep = np.flatnonzero(
        validation_rows(held.gallery, labels, settings["validation"], settings["seed"])
    )
    pairs = Pairs.from_arrays(
        held.gallery_old[keep], held.gallery_new[keep], held.query_classes[keep], name=held.name
    )
    text = (
        f"the upgrade was fitted on these pairs: simulated on its {len(keep)} validation rows, "
        "which have chosen it; fresh pairs would be surer"
    )
    return Held.of(pairs), keep, [text]


def classes_of(held: Held) -> list[str | int] | None:
    """Names of the gallery's classes; None without labels."""
    if not isinstance(held.relevance, SameClass) or held.gallery_classes is None:
        return None
    return class_names(held.gallery_classes[held.relevance.gallery_labels != NONE])


def states(start: str, rows: int, keep: Any) -> Any:
    """One state for all, or that of each row simulated."""
    if start in (OLD, LIFTED):
        return start
    if start == FILLED:
        raise BadInput("a gallery that is filled needs no plan", step="use --start lifted or old")
    return one_for_each(np.asarray(column(start).to_pylist()).astype(str), rows, keep)


def one_for_each(values: Any, rows: int, keep: Any) -> Any:
    """The values of the rows simulated; raises unless there is one for every row of the pairs."""
    if len(values) != rows:
        raise BadInput(f"there are {len(values)} values for {rows} pairs", step="give one for each")
    return values[keep]


def column(place: str) -> Any:
    """One value per row, as Arrow holds them."""
    return read_values(*split_name(place))


def numbers(place: str) -> Any:
    """One number per row."""
    values = read_list(place)
    if values.dtype.kind not in "iuf" or not np.isfinite(values).all():
        raise BadInput("holds something that is not a number", where=place)
    return values.astype(np.float64)
