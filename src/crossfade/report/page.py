"""The report as a page: the answer first, then what it rests on, then the commands to go on."""

from __future__ import annotations

import base64
import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

from crossfade._version import __version__
from crossfade.files.atomic import replacing
from crossfade.report.chart import draw_interval
from crossfade.report.markup import Element, element
from crossfade.report.panels import curve_figures, facts, measured_table, rows_panel, table
from crossfade.report.sentences import (
    CASES,
    VERDICTS,
    WAYS,
    answer_evaluation,
    answer_plan,
    command_of,
    headline,
    signed,
    spell_seconds,
)
from crossfade.report.sources import Evaluation, Sources, gather


@dataclass(frozen=True)
class Report:
    """What was written: the answer, and what is missing for a whole one."""

    path: Path
    answer: str
    missing: list[str]


def write_report(
    places: Sequence[str | Path], output: str | Path, *, overwrite: bool = False
) -> Report:
    """Write one HTML file about an upgrade, its evaluation, its plan and its migration.

    `places` are folders of `fit` and `plan`, a file of `evaluate --json`, the address of a store,
    or a folder that holds some of them.

    >>> import numpy as np, tempfile
    >>> from crossfade.upgrade import Upgrade
    >>> rng = np.random.default_rng(0)
    >>> new = rng.normal(size=(200, 4)).astype("f4") + 1
    >>> old = new[:, :3] + 0.1 * rng.normal(size=(200, 3)).astype("f4")
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = Upgrade(solver="closed_form").fit(old, new).save(folder / "upgrade")
    >>> report = write_report([folder / "upgrade"], folder / "report.html")
    >>> print(report.answer)
    Not known yet: the upgrade was fitted, and nothing was measured on held-out data.
    >>> report.path.read_text()[:15]
    '<!doctype html>'
    """
    target = Path(output)
    found = gather(places)
    said, kind = answer(found)
    missing = missing_parts(found)
    page = _page(found, said, kind, missing)
    with replacing(target, overwrite=overwrite) as temporary:
        # A path that is no text is written as JSON would write it.
        text = f"<!doctype html>\n{page.html()}\n"
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    return Report(target, said, [name for name, _ in missing])


def answer(found: Sources) -> tuple[str, str]:
    """The answer in one sentence, and its kind: `good`, `bad` or `unsure`."""
    if found.plan is not None:
        return answer_plan(found.plan)
    if found.evaluation is not None:
        return answer_evaluation(found.evaluation.asking, found.evaluation.failed)
    if found.migration is not None:
        return f"{headline(found.migration)}.", "unsure"
    return "Not known yet: the upgrade was fitted, and nothing was measured on held-out data.", (
        "unsure"
    )


def missing_parts(found: Sources) -> list[tuple[str, str]]:
    """What a whole report would have and this has not, with the command that makes it."""
    upgrade = _quoted(found.upgrade_place, "UPGRADE")
    out = []
    if found.upgrade is None:
        out.append(("the upgrade", "crossfade fit PAIRS -o UPGRADE"))
    if found.evaluation is None:
        command = f"crossfade evaluate {upgrade} PAIRS --json evaluation.json"
        out.append(("the evaluation: what each way of asking is worth", command))
    if found.plan is None:
        command = f"crossfade plan {upgrade} PAIRS -o PLAN"
        out.append(("the plan: how to ask, how much to fill, what it costs", command))
    if found.store_place is None:
        out.append(("the store: name its address", "crossfade report … STORE -o report.html"))
    return out


def commands(found: Sources) -> list[str]:
    """What to type next."""
    upgrade, store = (
        _quoted(found.upgrade_place, "UPGRADE"),
        _quoted(found.store_place, "STORE"),
    )
    if found.plan is not None and found.plan.recommendation == "do not upgrade":
        return []
    if found.migration is not None and (not found.migration.over or found.migration.finished):
        over = found.migration.next.startswith("none")
        watch = [] if found.migration.finished else [f"crossfade migrate watch {store}"]
        return ([] if over else [command_of(found.migration)]) + watch
    if found.plan is None:
        return [command for _, command in missing_parts(found) if "STORE" not in command]
    plan = _quoted(found.plan_place, "PLAN")
    proof = ""
    if found.evaluation_place is not None:
        proof = f" --evaluation {shlex.quote(found.evaluation_place)}"
    out = [
        f"crossfade migrate start {store} {upgrade}{proof} --plan {plan}",
        f"crossfade migrate forward {store}",
    ]
    if found.plan.stop:
        out.append(f"crossfade migrate backfill {store} --plan {plan} --embed EMBEDDER")
    out += [f"crossfade migrate verify {store}", f"crossfade migrate finish {store}"]
    alone = found.plan.alone_from
    if found.plan.asking != "new" and (alone is None or found.plan.stop < alone):
        out[-1] += " --keep-old"
    return [*out, f"crossfade migrate watch {store}"]


def _quoted(place: str | None, word: str) -> str:
    return word if place is None else shlex.quote(place)


def _page(found: Sources, said: str, kind: str, missing: list[tuple[str, str]]) -> Element:
    old, new = (name or word for name, word in zip(found.models, ("old", "new"), strict=True))
    made = datetime.now(UTC).strftime("%d %B %Y, %H:%M UTC")
    sections = [
        _answer(found, said, kind),
        _question(found),
        _cases(found.evaluation),
        _cases(
            found.evaluation and found.evaluation.sample, "The cases on rows held out of the fit"
        ),
        _curves(found),
        _costs(found),
        _migration(found),
        _risks(found),
        _commands(found),
        _missing(missing),
    ]
    main = element("main", *(section for section in sections if section is not None))
    top = element(
        "header",
        element("p", "Upgrade report", class_="kind"),
        element(
            "h1",
            element("span", old, class_="model"),
            element("span", " → ", aria_hidden="true"),
            element("span", " to ", class_="unseen"),
            element("span", new, class_="model"),
        ),
        element("p", made, class_="note"),
    )
    hashes = {
        "upgrade": found.upgrade and found.upgrade.content_hash,
        "plan for upgrade": found.plan and found.plan.upgrade,
    }
    told = [f"{name} {str(value)[:12]}" for name, value in hashes.items() if value]
    foot = element("footer", element("p", " · ".join([f"crossfade {__version__}", *told])))
    return document(f"{old} → {new}: upgrade report", "report", [top, main, foot])


def document(title: str, kind: str, body: Sequence[Element]) -> Element:
    """A whole page that allows itself nothing but its own script and style."""
    style = read_text("look.css") + read_text(f"{kind}.css")
    script = read_text("chart.js")
    policy = f"default-src 'none'; img-src data:; {allowed(script, style)}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", style),
    )
    inside = element("body", *body, element("script", script), class_=kind)
    return element("html", head, inside, lang="en")


def allowed(script: str, style: str) -> str:
    """The part of a Content-Security-Policy that allows this script and this style alone."""
    names = {"script-src": script, "style-src": style}
    return "; ".join(f"{name} 'sha256-{_digest(text)}'" for name, text in names.items())


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def read_text(name: str) -> str:
    """One of the files that stand beside this module."""
    return files("crossfade.report").joinpath(name).read_text(encoding="utf-8")


def _section(title: str, *inside: Element | None, name: str | None = None) -> Element:
    place = name or title.lower().replace(" ", "-")
    return element(
        "section", element("h2", title, id=place), *inside, aria_labelledby=place, class_="card"
    )


def _answer(found: Sources, said: str, kind: str) -> Element:
    numbers: list[tuple[str, str]] = []
    plan = found.plan
    if plan is not None and plan.recommendation != "do not upgrade":
        numbers.append(("ask", plan.asking))
        numbers.append(("re-embed", f"{plan.stop:.0%}"))
        cost = plan.costs.get("stop", {})
        if cost.get("items") is not None:
            numbers.append(("items", f"{cost['items']:,}"))
        if cost.get("cost") is not None:
            numbers.append(("cost", f"{cost['cost']:,.2f}"))
    return element(
        "section",
        element("h2", "The answer", id="answer"),
        element("p", said, class_="answer"),
        facts(numbers) if numbers else None,
        aria_labelledby="answer",
        class_=f"card verdict {kind}",
    )


def _question(found: Sources) -> Element:
    lines = []
    old, new = found.models
    if old or new:
        lines.append(
            f"Whether a gallery embedded by {old or 'the old model'} can be searched with "
            f"{new or 'the new model'} before it is re-embedded, and how much of it is worth "
            "re-embedding."
        )
    if found.upgrade is not None:
        config = found.upgrade
        lines.append(
            f"The upgrade was learned from {config.fit.get('rows', 0):,} rows embedded by both: B "
            f"({config.backward}) takes the new model's {config.new.dim} dimensions, and F "
            f"({config.forward}) the old model's {config.old.dim}, into one space of "
            f"{config.shared_dim}."
        )
    if found.evaluation is not None:
        data = found.evaluation.data
        whose = {
            "labels": "items of the same class count as relevant",
            "qrels": "judgements say which items are relevant",
            "lookups": "each query wants one item back",
            "neighbours": "only agreement with the new model's own neighbours is known",
        }
        relevance = whose.get(str(data.get("relevance")), str(data.get("relevance")))
        asked = data.get("evaluated_queries", data.get("queries", 0))
        lines.append(
            f"Measured with {_count(asked)} queries on {_count(data.get('gallery'))} items of "
            f"{data.get('name', 'held-out data')}, compared by {found.evaluation.distance}: "
            f"{relevance}."
        )
    if found.plan is not None and found.plan.queries:
        lines.append(
            f"The plan was chosen by simulation on {found.plan.queries:,} queries and "
            f"{found.plan.gallery:,} items, for {' and '.join(found.plan.optimize)}."
        )
    if found.store_place is not None:
        lines.append(f"The gallery is in {found.store_place}.")
    return _section("What was asked", *(element("p", line) for line in lines))


def _count(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else "?"


def _cases(found: Evaluation | None, title: str = "The cases") -> Element | None:
    if found is None:
        return None
    numbers = {
        case: {metric: found.measured(case, metric) for metric in found.metrics}
        for case in found.cases
    }
    scales = {}
    for metric in found.metrics:
        known = [one[metric] for one in numbers.values() if one[metric] is not None]
        ends = [(low, high) for low, _, high in filter(None, known)] or [(0.0, 100.0)]
        scales[metric] = min(low for low, _ in ends), max(high for _, high in ends)
    measured_today = numbers.get("old/old", {})
    levels = {metric: one[1] for metric, one in measured_today.items() if one is not None}
    if found.today is not None:
        levels |= dict.fromkeys(found.decisive_metrics, found.today)
    rows: list[list[Element | str]] = []
    for case, measured in numbers.items():
        asks, searched = CASES.get(case, ("", ""))
        cells = [
            _measured(measured[metric], scales[metric], levels.get(metric))
            for metric in found.metrics
        ]
        rows.append([element("code", case), asks, searched, _verdict(found, case), *cells])
    heads = ("case", "who asks", "what is searched", "against today", *found.metrics)
    note = (
        "A case is written as who asks / what is searched. The upright line is today's search, "
        + (
            "old/old; verdicts compare with it, query by query."
            if found.today is None
            else "whose level was given, for its model is gone; verdicts compare with it."
        )
        if found.judged
        else "Nothing was judged: without labels, qrels or lookups of both models there is nothing "
        "to judge by."
    )
    return _section(
        title,
        element("p", note, class_="note"),
        table(heads, rows, "in percent, with 95 % intervals over queries", words=len(heads)),
    )


def _measured(
    one: tuple[float, float, float] | None,
    scale: tuple[float, float],
    level: float | None,
) -> Element | str:
    if one is None:
        return "–"
    low, mean, high = one
    return element(
        "span",
        element("strong", f"{mean:.1f}"),
        element("small", f" {low:.1f} to {high:.1f}"),
        draw_interval(low, mean, high, scale=scale, level=level),
        class_="measured",
    )


def _verdict(found: Evaluation, case: str) -> Element | str:
    if case == "old/old":
        return "today"
    judged = found.verdicts.get(case)
    if judged is None:
        return "–"
    word = judged.verdict if judged.verdict in VERDICTS else "not judged"
    gaps = [
        f"{metric} {signed(one.difference)} [{signed(one.ci95[0])}, {signed(one.ci95[1])}]"
        for metric, one in judged.metrics.items()
        if one.difference is not None and one.ci95[0] is not None and one.ci95[1] is not None
    ]
    chip = element("span", VERDICTS[word], class_=f"chip {word.replace(' ', '-')}")
    return element("span", chip, *(element("small", gap) for gap in gaps), class_="verdicts")


def _curves(found: Sources) -> Element | None:
    if found.plan is None or not found.plan.quality:
        return None
    plan, status = found.plan, found.migration
    folder = None if found.plan_place is None else Path(found.plan_place)
    under_way = status is not None and status.under_way
    here = status.share if status is not None and under_way else None
    measured = None if status is None else status.measured
    how = f"Asked {WAYS[plan.asking]}; filled in the order {plan.order}."
    return _section(
        "On the way",
        element("p", how, class_="note"),
        *curve_figures(plan, folder, here=here, measured=measured),
    )


def _costs(found: Sources) -> Element | None:
    if found.plan is None or not found.plan.costs:
        return None
    rows = []
    for name, cost in found.plan.costs.items():
        price, seconds = cost.get("cost"), cost.get("seconds")
        rows.append(
            (
                name,
                _count(cost.get("items")),
                "–" if price is None else f"{price:,.2f}",
                "–" if seconds is None else spell_seconds(float(seconds)),
            )
        )
    heads = ("to", "items", "cost", "time")
    unknown = all(row[2] == "–" for row in rows)
    note = element(
        "p",
        "Prices were not given: plan with --cost-per-1k and --items-per-second to see them.",
        class_="note",
    )
    return _section("Cost", table(heads, rows, "re-embedding"), note if unknown else None)


def _migration(found: Sources) -> Element | None:
    if found.store_place is None:
        return None
    if found.migration is None:
        return _section("The migration", element("p", f"None was started on {found.store_place}."))
    status = found.migration
    numbers = [("rows", f"{status.rows:,}"), ("stage", status.stage)]
    numbers += [(f"{step} rows/s", f"{rate:,.0f}") for step, rate in status.rate.items()]
    if status.spent:
        numbers.append(("spent", f"{status.spent:,.2f}"))
    events = [
        (event["at"].replace("T", " ").replace("+00:00", " UTC"), event["what"])
        for event in status.events
    ]
    return _section(
        "The migration",
        element("p", f"{headline(status)}."),
        facts(numbers),
        *rows_panel(status),
        None if status.measured is None else measured_table(status.measured),
        table(("when", "what"), events, "what happened", words=2) if events else None,
    )


def _risks(found: Sources) -> Element | None:
    """Whatever the parts themselves warn of."""
    risks: list[str] = []
    if found.upgrade is not None:
        risks += [*found.upgrade.notes, *map(str, found.upgrade.fit.get("warnings", []))]
    if found.evaluation is not None:
        risks += found.evaluation.warnings
    if found.plan is not None:
        risks += found.plan.warnings
        if not found.plan.held_out:
            risks.append("the plan was made on rows that had a part in the fit")
        if not found.plan.knows_today:
            risks.append("today's level is not known: the old model has embedded no queries")
        for metric, low in found.plan.lowest.items():
            if low["ci95"] is not None and low["ci95"][1] < 0:
                risks.append(f"{metric} is below today at {low['share']:.0%} filled")
    if found.migration is not None and found.migration.measured is not None:
        for metric, (low, high) in found.migration.measured["difference"].items():
            if high < 0:
                risks.append(
                    f"through the store new queries alone were below old ones in {metric}, by "
                    f"{signed(low)} to {signed(high)} points"
                )
    items = [element("li", f"{risk[:1].upper()}{risk[1:]}.") for risk in dict.fromkeys(risks)]
    if not items:
        items = [element("li", "None of the parts warns of anything.")]
    return _section("Risks", element("ul", *items))


def _commands(found: Sources) -> Element | None:
    typed = commands(found)
    if not typed:
        return None
    text = "\n".join(typed)
    return _section(
        "Go on",
        element("p", "Words in capitals are yours to fill in.", class_="note"),
        element("pre", element("code", text), tabindex=0, role="region", aria_label="commands"),
    )


def _missing(missing: list[tuple[str, str]]) -> Element | None:
    if not missing:
        return None
    items = [
        element("li", f"{name[:1].upper()}{name[1:]}. ", element("code", command))
        for name, command in missing
    ]
    return _section("Not in this report", element("ul", *items))
