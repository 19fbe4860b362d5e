"""`crossfade demo`: a table of texts upgraded while it is searched; or digits, and what B does."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from crossfade.cli.output import STDOUT, PlainConsole, step_bars, write_json

if TYPE_CHECKING:
    from crossfade.demo.digits import Story as DigitsStory
    from crossfade.demo.texts import Story

WIDTH = 84


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The folder for what the demo makes.")
    ] = Path("demo"),
    digits: Annotated[
        bool,
        typer.Option(
            "--digits", help="Handwritten digits in place of texts: what each kind of B does."
        ),
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1)] = 0,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Report as JSON; '-' is stdout.")
    ] = None,
) -> None:
    """See two thousand texts move to a new model while they are searched: no download."""
    # Here, not at the top: no other command should wait for the files' libraries.
    from crossfade.demo.folder import check_writable

    if json_file not in (None, STDOUT):
        target = Path(str(json_file))
        if target.resolve().parent != output.resolve():
            check_writable(target, target.parent)
    (_digits if digits else _texts)(output, seed, json_file)


def _texts(output: Path, seed: int, json_file: str | None) -> None:
    from crossfade.demo.texts import run

    with step_bars() as report:
        story = run(output, seed, report)
    if not write_json(story.record(), json_file):
        _print_texts(story, output)


def _print_texts(story: Story, output: Path) -> None:
    from crossfade.demo.texts.folder import CARD, FILES, PICTURE, TABLES
    from crossfade.demo.texts.narration import HEADINGS, again, cells, explanation, opening
    from crossfade.demo.texts.quality import METRICS, WAYS

    typer.echo(opening(story))
    for number, step in enumerate(story.steps, 1):
        typer.echo("")
        typer.echo(
            textwrap.fill(f"{number}. {step.name}: {step.found}", WIDTH, subsequent_indent="   ")
        )
        for command in step.commands:
            typer.echo(_command(command))
    typer.echo("")
    table = Table(title=f"{story.asked} lookups at every stage", title_justify="left")
    table.add_column("stage", no_wrap=True)
    for metric in METRICS:
        for way in WAYS:
            table.add_column(f"{metric}\n{HEADINGS[way]}", justify="right", no_wrap=True)
    for name, row in cells(story):
        table.add_row(name, *row)
    PlainConsole().print(table)
    typer.echo("")
    for line in explanation(story):
        typer.echo(textwrap.fill(f"- {line}", WIDTH, subsequent_indent="  "))
    named = (PICTURE, CARD, *(name for name in FILES if name not in (PICTURE, CARD)))
    files = ", ".join((*named, *TABLES, "upgrade", "plan"))
    typer.echo("")
    typer.echo(textwrap.fill(f"written to {output}: {files}", WIDTH, subsequent_indent="  "))
    typer.echo(textwrap.fill(again(), WIDTH))
    typer.echo(f"took {story.seconds:.0f} s")


def _command(line: str) -> str:
    """A command line, broken before an option where it is long, as a shell takes it."""
    first, *more = line.split(" --")
    out = [f"   $ {first}"]
    for option in more:
        if len(out[-1]) + len(option) + 5 > WIDTH:
            out[-1] += " \\"
            out.append(f"       --{option}")
        else:
            out[-1] += f" --{option}"
    return "\n".join(out)


def _digits(output: Path, seed: int, json_file: str | None) -> None:
    from crossfade.demo.digits import run

    with step_bars() as report:
        story = run(output, seed, report)
    if not write_json(story.record(), json_file):
        _print_digits(story, output)


def _print_digits(story: DigitsStory, output: Path) -> None:
    from crossfade.demo.digits.folder import PAIRS, PICTURE, TABLE, TEST
    from crossfade.demo.digits.narration import AFTER, BEFORE, explanation, opening, picture
    from crossfade.demo.folder import UPGRADE

    rows = len(story.test.labels)
    typer.echo(opening(len(story.train.labels), rows, story.guessing))
    console = PlainConsole()
    console.print(_digits_table("before the upgrade", BEFORE, story.cases))
    console.print(_digits_table("with the upgrade", AFTER, story.cases))
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


def _digits_table(title: str, cases: tuple[str, ...], scores: dict[str, dict[str, float]]) -> Table:
    from crossfade.demo.digits.narration import MEANING

    table = Table(title=title, title_justify="left")
    table.add_column("Query/Gallery", min_width=13)
    for metric in scores[cases[0]]:
        table.add_column(metric, justify="right", min_width=5)
    table.add_column("in words", min_width=max(map(len, MEANING.values())))
    for case in cases:
        table.add_row(case, *(f"{value:.1f}" for value in scores[case].values()), MEANING[case])
    return table
