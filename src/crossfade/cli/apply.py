"""`crossfade apply`: map the vectors of a file into the shared space."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from crossfade.apply import ApplyReport, apply_file
from crossfade.files import replacing
from crossfade.upgrade import Upgrade

_PATIENCE_SECONDS = 2.0


class Direction(StrEnum):
    forward = "forward"
    backward = "backward"


class Stored(StrEnum):
    float16 = "float16"
    float32 = "float32"


def apply(
    upgrade: Annotated[Path, typer.Argument(help="The folder written by `crossfade fit`.")],
    source: Annotated[
        Path, typer.Argument(metavar="IN", help="npy, npz, safetensors, parquet or lance.")
    ],
    target: Annotated[
        Path, typer.Argument(metavar="OUT", help="Its extension chooses the format.")
    ],
    direction: Annotated[
        Direction, typer.Option(help="forward maps old vectors, backward maps new ones.")
    ],
    column: Annotated[
        str | None, typer.Option(help="Which array or column holds the vectors.")
    ] = None,
    dtype: Annotated[
        Stored | None, typer.Option(help="How to store the result; as the input by default.")
    ] = None,
    batch_rows: Annotated[
        int | None, typer.Option(min=1, help="Rows held in memory at a time.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Report as JSON; '-' is stdout.")
    ] = None,
) -> None:
    """Map the vectors of a file into the shared space: old ones forward, new ones backward."""
    fitted = Upgrade.load(upgrade)
    with _progress(source.name) as progress:
        report = apply_file(
            fitted,
            source,
            target,
            direction=direction.value,
            column=column,
            dtype=None if dtype is None else dtype.value,
            batch_rows=batch_rows,
            overwrite=overwrite,
            progress=progress,
        )
    _print(report, direction, json_file)


def _print(report: ApplyReport, direction: Direction, json_file: str | None) -> None:
    if report.left_out:
        Console(stderr=True).print(
            f"{report.path.suffix} holds only the vectors; left out: {', '.join(report.left_out)}",
            highlight=False,
        )
    record = {
        "path": str(report.path),
        "direction": direction.value,
        "rows": report.rows,
        "dim_in": report.dim_in,
        "dim_out": report.dim_out,
        "seconds": round(report.seconds, 3),
        "left_out": list(report.left_out),
    }
    if json_file == "-":
        typer.echo(json.dumps(record))
        return
    if json_file is not None:
        with replacing(Path(json_file), overwrite=True) as temporary:
            temporary.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    typer.echo(
        f"{report.path}: {report.rows} vectors mapped {direction.value}, "
        f"{report.dim_in} → {report.dim_out} dimensions, in {report.seconds:.1f} s"
    )


@contextmanager
def _progress(name: str) -> Iterator[Callable[[int, int], None]]:
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
