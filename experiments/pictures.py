"""An outcome as a picture, by what kind of series it has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from crossfade.errors import MissingExtra
from experiments.outcome import Outcome

PAPER, HERE = "#8a93a3", "#2a7f62"


def draw(found: Outcome, path: Path) -> None:
    """Write a PNG; needs matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib", extra="plot", need="a picture") from error
    kind = found.series.get("kind", "bars")
    size = {"spaces": (15, 3.4), "regularization": (13, 3.6), "curves": (10, 4.2)}
    figure = Figure(figsize=size.get(kind, (8, 5)), layout="constrained")
    FigureCanvasAgg(figure)
    {
        "curves": _curves,
        "lambda": _lambda,
        "regularization": _regularization,
        "spaces": _spaces,
        "bars": _bars,
    }[kind](figure, found)
    figure.suptitle(found.title, fontsize=11)
    figure.savefig(path, format="png", dpi=120)


def _bars(figure: Any, found: Outcome) -> None:
    """The first metric of every row: the paper's number, and this run's with its spread."""
    metric = found.metrics[0]
    panel = figure.subplots()
    rows = [row for row in found.rows if metric in row.runs]
    places = np.arange(len(rows))
    figure.set_size_inches(8, 1.2 + 0.28 * len(rows))
    known = [row.paper.get(metric, np.nan) for row in rows]
    panel.barh(places - 0.2, known, 0.38, color=PAPER, label="the paper")
    means, spreads = [r.mean(metric) for r in rows], [r.spread(metric) for r in rows]
    panel.barh(places + 0.2, means, 0.38, xerr=spreads, color=HERE, label="this run")
    panel.set_yticks(places, [" ".join(row.name) for row in rows], fontsize=7)
    panel.invert_yaxis()
    panel.set_xlabel(f"{metric}, percent" if "@" in metric or metric == "mAP" else metric)
    panel.legend(fontsize=8, frameon=False)
    panel.spines[["top", "right"]].set_visible(False)


def _curves(figure: Any, found: Outcome) -> None:
    panels = figure.subplots(1, len(found.metrics), squeeze=False)[0]
    for panel, metric in zip(panels, found.metrics, strict=True):
        for name, series in found.series.items():
            if name != "kind":
                shares = np.linspace(0, 100, len(series[metric]))
                panel.plot(shares, series[metric], lw=1.8, label=name)
        new = found.facts.get("new/new")
        if isinstance(new, dict):
            panel.axhline(new[metric], color="#777", ls=":", lw=1, label="new/new")
        panel.set(title=metric, xlabel="% of the gallery backfilled")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].legend(fontsize=7, frameon=False)
    panels[0].set_ylabel("percent")


def _lambda(figure: Any, found: Outcome) -> None:
    panel = figure.subplots()
    places = np.arange(len(found.rows))
    for metric, style in zip(found.metrics[:3], ("o-", "s-", "^-"), strict=True):
        means, spreads = (
            [r.mean(metric) for r in found.rows],
            [r.spread(metric) for r in found.rows],
        )
        panel.errorbar(places, means, spreads, fmt=style, label=metric, capsize=2)
    panel.set_xticks(places, [row.name[0] for row in found.rows])
    panel.set(xlabel="λ", ylabel="CMC-Top1, percent")
    panel.spines[["top"]].set_visible(False)
    if all("ZS" in row.runs for row in found.rows):
        other = panel.twinx()
        other.plot(places, [row.mean("ZS") for row in found.rows], "k--", label="ZS change")
        other.axhline(0, color="#bbb", lw=0.8)
        other.set_ylabel("zero-shot change, points")
        other.legend(loc="lower right", fontsize=8, frameon=False)
    panel.legend(loc="lower left", fontsize=8, frameon=False)


def _regularization(figure: Any, found: Outcome) -> None:
    series = found.series
    panels = figure.subplots(1, 3)
    for lam, values in series["lambda"].items():
        panels[0].plot(series["axis"], values, label=f"λ = {lam}")
    for alpha, values in series["alpha"].items():
        panels[1].plot(series["axis"], values, label=f"α = {alpha}")
    edges = np.array(series["edges"])
    for lam, counts in series["angles"].items():
        panels[2].plot((edges[1:] + edges[:-1]) / 2, counts, label=f"λ = {lam}")
    for panel, title in zip(
        panels, ("L_λ, α = 10", "L_λ, λ = 6", "angles of W's columns"), strict=True
    ):
        panel.set_title(title, fontsize=10)
        panel.legend(fontsize=8, frameon=False)
        panel.spines[["top", "right"]].set_visible(False)
    for panel in panels[:2]:
        panel.set_xlabel("‖WWᵀ−I‖")
    panels[2].set_xlabel("degrees")


def _spaces(figure: Any, found: Outcome) -> None:
    labels = np.array(found.series["labels"])
    spaces = found.series["spaces"]
    panels = figure.subplots(1, len(spaces))
    for panel, (name, points) in zip(panels, spaces.items(), strict=True):
        x = np.array(points)
        panel.scatter(x[:, 0], x[:, 1], c=labels, cmap="tab10", s=4)
        panel.set_title(name, fontsize=10)
        panel.set_aspect("equal", adjustable="datalim")
        panel.tick_params(labelsize=6)
