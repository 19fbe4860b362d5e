"""Parts of a page that both the report and the dashboard show."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from crossfade.backfill.plan import drawn_curves
from crossfade.backfill.record import PlanRecord
from crossfade.migration.status import Status
from crossfade.report.chart import CurveChart, Level, Mark, draw_states
from crossfade.report.markup import Element, element
from crossfade.report.sentences import promised, signed

STATES = {
    "old": "nothing written yet",
    "lifted": "F(old), no model asked",
    "filled": "made with the new model",
}


def facts(pairs: Iterable[tuple[str, str]], bad: Iterable[str] = ()) -> Element:
    """Names and values, the values large; those of the names in `bad` are to be seen to."""
    wrong = set(bad)
    rows = [
        element(
            "div",
            element("dt", name),
            element("dd", value),
            class_="bad" if name in wrong else None,
        )
        for name, value in pairs
    ]
    return element("dl", *rows, class_="facts")


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Element | str]], caption: str, *, words: int = 1
) -> Element:
    """A table whose first `words` columns are words and whose other ones are numbers.

    The first cell of a row is its head.
    """
    kinds = [None if place < words else "number" for place in range(len(heads))]
    top = element(
        "tr", *(element("th", h, scope="col", class_=k) for h, k in zip(heads, kinds, strict=True))
    )
    body = []
    for first, *rest in rows:
        cells = [
            element("td", cell, class_=kind, data_head=head)
            for cell, kind, head in zip(rest, kinds[1:], heads[1:], strict=True)
        ]
        body.append(element("tr", element("th", first, scope="row"), *cells))
    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element("thead", top),
            element("tbody", *body),
        ),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=caption,
    )


def curve_figures(
    plan: PlanRecord,
    folder: Path | None,
    *,
    here: float | None = None,
    measured: dict[str, Any] | None = None,
) -> list[Element]:
    """The plan's curve for each metric, with what it promises, and its numbers as a table.

    `here` is the share that is filled now; `measured` what a `verify` has found through the store.
    """
    return [
        _curve_figure(plan, folder, metric, here, measured)
        for metric in plan.quality
        if metric in plan.curve
    ]


def _curve_figure(
    plan: PlanRecord,
    folder: Path | None,
    metric: str,
    here: float | None,
    measured: dict[str, Any] | None,
) -> Element:
    found = plan.quality[metric]
    levels = [
        Level(name, found[case], kind)
        for case, name, kind in (("old/old", "today", "today"), ("new/new", "new model", "new"))
        if case in found
    ]
    marks = []
    if here is not None:
        at = min(1.0, max(0.0, here))
        now = plan.quality_at(at, metric)
        marks.append(Mark(f"you are here: {at:.1%}, {now:.1f}", at, "here", now))
    reaches = plan.alone.get(metric, {}).get("reaches")
    if reaches and plan.asking != "new" and plan.knows_today:
        marks.append(Mark(f"new queries alone are level: {reaches:.0%}", reaches, "alone"))
    if plan.stop:
        marks.append(Mark(f"stop: {plan.stop:.0%}", plan.stop, "stop"))
    low = plan.lowest.get(metric)
    if low is not None:
        gap = low["against_today"]
        said = "" if gap is None else f", {signed(gap)} against today"
        marks.append(Mark(f"lowest: {low['share']:.0%}{said}", low["share"], "low", low["quality"]))
    if measured is not None and metric in measured["new"]:
        share, value = measured["share"], measured["new"][metric]
        marks.append(Mark(f"measured: {value:.1f}", share, "measured", value))
    more = None if folder is None else drawn_curves(folder, plan, metric)
    shares, means = plan.curve["share"], plan.curve[metric]
    chart = CurveChart(
        title=f"{metric} against the share filled, from {means[0]:.1f} to {means[-1]:.1f} percent",
        shares=shares,
        means=means,
        band=() if more is None else more.band,
        other=() if more is None else more.alone or (),
        levels=levels,
        marks=marks,
    )
    legend = [element("li", f"asked {plan.asking}, as planned", class_="key curve")]
    if chart.band:
        legend.append(element("li", "95 % interval over queries", class_="key band"))
    if chart.other:
        legend.append(element("li", "new queries alone", class_="key other"))
    return element(
        "figure",
        element("figcaption", element("h3", metric), element("ul", *legend, class_="legend")),
        *chart.draw(),
        facts(promised(plan, metric)),
        element("details", element("summary", f"{metric} as a table"), _numbers(chart, metric)),
        class_="curve",
    )


def _numbers(chart: CurveChart, metric: str) -> Element:
    """Every tenth of the way."""
    heads = ["filled", metric]
    heads += ["95 % interval"] if chart.band else []
    heads += ["new queries alone"] if chart.other else []
    step = max(1, (len(chart.shares) - 1) // 10)
    rows = []
    for place in range(0, len(chart.shares), step):
        row = [f"{chart.shares[place]:.0%}", f"{chart.means[place]:.1f}"]
        if chart.band:
            row.append("{:.1f} to {:.1f}".format(*chart.band[place]))
        if chart.other:
            row.append(f"{chart.other[place]:.1f}")
        rows.append(row)
    return table(heads, rows, f"{metric} in percent, by the share filled")


def rows_panel(status: Status) -> list[Element]:
    """Rows by state as a bar, with their numbers."""
    counts = {state: int(getattr(status, state)) for state in STATES}
    total = max(1, sum(counts.values()))
    legend = [
        element(
            "li",
            element("span", state, class_="name"),
            element("strong", f"{count:,}"),
            element("span", f"{count / total:.1%}", class_="share"),
            element("span", STATES[state], class_="what"),
            class_=f"key state {state}",
        )
        for state, count in counts.items()
    ]
    notes = []
    if status.target is not None:
        notes.append(f"{status.share:.1%} is filled, and the plan wants {status.target:.1%}.")
    if status.late:
        notes.append(f"{status.late:,} rows came or changed and are not lifted yet.")
    if status.unusable:
        notes.append(f"{status.unusable:,} rows have no usable old vector.")
    if status.counted_before:
        notes.append("Rows by state are those of the moment at which finish began.")
    return [
        draw_states(counts, status.target),
        element("ul", *legend, class_="legend states"),
        *(element("p", note, class_="note") for note in notes),
    ]


def measured_table(measured: dict[str, Any]) -> Element:
    """What a `verify` has measured through the store."""
    rows = []
    for metric, value in measured["new"].items():
        old = measured["old"].get(metric)
        ends = measured["difference"].get(metric)
        rows.append(
            (
                metric,
                f"{value:.1f}",
                "–" if old is None else f"{old:.1f}",
                "–" if ends is None else f"{signed(ends[0])} to {signed(ends[1])}",
            )
        )
    heads = ["metric", "new queries", "old queries", "difference, 95 %"]
    caption = (
        f"{measured['queries']:,} queries through the store, with {measured['share']:.0%} filled"
    )
    return table(heads, rows, caption)
