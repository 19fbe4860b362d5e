"""An outcome as a page: the paper, this run, and which of the paper's claims hold here."""

from __future__ import annotations

from experiments.outcome import Outcome, Row

SIGNED = ("ZS", "ZS mAP")


def page(found: Outcome, picture: str | None = None) -> str:
    """Markdown; `picture` is the name of a file beside it."""
    lines = [f"# {found.title}", "", f"The paper: {found.paper}.", "", found.substitution, ""]
    facts = ", ".join(f"{k} {v}" for k, v in found.facts.items() if not isinstance(v, dict | list))
    lines += [f"This run: {facts}.", ""] if facts else []
    if found.rows:
        lines += _table(found)
    if picture is not None:
        lines += ["", f"![{found.title}]({picture})"]
    if found.claims:
        lines += [
            "",
            "## The paper's claims",
            "",
            "| | claim | here | measured |",
            "|---|---|---|---|",
        ]
        lines += [
            f"| {n} | {claim.text} | **{claim.verdict}** | {claim.measured} |"
            for n, claim in enumerate(found.claims, 1)
        ]
    return "\n".join(lines) + "\n"


def overview(all_found: list[Outcome]) -> str:
    """Every claim of every run, by page."""
    words = ("holds", "holds in part", "level", "does not hold")
    lines = ["# Every claim of the paper in these runs", "", "| run | the paper | data | "]
    lines[-1] += " | ".join(words) + " |"
    lines.append("|---" * (3 + len(words)) + "|")
    for found in all_found:
        counts = [sum(c.verdict == word for c in found.claims) for word in words]
        cells = [f"[{found.title}]({found.experiment}.md)", found.paper]
        cells += [str(found.facts.get("data", "–")), *(str(n or "") for n in counts)]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "| run | claim | here |", "|---|---|---|"]
    for found in all_found:
        for claim in found.claims:
            link = f"[{found.experiment}]({found.experiment}.md)"
            lines.append(f"| {link} | {claim.text} | {claim.verdict} |")
    return "\n".join(lines) + "\n"


def _table(found: Outcome) -> list[str]:
    shown = " / ".join(found.metrics)
    head = [*found.columns, f"the paper ({shown})", f"this run ({shown})", "claims here"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for row in found.rows:
        cells = [*row.name, _paper(row, found.metrics), _run(row, found.metrics)]
        lines.append("| " + " | ".join([*cells, ", ".join(row.claims)]) + " |")
    return lines


def _number(value: float, metric: str) -> str:
    if metric in SIGNED:
        return f"{value:+.2f}" if abs(value) >= 0.005 or value == 0 else f"{value:+.3f}"
    return f"{value:.2f}"


def _paper(row: Row, metrics: tuple[str, ...]) -> str:
    if not row.paper:
        return "–"
    return " / ".join(_number(row.paper[m], m) if m in row.paper else "–" for m in metrics)


def _run(row: Row, metrics: tuple[str, ...]) -> str:
    if not row.runs:
        return "–"
    means = " / ".join(_number(row.mean(m), m) if m in row.runs else "–" for m in metrics)
    spreads = [row.spread(m) for m in metrics if m in row.runs]
    if not any(s >= 0.005 for s in spreads):
        return means
    return means + " ± " + " / ".join(f"{s:.2f}" for s in spreads)
