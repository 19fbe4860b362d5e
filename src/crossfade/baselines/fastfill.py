"""FastFill: alignment, the new model's classifier, and uncertainty (Jaeckle et al., ICLR 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossfade.baselines.baseline import Baseline, check_training
from crossfade.errors import BadInput, BadUpgrade
from crossfade.maps import Mlp
from crossfade.solvers.settings import HIDDEN, Settings
from crossfade.spaces import normalized
from crossfade.upgrade import artefact

if TYPE_CHECKING:
    from crossfade.backfill.items import Groups, Items
    from crossfade.pairs import Pairs
    from crossfade.solvers.preparation import Prepared
    from crossfade.solvers.problem import Solution

Classifier = tuple[NDArray[np.floating], NDArray[np.floating]]


class FastFill(Baseline):
    """F maps old vectors onto the new model's and tells how sure it is of each; B is the identity.

    The original: F minimizes an alignment loss to the new vectors and L_disc, the training loss of
    the new model's own classifier applied to F(old). The alignment error is taken for a
    multivariate Gaussian whose variance is predicted with F, and its negative log-likelihood is
    what is minimized. Items are backfilled in the order of their variance, largest first.

    Chosen here: the variance is one number for each item, a last output beside F's n, of log σ²;
    L = ½(‖F(old) − new‖²/(n σ²) + log σ²) + `disc_weight` · cross-entropy, means over rows. The
    classifier reads vectors of unit length, scaled by the new model's mean length, as it was
    trained on vectors of that length. Same F, optimizer and budget as `FCT`.

    `classifier` is (weight (classes, n), bias (classes,)), and labels are its rows' numbers. A
    model without one (CLIP, DINOv2) has, strictly, no FastFill; with None a linear classifier is
    first fitted on the new vectors of the pairs.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(80) % 4
    >>> new = np.eye(4)[labels] + 0.3 * rng.normal(size=(80, 4))
    >>> fill = FastFill(hidden=(8,), epochs=2, device="cpu").fit(new[:, :3] + 0.1, new, labels)
    >>> fill.uncertainty(new[:, :3] + 0.1).shape
    (80,)
    """

    unsaved = ("classifier",)
    uncertainty_: Mlp

    def __init__(
        self,
        *,
        classifier: Classifier | None = None,
        disc_weight: float = 0.1,
        hidden: Sequence[int] | None = None,
        epochs: int = 30,
        batch_size: int = 1000,
        lr: float = 1e-3,
        weight_decay: float = 0.0,
        validation: float | None = None,
        seed: int = 0,
        device: str = "auto",
        old_model: str = "",
        new_model: str = "",
    ) -> None:
        self._set(**{k: v for k, v in locals().items() if k in self._names()})

    def uncertainty(self, old: ArrayLike) -> NDArray[np.float32]:
        """log σ² of each item's alignment error, from its old vector alone."""
        side = self._fitted().forward_.reads
        x = np.atleast_2d(np.asarray(old))
        side.check_shape(x, self.backward_.reads)
        rows = normalized(x.astype(np.float32), side.normalization, "old")
        return self.uncertainty_(rows)[:, 0]

    def order(self, items: Items, groups: Groups | None = None, /) -> NDArray[np.float64]:
        """FastFill's order of backfilling: the least certain first."""
        return self.uncertainty(items.old).astype(np.float64)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Read a folder that `save` wrote; the classifier, for fitting only, is not in it."""
        loaded = super().load(folder)
        tensors = artefact.read(Path(folder))[1]
        name = "uncertainty."
        own = {k[len(name) :]: v for k, v in tensors.items() if k.startswith(name)}
        try:
            loaded.uncertainty_ = Mlp.from_tensors(own)
        except KeyError as error:
            raise BadUpgrade(f"lacks {error}", where=folder, step="refit it") from None
        return loaded

    def _tensors(self) -> dict[str, NDArray[Any]]:
        own = {f"uncertainty.{k}": v for k, v in self.uncertainty_.tensors().items()}
        return super()._tensors() | own

    def _settings(self) -> Settings:
        check_training(self)
        return super()._settings()

    def _solve(self, prepared: Prepared, pairs: Pairs) -> Solution:
        import torch
        import torch.nn.functional as functional

        from crossfade.baselines.identity import same
        from crossfade.baselines.training import train
        from crossfade.solvers.device import pick_device, seeded
        from crossfade.solvers.problem import Solution
        from crossfade.solvers.trainable import TrainableMlp

        p, rows = self.get_params(), prepared.problem.train
        if rows.labels is None:
            raise BadInput("FastFill learns from labels", where=pairs.name, step="give labels")
        device = pick_device(p["device"])
        n = pairs.new_dim
        old, new = (torch.from_numpy(x).to(device) for x in (rows.old, rows.new))
        codes = torch.from_numpy(rows.labels).to(device)
        with seeded(p["seed"]):
            if p["classifier"] is None:
                weight, bias = learned_classifier(new, codes)
            else:
                weight, bias, classes = given_classifier(p["classifier"], pairs)
                weight, bias = weight.to(device), bias.to(device)
                codes = classes.to(device)[codes]
            hidden = tuple(p["hidden"] or HIDDEN)
            module = TrainableMlp(pairs.old_dim, n + 1, hidden, None, 1.0)
            # Unit vectors are at most a distance of the order of 1 apart: variance 1/n each.
            last = module.layers[-1]
            with torch.no_grad():
                last.bias[n] = -float(np.log(n))  # type: ignore[operator]
            module = module.to(device)

            def loss(batch: torch.Tensor) -> dict[str, torch.Tensor]:
                out = module(old[batch])
                f, log_variance = out[:, :n], out[:, n].clamp(-20, 20)
                error = (f - new[batch]).square().mean(dim=1)
                likelihood = 0.5 * (error * torch.exp(-log_variance) + log_variance)
                logits = f @ weight.T + bias
                disc = functional.cross_entropy(logits, codes[batch])
                return {"L_align": likelihood.mean(), "L_disc": p["disc_weight"] * disc}

            history = train(
                module,
                len(old),
                loss,
                **{k: p[k] for k in ("epochs", "batch_size", "lr", "weight_decay")},
                block="fastfill",
                report=prepared.problem.report,
            )
        forward, self.uncertainty_ = split(module.frozen(), n)
        return Solution(same(n), forward, history)


def split(whole: Mlp, n: int) -> tuple[Mlp, Mlp]:
    """The first n outputs of a map, and the rest, as two maps that share their hidden layers."""
    *layers, (weight, bias) = whole.layers
    return (
        Mlp((*layers, (weight[:n], bias[:n])), None),
        Mlp((*layers, (weight[n:], bias[n:])), None),
    )


def given_classifier(classifier: Classifier, pairs: Pairs) -> Any:
    """Weight for unit vectors, bias, and the classifier's row of each of the pairs' classes."""
    import torch

    weight, bias = (np.asarray(x, dtype=np.float32) for x in classifier)
    classes = pairs.classes
    if weight.ndim != 2 or weight.shape[1] != pairs.new_dim or bias.shape != (len(weight),):
        raise BadInput(
            f"a classifier of {weight.shape} and {bias.shape}",
            step=f"give the weight (classes, {pairs.new_dim}) and the bias (classes,)",
        )
    if classes is None or classes.dtype.kind not in "iu" or classes.max() >= len(weight):
        raise BadInput(
            f"labels do not name rows of a classifier of {len(weight)} classes",
            where=pairs.name,
            step="give labels from 0, as the new model was trained with",
        )
    length = float(np.mean([np.linalg.norm(b.new, axis=1).mean() for b in pairs.batches()]))
    rows = torch.from_numpy(classes.astype(np.int64))
    return torch.from_numpy(weight * np.float32(length)), torch.from_numpy(bias), rows


def learned_classifier(new: Any, codes: Any, length: float = 10.0, epochs: int = 20) -> Any:
    """Weight and bias of a linear classifier of unit vectors, by cross-entropy."""
    import torch
    import torch.nn.functional as functional

    from crossfade.baselines.training import train

    linear = torch.nn.Linear(new.shape[1], int(codes.max()) + 1).to(new.device)
    train(
        linear,
        len(new),
        lambda batch: {"disc": functional.cross_entropy(linear(length * new[batch]), codes[batch])},
        epochs=epochs,
        batch_size=500,
        lr=0.01,
        weight_decay=1e-4,
        block="classifier",
        report=lambda _: None,
    )
    return length * linear.weight.detach(), linear.bias.detach()
