"""`crossfade apply`: map the vectors of a file into the shared space."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from crossfade.cli.allocator import give_back_memory, share_heaps
from crossfade.cli.engine import (
    ClusterAddress,
    EngineChoice,
    EngineOption,
    NumActors,
    engine_of,
)
from crossfade.cli.output import note, waiting, write_json
from crossfade.engines.apply import apply as apply_to
from crossfade.remote import to_path
from crossfade.upgrade import Upgrade
from crossfade.upgrade.apply import ApplyReport


class Direction(StrEnum):
    forward = "forward"
    backward = "backward"


class Stored(StrEnum):
    float16 = "float16"
    float32 = "float32"


def apply(
    upgrade: Annotated[str, typer.Argument(help="The folder written by `crossfade fit`.")],
    source: Annotated[
        str,
        typer.Argument(
            metavar="IN",
            help="npy, npz, safetensors, parquet, lance, a FAISS index, or a folder of Parquet "
            "files.",
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="OUT", help="Its extension chooses the format; without one it is a folder."
        ),
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
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "cpu",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace OUT.")] = False,
    engine: EngineChoice = EngineOption.local,
    address: ClusterAddress = None,
    num_actors: NumActors = None,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Report as JSON; '-' is stdout.")
    ] = None,
) -> None:
    """Map the vectors of a file into the shared space: old ones forward, new ones backward."""
    share_heaps()
    fitted = Upgrade.load(upgrade)
    with (
        give_back_memory(),
        engine_of(engine, address, num_actors) as workers,
        waiting(to_path(source).name) as progress,
    ):
        report = apply_to(
            fitted,
            source,
            target,
            direction=direction.value,
            column=column,
            dtype=None if dtype is None else dtype.value,
            batch_rows=batch_rows,
            overwrite=overwrite,
            device=device,
            progress=progress,
            engine=workers,
        )
    _print(report, direction, json_file)


def _print(report: ApplyReport, direction: Direction, json_file: str | None) -> None:
    if report.left_out:
        note(
            f"{report.path.suffix} has no place for what is left out: {', '.join(report.left_out)}"
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
    if write_json(record, json_file):
        return
    typer.echo(
        f"{report.path}: {report.rows} vectors mapped {direction.value}, "
        f"{report.dim_in} → {report.dim_out} dimensions, in {report.seconds:.1f} s"
    )
