"""`crossfade export`: an upgrade's map where other software looks for it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crossfade.cli.output import note, waiting
from crossfade.errors import BadInput
from crossfade.upgrade import Upgrade


class Direction(StrEnum):
    forward = "forward"
    backward = "backward"


class Space(StrEnum):
    old = "old"
    shared = "shared"


def export(
    upgrade: Annotated[Path, typer.Argument(help="The folder written by `crossfade fit`.")],
    onnx: Annotated[
        Path | None, typer.Option("--onnx", metavar="FILE", help="Write one map as an ONNX file.")
    ] = None,
    sentence_transformers: Annotated[
        str | None,
        typer.Option(
            "--sentence-transformers",
            metavar="NEW_MODEL",
            help="Write this model with B behind it to the folder -o.",
        ),
    ] = None,
    faiss: Annotated[
        Path | None,
        typer.Option(
            "--faiss", metavar="OLD.index", help="Write this FAISS index with B before it to -o."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The folder or index to write.")
    ] = None,
    direction: Annotated[
        Direction | None,
        typer.Option(help="With --onnx: backward (B, for queries, the default) or forward (F)."),
    ] = None,
    space: Annotated[
        Space | None,
        typer.Option(
            help="With --sentence-transformers: queries for the index of old vectors (the default) "
            "or vectors in the shared space."
        ),
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Fetch NEW_MODEL from the hub if it is not here.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> None:
    """Write B for ONNX, for sentence-transformers or into a FAISS index, checked against numpy."""
    named = {"--onnx": onnx, "--sentence-transformers": sentence_transformers, "--faiss": faiss}
    given = [name for name, value in named.items() if value is not None]
    if len(given) != 1:
        raise BadInput(
            f"{' and '.join(given)} exclude each other" if given else "nothing to export to",
            step="give one of --onnx, --sentence-transformers and --faiss",
        )
    _refuse_others(given[0], output, direction, space, download)
    fitted = Upgrade.load(upgrade)
    if onnx is not None:
        _to_onnx(fitted, onnx, direction or Direction.backward, overwrite)
    elif faiss is not None and output is not None:
        _to_faiss(fitted, faiss, output, overwrite)
    elif sentence_transformers is not None and output is not None:
        chosen = space or Space.old
        _to_sentence_transformers(
            fitted, sentence_transformers, output, chosen, download, overwrite
        )


def _refuse_others(
    target: str,
    output: Path | None,
    direction: Direction | None,
    space: Space | None,
    download: bool,
) -> None:
    """Options that mean nothing for this target were meant for another."""
    of_others = {
        "--direction": (direction, "--onnx"),
        "--space": (space, "--sentence-transformers"),
        "--download": (download or None, "--sentence-transformers"),
    }
    for name, (value, owner) in of_others.items():
        if value is not None and owner != target:
            raise BadInput(f"{name} is for {owner}, not for {target}", step="leave it out")
    if (output is None) == (target != "--onnx"):
        raise BadInput(
            f"{target} needs a place to write to" if output is None else "--onnx names its file",
            step="add -o" if output is None else "leave -o out",
        )


def _to_onnx(upgrade: Upgrade, path: Path, direction: Direction, overwrite: bool) -> None:
    from crossfade.upgrade.onnx import export_onnx

    difference = export_onnx(upgrade, path, direction=direction.value, overwrite=overwrite)
    typer.echo(f"{path}: {direction.value} map, largest difference from numpy {difference:.1e}")


def _to_faiss(upgrade: Upgrade, index: Path, path: Path, overwrite: bool) -> None:
    from crossfade.integrations.faiss import export_faiss

    difference = export_faiss(upgrade, index, path, overwrite=overwrite)
    typer.echo(
        f"{path}: {index.name} with B before it takes new vectors of {upgrade.new_dim_} "
        f"dimensions, largest difference from numpy {difference:.1e}"
    )


def _to_sentence_transformers(
    upgrade: Upgrade, model: str, folder: Path, space: Space, download: bool, overwrite: bool
) -> None:
    from crossfade.integrations.sentence_transformers import (
        export_sentence_transformers,
        is_served_alike,
    )

    with waiting(model) as progress:
        difference = export_sentence_transformers(
            upgrade,
            model,
            folder,
            space=space.value,
            download=download,
            overwrite=overwrite,
            progress=progress,
        )
    what = (
        f"queries for the old index, {upgrade.old_dim_}"
        if space is Space.old
        else f"vectors in the shared space, {upgrade.shared_dim_}"
    )
    typer.echo(
        f"{folder}: encode gives {what} numbers each, largest difference from numpy "
        f"{difference:.1e}"
    )
    if not is_served_alike(upgrade):
        note(
            "B has a bias: sentence-transformers computes it exactly, servers that leave out the "
            "Normalize before a Dense (text-embeddings-inference, vLLM) do not"
        )
