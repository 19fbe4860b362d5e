"""Making a plan: what may be planned on, what can be ordered, the simulation and the choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crossfade.asking import Asking
from crossfade.backfill.blend import Blend
from crossfade.backfill.cautions import few_rows
from crossfade.backfill.choose import Costs, choose
from crossfade.backfill.classes import class_names
from crossfade.backfill.gallery_file import Gallery
from crossfade.backfill.plan import Made, Plan
from crossfade.backfill.record import describe
from crossfade.backfill.simulate import DEFAULT_ORDERS, simulate
from crossfade.backfill.start import FILLED, LIFTED, State
from crossfade.compatibility.cautions import beyond_gallery, strange_rows
from crossfade.compatibility.held import Held
from crossfade.errors import BadInput
from crossfade.pairs import Pairs
from crossfade.retrieval import SameClass
from crossfade.retrieval.relevance import NONE
from crossfade.solvers.split import validation_rows
from crossfade.upgrade import Upgrade

METRICS = ("cmc@1", "mAP")
Progress = Callable[[int, int], None]


def plan(
    upgrade: Upgrade,
    held: Held,
    *,
    optimize: Sequence[str] = METRICS,
    ask: Sequence[Asking] | None = None,
    orders: Sequence[str] | None = None,
    blends: Sequence[Blend | float] | None = None,
    lifts: Sequence[float] | None = None,
    start: State = LIFTED,
    budget: float = 1.0,
    target: float | None = None,
    today: float | None = None,
    priority: ArrayLike | None = None,
    gallery: Gallery | None = None,
    items: int | None = None,
    cost_per_1k: float | None = None,
    items_per_second: float | None = None,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress | None = None,
) -> Plan:
    """Simulate every way of asking, order and blend on held-out rows; the best, and where to stop.

    Parameters
    ----------
    upgrade, held : the maps, and rows that they were not fitted on: `Held.of(pairs)`, or
        `read_held` of a file that `crossfade pairs` wrote.
    optimize : metrics whose mean is optimized.
    ask, orders, blends : what to try; by default everything that the rows allow.
    lifts : shares of F(old) in what rows store before they are filled, to try beside F(old); the
        rest is the old vector as it is, and 0 is not to lift.
    start : what the gallery holds now: "lifted", "old", or one of old, lifted and filled for each
        row.
    budget : the largest share that may be re-embedded, from 0 to 1.
    target, today : in percent of the one metric, in place of new/new, and of old/old where the old
        model is gone.
    priority : a number for each row, for the order of that name.
    gallery : the real gallery. Orders that it cannot have are left out, and its size is `items`.
    items, cost_per_1k, items_per_second : of the real gallery, for the costs.
    device : where the curves are simulated: cpu, cuda, cuda:N or auto.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(300) % 10
    >>> new = np.eye(10)[labels] + 0.3 * rng.normal(size=(300, 10))
    >>> old = new[:, :6] + 0.4 * rng.normal(size=(300, 6))
    >>> upgrade = Upgrade(solver="closed_form").fit(old[:150], new[:150], labels[:150])
    >>> held = Held.of(Pairs.from_arrays(old[150:], new[150:], labels[150:]))
    >>> made = plan(upgrade, held, optimize=["mAP"], orders=["random"], blends=[1.0])
    >>> made.record.order, made.quality_at(1.0, "mAP") > made.quality_at(0.0, "mAP")
    ('random', True)
    """
    if not 0 <= budget <= 1:
        raise BadInput(f"a budget of {budget:g}", step="use a share from 0 to 1")
    metrics = list(dict.fromkeys(optimize))
    rows = held.gallery
    held, keep, notes = unseen(upgrade, held)
    notes += strange_rows(upgrade, held)
    notes += few_rows(held)
    classes = classes_of(held)
    notes += beyond_gallery(metrics, held)
    given = None if priority is None else np.asarray(priority, np.float64)
    tried = list(orders or [*DEFAULT_ORDERS, *([] if given is None else ["priority"])])
    if gallery is not None:
        tried, said = fitting(gallery, tried, classes, asked=orders is not None)
        notes += said
    simulation = simulate(
        upgrade,
        held,
        orders=tried,
        blends=blends,
        metrics=metrics,
        asking=ask,
        start=_states(start, rows, keep),
        budget=budget,
        lifts=lifts,
        priority=None if given is None else one_for_each(given, rows, keep),
        seed=seed,
        device=device,
        progress=progress,
    )
    choice = choose(simulation, metrics, budget=budget, target=target, today=today, seed=seed)
    if simulation.old is None and today is None:
        notes.append(
            "the old model has embedded no queries: how far new ones are from today's search, and "
            "from which share on they reach it, is not known (give its level with --today)"
        )
    total = items or (held.gallery if gallery is None else gallery.source.rows)
    record = describe(
        upgrade,
        simulation,
        choice,
        Costs(total, cost_per_1k, items_per_second),
        data=held.name,
        gallery=held.gallery,
        optimize=metrics,
        budget=budget,
        warnings=notes,
        start=start if isinstance(start, str) else "by row",
        held_out=held.gallery == rows,
        classes=classes,
    )
    return Plan.of(record, Made(simulation, choice))


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


def _states(start: State, rows: int, keep: Any) -> State:
    """One state for all, or that of each row simulated."""
    if not isinstance(start, str):
        found: State = one_for_each(np.asarray(start).astype(str), rows, keep)
        return found
    if start == FILLED:
        raise BadInput("a gallery that is filled needs no plan", step="use --start lifted or old")
    return start


def one_for_each(values: Any, rows: int, keep: Any) -> Any:
    """The values of the rows simulated; raises unless there is one for every row of the pairs."""
    if len(values) != rows:
        raise BadInput(f"there are {len(values)} values for {rows} pairs", step="give one for each")
    return values[keep]
