"""Charts as SVG: quality against the share that is filled, intervals, and rows by state.

Each chart is drawn wide and narrow; a page shows the one that fits its window. Colours are classes,
so that a page decides on them in the light and in the dark.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from crossfade.report.markup import Element, element

Scale = Callable[[float], float]

_WIDTHS = {"wide": 720, "narrow": 340}
_LEFT, _RIGHT, _BOTTOM, _FLAG, _PLOT = 44.0, 14.0, 40.0, 18.0, 240.0
# About the width of a character of the labels.
_LETTER = 6.6


@dataclass(frozen=True)
class Level:
    """A horizontal line: a quality to compare with."""

    name: str
    quality: float
    kind: str


@dataclass(frozen=True)
class Mark:
    """A share that is worth a flag above the chart."""

    name: str
    share: float
    kind: str
    quality: float | None = None
    """Where a dot is put on it."""


@dataclass(frozen=True)
class CurveChart:
    """A curve of one metric; shares from 0 to 1, qualities in percent."""

    title: str
    """What it shows, for those who do not see it."""
    shares: Sequence[float]
    means: Sequence[float]
    band: Sequence[tuple[float, float]] = ()
    other: Sequence[float] = ()
    """A second curve, thinner."""
    levels: Sequence[Level] = ()
    marks: Sequence[Mark] = field(default=())

    def draw(self) -> list[Element]:
        """The same chart for wide windows and for narrow ones."""
        return [self._drawn(name, width) for name, width in _WIDTHS.items()]

    def _drawn(self, name: str, width: int) -> Element:
        # From left to right downwards: so no line runs through the name of another.
        flags = sorted(self.marks, key=lambda mark: mark.share)
        top = _FLAG * len(flags) + 12.0
        low, high = self._range()
        right, bottom = width - _RIGHT, top + _PLOT

        def x(share: float) -> float:
            return _LEFT + share * (right - _LEFT)

        def y(quality: float) -> float:
            return bottom - (quality - low) / (high - low) * _PLOT

        inside: list[Element | None] = []
        for tick in ticks(low, high):
            at = y(tick)
            inside.append(element("line", class_="grid", x1=_LEFT, x2=right, y1=at, y2=at))
            inside.append(element("text", f"{tick:g}", class_="tick end", x=_LEFT - 8, y=at + 4.0))
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            inside.append(
                element("text", f"{share:.0%}", class_="tick middle", x=x(share), y=bottom + 18.0)
            )
        inside.append(
            element(
                "text",
                "of the gallery filled",
                class_="tick middle",
                x=x(0.5),
                y=bottom + 34.0,
            )
        )
        if self.band:
            upper = [(x(s), y(b[1])) for s, b in zip(self.shares, self.band, strict=True)]
            lower = [(x(s), y(b[0])) for s, b in zip(self.shares, self.band, strict=True)]
            inside.append(element("path", class_="band", d=_path(upper + lower[::-1]) + "Z"))
        for row, mark in enumerate(flags):
            at, line = x(mark.share), 3.0 + _FLAG * row
            inside.append(
                element("line", class_=f"mark {mark.kind}", x1=at, x2=at, y1=line, y2=bottom)
            )
        inside += self._levels(x, y)
        if self.other:
            other = [(x(s), y(q)) for s, q in zip(self.shares, self.other, strict=True)]
            inside.append(element("path", class_="other", d=_path(other)))
        points = [(x(s), y(q)) for s, q in zip(self.shares, self.means, strict=True)]
        inside.append(element("path", class_="curve", d=_path(points)))
        for row, mark in enumerate(flags):
            at, line = x(mark.share), 12.0 + _FLAG * row
            inside.append(
                element(
                    "text",
                    mark.name,
                    class_=f"flag {mark.kind}",
                    x=_beside(at, _LETTER * len(mark.name), float(right)),
                    y=line,
                )
            )
        for mark in self.marks:
            if mark.quality is not None:
                inside.append(
                    element(
                        "circle",
                        class_=f"dot {mark.kind}",
                        cx=x(mark.share),
                        cy=y(mark.quality),
                        r=5,
                    )
                )
        inside.append(
            element(
                "g",
                element("line", y1=top, y2=bottom),
                element("circle", r=4),
                element("text", class_="middle", y=bottom - 8),
                class_="cursor",
            )
        )
        return element(
            "svg",
            *inside,
            class_=f"chart {name}",
            viewBox=f"0 0 {width} {bottom + _BOTTOM:g}",
            role="img",
            aria_label=self.title,
            data_points=json.dumps(self._read_out(points)),
        )

    def _range(self) -> tuple[float, float]:
        """All that is drawn, with some air."""
        values = [*self.means, *self.other, *(level.quality for level in self.levels)]
        values += [end for pair in self.band for end in pair]
        low, high = min(values), max(values)
        air = max(0.06 * (high - low), 0.5)
        return max(0.0, low - air), min(100.0, high + air) if high <= 100 else high + air

    def _levels(self, x: Scale, y: Scale) -> list[Element]:
        out = []
        for level in self.levels:
            at = y(level.quality)
            out.append(
                element("line", class_=f"level {level.kind}", x1=x(0), x2=x(1), y1=at, y2=at)
            )
            # A curve goes from today's level, on the left, to the new model's, on the right: each
            # name stands at the other end.
            first = level.kind == "new"
            out.append(
                element(
                    "text",
                    f"{level.name} {level.quality:.1f}",
                    class_=f"levelname {level.kind} {'' if first else 'end'}".rstrip(),
                    x=x(0) + 4 if first else x(1),
                    y=at - 6 if first else at + 15,
                )
            )
        return out

    def _read_out(self, points: Sequence[tuple[float, float]]) -> list[list[object]]:
        """What the pointer shows, point by point: where, and the words."""
        out: list[list[object]] = []
        for place, (at, height) in enumerate(points):
            said = f"{self.shares[place]:.0%}: {self.means[place]:.1f}"
            if self.band:
                least, most = self.band[place]
                said += f" [{least:.1f}, {most:.1f}]"
            if self.other:
                said += f", alone {self.other[place]:.1f}"
            out.append([round(at, 1), round(height, 1), said])
        return out


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two values.

    >>> ticks(42.3, 65.1)
    [45.0, 50.0, 55.0, 60.0, 65.0]
    """
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= rough)
    first = math.ceil(low / step - 1e-9)
    return [round(step * n, 6) for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _beside(at: float, width: float, right: float) -> float:
    """Where a name of some width begins: right of its line, else left of it, else where it fits."""
    if at + 6 + width <= right:
        return at + 6
    return at - 6 - width if at - 6 - width >= 0 else max(0.0, right - width)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in points)


def draw_interval(
    low: float, mean: float, high: float, *, scale: tuple[float, float], level: float | None
) -> Element:
    """A dot with its interval, for a row of a table; `level` is a line through all of them."""
    width, height, air = 160.0, 22.0, 6.0
    least, most = scale

    def x(value: float) -> float:
        return air + (value - least) / max(most - least, 1e-9) * (width - 2 * air)

    middle = height / 2
    return element(
        "svg",
        None
        if level is None
        else element("line", class_="level today", x1=x(level), x2=x(level), y1=0, y2=height),
        element("line", class_="whisker", x1=x(low), x2=x(high), y1=middle, y2=middle),
        element("circle", class_="dot", cx=x(mean), cy=middle, r=4),
        class_="interval",
        viewBox=f"0 0 {width:g} {height:g}",
        aria_hidden="true",
    )


def draw_states(counts: dict[str, int], target: float | None) -> Element:
    """Rows by state as one bar, with a tick where filling is to stop."""
    total, begin = max(1, sum(counts.values())), 0.0
    parts: list[Element | None] = []
    told = ", ".join(f"{count:,} {state}" for state, count in counts.items())
    # Filled rows first, so that the bar grows from the left.
    for state in reversed(list(counts)):
        width = 1000.0 * counts[state] / total
        parts.append(element("rect", class_=f"state {state}", x=begin, y=0, width=width, height=28))
        begin += width
    if target is not None and 0 < target < 1:
        at = 1000.0 * target
        parts.append(element("rect", class_="target", x=at - 1.5, y=0, width=3, height=28))
    return element(
        "svg",
        *parts,
        class_="states",
        viewBox="0 0 1000 28",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"rows by state: {told}",
    )
