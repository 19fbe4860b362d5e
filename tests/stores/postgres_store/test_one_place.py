"""Statements of pgvector stand in one file."""

from __future__ import annotations

import ast
from pathlib import Path

import crossfade.stores.postgres

VERBS = (
    "ALTER", "ANALYZE", "BEGIN", "COMMENT", "COMMIT", "COPY", "CREATE", "DELETE", "DROP", "EXPLAIN",
    "GRANT", "INSERT", "LOCK", "RESET", "REVOKE", "SELECT", "SET", "TRUNCATE", "UPDATE", "VACUUM",
    "WITH",
)  # fmt: skip


def statements_in(file: Path) -> list[str]:
    texts = [
        node.value.strip()
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    return [text for text in texts if text.split(" ", 1)[0] in VERBS]


def test_no_other_module_says_anything_to_the_server():
    folder = Path(crossfade.stores.postgres.__file__).parent
    found = {file.name: statements_in(file) for file in folder.glob("*.py")}
    assert len(found.pop("statements.py")) > 60
    assert {name for name, texts in found.items() if texts} == set()
