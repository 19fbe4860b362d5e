"""What commands have in common on their way out: JSON for scripts, a bar for those who wait."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from crossfade.files.atomic import check_parent, replacing

STDOUT = "-"
_PATIENCE_SECONDS = 2.0


def check_written(*targets: str | Path | None) -> None:
    """Raise for a file that cannot be written: before the work, not after it."""
    for target in targets:
        if target is not None and str(target) != STDOUT:
            check_parent(Path(target))


def write_text(text: str, target: str) -> bool:
    """Write to a file, or to stdout for '-'; True if it went to stdout."""
    if target == STDOUT:
        typer.echo(text.rstrip("\n"))
        return True
    with replacing(Path(target), overwrite=True) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return False


def write_json(record: Any, target: str | None) -> bool:
    """As `write_text`; one line on stdout, for scripts that read lines."""
    if target is None:
        return False
    indent = None if target == STDOUT else 2
    return write_text(json.dumps(record, indent=indent, ensure_ascii=False) + "\n", target)


def note(text: str) -> None:
    """A line on stderr."""
    Console(stderr=True).print(text, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def waiting(name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, for those who look at it and for work that takes long enough to look."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    begin = time.monotonic()
    task = bar.add_task(name, total=None)
    shown = False

    def advance(done: int, total: int) -> None:
        nonlocal shown
        if not shown and sys.stderr.isatty() and time.monotonic() - begin > _PATIENCE_SECONDS:
            bar.start()
            shown = True
        bar.update(task, completed=done, total=total)

    try:
        yield advance
    finally:
        if shown:
            bar.stop()
