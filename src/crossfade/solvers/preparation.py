"""From pairs to a `Problem`: split, normalize, gather the moments, solve the closed form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import BadInput
from crossfade.pairs import Pairs
from crossfade.sketch import Hashes, row_hashes, sketch
from crossfade.solvers.closed_form import choose_ridge, procrustes
from crossfade.solvers.device import name_device
from crossfade.solvers.doubts import Sample, find_doubts
from crossfade.solvers.moments import Array, Moments, principal_axes
from crossfade.solvers.problem import Problem, Rows, Selection
from crossfade.solvers.settings import Settings
from crossfade.solvers.split import validation_rows
from crossfade.spaces import normalized

Float = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A problem, and what else the artefact records of it."""

    problem: Problem
    axes: Array | None
    penalty: float
    rows: int
    validation_rows: int
    sketch: Hashes
    warnings: list[str]


def prepare(
    pairs: Pairs,
    settings: Settings,
    report: Callable[[dict[str, Any]], None],
    *,
    force: bool = False,
) -> Prepared:
    """One pass over the pairs; training rows are kept in memory only for the gradient solvers.

    Pairs that no upgrade should be learned from are refused before anything is solved, unless
    `force` makes warnings of what speaks against them.
    """
    if settings.rotate_old and pairs.old_dim <= pairs.new_dim:
        raise BadInput(
            f"rotate_old is for an old model of more dimensions than the new one; here "
            f"{pairs.old_dim} and {pairs.new_dim}",
            where=pairs.name,
            step="leave rotate_old out",
        )
    held = validation_rows(pairs.rows, pairs.labels, settings.validation, settings.seed)
    keep_training = settings.solver != "closed_form"
    if keep_training:
        pairs = pairs.load()
    hashes: list[Hashes] = []
    parts: dict[bool, list[tuple[Float, Float]]] = {True: [], False: []}
    sample = Sample(pairs.rows)

    def training() -> Iterator[tuple[Float, Float]]:
        done = 0
        for batch in pairs.batches():
            hashes[:] = [sketch([*hashes, row_hashes(batch.new)])]
            old = normalized(batch.old, settings.normalize_old, "old")
            new = normalized(batch.new, settings.normalize_new, "new")
            sample.add(done, old, new)
            out = held[done : done + len(old)]
            done += len(old)
            parts[True].append((old[out], new[out]))
            if keep_training:
                parts[False].append((old[~out], new[~out]))
            yield old[~out], new[~out]

    moments = Moments.of(training(), pairs.old_dim, pairs.new_dim)
    axes = principal_axes(moments) if settings.rotate_old else None
    cross = moments.new_old if axes is None else moments.new_old @ axes.T
    reached = min(pairs.old_dim, pairs.new_dim)

    def rows(which: bool, mask: NDArray[np.bool_]) -> Rows:
        old = np.concatenate([o for o, _ in parts[which]] or [np.empty((0, pairs.old_dim), "f4")])
        new = np.concatenate([n for _, n in parts[which]] or [np.empty((0, pairs.new_dim), "f4")])
        parts[which].clear()
        turned = old if axes is None else (old @ axes.T).astype(np.float32)
        placed = np.ascontiguousarray(turned[:, :reached])
        labels = None if pairs.labels is None or not len(old) else pairs.labels[mask]
        return Rows(old, new, placed, labels)

    validation, train = rows(True, held), rows(False, ~held)
    warnings = find_doubts(
        pairs, sample, validation, (settings.old_model, settings.new_model)
    ).settle(pairs.name, force=force)
    penalty, weight, bias = choose_ridge(moments, validation.old, validation.new)
    problem = Problem(
        settings=settings,
        train=train,
        selection=Selection(
            validation, settings.select_cases, settings.select_metrics, measured_on(settings)
        ),
        moments=moments,
        rotation=procrustes(cross),
        ridge=(weight, bias),
        report=report,
    )
    return Prepared(problem, axes, penalty, pairs.rows, int(held.sum()), sketch(hashes), warnings)


def measured_on(settings: Settings) -> str:
    """The device of a fit measures as it trains; the closed form does not load torch for it.

    >>> measured_on(Settings(solver="closed_form"))
    'cpu'
    """
    unasked = settings.solver == "closed_form" and settings.device == "auto"
    return "cpu" if unasked else name_device(settings.device)
