"""The level of today's search, as every command is told it that compares with it."""

from __future__ import annotations

from typing import Any

import typer


def today_option(panel: str) -> Any:
    """`--today LEVEL`."""
    return typer.Option(
        min=0,
        max=100,
        help="The level of today's search in percent, in place of old/old where the old model is "
        "gone.",
        rich_help_panel=panel,
    )
