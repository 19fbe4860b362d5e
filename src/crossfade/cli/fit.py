"""`crossfade fit`: learn an upgrade from pairs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from crossfade.cli.output import PlainConsole, check_written, note, write_json
from crossfade.cli.tables import show, validation_table
from crossfade.errors import BadInput
from crossfade.solvers.settings import Declared, declared
from crossfade.upgrade import Upgrade
from crossfade.upgrade.artefact import check_target
from crossfade.upgrade.upgrade import Report


def _with_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with a parameter for each option of a fit in place of its `**options`."""
    given = signature(command, eval_str=True).parameters.values()
    own = [p for p in given if p.kind is not p.VAR_KEYWORD]
    names = [p.name for p in own]
    first, last = own[: names.index("force")], own[names.index("force") :]
    generated = [_parameter(one) for one in declared()]
    # typer reads the signature, and shows options and panels in the order in which it meets them.
    command.__signature__ = Signature([*first, *generated, *last])  # type: ignore[attr-defined]
    return command


def _parameter(one: Declared) -> Parameter:
    flag = one.shown.flag or f"--{one.name.replace('_', '-')}"
    option = typer.Option(
        flag, help=one.shown.help, rich_help_panel=one.shown.panel, min=one.shown.least
    )
    kind, default = one.type, one.default
    for part in (kind, *get_args(kind)):
        if get_origin(part) is Sequence:
            # On a command line an option is repeated to make a list of it.
            kind = list[get_args(part)[0]]  # type: ignore[misc]
            default = list(default or ())
    return Parameter(
        one.name,
        Parameter.POSITIONAL_OR_KEYWORD,
        default=default,
        annotation=Annotated[kind, option],
    )


@_with_options
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
    **options: Any,
) -> None:
    """Learn the maps of an upgrade from rows embedded by both models."""
    from crossfade.pairs import Pairs

    if pairs is None and old is None:
        raise BadInput("no pairs are named", step="name a file, or --old, --new and --labels")
    # An option that is not repeated at all is one left out.
    options["hidden"] = options["hidden"] or None
    upgrade = Upgrade(**options)
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


def describe(entry: dict[str, Any]) -> str:
    """Losses, ‖WWᵀ−I‖ and, where it was measured, validation, in one line.

    >>> describe({"losses": {"L_F": 1.5}, "deviation": 0.0, "validation_mean": 70.0})
    'L_F 1.500  ‖WWᵀ−I‖ 0.00  validation 70.0'
    """
    parts = [f"{name} {value:.3f}" for name, value in entry["losses"].items()]
    parts.append(f"‖WWᵀ−I‖ {entry['deviation']:.2f}")
    if "validation_mean" in entry:
        parts.append(f"validation {entry['validation_mean']:.1f}")
    return "  ".join(parts)


@contextmanager
def training_progress() -> Iterator[Report]:
    """A `report` for `Upgrade.fit`."""
    console = PlainConsole(stderr=True)
    if not console.is_terminal:
        yield lambda entry: _line(console, entry)
        return
    with Progress(
        TextColumn("{task.description:<8}"),
        BarColumn(bar_width=20),
        TextColumn("{task.completed}/{task.total} epochs"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[detail]}"),
        console=console,
    ) as progress:
        tasks: dict[str, TaskID] = {}

        def report(entry: dict[str, Any]) -> None:
            block = entry["block"]
            if entry["epochs"] == 0:
                return
            if block not in tasks:
                tasks[block] = progress.add_task(block, total=entry["epochs"], detail="")
            progress.update(tasks[block], completed=entry["epoch"], detail=describe(entry))

        yield report


def _line(console: PlainConsole, entry: dict[str, Any]) -> None:
    if "validation" in entry or entry["epoch"] == entry["epochs"]:
        where = f"{entry['block']} {entry['epoch']}/{entry['epochs']}"
        console.print(f"{where}  {describe(entry)}", soft_wrap=True)
