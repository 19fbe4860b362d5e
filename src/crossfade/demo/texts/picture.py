"""The picture: quality along the stages of the upgrade, with today's level across it."""

from __future__ import annotations

import io

from crossfade.demo.texts.quality import MRR, Way
from crossfade.demo.texts.upgrade import Story

WIDTH, HEIGHT, DPI = 9.0, 4.6, 120
# Apart for colour-blind eyes too (after Okabe and Ito).
COLOURS: dict[Way, str] = {"old": "#4D4D4D", "new": "#E69F00", "both": "#0072B2"}
NAMES: dict[Way, str] = {"new": "new queries alone", "both": "both models on the query"}


def draw(story: Story) -> bytes:
    """As a PNG."""
    # The canvas is made by hand: pyplot would pick a backend, and keep the figure for ever.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, facecolor="white", layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axis = figure.subplots()
    level = story.stages[0].quality["old"].means()[MRR]
    axis.axhline(level, color=COLOURS["old"], linestyle="--", linewidth=1.6)
    axis.text(-0.4, level, f"today {level:.1f}", color=COLOURS["old"], fontsize=10, va="bottom")
    for way, name in NAMES.items():
        points = [
            (x, stage.quality[way].means()[MRR])
            for x, stage in enumerate(story.stages)
            if way in stage.quality
        ]
        axis.plot(*zip(*points, strict=True), marker="o", color=COLOURS[way], lw=2.2, label=name)
        for x, y in points:
            # Away from the level of today, and from the other line.
            above = way == "both" and y >= level
            axis.annotate(
                f"{y:.1f}",
                (x, y),
                xytext=(0, 7 if above else -15),
                textcoords="offset points",
                ha="center",
                fontsize=9,
                color=COLOURS[way],
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6},
            )
    axis.set_xticks(range(len(story.stages)), [stage.name for stage in story.stages])
    axis.set_xlim(-0.5, len(story.stages) - 0.5)
    axis.margins(y=0.15)
    axis.set_ylabel(f"{MRR}, percent")
    axis.set_title(
        f"{story.asked} lookups in {story.rows:,} texts while their model is changed",
        fontsize=12,
        fontweight="bold",
        loc="left",
    )
    axis.grid(axis="y", color="#eeeeee")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="lower right")
    out = io.BytesIO()
    canvas.print_png(out)  # type: ignore[no-untyped-call]
    return out.getvalue()
