"""Everything a fit can be told, checked once, before any data is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

from crossfade.cases import check_case
from crossfade.errors import BadInput
from crossfade.retrieval import check_metric

CHOICES = {
    "backward_map": ("orthogonal", "near-orthogonal", "affine"),
    "forward_map": ("auto", "mlp", "affine"),
    "solver": ("fast", "closed_form", "paper"),
    "regularizer": ("smooth", "heaviside", "so", "srip"),
    "normalize_old": ("l2", "none"),
    "normalize_new": ("l2", "none"),
}
# Of the mlp, where the caller names none: the best on validation of those tried.
HIDDEN = (768, 768)
RELATIVE_STEEPNESS = 120.0
SELECT_CASES = ("B(new)/F(old)", "F(old)/F(old)", "B(new)/old")
SELECT_METRICS = ("cmc@1", "mAP")


@dataclass(frozen=True)
class Settings:
    """The constructor arguments of `Upgrade`; its docstring says what each one means."""

    backward_map: str = "orthogonal"
    forward_map: str = "auto"
    solver: str = "fast"
    lam: float = 12.0
    alpha: float | None = None
    regularizer: str = "smooth"
    regularizer_weight: float = 1.0
    hidden: tuple[int, ...] | None = None
    w1: float | None = None
    w2: float | None = None
    w3: float = 1.0
    w4: float | None = None
    temperature: float | None = None
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    weight_decay: float | None = None
    validation: float | None = None
    select_cases: tuple[str, ...] = SELECT_CASES
    select_metrics: tuple[str, ...] = SELECT_METRICS
    normalize_old: str = "l2"
    normalize_new: str = "l2"
    rotate_old: bool = False
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise BadInput(
                    f"{name}={getattr(self, name)!r} is not known",
                    step=f"use one of {', '.join(allowed)}",
                )
        if self.solver == "closed_form" and self.forward_map == "mlp":
            raise BadInput(
                "the closed form has no mlp", step="use an affine forward map, or the solver fast"
            )
        for name in ("lam", "alpha", "regularizer_weight", "w1", "w2", "w3", "w4", "weight_decay"):
            value = getattr(self, name)
            if value is not None and (math.isnan(value) or value < 0):
                raise BadInput(f"{name}={value} must not be negative")
        if self.seed < 0:
            raise BadInput(f"seed={self.seed} must not be negative")
        for name in ("temperature", "lr"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise BadInput(f"{name}={value} must be above 0")
        for name in ("epochs", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise BadInput(f"{name}={value} must be at least 1")
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

    @classmethod
    def names(cls) -> Sequence[str]:
        return [field.name for field in fields(cls)]
