"""The options of a fit: each declared once, with its type, default, help and panel.

`Options` is the constructor of `Upgrade`, and the command `crossfade fit` makes its parameters from
it. `Settings` are options that were checked, before any data is read.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from crossfade.cases import check_case
from crossfade.errors import BadInput
from crossfade.retrieval import check_metric

# Of the mlp, where the caller names none: the best on validation of those tried.
HIDDEN = (768, 768)
RELATIVE_STEEPNESS = 120.0
Panel = Literal["Options", "Data", "Training", "Advanced"]
Solver = Literal["fast", "paper", "closed_form"]
BackwardKind = Literal["orthogonal", "near-orthogonal", "affine"]
Normalization = Literal["l2", "none"]


@dataclass(frozen=True)
class Option:
    """What a command shows of an option; `flag` where it is not called as the keyword is."""

    help: str
    panel: Panel = "Options"
    flag: str | None = None
    least: int | None = None


@dataclass(kw_only=True, eq=False, repr=False)
class Options:
    """What a fit can be told; the docstring of `Upgrade` says more of each one."""

    backward_map: Annotated[BackwardKind, Option("The kind of B.", flag="--backward")] = (
        "orthogonal"
    )
    lam: Annotated[float, Option("λ of a near-orthogonal B; inf for none.", flag="--lambda")] = 12.0
    forward_map: Annotated[
        Literal["auto", "affine", "mlp"], Option("The kind of F.", flag="--forward")
    ] = "auto"
    hidden: Annotated[
        Sequence[int] | None, Option("Width of a hidden layer of F; repeat for more.")
    ] = None
    solver: Annotated[
        Solver,
        Option("fast refines the closed form; paper is the paper's recipe."),
    ] = "fast"
    seed: Annotated[int, Option("The same seed gives the same upgrade.", least=0)] = 0
    device: Annotated[str, Option("auto, cpu, cuda or cuda:N.")] = "auto"
    normalize_old: Annotated[Normalization, Option("How old vectors are prepared.", "Data")] = "l2"
    normalize_new: Annotated[Normalization, Option("How new vectors are prepared.", "Data")] = "l2"
    rotate_old: Annotated[
        bool,
        Option("Where old is longer than new: onto its principal axes before the cut.", "Data"),
    ] = False
    old_model: Annotated[str, Option("Its name, for the card.", "Data")] = ""
    new_model: Annotated[str, Option("Its name, for the card.", "Data")] = ""
    epochs: Annotated[
        int | None, Option("Passes over the pairs; each solver has its own.", "Training", least=1)
    ] = None
    batch_size: Annotated[
        int | None, Option("Pairs in a step of the training.", "Training", least=1)
    ] = None
    lr: Annotated[float | None, Option("The learning rate.", "Training")] = None
    weight_decay: Annotated[float | None, Option("Pull of weights to 0.", "Training")] = None
    temperature: Annotated[float | None, Option("Of the contrastive losses.", "Training")] = None
    validation: Annotated[float | None, Option("Share held out.", "Training")] = None
    select_cases: Annotated[
        Sequence[str],
        Option("Case that chooses the state; repeatable.", "Training", flag="--select-case"),
    ] = ("B(new)/F(old)", "F(old)/F(old)", "B(new)/old")
    select_metrics: Annotated[
        Sequence[str],
        Option("Metric that chooses the state; repeatable.", "Training", flag="--select-metric"),
    ] = ("cmc@1", "mAP")
    alpha: Annotated[
        float | None, Option("Steepness of the λ switch; 120/λ by default.", "Advanced")
    ] = None
    regularizer: Annotated[
        Literal["smooth", "heaviside", "so", "srip"],
        Option("What keeps a near-orthogonal B near.", "Advanced"),
    ] = "smooth"
    regularizer_weight: Annotated[float, Option("Its weight.", "Advanced")] = 1.0
    w1: Annotated[float | None, Option("Weight of L_F.", "Advanced")] = None
    w2: Annotated[float | None, Option("Weight of L_B.", "Advanced")] = None
    w3: Annotated[float, Option("Weight of L_C.", "Advanced")] = 1.0
    w4: Annotated[float | None, Option("Weight of L_contr(B(new), old).", "Advanced")] = None


@dataclass(frozen=True)
class Declared:
    """One option as it is declared: name, type, default, and what a command shows of it."""

    name: str
    type: Any
    default: Any
    shown: Option

    @property
    def choices(self) -> tuple[str, ...]:
        """The values it takes; empty where there are too many to name."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()


@cache
def declared() -> tuple[Declared, ...]:
    """Every option, in the order in which they are declared.

    >>> one = declared()[0]
    >>> one.name, one.choices, one.default, one.shown.flag
    ('backward_map', ('orthogonal', 'near-orthogonal', 'affine'), 'orthogonal', '--backward')
    """
    hints = get_type_hints(Options, include_extras=True)
    return tuple(
        Declared(one.name, *_unpacked(one.default, hints[one.name])) for one in fields(Options)
    )


def _unpacked(default: Any, hint: Any) -> tuple[Any, Any, Option]:
    kind, shown = get_args(hint)
    return kind, default, shown


@dataclass(kw_only=True)
class Settings(Options):
    """Options that were checked: what solvers go by."""

    def __post_init__(self) -> None:
        for name in ("hidden", "select_cases", "select_metrics"):
            value = getattr(self, name)
            setattr(self, name, None if value is None else tuple(value))
        for one in declared():
            if one.choices and getattr(self, one.name) not in one.choices:
                raise BadInput(
                    f"{one.name}={getattr(self, one.name)!r} is not known",
                    step=f"use one of {', '.join(one.choices)}",
                )
            value, least = getattr(self, one.name), one.shown.least
            if least is not None and value is not None and value < least:
                raise BadInput(f"{one.name}={value} must be at least {least}")
        if self.solver == "closed_form" and self.forward_map == "mlp":
            raise BadInput(
                "the closed form has no mlp", step="use an affine forward map, or the solver fast"
            )
        for name in ("lam", "alpha", "regularizer_weight", "w1", "w2", "w3", "w4", "weight_decay"):
            value = getattr(self, name)
            if value is not None and (math.isnan(value) or value < 0):
                raise BadInput(f"{name}={value} must not be negative")
        for name in ("temperature", "lr"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise BadInput(f"{name}={value} must be above 0")
        if self.hidden is not None and (not self.hidden or min(self.hidden) < 1):
            raise BadInput(f"hidden={self.hidden} must name at least one width, each at least 1")
        if self.validation is not None and not 0 < self.validation < 1:
            raise BadInput(f"validation={self.validation} must be between 0 and 1")
        if not self.select_cases or not self.select_metrics:
            raise BadInput("select_cases and select_metrics must each name at least one")
        for case in self.select_cases:
            check_case(case)
        for metric in self.select_metrics:
            check_metric(metric)

    @property
    def steepness(self) -> float:
        """α as told, or one that makes the switch as narrow for a small λ as for a large one.

        At a fixed α the penalty reaches a fixed way below λ, which for a small λ is most of it.
        """
        if self.alpha is not None:
            return self.alpha
        return RELATIVE_STEEPNESS / self.lam if 0 < self.lam < math.inf else 10.0

    @property
    def forward_kind(self) -> str:
        """The kind of F that `auto` stands for: an mlp wherever it can be trained."""
        if self.forward_map != "auto":
            return self.forward_map
        return "affine" if self.solver == "closed_form" else "mlp"

    def record(self) -> dict[str, Any]:
        """What an upgrade's config keeps; the names of the models stand with their sides."""
        return {
            one.name: list(value) if isinstance(value, tuple) else value
            for one in declared()
            if one.name not in ("old_model", "new_model")
            for value in (getattr(self, one.name),)
        }
