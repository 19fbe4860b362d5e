"""The names of stages are the journal's: everyone else asks it what a stage means."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import get_args

import pytest

import crossfade
from crossfade.journal.transitions import Stage

SOURCE = Path(crossfade.__file__).parent
STAGES = set(get_args(Stage))


def compared(tree: ast.AST) -> list[int]:
    """Lines on which something called `stage` is compared with the name of one."""
    out = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Match):
            parts = [node.subject, *(case.pattern for case in node.cases)]
        else:
            continue
        inside = [found for part in parts for found in ast.walk(part)]
        named = any(isinstance(x, ast.Attribute) and x.attr == "stage" for x in inside)
        names = {x.value for x in inside if isinstance(x, ast.Constant)} & STAGES
        if named and names:
            out.append(node.lineno)
    return out


@pytest.mark.parametrize(
    "line",
    [
        'if journal.stage == "finished": pass',
        'x = a.stage in ("forward", "backfilling")',
        'match a.stage:\n    case "started" | "finished":\n        pass',
    ],
)
def test_a_comparison_is_seen(line):
    assert compared(ast.parse(line))


def test_nobody_but_the_journal_compares_stages_by_name():
    found = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.parent.name != "journal"
        for line in compared(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []
