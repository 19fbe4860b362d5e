"""What was measured at each stage, as tables and as a picture over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from examples.quality import METRICS

Search = dict[str, Any]
# Of live searches that are averaged for the line of quality over time.
_WINDOW = 150
_COLOURS = {"cmc@1": "#0072B2", "mAP": "#009E73", "MRR": "#E69F00"}


@dataclass(frozen=True)
class Stage:
    """A moment at which the store's quality was measured, with nothing else going on.

    `above` is the 95 % interval of the difference to the first stage, `sampled` the quality in
    samples of as many rows as there were held-out documents, `predicted` what evaluation and plan
    said on those; all in percent.
    """

    name: str
    new: int
    quality: dict[str, float]
    above: dict[str, tuple[float, float]]
    sampled: dict[str, float]
    predicted: dict[str, float]


@dataclass(frozen=True)
class Served:
    """The searches of one stage."""

    name: str
    model: str
    searches: int
    failed: int
    p50: float
    p95: float
    right: float
    mrr: float


def served(searches: Sequence[Search]) -> list[Served]:
    """Counts, milliseconds and live quality by stage, in the order the stages came."""
    out = []
    for name in dict.fromkeys(search["stage"] for search in searches):
        ours = [search for search in searches if search["stage"] == name]
        p50, p95 = np.quantile([1000 * search["seconds"] for search in ours], [0.5, 0.95])
        good = [search for search in ours if search["failed"] is None]
        out.append(
            Served(
                name,
                "/".join(dict.fromkeys(search["model"] for search in ours)),
                len(ours),
                len(ours) - len(good),
                float(p50),
                float(p95),
                live(good, "related", "right"),
                live(good, "lookups", "reciprocal_rank"),
            )
        )
    return out


def live(searches: Sequence[Search], kind: str, what: str) -> float:
    """What the application's own searches of one kind were worth, in percent."""
    return 100 * float(np.mean([s[what] for s in searches if s["kind"] == kind] or [np.nan]))


def tell(stages: Sequence[Stage], searches: Sequence[Search]) -> str:
    """Three tables: quality and its change, quality beside its prediction, and the searches."""
    head = f"{'':<12}{'rows new':>9}" + "".join(f"{metric:>30}" for metric in METRICS)
    lines = ["quality through the store, in percent, and its change since before (95 % interval)"]
    lines += ["", head]
    for stage in stages:
        cells = (f"{_told(stage, stages[0], metric):>30}" for metric in METRICS)
        lines.append(f"{stage.name:<12}{stage.new:>9,}" + "".join(cells))
    lines += ["", "the same in samples of as many rows as were held out / as predicted on those"]
    lines += ["", head]
    for stage in stages:
        cells = (f"{_beside(stage, metric):>30}" for metric in METRICS)
        lines.append(f"{stage.name:<12}{stage.new:>9,}" + "".join(cells))
    lines += ["", "searches of the application, all the while", ""]
    lines.append(
        f"{'while':<22}{'queries':>8}{'searches':>9}{'failed':>7}{'p50 ms':>8}{'p95 ms':>8}"
        f"{'cmc@1':>8}{'MRR@10':>8}"
    )
    for one in served(searches):
        lines.append(
            f"{one.name:<22}{one.model:>8}{one.searches:>9,}{one.failed:>7}{one.p50:>8.1f}"
            f"{one.p95:>8.1f}{one.right:>8.1f}{one.mrr:>8.1f}"
        )
    failed = sum(search["failed"] is not None for search in searches)
    lines += ["", f"{len(searches):,} searches, {failed} failed"]
    return "\n".join(lines)


def _told(stage: Stage, before: Stage, metric: str) -> str:
    if stage is before:
        return f"{stage.quality[metric]:.1f}{'':23}"
    low, high = stage.above[metric]
    change = stage.quality[metric] - before.quality[metric]
    return f"{stage.quality[metric]:.1f} {change:+6.1f} [{low:+6.1f},{high:+6.1f}]"


def _beside(stage: Stage, metric: str) -> str:
    said = stage.predicted.get(metric)
    return f"{stage.sampled[metric]:.1f} / {'–' if said is None else f'{said:.1f}':>4}"


def draw(stages: Sequence[Stage], searches: Sequence[Search], path: Path) -> None:
    """Quality above, latency below, over the seconds of the run."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    upper, lower = figure.subplots(2, 1, sharex=True)
    begin = searches[0]["at"]
    times = np.array([search["at"] - begin for search in searches])
    names = np.array([search["stage"] for search in searches])
    asked = np.array([search["kind"] == "related" for search in searches])
    right = np.array([search.get("right", False) for search in searches], float)[asked]
    window = min(_WINDOW, len(right))
    rolling = 100 * np.convolve(right, np.ones(window) / window, "valid")
    upper.plot(
        times[asked][window - 1 :],
        rolling,
        c=_COLOURS["cmc@1"],
        lw=0.8,
        alpha=0.5,
        label=f"cmc@1 of the last {window}",
    )
    middles = [float(times[names == stage.name].mean()) for stage in stages]
    for metric in METRICS:
        means = [stage.quality[metric] for stage in stages]
        upper.plot(middles, means, "o-", c=_COLOURS[metric], lw=1.2, label=f"{metric}, all queries")
        for values, mark, name in (
            ([stage.sampled[metric] for stage in stages], "+", "in samples"),
            ([stage.predicted.get(metric, np.nan) for stage in stages], "x", "predicted"),
        ):
            upper.plot(middles, values, mark, c=_COLOURS[metric], ms=7, label=f"{metric}, {name}")
    upper.set(ylabel="percent", ylim=(0, None))
    upper.legend(
        ncols=4, fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.02)
    )
    lower.plot(times, 1000 * np.array([s["seconds"] for s in searches]), ".", c="#4D4D4D", ms=1.5)
    lower.set(yscale="log", ylabel="latency, ms", xlabel="seconds")
    _bands(upper, lower, times, names, {stage.name for stage in stages})
    figure.savefig(path, format="png", dpi=130)


def _bands(upper: Any, lower: Any, times: Any, names: Any, still: set[str]) -> None:
    """A band for each stage with nothing else going on, and the names of what goes on between."""
    edges = np.flatnonzero(names[1:] != names[:-1]) + 1
    for part in np.split(np.arange(len(names)), edges):
        name, first, last = names[part[0]], times[part[0]], times[part[-1]]
        if name in still:
            for panel in (upper, lower):
                panel.axvspan(first, last, color="#72b7b2", alpha=0.2, lw=0)
            upper.text((first + last) / 2, 1.02, name, fontsize=7, rotation=30, transform=_x(upper))
        elif name.startswith("backfill"):
            for panel in (upper, lower):
                panel.axvspan(first, last, color="#f58518", alpha=0.15, lw=0)
    for panel in (upper, lower):
        panel.spines[["top", "right"]].set_visible(False)


def _x(panel: Any) -> Any:
    return panel.get_xaxis_transform()
