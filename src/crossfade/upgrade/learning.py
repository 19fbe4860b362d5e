"""Learning an upgrade: prepare the pairs, solve, and write down how it went."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np

from crossfade._version import __version__
from crossfade.cases import CASES
from crossfade.maps import Mlp
from crossfade.maps.near_orthogonal import deviation
from crossfade.pairs import Pairs
from crossfade.solvers import closed_form
from crossfade.solvers.preparation import Prepared, prepare
from crossfade.solvers.problem import Selection, Solution
from crossfade.solvers.settings import Settings
from crossfade.spaces import Normalization
from crossfade.upgrade.artefact import Config, Parts, SideConfig


def learn(
    pairs: Pairs,
    settings: Settings,
    report: Callable[[dict[str, Any]], None],
    solver: Callable[[Prepared], Solution] | None = None,
    *,
    force: bool = False,
) -> Parts:
    """Both maps and their config.

    `solver` takes the place of the one the settings name: it is how baselines are learned. `force`
    goes on where the pairs do not look right, with a warning.
    """
    prepared = prepare(pairs, settings, report, force=force)
    solution = (solver or solve)(prepared)
    moments = prepared.problem.moments
    return Parts(
        backward=solution.backward,
        forward=solution.forward,
        means=(
            (moments.old / moments.rows).astype(np.float32),
            (moments.new / moments.rows).astype(np.float32),
        ),
        axes=None if prepared.axes is None else prepared.axes.astype(np.float32),
        sketch=prepared.sketch,
        config=_config(pairs, prepared, solution),
    )


def solve(prepared: Prepared) -> Solution:
    """Run the solver that was asked for; only the gradient solvers import torch."""
    problem = prepared.problem
    if problem.settings.solver == "closed_form":
        return closed_form.solve(problem, prepared.axes)
    if problem.settings.solver == "paper":
        from crossfade.solvers import paper

        return paper.solve(problem)
    from crossfade.solvers import fast

    return fast.solve(problem)


def _config(pairs: Pairs, prepared: Prepared, solution: Solution) -> Config:
    problem, settings = prepared.problem, prepared.problem.settings
    chosen_by = problem.selection
    table = Selection(chosen_by.rows, CASES, settings.select_metrics, chosen_by.device)
    # Where every row is relevant to every other, all of it is 100 whatever was learned.
    informative = table.informative
    backward = solution.backward
    return Config(
        crossfade_version=__version__,
        old=_side(settings.old_model, pairs.old_dim, settings.normalize_old),
        new=_side(settings.new_model, pairs.new_dim, settings.normalize_new),
        shared_dim=backward.out_dim,
        backward=cast(Any, backward.kind),
        forward=cast(Any, solution.forward.kind),
        lambda_asked=settings.lam if settings.backward_map == "near-orthogonal" else None,
        lambda_reached=float("nan") if isinstance(backward, Mlp) else deviation(backward.weight),
        settings=settings.record(),
        fit={
            "rows": prepared.rows,
            "validation_rows": prepared.validation_rows,
            "dropped_rows": pairs.dropped,
            "classes": 0 if pairs.classes is None else len(pairs.classes),
            "neighbours": table.neighbours,
            "ridge_penalty": prepared.penalty,
            "warnings": prepared.warnings,
        },
        validation=table.scores(solution.backward, solution.forward) if informative else {},
        closed_form=table.scores(*closed_form.start(problem.rotation, problem.ridge))
        if informative
        else {},
        notes=solution.notes,
        history=solution.history,
    )


def _side(model: str, dim: int, normalization: str) -> SideConfig:
    return SideConfig(model=model, dim=dim, normalization=cast(Normalization, normalization))
