"""What the page shows, made of a migration's status, its plan, and what a gateway counts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crossfade.backfill.record import PlanRecord
from crossfade.migration.status import Status
from crossfade.report.markup import Element, element
from crossfade.report.panels import curve_figures, facts, measured_table, rows_panel
from crossfade.report.sentences import STEPS, WAYS, command_of, headline, spell_seconds, step_of

_EVENTS = 8
UPSTREAM = {"ok": "answers", "open": "failing, left alone for a while", "down": "does not answer"}


def migration_state(
    status: Status, plan: tuple[PlanRecord, Path] | None, rate: float | None
) -> dict[str, Any]:
    """Stage, next command and panels of a store whose migration was started."""
    step = step_of(status)
    quality = None
    # Once it ends there is one way to ask, and no share to move along.
    if plan is not None and not (status.over or status.ending):
        quality = curve_figures(*plan, here=status.share, measured=status.measured)
    under_way = step is not None and not status.ending
    asking = None
    if under_way and status.asking is not None:
        asking = f"Ask {WAYS[status.asking]}, by the plan."
    return {
        "store": status.store,
        "models": [status.old_model, status.new_model],
        "stage": status.stage,
        "headline": headline(status, moving=rate is not None),
        "asking": asking,
        "filled": status.share,
        "steps": _steps(status, step),
        "next": command_of(status),
        "runnable": step is not None,
        "panels": {
            "rows": _records([*rows_panel(status), _pace(status, rate)]),
            "quality": None if quality is None else _records(quality),
            "measured": None
            if status.measured is None
            else _records([measured_table(status.measured)]),
            "events": _records([_events(status)]),
        },
        "spent": status.spent,
    }


def unstarted_state(store: str) -> dict[str, Any]:
    """Of a store that nobody has begun to migrate."""
    return {
        "store": store,
        "models": ["", ""],
        "stage": "none",
        "headline": "No migration was started",
        "asking": None,
        "filled": 0.0,
        "steps": [[name, "next" if name == "start" else "later"] for name in STEPS],
        "next": f"crossfade migrate start {shlex.quote(store)} UPGRADE",
        "runnable": True,
        "panels": {},
        "spent": 0.0,
    }


def live_panels(live: Mapping[str, Any] | None, spent: float) -> dict[str, Any]:
    """What a gateway counts, and what was paid; a panel without data is None."""
    counted = live or {}
    out: dict[str, Any] = {"live": None, "shadow": None, "cost": None}
    if live:
        out["live"] = _records([_traffic(live)])
    shadow = counted.get("shadow")
    if shadow and shadow.get("asked"):
        out["shadow"] = _records([_shadow(shadow)])
    costs = []
    if spent:
        costs.append(("embedding rows", f"{spent:,.2f}"))
    tokens = counted.get("spent") or {}
    for name, told in (("tokens_new", "tokens, new model"), ("tokens_old", "tokens, old model")):
        if tokens.get(name):
            costs.append((told, f"{tokens[name]:,}"))
    if costs:
        out["cost"] = _records([facts(costs)])
    return out


def _records(elements: Sequence[Element | None]) -> list[Any] | None:
    found = [one.record() for one in elements if one is not None]
    return found or None


def _steps(status: Status, step: str | None) -> list[list[str]]:
    """Each step with where it stands: done, next, or later."""
    if status.taken_back:
        return [[name, "later"] for name in STEPS]
    if step not in STEPS:
        return [[name, "done"] for name in STEPS]
    at = STEPS.index(step)
    return [
        [name, "done" if place < at else "next" if place == at else "later"]
        for place, name in enumerate(STEPS)
    ]


def _pace(status: Status, rate: float | None) -> Element | None:
    """How fast rows move now, or moved last, and how long the rest takes at that rate."""
    told = []
    left = status.seconds_left
    step = "forward" if status.lifting else "backfill"
    if rate is not None:
        told.append(("rows a second, now", f"{rate:,.0f}"))
        rest = status.old if step == "forward" else _to_fill(status)
        left = None if rest is None else rest / rate
    elif status.rate.get(step):
        told.append((f"rows a second, last {step}", f"{status.rate[step]:,.0f}"))
    if left:
        told.append(("time left at that rate", spell_seconds(left)))
    return facts(told) if told else None


def _to_fill(status: Status) -> float | None:
    if status.target is None:
        return None
    usable = status.old + status.lifted + status.filled - status.unusable
    return max(0.0, status.target * usable - status.filled)


def _events(status: Status) -> Element | None:
    if not status.events:
        return None
    rows = [
        element(
            "li",
            element("time", event["at"][11:16], datetime=event["at"], title=event["at"]),
            element("span", event["what"]),
        )
        for event in reversed(status.events[-_EVENTS:])
    ]
    return element("ol", *rows, class_="events")


def _traffic(live: Mapping[str, Any]) -> Element:
    requests, errors = int(live.get("requests", 0)), int(live.get("errors", 0))
    told = [("requests", f"{requests:,}"), ("in flight", f"{int(live.get('in_flight', 0)):,}")]
    share = f" ({errors / requests:.2%})" if requests else ""
    told.append(("errors", f"{errors:,}{share}"))
    for name, value in (live.get("latency_ms") or {}).items():
        if value is not None:
            told.append((f"{name} latency", f"{value:,.1f} ms"))
    bad = ["errors"] if errors else []
    for name, word in (live.get("upstream") or {}).items():
        told.append((f"{name} model's service", UPSTREAM.get(str(word), str(word))))
        if word != "ok":
            bad.append(told[-1][0])
    return facts(told, bad)


def _shadow(shadow: Mapping[str, Any]) -> Element:
    told = [
        ("asked twice", f"{int(shadow['asked']):,}"),
        ("the other way", str(shadow.get("way", ""))),
    ]
    if shadow.get("share") is not None:
        told.insert(1, ("of all queries", f"{shadow['share']:.1%}"))
    if shadow.get("agreement") is not None:
        told.append(("first ten agree", f"{shadow['agreement']:.1%}"))
    if shadow.get("score_change") is not None:
        told.append(("change of scores", f"{shadow['score_change']:+.3f}"))
    if shadow.get("latency_ms") is not None:
        told.append(("latency", f"{shadow['latency_ms']:,.1f} ms"))
    return facts(told)
