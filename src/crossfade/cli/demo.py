"""`crossfade demo`: the whole story on data made in seconds."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from crossfade.cli.output import PlainConsole

if TYPE_CHECKING:
    from crossfade.demo import Story


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder for what the demo makes.")
    ] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1)] = 0,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Report as JSON; '-' is stdout.")
    ] = None,
) -> None:
    """See an upgrade at work on handwritten digits: a table, a picture, no download."""
    # Here, not at the top: no other command should wait for the files' libraries.
    from crossfade.demo import tell
    from crossfade.demo.folder import check_folder, check_writable, fill

    # Before the work, not after it.
    check_folder(output)
    if json_file not in (None, "-"):
        target = Path(str(json_file))
        if target.resolve().parent != output.resolve():
            check_writable(target, target.parent)
    with _progress() as report:
        story = tell(seed, report)
    fill(output, story)
    if json_file == "-":
        typer.echo(json.dumps(story.record()))
        return
    if json_file is not None:
        from crossfade.files import replacing

        with replacing(Path(json_file), overwrite=True) as temporary:
            temporary.write_text(json.dumps(story.record(), indent=2) + "\n", encoding="utf-8")
    _print(story, output)


def _print(story: Story, output: Path) -> None:
    from crossfade.demo.folder import PAIRS, PICTURE, TABLE, TEST, UPGRADE
    from crossfade.demo.narration import AFTER, BEFORE, explanation, opening, picture

    rows = len(story.test.labels)
    typer.echo(opening(len(story.train.labels), rows, story.guessing))
    console = PlainConsole()
    console.print(_table("before the upgrade", BEFORE, story.cases))
    console.print(_table("with the upgrade", AFTER, story.cases))
    typer.echo("")
    for line in explanation(story.cases, rows, story.guessing).splitlines():
        typer.echo(textwrap.fill(line, 84, subsequent_indent="   "))
    typer.echo("")
    typer.echo(textwrap.fill(f"{output / PICTURE}: {picture(story.spaces)}", 84))
    files = ", ".join(str(output / name) for name in (UPGRADE, PAIRS, TEST, TABLE, PICTURE))
    typer.echo(f"""
written: {files}

next: crossfade inspect {output / UPGRADE}
      crossfade fit {output / PAIRS} -o my-upgrade
and with your own embeddings (arrays old and new, labels if you have them):
      crossfade fit pairs.npz -o upgrade
      crossfade apply upgrade gallery.npy lifted.npy --direction forward
      crossfade apply upgrade queries.npy mapped.npy --direction backward""")


def _table(title: str, cases: tuple[str, ...], scores: dict[str, dict[str, float]]) -> Table:
    from crossfade.demo.narration import MEANING

    table = Table(title=title, title_justify="left")
    table.add_column("Query/Gallery", min_width=13)
    for metric in scores[cases[0]]:
        table.add_column(metric, justify="right", min_width=5)
    table.add_column("in words", min_width=max(map(len, MEANING.values())))
    for case in cases:
        table.add_row(case, *(f"{value:.1f}" for value in scores[case].values()), MEANING[case])
    return table


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
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
            bars.update(tasks[what], completed=done)

        yield report
