"""`crossfade export`: an upgrade as an ONNX model, for runtimes without Python."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crossfade.upgrade import Upgrade


class Direction(StrEnum):
    forward = "forward"
    backward = "backward"


def export(
    upgrade: Annotated[Path, typer.Argument(help="The folder written by `crossfade fit`.")],
    onnx: Annotated[Path, typer.Option("--onnx", metavar="FILE", help="The ONNX file to write.")],
    direction: Annotated[
        Direction, typer.Option(help="backward (B, for queries) or forward (F).")
    ] = Direction.backward,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE.")] = False,
) -> None:
    """Write one map as ONNX, checked against numpy before the file is put in place."""
    from crossfade.upgrade.onnx import export_onnx

    difference = export_onnx(
        Upgrade.load(upgrade), onnx, direction=direction.value, overwrite=overwrite
    )
    typer.echo(f"{onnx}: {direction.value} map, largest difference from numpy {difference:.1e}")
