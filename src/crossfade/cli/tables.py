"""Tables for people."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from crossfade.cases import CASES

Scores = dict[str, dict[str, float]]


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


def show(table: Table) -> None:
    Console().print(table)
