"""The picture of the spaces: five panels in a row, on the same axes, one colour for each digit."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.demo.digits.images import CLASSES, SEEN
from crossfade.demo.digits.spaces import LAMBDA, Spaces

WIDTH, HEIGHT, DPI = 16.0, 4.6, 120
# Five hues that stay apart for colour-blind eyes (after Okabe and Ito). Digits d and d + 5 share
# one; the marker tells the digits the old model has seen from those it has not.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#4D4D4D")
SEEN_MARKER, UNSEEN_MARKER = "o", "^"


def panels(spaces: Spaces) -> list[tuple[str, str, NDArray[np.float32]]]:
    """Title, facts and vectors of the five panels, left to right."""
    out = [
        ("source space\n(new)", "trained on all ten digits", spaces.source),
        ("target space\n(old)", f"trained on 0–{SEEN - 1} only", spaces.target),
    ]
    names = {"near-orthogonal": f"near-orthogonal, λ = {LAMBDA:g}"}
    for kind, mapped in spaces.mapped.items():
        least, most = mapped.stretch
        facts = (
            f"lengths × {least:.2f} to {most:.2f}\n"
            f"mean squared distance to target {mapped.distance:.2f}"
        )
        title = f"{names.get(kind, kind)}\n‖WWᵀ−I‖ = {mapped.deviation:.2f}"
        out.append((title, facts, mapped.vectors))
    return out


def draw(spaces: Spaces) -> bytes:
    """The picture as a PNG."""
    # The canvas is made by hand: pyplot would pick a backend, and keep the figure for ever.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, HEIGHT), dpi=DPI, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    rows = panels(spaces)
    limit = 1.03 * max(float(np.abs(vectors).max()) for _, _, vectors in rows)
    axes = figure.subplots(1, len(rows), sharex=True, sharey=True)
    for axis, (title, facts, vectors) in zip(axes, rows, strict=True):
        _panel(axis, title, facts, vectors, spaces.labels)
        axis.set(xlim=(-limit, limit), ylim=(-limit, limit))
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(
        handles,
        names,
        loc="lower center",
        ncols=CLASSES,
        frameon=False,
        markerscale=1.6,
        columnspacing=1.4,
        handletextpad=0.2,
    )
    figure.subplots_adjust(left=0.01, right=0.99, top=0.89, bottom=0.2, wspace=0.04)
    out = io.BytesIO()
    canvas.print_png(out)  # type: ignore[no-untyped-call]
    return out.getvalue()


def _panel(
    axis: Any, title: str, facts: str, vectors: NDArray[np.float32], labels: NDArray[np.int64]
) -> None:
    from matplotlib.patheffects import withStroke

    axis.axhline(0, color="#dddddd", linewidth=0.8, zorder=0)
    axis.axvline(0, color="#dddddd", linewidth=0.8, zorder=0)
    for digit in range(CLASSES):
        mine = vectors[labels == digit]
        seen = digit < SEEN
        axis.scatter(
            mine[:, 0],
            mine[:, 1],
            s=14,
            marker=SEEN_MARKER if seen else UNSEEN_MARKER,
            facecolor=COLOURS[digit % SEEN] if seen else "none",
            edgecolor=COLOURS[digit % SEEN],
            linewidth=0.8,
            label=f"{digit}" if seen else f"{digit} (unseen by old)",
        )
    for digit in range(CLASSES):
        x, y = np.median(vectors[labels == digit], axis=0)
        text = axis.text(x, y, str(digit), fontsize=11, fontweight="bold", ha="center", va="center")
        text.set_path_effects([withStroke(linewidth=2.5, foreground="white")])
    axis.set_title(title, fontsize=11, fontweight="bold")
    axis.set_xlabel(facts, fontsize=10)
    axis.set_aspect("equal")
    axis.set(xticks=[], yticks=[])
    for spine in axis.spines.values():
        spine.set_color("#bbbbbb")
