"""What commands have in common on their way out: JSON for scripts, a bar for those who wait."""

from __future__ import annotations

import json
import sys
import time
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from crossfade.errors import BadInput
from crossfade.files.atomic import check_parent, replacing

STDOUT = "-"
_PATIENCE_SECONDS = 2.0
# Controls, halves of characters, and ends of lines and paragraphs.
_UNSEEN = ("Cc", "Cs", "Zl", "Zp")


def check_written(*targets: str | Path | None) -> None:
    """Raise for a file that cannot be written: before the work, not after it."""
    for target in targets:
        if target is not None and str(target) != STDOUT:
            check_parent(Path(target))
            if Path(target).is_dir():
                raise BadInput("is a folder", where=target, step="name a file")


def write_text(text: str, target: str) -> bool:
    """Write to a file, or to stdout for '-'; True if it went to stdout."""
    if target == STDOUT:
        typer.echo(text.rstrip("\n"))
        return True
    with replacing(Path(target), overwrite=True) as temporary:
        # Of a path that is no text, as it is written in JSON too.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    return False


def write_json(record: Any, target: str | None) -> bool:
    """As `write_text`; one line on stdout, for scripts that read lines."""
    if target is None:
        return False
    indent = None if target == STDOUT else 2
    return write_text(json.dumps(record, indent=indent, ensure_ascii=False) + "\n", target)


class PlainConsole(Console):
    """Shows text as it is: names of models, columns and files are the user's own, and `[red]` or
    `:boom:` in them mean nothing. What has a style is a `rich.text.Text`."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text), **options)


def visible(text: str, keep: str = "\n") -> str:
    """Text with its control characters spelled out, which a terminal would obey, and with what no
    encoding can write.

    >>> visible("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    if text.isprintable():
        return text
    odd = {c for c in set(text) - set(keep) if unicodedata.category(c) in _UNSEEN}
    return "".join(ascii(c)[1:-1] if c in odd else c for c in text)


def note(text: str) -> None:
    """A line on stderr."""
    PlainConsole(stderr=True).print(visible(text, keep=""), soft_wrap=True)


def say(word: str, text: str, style: str) -> None:
    """A line on stderr that begins with a word in colour."""
    line = Text.assemble((word, style), " ", visible(text, keep=""))
    PlainConsole(stderr=True).print(line, soft_wrap=True)


@contextmanager
def waiting(name: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr, for those who look at it and for work that takes long enough to look."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=PlainConsole(stderr=True),
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


@contextmanager
def step_bars() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each part of the work where someone watches, a line for each where nobody does."""
    console = PlainConsole(stderr=True)
    with Progress(
        TextColumn("{task.description:<30}"),
        BarColumn(bar_width=24),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as bars:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if total == 0:
                return
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total)
                if not console.is_terminal:
                    console.print(what)
            bars.update(tasks[what], completed=done, total=total)

        yield report
