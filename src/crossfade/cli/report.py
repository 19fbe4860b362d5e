"""`crossfade report`: upgrade, evaluation, plan and migration as one HTML file to pass on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crossfade.cli.output import PlainConsole, check_written, note, write_json


def report(
    places: Annotated[
        list[str],
        typer.Argument(
            metavar="FOLDER...",
            help="Folders of `fit` and `plan`, a file of `evaluate --json`, the address of a "
            "store, or a folder that holds some of them.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML file to write.")
    ],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE.")] = False,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="'-' is stdout.")
    ] = None,
) -> None:
    """Write one self-contained page: the answer, the cases, the curve, cost, risks, commands."""
    from crossfade.files.atomic import refuse_existing
    from crossfade.report import write_report

    check_written(output, json_file)
    refuse_existing(output, overwrite=overwrite)
    made = write_report(places, output, overwrite=overwrite)
    record = {"written": str(made.path), "answer": made.answer, "missing": made.missing}
    if write_json(record, json_file):
        return
    PlainConsole().print(made.answer)
    for name in made.missing:
        note(f"not in it: {name}")
    PlainConsole().print(f"written: {made.path}")
