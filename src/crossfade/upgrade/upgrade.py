"""`Upgrade`: the two maps of an upgrade, learned, saved, loaded and applied."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossfade.errors import BadInput, BadUpgrade, MissingExtra
from crossfade.maps import KINDS
from crossfade.maps.directed import Directed
from crossfade.remote import to_path
from crossfade.sketch import Seen, seen
from crossfade.solvers.settings import Options, Settings, declared
from crossfade.spaces import Side, fit_dim, inverse_norms
from crossfade.upgrade import artefact
from crossfade.upgrade.card import render_card
from crossfade.upgrade.description import describe
from crossfade.upgrade.notebook import render_table

# Learning needs scipy, pyarrow and perhaps torch; loading and applying must not wait for them.
if TYPE_CHECKING:
    from crossfade.pairs import Pairs
    from crossfade.solvers.problem import Scores

Report = Callable[[dict[str, Any]], None]


class Upgrade(Options):
    """A backward map B (new → shared) and a forward map F (old → shared), learned from pairs.

    Parameters
    ----------
    backward_map : "orthogonal" keeps the new model's geometry exactly; "near-orthogonal" trades
        up to `lam` of it for the task; "affine" keeps nothing.
    forward_map : "mlp", "affine", or "auto": an mlp where the solver can train one.
    solver : "fast" refines the closed form and keeps what validates; "closed_form" needs no torch
        and no memory for the pairs; "paper" is the paper's recipe, for reproduction.
    lam, alpha, regularizer, regularizer_weight : λ, its steepness α (120/λ by default), one of
        smooth, heaviside, so, srip, and its weight. For a near-orthogonal B; `lam=inf` is no
        regularization.
    hidden : widths of the mlp's hidden layers; by default two of 768.
    w1, w2, w3, w4 : weights of L_F, L_B, L_C and of L_contr(B(new), old). By default 5, 0, 1, 1
        for "fast", which starts at the optimum of L_B, and 10, 10, 1, 0 for "paper".
    temperature : of the contrastive losses; 0.07 for "fast", 0.05 for "paper".
    epochs, batch_size, lr, weight_decay : of the training; each solver has its own defaults.
    validation : share of the pairs held out to choose on; 10 %, or 20 % of fewer than 5,000.
    select_cases, select_metrics : the best state has the highest mean over these on validation.
    normalize_old, normalize_new : "l2" or "none": how each side's vectors are prepared.
    rotate_old : where old has more dimensions than new, rotate it onto its principal axes before
        it is cut.
    seed, device : the same seed on the same machine gives the same upgrade; "auto", "cpu", "cuda".
    old_model, new_model : names for the card.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> new = rng.normal(size=(200, 8))
    >>> old = new[:, :4] + 0.1 * rng.normal(size=(200, 4))
    >>> upgrade = Upgrade(solver="closed_form").fit(old, new)
    >>> upgrade.backward(new).shape, upgrade.forward(old).shape
    ((200, 8), (200, 8))
    """

    backward_: Directed
    forward_: Directed
    config_: artefact.Config

    def fit(
        self,
        old: ArrayLike | Pairs,
        new: ArrayLike | None = None,
        labels: ArrayLike | None = None,
        *,
        report: Report | None = None,
        force: bool = False,
    ) -> Self:
        """Learn both maps from `old` (rows, d) and `new` (rows, n), or from `Pairs`.

        `report` is called with a dictionary after every epoch: block, epoch, losses, ‖WWᵀ−I‖ and,
        where it was measured, validation. Fewer than 50 pairs, rows that do not belong together and
        swapped sides are refused; `force` goes on, and says so in `warnings_`.
        """
        from crossfade.pairs import Pairs

        settings = self._settings()
        if settings.solver != "closed_form" and find_spec("torch") is None:
            raise MissingExtra("torch", extra="train", need=self._trainer(settings))
        if isinstance(old, Pairs):
            if new is not None or labels is not None:
                raise BadInput("Pairs hold new and labels already", step="pass the pairs alone")
            pairs = old
        elif new is None:
            raise BadInput("fit needs old and new", step="pass both arrays, or Pairs")
        else:
            pairs = Pairs.from_arrays(old, new, labels)
        self._install(self._learn(pairs, settings, report or (lambda _: None), force=force))
        return self

    def backward(self, new: ArrayLike) -> NDArray[np.float32]:
        """B: new vectors (rows, n), or one vector (n,), in the shared space."""
        return self._fitted().backward_(new)

    def forward(self, old: ArrayLike) -> NDArray[np.float32]:
        """F: old vectors (rows, d), or one vector (d,), in the shared space."""
        return self._fitted().forward_(old)

    def query_for_old(self, new: ArrayLike) -> NDArray[np.float32]:
        """New vectors (rows, n), or one (n,), as queries that an untouched index of old vectors
        takes, d numbers each: B(new), cut or padded, on old's own axes.

        >>> rng = np.random.default_rng(0)
        >>> new = rng.normal(size=(500, 6)).astype("f4")
        >>> upgrade = Upgrade(solver="closed_form").fit(new[:, :4], new)
        >>> upgrade.query_for_old(new[0]).shape
        (4,)
        """
        rows = fit_dim(np.atleast_2d(self.backward(new)), self.old_dim_)
        if self.axes_ is not None:
            rows = rows @ self.axes_
        return np.asarray(rows if np.ndim(new) == 2 else rows[0], np.float32)

    def in_shared_space(self, old: ArrayLike) -> NDArray[np.float32]:
        """Old vectors themselves as they sit in the shared space, not lifted by F.

        As the index holds them (`as_stored`), then cut or padded with zeros to its dimension.
        """
        rows = fit_dim(np.atleast_2d(self.as_stored(old)), self.shared_dim_)
        return rows if np.ndim(old) == 2 else rows[0]

    def as_stored(self, old: ArrayLike) -> NDArray[np.float32]:
        """Old vectors as the index of today compares them, neither cut nor padded.

        Normalized as the old side is, and rotated where the upgrade was fitted with `rotate_old`.
        """
        side = self._fitted().forward_.reads
        x = np.asarray(old)
        side.check_shape(x, self.backward_.reads)
        rows = np.atleast_2d(x).astype(np.float32)
        scale = inverse_norms(rows, "old")
        if side.normalization == "l2":
            rows *= scale[:, None]
        if self.axes_ is not None:
            rows = rows @ self.axes_.T
        return rows if x.ndim == 2 else rows[0]

    def seen(self, new: ArrayLike) -> Seen:
        """How many of these new vectors (rows, n) the upgrade was fitted on."""
        return seen(self._fitted().sketch_, np.asarray(new))

    def describe(self) -> dict[str, Any]:
        """Directions, dimensions, λ asked and reached, losses, and the angles between B's columns,
        as `crossfade inspect` shows them."""
        return describe(self._fitted())

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the upgrade folder, here or to `s3://`, `gs://`, `az://`: whole, or not at all."""
        config, data = artefact.pack(self._fitted().config_, self._tensors())
        target = to_path(folder)
        artefact.write(target, config, data, render_card(config), overwrite=overwrite)
        return target

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read an upgrade folder, of this machine or of an object store; numpy is all that
        applying it needs."""
        config, tensors = artefact.read(to_path(folder))
        try:
            upgrade = cls._unfitted(config)
            maps = {
                name: KINDS[kind].from_tensors(
                    {k[len(name) + 1 :]: v for k, v in tensors.items() if k.startswith(name + ".")}
                )
                for name, kind in (("backward", config.backward), ("forward", config.forward))
            }
            means = tensors["old.mean"], tensors["new.mean"]
            known = tensors["pairs.sketch"]
        except (KeyError, TypeError) as error:
            raise BadUpgrade(f"lacks {error}", where=folder, step="refit the upgrade") from None
        axes = tensors.get("old.axes")
        upgrade._install(
            artefact.Parts(maps["backward"], maps["forward"], means, axes, known, config)
        )
        return upgrade

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The constructor's arguments, as scikit-learn wants them."""
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **params: Any) -> Self:
        """Change constructor arguments; takes effect at the next `fit`."""
        unknown = params.keys() - set(self._names())
        if unknown:
            raise BadInput(f"there is no parameter {sorted(unknown)[0]!r}")
        self._set(**params)
        return self

    def __repr__(self) -> str:
        changed = [
            f"{name}={getattr(self, name)!r}"
            for name, parameter in inspect.signature(type(self)).parameters.items()
            if getattr(self, name) is not parameter.default
            and getattr(self, name) != parameter.default
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _repr_html_(self) -> str:
        if not hasattr(self, "config_"):
            return render_table(repr(self), [], [])
        config = self.config_
        maps = f"B {config.backward}, F {config.forward}, {config.shared_dim} dimensions shared"
        title = f"{config.old.model or 'old'} → {config.new.model or 'new'}: {maps}"
        metrics = list(next(iter(self.validation_.values()), {}))
        rows = [
            [case, *(f"{found[m]:.1f}" for m in metrics)]
            for case, found in self.validation_.items()
        ]
        return render_table(title, ["on validation", *metrics] if rows else [], rows)

    @property
    def hash_(self) -> str:
        """The content hash of the saved folder."""
        return artefact.pack(self._fitted().config_, self._tensors())[0].content_hash

    @classmethod
    def _names(cls) -> list[str]:
        return [one.name for one in declared()]

    def _set(self, **params: Any) -> None:
        for name, value in params.items():
            setattr(self, name, value)

    @classmethod
    def _unfitted(cls, config: artefact.Config) -> Self:
        settings: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in config.settings.items()
        }
        return cls(**settings, old_model=config.old.model, new_model=config.new.model)

    def _trainer(self, settings: Settings) -> str:
        return f"the solver {settings.solver!r}"

    def _learn(
        self, pairs: Pairs, settings: Settings, report: Report, *, force: bool
    ) -> artefact.Parts:
        from crossfade.upgrade.learning import learn

        return learn(pairs, settings, report, force=force)

    def _settings(self) -> Settings:
        # numpy's numbers, as a parameter search passes them, are not JSON's.
        values = {
            k: v.item() if isinstance(v, np.generic) else v for k, v in self.get_params().items()
        }
        return Settings(**values)

    def _fitted(self) -> Self:
        if not hasattr(self, "config_"):
            raise BadInput("this upgrade is not fitted", step="call fit, or Upgrade.load")
        return self

    def _tensors(self) -> dict[str, NDArray[Any]]:
        out: dict[str, NDArray[Any]] = {}
        for name, directed in (("backward", self.backward_), ("forward", self.forward_)):
            out |= {f"{name}.{k}": v for k, v in directed.map.tensors().items()}
        out |= {"old.mean": self.forward_.reads.mean, "new.mean": self.backward_.reads.mean}
        out["pairs.sketch"] = self.sketch_
        return out if self.axes_ is None else out | {"old.axes": self.axes_}

    def _install(self, parts: artefact.Parts) -> None:
        config, backward, forward = parts.config, parts.backward, parts.forward
        old = Side("old", config.old.dim, config.old.normalization, parts.means[0])
        new = Side("new", config.new.dim, config.new.normalization, parts.means[1])
        expected = (new.dim, config.shared_dim, old.dim, config.shared_dim)
        found = (backward.in_dim, backward.out_dim, forward.in_dim, forward.out_dim)
        if found != expected:
            raise BadUpgrade(f"maps have dimensions {found}, the config says {expected}")
        # In C order a product with a single query runs along memory.
        backward, forward = (
            type(m).from_tensors({k: np.ascontiguousarray(v) for k, v in m.tensors().items()})
            for m in (backward, forward)
        )
        self.backward_, self.forward_ = Directed(backward, new, old), Directed(forward, old, new)
        self.axes_, self.sketch_ = parts.axes, parts.sketch
        self.config_ = config
        self.old_dim_, self.new_dim_, self.shared_dim_ = old.dim, new.dim, config.shared_dim
        self.lambda_reached_ = config.lambda_reached
        self.validation_: Scores = config.validation
        self.closed_form_: Scores = config.closed_form
        self.history_ = config.history
        self.notes_ = config.notes
        self.warnings_: list[str] = config.fit.get("warnings", [])
