"""Curves of all orders in one picture, with old/old and new/new as lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossfade.backfill.choose import Choice
from crossfade.backfill.simulate import Simulation
from crossfade.errors import MissingExtra

OURS, ALONE = "#2a7f62", "#b3392f"


def draw(simulation: Simulation, choice: Choice, path: Path) -> None:
    """One panel per metric: the chosen candidate, and replacement by every order."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtra("matplotlib", extra="plot", need="a picture") from error
    metrics = list(choice.best.curve.values)
    figure = Figure(figsize=(4.6 * len(metrics), 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    colours = ("#4c78a8", "#f58518", "#b279a2", "#9d755d", "#e45756", "#72b7b2", "#eeca3b")
    asked = [c for c in simulation.candidates if c.asking == choice.best.asking]
    plain = [c for c in asked if c.plain]
    others = [c for c in asked if c.blend.plain and c not in plain]
    alone = None if choice.best.asking == "new" else simulation.alone(choice.best)
    for panel, metric in zip(panels, metrics, strict=True):
        for candidate, colour in zip(others, colours * 9, strict=False):
            if candidate is not choice.best:
                shares = 100 * candidate.curve.shares
                means = candidate.curve.means(metric)
                panel.plot(shares, means, c=colour, lw=1, label=candidate.order)
        for candidate in plain:
            means = candidate.curve.means(metric)
            panel.plot(100 * candidate.curve.shares, means, c="#333", lw=1.2, label="random")
        if alone is not None:
            name, means = "the same rows, new queries alone", alone.means(metric)
            panel.plot(100 * alone.shares, means, c=ALONE, lw=1.6, ls="--", label=name)
        curve = choice.curve
        ways = " → ".join(way for _, way in choice.asked)
        name = f"{choice.best.order}, a = {choice.best.blend}, ask {ways}"
        if choice.best.lift != 1:
            name += f", lift {choice.best.lift:g}"
        panel.plot(100 * curve.shares, curve.means(metric), c=OURS, lw=2.4, label=name)
        if metric in choice.bands:
            low, high = choice.bands[metric]
            panel.fill_between(100 * curve.shares, low, high, color=OURS, alpha=0.15, lw=0)
        for text, style in (("old/old", "--"), ("new/new", ":")):
            line = choice.qualities.get(metric, {}).get(text)
            if line is None:
                continue
            panel.axhline(line, color="#777", ls=style, lw=1)
            panel.text(100, line, f" {text}", fontsize=7, va="center")
        _mark(panel, choice, metric)
        for first, _ in choice.asked[1:]:
            panel.axvline(100 * first, color=ALONE, lw=0.8, ls=":")
        panel.axvline(100 * choice.stop, color=OURS, lw=0.8, ls="-.")
        panel.set(title=metric, xlabel="% of the gallery backfilled")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("percent")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        loc="outside lower center",
        ncols=2 * len(metrics),
        fontsize=7,
        frameon=False,
        title=f"{choice.recommendation}; thin curves: replacement, a = 1",
        title_fontsize=8,
    )
    figure.savefig(path, format="png", dpi=140)


def _mark(panel: Any, choice: Choice, metric: str) -> None:
    """The points that a plan promises: its lowest, where new queries alone are as good as today,
    and where the new model's own quality is reached."""
    marks: list[tuple[float | None, float | None, str, str, str]] = []
    if metric in choice.lowest:
        low = choice.lowest[metric]
        marks.append((low.share, low.quality, "v", OURS, "lowest point"))
    if metric in choice.alone:
        level = choice.qualities.get(metric, {}).get("old/old")
        marks.append((choice.alone[metric].reaches, level, "o", ALONE, "the old model can go"))
    level = choice.qualities.get(metric, {}).get("new/new")
    marks.append((choice.reach.get(metric), level, "s", OURS, "reaches new/new"))
    for share, quality, shape, colour, name in marks:
        if share is not None and quality is not None:
            panel.plot(100 * share, quality, shape, c=colour, ms=6, mec="white", label=name)
