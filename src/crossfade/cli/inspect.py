"""`crossfade inspect`: what is in an upgrade folder, a pairs file or a store."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from crossfade.cli.output import PlainConsole
from crossfade.cli.tables import validation_table
from crossfade.compatibility.stability import stability
from crossfade.files import list_arrays, split_name
from crossfade.files.guards import reading
from crossfade.maps import Mlp
from crossfade.upgrade import Upgrade


def inspect(
    what: Annotated[
        str | None,
        typer.Argument(metavar="UPGRADE|PAIRS|STORE", help="A folder, a file or an address."),
    ] = None,
    old: Annotated[str | None, typer.Option(help="The old vectors: FILE or FILE:NAME.")] = None,
    new: Annotated[str | None, typer.Option(help="The new vectors: FILE or FILE:NAME.")] = None,
    labels: Annotated[str | None, typer.Option(help="The labels: FILE or FILE:NAME.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON on stdout.")] = False,
) -> None:
    """Show an upgrade's maps and what they reached, a pairs file's rows, or a store's."""
    path = None if what is None else Path(what)
    if what is not None and is_store(what):
        facts = store_facts(what)
        # Not as it was typed: that may hold a password.
        tables: list[Table | str] = [facts_table(facts["name"], facts)]
    elif path is not None and path.is_dir() and path.suffix != ".lance":
        upgrade = Upgrade.load(path)
        facts = upgrade_facts(upgrade)
        tables = [
            facts_table(str(path), {k: v for k, v in facts.items() if k != "validation"}),
            validation_table(upgrade),
        ]
    else:
        from crossfade.lookups.file import parts_of
        from crossfade.pairs import Pairs

        pairs = Pairs.open(path, old=old, new=new, labels=labels, strict=False)
        facts = pairs.describe()
        if path is not None:
            facts |= parts_of(path)
        tables = [facts_table(pairs.name, facts)]
    if as_json:
        # JSON has no infinity: λ = ∞ is spelled out.
        if math.isinf(facts.get("lambda", {}).get("asked") or 0.0):
            facts["lambda"]["asked"] = "inf"
        typer.echo(json.dumps(facts))
        return
    console = PlainConsole()
    for table in tables:
        console.print(table)


def is_store(what: str) -> bool:
    """An address, a LanceDB table that is no pairs file, or a folder of Parquet files."""
    path = Path(what)
    with reading(path):
        there = path.exists()
    if not there and ("#" in what or ":" in what.split("/", 1)[0]):
        return split_name(what)[1] is None
    if path.suffix == ".lance" and path.is_dir():
        names = {array.name for array in list_arrays(path)}
        return not {"old", "new"} <= names
    return path.is_dir() and any(path.glob("*.parquet"))


def store_facts(what: str) -> dict[str, Any]:
    """What the store says of itself, and where its migration stands."""
    from crossfade.journal import open_migrating
    from crossfade.journal.journal import load_journal

    store = open_migrating(what)
    try:
        facts = asdict(store.describe())
        journal = load_journal(store)
        facts["migration"] = None if journal is None else journal.stage
        return facts
    finally:
        store.close()


def upgrade_facts(upgrade: Upgrade) -> dict[str, Any]:
    """Directions, dimensions, λ asked and reached, losses, and the angles between B's columns."""
    config, backward, forward = upgrade.config_, upgrade.backward_.map, upgrade.forward_.map
    geometry = stability(backward)
    losses = {}
    for entry in upgrade.history_:
        if entry["losses"]:
            losses[entry["block"]] = {k: round(v, 4) for k, v in entry["losses"].items()}
    return {
        "hash": upgrade.hash_,
        "version": config.crossfade_version,
        "solver": config.settings["solver"],
        "backward": f"new ({upgrade.new_dim_}) → shared ({upgrade.shared_dim_}), {backward.kind}",
        "forward": f"old ({upgrade.old_dim_}) → shared ({upgrade.shared_dim_}), {forward.kind}"
        + (f" {forward.hidden}" if isinstance(forward, Mlp) else ""),
        "old": config.old.model_dump(),
        "new": config.new.model_dump(),
        # An mlp has no single W.
        "lambda": {
            "asked": config.lambda_asked,
            "reached": None if math.isnan(config.lambda_reached) else config.lambda_reached,
        },
        "singular_values": geometry.get("singular_values"),
        "column_angles_degrees": geometry.get("column_angles_degrees"),
        "fit": config.fit,
        "last_losses": losses,
        "notes": config.notes,
        "validation": upgrade.validation_,
    }


def facts_table(title: str, facts: dict[str, Any]) -> Table:
    """Two columns; nested facts on one line each."""
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _spell(value))
    return table


def _spell(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{k.replace('_', ' ')}: {_spell(v)}" for k, v in value.items()) or "–"
    if isinstance(value, list):
        return "\n".join(_spell(v).replace("\n", ", ") for v in value) or "–"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "–" if value is None else str(value)
