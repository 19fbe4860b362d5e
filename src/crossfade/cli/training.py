"""Progress of a fit on stderr: a bar where someone watches, a line per check where nobody does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from crossfade.cli.output import PlainConsole
from crossfade.upgrade.upgrade import Report


def describe(entry: dict[str, Any]) -> str:
    """Losses, ‖WWᵀ−I‖ and, where it was measured, validation, in one line.

    >>> describe({"losses": {"L_F": 1.5}, "deviation": 0.0, "validation_mean": 70.0})
    'L_F 1.500  ‖WWᵀ−I‖ 0.00  validation 70.0'
    """
    parts = [f"{name} {value:.3f}" for name, value in entry["losses"].items()]
    parts.append(f"‖WWᵀ−I‖ {entry['deviation']:.2f}")
    if "validation_mean" in entry:
        parts.append(f"validation {entry['validation_mean']:.1f}")
    return "  ".join(parts)


@contextmanager
def training_progress() -> Iterator[Report]:
    """A `report` for `Upgrade.fit`."""
    console = PlainConsole(stderr=True)
    if not console.is_terminal:
        yield lambda entry: _line(console, entry)
        return
    with Progress(
        TextColumn("{task.description:<8}"),
        BarColumn(bar_width=20),
        TextColumn("{task.completed}/{task.total} epochs"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}"),
        console=console,
    ) as progress:
        tasks: dict[str, TaskID] = {}

        def report(entry: dict[str, Any]) -> None:
            block = entry["block"]
            if entry["epochs"] == 0:
                return
            if block not in tasks:
                tasks[block] = progress.add_task(block, total=entry["epochs"], detail="")
            progress.update(tasks[block], completed=entry["epoch"], detail=describe(entry))

        yield report


def _line(console: PlainConsole, entry: dict[str, Any]) -> None:
    if "validation" in entry or entry["epoch"] == entry["epochs"]:
        where = f"{entry['block']} {entry['epoch']}/{entry['epochs']}"
        console.print(f"{where}  {describe(entry)}", soft_wrap=True)
