"""Tables for people."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from crossfade.cases import CASES
from crossfade.cli.output import PlainConsole
from crossfade.compatibility import Chain, Compatibility
from crossfade.compatibility.write import SIGNS
from crossfade.upgrade import Upgrade
from crossfade.upgrade.card import describe_validation

Scores = dict[str, dict[str, float]]
STYLES = {
    "compatible": "green",
    "not compatible": "bold red",
    "inconclusive": "yellow",
    "not judged": "dim",
}


def cases_table(reached: Scores, closed: Scores | None = None, title: str | None = None) -> Table:
    """The cases in the paper's order, in percent; beside them the closed form's where given."""
    metrics = list(next(iter(reached.values())))
    table = Table(title=title, title_justify="left")
    table.add_column("Query/Gallery")
    for metric in metrics:
        table.add_column(metric, justify="right")
    if closed is not None:
        table.add_column("closed form", justify="right", style="dim")
    for case in (c for c in CASES if c in reached):
        cells = [f"{reached[case][m]:.1f}" for m in metrics]
        if closed is not None:
            cells.append(" / ".join(f"{closed[case][m]:.1f}" for m in metrics))
        table.add_row(case, *cells)
    return table


def validation_table(upgrade: Upgrade) -> Table | str:
    """What the fit reached on its validation rows, and what that is a measure of."""
    title = describe_validation(upgrade.config_)
    if not upgrade.validation_:
        return title
    return cases_table(upgrade.validation_, upgrade.closed_form_, title)


def show(table: Table | str) -> None:
    PlainConsole().print(table)


def verdict_table(found: Compatibility) -> Table:
    """Every case with the half width of its 95 % interval, and its verdict."""
    table = Table(title="in percent, with 95 % intervals over queries", title_justify="left")
    table.add_column("Query/Gallery", no_wrap=True)
    for name in found.metrics:
        table.add_column(name, justify="right")
    table.add_column(f"against {found.against}", no_wrap=True)
    means = found.means()
    for case in found.cases:
        cells = []
        for name in found.metrics:
            low, high = found.ci95[case][name]
            cells.append(f"{means[case][name]:.1f} ± {(high - low) / 2:.1f}")
        word = found.verdicts[case].word if case in found.verdicts else ""
        verdict = Text(f"{SIGNS[word]} {word}", STYLES[word]) if word else ""
        table.add_row(case, *cells, verdict)
    return table


def matrix_table(chain: Chain, metric: str) -> Table:
    """The compatibility matrix of a sequence of models; marked where it beats its column's own."""
    average = chain.average_compatibility(metric)
    table = Table(
        title=f"{metric}: query by row, gallery by column; average compatibility {average:.2f}",
        title_justify="left",
    )
    table.add_column("")
    for model in chain.models:
        table.add_column(model, justify="right")
    matrix = chain.matrices[metric]
    for t, (model, row) in enumerate(zip(chain.models, matrix, strict=True)):
        cells = []
        for k, value in enumerate(row):
            mark = "" if k == t else (" ✓" if value > matrix[k][k] else " ✗")
            cells.append(f"{value:.1f}{mark}")
        table.add_row(model, *cells)
    return table
