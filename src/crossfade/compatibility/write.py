"""The compatibility table as JSON, Markdown and LaTeX."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from crossfade.compatibility.verdicts import ASKED, AT_FIRST, Wait

if TYPE_CHECKING:
    from crossfade.compatibility.table import Compatibility

SIGNS = {"compatible": "✓", "not compatible": "✗", "inconclusive": "?", "not judged": "–"}


def record(found: Compatibility) -> dict[str, Any]:
    """Everything, for `--json`; percentages as in the paper, null where there is no number."""
    cases: dict[str, dict[str, Any]] = {
        case: {**means, "ci95": {m: list(ci) for m, ci in found.ci95[case].items()}}
        for case, means in found.means().items()
    }
    out: dict[str, Any] = {
        "upgrade": found.upgrade,
        "data": found.data,
        "distance": found.distance,
        "metrics": list(found.metrics),
        "decisive_metrics": list(found.decisive),
        "judged": found.judged,
        "cases": cases,
        "verdicts": {case: verdict.record() for case, verdict in found.verdicts.items()},
        "today": found.today,
        "until_filled": {metric: wait.record() for metric, wait in found.waits.items()},
        "asking": found.asking,
        "required": list(found.required),
        "failed": list(found.failed),
        "definition": {
            case: {name: share.record() for name, share in shares.items()}
            for case, shares in found.definition.items()
        },
        "stability": found.stability,
        "zero_shot": None if found.zero_shot is None else found.zero_shot.record(),
        "warnings": found.warnings,
    }
    if found.sample is not None:
        out["sample"] = record(found.sample)
    if found.per_class:
        # JSON's keys are strings.
        out["per_class"] = {
            case: {str(name): values for name, values in classes.items()}
            for case, classes in found.per_class.items()
        }
    return out


def rows(found: Compatibility) -> list[tuple[str, list[str], str]]:
    """Of each case its name, a cell per metric (mean and 95 % interval) and its verdict."""
    out: list[tuple[str, list[str], str]] = []
    for case, means in found.means().items():
        cells = []
        for metric in found.metrics:
            low, high = found.ci95[case][metric]
            cells.append(f"{means[metric]:.1f} [{low:.1f}, {high:.1f}]")
        verdict = found.verdicts[case].word if case in found.verdicts else ""
        out.append((case, cells, verdict))
    return out


def markdown(found: Compatibility) -> str:
    """A table of cases, then the rest as a list."""
    lines = ["| Query/Gallery | " + " | ".join(found.metrics) + f" | against {found.against} |"]
    lines.append("|---" + "|---:" * len(found.metrics) + "|---|")
    for case, cells, verdict in rows(found):
        lines.append(f"| {case} | " + " | ".join(cells) + f" | {verdict} |")
    lines += ["", *(f"- {fact}" for fact in facts(found))]
    if found.sample is not None:
        lines += ["", "On the rows held out of the fit, not on the store:", ""]
        return "\n".join(lines) + "\n" + markdown(found.sample)
    return "\n".join(lines) + "\n"


def latex(found: Compatibility) -> str:
    """A `booktabs` table in the form of the paper's."""
    names = {"old": r"\phi_{\text{old}}", "new": r"\phi_{\text{new}}"}

    def case_name(case: str) -> str:
        if case in ASKED:
            asked, of = case.split("/")
            return rf"\text{{{asked}}}$/{names[of]}$"
        parts = []
        for side in case.split("/"):
            kind, _, inside = side.partition("(")
            name = names[inside.rstrip(")") or kind]
            parts.append(f"{kind}({name})" if inside else name)
        return f"${'/'.join(parts)}$"

    columns = "l" + "r" * len(found.metrics) + "c"
    heads = [_latex_text(m) for m in found.metrics]
    lines = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        "Query/Gallery & " + " & ".join(heads) + r" & ECC \\ \midrule",
    ]
    mark = {
        "compatible": r"$\checkmark$",
        "not compatible": r"$\times$",
        "inconclusive": "?",
        "not judged": "not judged",
    }
    for case, means in found.means().items():
        cells = []
        for metric in found.metrics:
            low, high = found.ci95[case][metric]
            half = (high - low) / 2
            cells.append(rf"{means[metric]:.2f} {{\scriptsize $\pm$ {half:.2f}}}")
        word = mark[found.verdicts[case].word] if case in found.verdicts else ""
        lines.append(f"{case_name(case)} & " + " & ".join(cells) + rf" & {word} \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def facts(found: Compatibility) -> list[str]:
    """What is to be said beside the table, a line each."""
    data = found.data
    out = [
        f"{data['evaluated_queries']:,} queries on {data['gallery']:,} items"
        + (f" of {data['store']}" if "store" in data else "")
        + f", {found.distance}, "
        f"relevance from {data['relevance']}"
        + (", each query left out of its own gallery" if data["leave_one_out"] else "")
    ]
    if not found.judged:
        out.append(f"not judged: {found.why_unjudged}")
    else:
        out.append(first_minute(found))
    out += [until_filled(metric, wait) for metric, wait in found.waits.items()]
    if data["queries_with_nothing_relevant"]:
        out.append(f"{data['queries_with_nothing_relevant']:,} queries have nothing relevant")
    for case, shares in found.definition.items():
        holding = []
        for name, share in shares.items():
            value = share.record()["share"]
            if value is not None:
                half = (
                    f" ± {(share.interval()[1] - share.interval()[0]) / 2:.2f}"
                    if share.sampled
                    else ""
                )
                holding.append(f"{value:.1f}{half} % of {name.replace('_', '-')} pairs")
        out.append(f"Definition 3.1, {case}: holds for {' and '.join(holding)}")
    if found.stability:
        names = ("singular_values", "column_angles_degrees")
        singular, angles = (found.stability[k] for k in names)
        out.append(
            f"B: ‖WWᵀ−I‖ {found.stability['deviation']:.2g}, singular values {singular['min']:.3f} "
            f"to {singular['max']:.3f}, angles between columns {angles['min']:.1f}° to "
            f"{angles['max']:.1f}°"
        )
    if found.zero_shot is not None:
        for metric, change in found.zero_shot.metrics.items():
            # Adding zero makes −0 the same as 0.
            points, low, high = (round(x, 2) + 0.0 for x in (change.change, *change.ci95))
            out.append(
                f"zero-shot {metric}: {change.new:.1f} → {change.mapped:.1f} "
                f"({points:+.2f} [{low:+.2f}, {high:+.2f}])"
            )
    return out


def first_minute(found: Compatibility) -> str:
    """Which ways of asking an untouched index do, and which to take."""
    if found.today is not None:
        word = found.verdicts[AT_FIRST["new"]].word
        return (
            f"asked on the untouched index: `new` is {word} against {found.against}; where the old "
            "model is gone there is no other way"
        )
    ways = ", ".join(
        f"`{way}` {found.verdicts[case].word}"
        for way, case in AT_FIRST.items()
        if case in found.verdicts
    )
    return f"asked on the untouched index: {ways}; ask `{found.asking}`"


def until_filled(metric: str, wait: Wait) -> str:
    """What it costs that the old model is gone."""
    low, high = wait.missing.ci95
    said = (
        f"new queries have {wait.untouched:.1f} on the untouched index and {wait.filled:.1f} once "
        f"all is filled ({metric})"
    )
    if wait.missing.difference <= 0:
        return f"{said}: filling gains nothing"
    gap = f"{wait.missing.difference:.1f} points [{low:.1f}, {high:.1f}]"
    return f"{said}: {gap} are missing until then"


def _latex_text(text: str) -> str:
    kind, _, k = text.partition("@")
    if kind == "cmc":
        return f"CMC-Top{k}"
    return text.upper() if kind in ("ndcg", "mrr") else text


def finite(value: Any) -> Any:
    """The same record with null for every NaN: JSON has no such number.

    >>> finite({"a": [1.0, float("nan")]})
    {'a': [1.0, None]}
    """
    if isinstance(value, dict):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
