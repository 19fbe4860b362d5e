"""`crossfade inspect`: what is in an upgrade folder, a pairs file or a store."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import typer
from rich.table import Table

from crossfade.cli.output import PlainConsole
from crossfade.cli.tables import validation_table
from crossfade.journal.opening import describe_store
from crossfade.remote import to_path
from crossfade.stores.registry import is_store
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
    path = None if what is None else to_path(what)
    if what is not None and is_store(what):
        facts = describe_store(what)
        # Not as it was typed: that may hold a password.
        tables: list[Table | str] = [facts_table(facts["name"], facts)]
    elif path is not None and path.is_dir() and path.suffix != ".lance":
        upgrade = Upgrade.load(path)
        facts = upgrade.describe()
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
