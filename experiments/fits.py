"""Fits by name, each kept in a cache: what one experiment has fitted, another need not."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crossfade import Upgrade, evaluate
from crossfade.baselines import FCT, SRIP, DriftAdapter, FastFill, Procrustes, Ridge
from crossfade.baselines import SoftOrthogonality as SO
from crossfade.compatibility import Compatibility
from experiments.features import Features

METRICS = ("cmc@1", "mAP")
CLASSES: dict[str, type[Upgrade]] = {
    "FCT": FCT,
    "FastFill": FastFill,
    "Ours": Upgrade,
    "Crossfade": Upgrade,
    "SO": SO,
    "SRIP": SRIP,
    "DriftAdapter": DriftAdapter,
    "Procrustes": Procrustes,
    "Ridge": Ridge,
}
# "Ours" is the paper's recipe; "Crossfade" the default of this package.
RECIPES: dict[str, dict[str, Any]] = {"Ours": {"solver": "paper"}}
UNTRAINED = ("Procrustes", "Ridge")


@dataclass
class Run:
    """How experiments are run: on what, how often, where."""

    features: Features
    seeds: range = range(3)
    device: str = "auto"
    cache: Path | None = None
    epochs: int | None = None
    batch_size: int | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    def fit(self, method: str, seed: int, **options: Any) -> Upgrade:
        """The method fitted on the training rows, or read from the cache."""
        told: dict[str, Any] = {**RECIPES.get(method, {}), **options, "seed": seed}
        if method not in UNTRAINED:
            told["device"] = self.device
            for name in ("epochs", "batch_size"):
                if getattr(self, name) is not None and method != "Crossfade":
                    told.setdefault(name, getattr(self, name))
        kind = CLASSES[method]
        words = {k: str(v) for k, v in told.items() if k != "device"}
        key = json.dumps([method, self.features.hash, sorted(words.items())])
        place = self.cache and self.cache / hashlib.sha256(key.encode()).hexdigest()[:16]
        if place and place.is_dir():
            return kind.load(place)
        if method == "FastFill":
            told["classifier"] = self.features.classifier
        begin = time.perf_counter()
        train = self.features.train
        # A table of the paper is made of whatever models it names, better ones or not.
        fitted = kind(**told).fit(train.old, train.new, train.labels, force=True)
        name = " ".join([method, *(f"{k}={v}" for k, v in options.items())])
        for warning in fitted.warnings_:
            print(f"{name}, seed {seed}: {warning}", file=sys.stderr, flush=True)
        self.seconds[name] = time.perf_counter() - begin
        print(f"{name}, seed {seed}: {self.seconds[name]:.1f} s", file=sys.stderr, flush=True)
        if place:
            place.parent.mkdir(parents=True, exist_ok=True)
            # Another process may have fitted the same meanwhile: both are alike.
            fitted.save(place, overwrite=True)
        return fitted

    def table(self, upgrade: Upgrade, *, zero_shot: bool = False) -> Compatibility:
        """All cases on the test rows."""
        import torch

        there = torch.cuda.is_available() and self.device != "cpu"
        return evaluate(
            upgrade,
            self.features.held,
            metrics=METRICS,
            definition=False,
            resamples=100,
            device="cuda" if there else "cpu",
            zero_shot=self.features.zero_shot if zero_shot else None,
        )

    def facts(self) -> dict[str, Any]:
        import torch

        there = torch.cuda.is_available() and self.device != "cpu"
        where = torch.cuda.get_device_name() if there else "CPU"
        return self.features.facts() | {"seeds": len(self.seeds), "on": where}


def gathered(runs: list[dict[str, dict[str, float]]], case: str) -> dict[str, list[float]]:
    """One number for each seed, by metric, from tables of cases."""
    return {metric: [run[case][metric] for run in runs] for metric in METRICS}
