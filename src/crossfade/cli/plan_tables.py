"""A plan as tables: the choice, the candidates it was chosen from, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from crossfade.asking import DEFAULT
from crossfade.backfill.blend import Blend
from crossfade.backfill.plan import promises, said
from crossfade.backfill.record import PlanRecord
from crossfade.cli.output import PlainConsole

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
# Candidates that are shown all.
_FEW = 12


def show(made: PlanRecord, output: Path) -> None:
    """The choice, the candidates it was chosen from, and what it costs."""
    console = PlainConsole()
    shown = worth_showing(made)
    title = "area under the curve, in percent"
    if len(shown) < len(made.candidates):
        title += f"; the best of each order, all {len(made.candidates)} are in plan.json"
    table = Table(title=title, title_justify="left")
    for name in ("ask", "order", "blend"):
        table.add_column(name)
    for metric in made.optimize:
        table.add_column(metric, justify="right")
        table.add_column(f"full {metric}", justify="right")
    for candidate in shown:
        how = _how(candidate)
        best = _key(candidate) == _chosen(made)
        cells = [f"{candidate[k][m]:.2f}" for m in made.optimize for k in ("area", "full")]
        row = (candidate["asking"], candidate["order"], str(how), *cells)
        table.add_row(*row, style="bold green" if best else None)
    console.print(table)
    quality = Table(title="quality of the choice, in percent", title_justify="left")
    quality.add_column("metric")
    for name in next(iter(made.quality.values())):
        quality.add_column(name, justify="right")
    for metric, values in made.quality.items():
        quality.add_row(metric, *(f"{v:.1f}" for v in values.values()))
    console.print(quality)
    cost = Table(title="items, cost and time", title_justify="left")
    for name in ("to", "items", "cost", "seconds"):
        cost.add_column(name, justify="left" if name == "to" else "right")
    for name, takes in made.costs.items():
        cells = ["–" if v is None else f"{v:,.0f}" for v in takes.values()]
        cost.add_row(name, *cells)
    console.print(cost)
    if made.estimate:
        show_estimate(console, made.estimate)
    for metric, share in made.reach.items():
        if share is None:
            console.print(f"new/new is not reached in {metric}")
    console.print(f"ask: {said(made)}")
    for line in promises(made):
        console.print(line)
    console.print(Text.assemble((made.recommendation, "bold"), f": {made.reason}"))
    console.print(f"written: {output}")


def show_estimate(console: PlainConsole, told: dict[str, Any]) -> None:
    """An invoice: each number with the interval in which it lies with 95 % confidence."""
    steps = {"forward": told["forward"], "index": told["index"]}
    steps |= {f"backfill to the {name}": one for name, one in told["backfill"].items()}
    steps |= {name: told[name] for name in ("verify", "finish")}
    table = Table(
        title=f"estimate for {told['items']:,} items by the engine {told['engine']!r}, from a "
        f"trial of {told['trial']['rows']:,}",
        title_justify="left",
    )
    columns = ("step", "items", "time", "requests", "tokens", "cost", "GB", "from")
    for name in columns:
        table.add_column(name, justify="left" if name in ("step", "from") else "right")
    for name, one in steps.items():
        if one is None:
            continue
        known = one["from"]
        if one["bytes_from"] == "reckoned":
            known += f"; GB {one['bytes_from']}"
        table.add_row(
            name.replace("to the full", "in full"),
            f"{one['items']:,}",
            _time(one["seconds"]),
            "–" if one["requests"] is None else f"{one['requests']:,}",
            _between(one["tokens"]),
            _between(one["cost"]),
            _between(one["bytes"], 1e-9),
            known,
        )
    console.print(table)
    fixed = ", ".join(
        f"{name.replace('to the full', 'in full')} {one['fixed_seconds']:.2g}"
        for name, one in steps.items()
        if one is not None
    )
    console.print(f"seconds of these whatever the number of items: {fixed}")
    storage = f"{told['storage_bytes'] / 1e9:,.2f} GB, {told['storage_from']}"
    console.print(f"storage until it is finished, all of it filled: {storage}")
    for what in told["notes"]:
        console.print(f"note: {what}")
    for what in told["not_measured"]:
        console.print(f"not measured: {what}")
    if told["trial"]["spent"]:
        console.print(f"spent on the trial: {told['trial']['spent']:.4g}")


def _time(seconds: dict[str, float]) -> str:
    """In the unit in which the longest it may take is read best."""
    size, unit = next((n, u) for n, u in _UNITS if seconds["high"] >= 2 * n or n == 1)
    return f"{_between(seconds, 1 / size)} {unit}"


def _between(value: dict[str, float] | None, scale: float = 1.0) -> str:
    if value is None:
        return "–"
    found = [scale * value[name] for name in ("mean", "low", "high")]
    mean, low, high = (f"{one:,.0f}" if abs(one) >= 1000 else f"{one:.3g}" for one in found)
    return mean if low == high else f"{mean} ({low} to {high})"


def worth_showing(made: PlanRecord) -> list[dict[str, Any]]:
    """All candidates if they are few; else the choice, the best of each order, and replacement."""
    if len(made.candidates) <= _FEW:
        return made.candidates

    def area(candidate: dict[str, Any]) -> float:
        return float(sum(candidate["area"][metric] for metric in made.optimize))

    shown, seen = [], set()
    for candidate in sorted(made.candidates, key=area, reverse=True):
        way, order, how, *_ = key = _key(candidate)
        # With a budget the choice need not have the largest area of the whole curve.
        wanted = key == _chosen(made) or (order, how) == ("random", Blend())
        if wanted or (way, order) not in seen:
            shown.append(candidate)
            seen.add((way, order))
    return shown


_Key = tuple[str, str, Blend, str, float]


def _chosen(made: PlanRecord) -> _Key:
    return made.asking, made.order, made.how, str(made.weights), made.lift


def _key(candidate: dict[str, Any]) -> _Key:
    weights = candidate.get("weights", str(DEFAULT))
    lift = candidate.get("lift", 1.0)
    return candidate["asking"], candidate["order"], _how(candidate), weights, lift


def _how(candidate: dict[str, Any]) -> Blend:
    return Blend(*(candidate[k] for k in ("blend", "last_blend", "volume", "last_volume")))
