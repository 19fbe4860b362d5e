"""`crossfade fit`: learn an upgrade from pairs."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crossfade.cli.output import check_written, note, write_json
from crossfade.cli.tables import show, validation_table
from crossfade.cli.training import training_progress
from crossfade.errors import BadInput
from crossfade.solvers.settings import SELECT_CASES, SELECT_METRICS
from crossfade.upgrade import Upgrade
from crossfade.upgrade.artefact import check_target


class Backward(StrEnum):
    orthogonal = "orthogonal"
    near_orthogonal = "near-orthogonal"
    affine = "affine"


class Forward(StrEnum):
    auto = "auto"
    affine = "affine"
    mlp = "mlp"


class Solver(StrEnum):
    fast = "fast"
    paper = "paper"
    closed_form = "closed_form"


class Regularizer(StrEnum):
    smooth = "smooth"
    heaviside = "heaviside"
    so = "so"
    srip = "srip"


class Normalize(StrEnum):
    l2 = "l2"
    none = "none"


def fit(
    pairs: Annotated[
        Path | None, typer.Argument(help="One file with old, new and perhaps labels.")
    ] = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The upgrade folder to write.")
    ] = Path("upgrade"),
    old: Annotated[
        str | None, typer.Option(help="The old vectors: FILE or FILE:NAME.", rich_help_panel="Data")
    ] = None,
    new: Annotated[
        str | None, typer.Option(help="The new vectors: FILE or FILE:NAME.", rich_help_panel="Data")
    ] = None,
    labels: Annotated[
        str | None, typer.Option(help="The labels: FILE or FILE:NAME.", rich_help_panel="Data")
    ] = None,
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="Learn without labels.", rich_help_panel="Data")
    ] = False,
    drop_bad_rows: Annotated[
        bool,
        typer.Option("--drop-bad-rows", help="Leave bad rows out.", rich_help_panel="Data"),
    ] = False,
    normalize_old: Annotated[Normalize, typer.Option(rich_help_panel="Data")] = Normalize.l2,
    normalize_new: Annotated[Normalize, typer.Option(rich_help_panel="Data")] = Normalize.l2,
    rotate_old: Annotated[
        bool,
        typer.Option(
            "--rotate-old",
            help="Where old is longer than new: onto its principal axes before the cut.",
            rich_help_panel="Data",
        ),
    ] = False,
    old_model: Annotated[
        str, typer.Option(help="Its name, for the card.", rich_help_panel="Data")
    ] = "",
    new_model: Annotated[
        str, typer.Option(help="Its name, for the card.", rich_help_panel="Data")
    ] = "",
    backward: Annotated[Backward, typer.Option(help="The kind of B.")] = Backward.orthogonal,
    lam: Annotated[
        str, typer.Option("--lambda", help="λ of a near-orthogonal B; inf for none.")
    ] = "12",
    alpha: Annotated[
        float | None, typer.Option(help="Steepness of the λ switch; 120/λ by default.")
    ] = None,
    regularizer: Annotated[Regularizer, typer.Option()] = Regularizer.smooth,
    regularizer_weight: Annotated[float, typer.Option()] = 1.0,
    forward: Annotated[Forward, typer.Option(help="The kind of F.")] = Forward.auto,
    hidden: Annotated[
        list[int] | None, typer.Option(help="Width of a hidden layer of F; repeat for more.")
    ] = None,
    solver: Annotated[Solver, typer.Option()] = Solver.fast,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    w1: Annotated[
        float | None, typer.Option(help="Weight of L_F.", rich_help_panel="Training")
    ] = None,
    w2: Annotated[
        float | None, typer.Option(help="Weight of L_B.", rich_help_panel="Training")
    ] = None,
    w3: Annotated[float, typer.Option(help="Weight of L_C.", rich_help_panel="Training")] = 1.0,
    w4: Annotated[
        float | None,
        typer.Option(help="Weight of L_contr(B(new), old).", rich_help_panel="Training"),
    ] = None,
    temperature: Annotated[float | None, typer.Option(rich_help_panel="Training")] = None,
    epochs: Annotated[int | None, typer.Option(rich_help_panel="Training")] = None,
    batch_size: Annotated[int | None, typer.Option(rich_help_panel="Training")] = None,
    lr: Annotated[float | None, typer.Option(rich_help_panel="Training")] = None,
    weight_decay: Annotated[float | None, typer.Option(rich_help_panel="Training")] = None,
    validation: Annotated[
        float | None, typer.Option(help="Share held out.", rich_help_panel="Training")
    ] = None,
    select_case: Annotated[
        list[str] | None,
        typer.Option(help="Case that chooses the state; repeatable.", rich_help_panel="Training"),
    ] = None,
    select_metric: Annotated[
        list[str] | None,
        typer.Option(help="Metric that chooses the state; repeatable.", rich_help_panel="Training"),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Go on where pairs are too few, do not belong together, or look swapped.",
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the folder.")] = False,
    json_file: Annotated[
        str | None, typer.Option("--json", metavar="FILE", help="Report as JSON; '-' is stdout.")
    ] = None,
) -> None:
    """Learn the maps of an upgrade from rows embedded by both models."""
    from crossfade.pairs import Pairs

    if pairs is None and old is None:
        raise BadInput("no pairs are named", step="name a file, or --old, --new and --labels")
    upgrade = Upgrade(
        backward_map=backward.value,
        forward_map=forward.value,
        solver=solver.value,
        lam=_lambda(lam),
        alpha=alpha,
        regularizer=regularizer.value,
        regularizer_weight=regularizer_weight,
        hidden=hidden or None,
        w1=w1,
        w2=w2,
        w3=w3,
        w4=w4,
        temperature=temperature,
        epochs=epochs,
        batch_size=batch_size,
        lr=lr,
        weight_decay=weight_decay,
        validation=validation,
        select_cases=tuple(select_case or SELECT_CASES),
        select_metrics=tuple(select_metric or SELECT_METRICS),
        normalize_old=normalize_old.value,
        normalize_new=normalize_new.value,
        rotate_old=rotate_old,
        seed=seed,
        device=device,
        old_model=old_model,
        new_model=new_model,
    )
    # Before the work, not after it.
    check_target(output, overwrite=overwrite)
    check_written(json_file)
    data = Pairs.open(
        pairs,
        old=old,
        new=new,
        labels=labels,
        use_labels=not no_labels,
        drop_bad_rows=drop_bad_rows,
    )
    if data.dropped:
        note(f"{data.name}: {data.dropped} bad rows left out")
    with training_progress() as report:
        upgrade.fit(data, report=report, force=force)
    upgrade.save(output, overwrite=overwrite)
    for text in upgrade.warnings_:
        note(f"warning: {text}")
    for text in upgrade.notes_:
        note(f"note: {text}")
    _print(upgrade, output, json_file)


def _lambda(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise BadInput(f"--lambda {text!r} is not a number", step="use e.g. 12, or inf for none")
    return value


def _print(upgrade: Upgrade, output: Path, json_file: str | None) -> None:
    record = {
        "upgrade": str(output),
        "hash": upgrade.hash_,
        "lambda_reached": upgrade.lambda_reached_,
        "validation_rows": upgrade.config_.fit["validation_rows"],
        "relevance": "labels" if upgrade.config_.fit["classes"] else "neighbours",
        "validation": upgrade.validation_,
        "closed_form": upgrade.closed_form_,
        "warnings": upgrade.warnings_,
        "notes": upgrade.notes_,
    }
    if write_json(record, json_file):
        return
    show(validation_table(upgrade))
    typer.echo(f"written: {output}")
    typer.echo(f"next: crossfade inspect {output}")
    typer.echo(f"      crossfade apply {output} OLD LIFTED --direction forward")
