"""The compatibility table as bars: one panel per metric, old/old and new/new as lines."""

from __future__ import annotations

from pathlib import Path

from crossfade.compatibility.table import Compatibility
from crossfade.compatibility.verdicts import BASELINE
from crossfade.errors import BadInput, MissingExtra
from crossfade.files import replacing

PLAIN = "#8a93a3"
COLOURS = {"compatible": "#2a7f62", "not compatible": "#b3392f", "inconclusive": "#c9a227"}
UNJUDGED = {"not judged": PLAIN}


def save_picture(found: Compatibility, path: Path, *, overwrite: bool = True) -> None:
    """Write a PNG; needs matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError as error:
        raise MissingExtra("matplotlib", extra="plot", need="a picture") from error
    if path.suffix.lower() != ".png":
        raise BadInput("a picture is a PNG", where=path, step="name a file that ends in .png")
    metrics, cases = found.metrics, list(found.cases)
    meant = COLOURS if found.judged else UNJUDGED
    figure = Figure(figsize=(1.6 + 3.4 * len(metrics), 3.8), layout="constrained")
    FigureCanvasAgg(figure)
    means = found.means()
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    for panel, metric in zip(panels, metrics, strict=True):
        values = [means[case][metric] for case in cases]
        errors = [
            [max(0.0, v - found.ci95[c][metric][0]) for c, v in zip(cases, values, strict=True)],
            [max(0.0, found.ci95[c][metric][1] - v) for c, v in zip(cases, values, strict=True)],
        ]
        colours = [
            meant[found.verdicts[case].word] if case in found.verdicts else PLAIN for case in cases
        ]
        centres = range(len(cases))
        limit = 100.0 if max(values) > 60 else max(values) * 1.15 + 1
        panel.barh(
            centres, values, xerr=errors, color=colours, height=0.7, ecolor="#333", capsize=2
        )
        for centre, value in zip(centres, values, strict=True):
            # Inside the bar where it fits, else beside it.
            short = value < 0.15 * limit
            panel.text(
                (value if short else 0.0) + 0.025 * limit,
                centre,
                f"{value:.1f}",
                va="center",
                fontsize=8,
                color="#333" if short else "white",
            )
        for case, style in ((BASELINE, "--"), ("new/new", ":")):
            if case in means:
                panel.axvline(means[case][metric], color="#333", linestyle=style, linewidth=1)
        if found.today is not None and metric in found.decisive:
            panel.axvline(found.today, color="#333", linestyle="--", linewidth=1)
        panel.set_title(metric, fontsize=10)
        panel.set_xlim(0, limit)
        panel.set_yticks(list(centres), cases, fontsize=8)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].invert_yaxis()
    figure.legend(
        handles=[Patch(color=colour, label=word) for word, colour in meant.items()],
        loc="outside lower center",
        ncols=3,
        fontsize=8,
        frameon=False,
        title=f"against {found.against} (dashed; new/new dotted), 95 % over queries",
        title_fontsize=8,
    )
    with replacing(path, overwrite=overwrite) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
