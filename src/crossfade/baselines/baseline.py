"""What every baseline shares with `Upgrade`, and the little in which it differs."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from crossfade.errors import BadInput, BadUpgrade
from crossfade.solvers.settings import Settings
from crossfade.upgrade import Upgrade
from crossfade.upgrade.artefact import Config, Parts
from crossfade.upgrade.upgrade import Report

# Solving needs scipy and pyarrow; importing a baseline must not wait for them.
if TYPE_CHECKING:
    from crossfade.pairs import Pairs
    from crossfade.solvers.preparation import Prepared
    from crossfade.solvers.problem import Solution

_PREPARING = ("validation", "seed", "device", "old_model", "new_model")


class Baseline(Upgrade, ABC):
    """An `Upgrade` learned in another way: subclasses say how in `_solve`.

    Its folder is an upgrade's folder, so `Upgrade.load` and every command read it; `load` of the
    class itself gives back its own parameters too.
    """

    trained: ClassVar[bool] = True
    """Whether it needs torch, and the training rows in memory."""
    unsaved: ClassVar[tuple[str, ...]] = ()
    """Parameters that are arrays: the config does not hold them."""

    @abstractmethod
    def _solve(self, prepared: Prepared, pairs: Pairs) -> Solution:
        """Every baseline has its own."""

    def _learn(self, pairs: Pairs, settings: Settings, report: Report, *, force: bool) -> Parts:
        from crossfade.upgrade.learning import learn

        parts = learn(pairs, settings, report, lambda given: self._solve(given, pairs), force=force)
        unsaved = (*self.unsaved, "old_model", "new_model")
        known = {k: _plain(v) for k, v in self.get_params().items() if k not in unsaved}
        fit = parts.config.fit | {"baseline": {"name": type(self).__name__, "params": known}}
        return replace(parts, config=parts.config.model_copy(update={"fit": fit}))

    def _settings(self) -> Settings:
        """What preparing the pairs looks at; the rest of `Settings` is not a baseline's."""
        own = {k: v for k, v in self.get_params().items() if k in _PREPARING}
        return Settings(solver="paper" if self.trained else "closed_form", **own)

    def _trainer(self, settings: Settings) -> str:
        return type(self).__name__

    @classmethod
    def _names(cls) -> list[str]:
        return list(inspect.signature(cls).parameters)

    @classmethod
    def _unfitted(cls, config: Config) -> Self:
        known = config.fit.get("baseline", {})
        if known.get("name") != cls.__name__:
            written = known.get("name", "Upgrade")
            raise BadUpgrade(f"was written by {written}", step=f"use {written}.load")
        params: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in known["params"].items()
        }
        return cls(**params, old_model=config.old.model, new_model=config.new.model)


def check_training(baseline: Upgrade) -> None:
    """Refuse numbers no training can use, before any data is read."""
    for name in ("epochs", "batch_size", "rank"):
        value = getattr(baseline, name, None)
        if value is not None and value < 1:
            raise BadInput(f"{name}={value} must be at least 1")
    lr = baseline.lr
    if lr is not None and not 0 < lr < float("inf"):
        raise BadInput(f"lr={lr} must be above 0")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    return list(value) if isinstance(value, tuple) else value
