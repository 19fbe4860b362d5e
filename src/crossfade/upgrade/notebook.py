"""How upgrades, compatibility tables and plans show themselves in a notebook: a plain table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

_CELL = "padding:2px 10px;text-align:"


def render_table(title: str, head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table that stands by itself: no script, no style sheet, every text escaped.

    >>> render_table("A & B", ["case"], [["<old>"]])[:60]
    '<table><caption style="text-align:left"><b>A &amp; B</b></ca'
    """
    parts = [f'<table><caption style="text-align:left"><b>{escape(title)}</b></caption>']
    if head:
        parts.append(_row("th", head))
    parts += [_row("td", row) for row in rows]
    return "".join([*parts, "</table>"])


def _row(tag: str, cells: Sequence[object]) -> str:
    sides = ["left", *["right"] * (len(cells) - 1)]
    found = (
        f'<{tag} style="{_CELL}{side}">{escape(str(cell))}</{tag}>'
        for side, cell in zip(sides, cells, strict=True)
    )
    return f"<tr>{''.join(found)}</tr>"
