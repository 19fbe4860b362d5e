"""Pages of docs/ speak of files that are there, and the glossary leaves no word out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from crossfade.asking import Asking
from crossfade.journal.columns import State
from crossfade.journal.transitions import Stage, Step

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FILE = re.compile(r"`((?:\w+/)+(?:\w+\.py)?|\w+\.py)`")


@pytest.mark.parametrize("page", ["glossary.md", "contributing.md", "method.md"])
def test_every_file_that_a_page_names_is_there(page):
    named = FILE.findall((DOCS / page).read_text("utf-8"))
    assert named
    for name in named:
        assert (ROOT / name).exists() or (ROOT / "src" / "crossfade" / name).exists(), name


@pytest.mark.parametrize("words", [Stage, Step, State, Asking])
def test_every_word_of_a_closed_set_is_in_the_glossary(words):
    text = (DOCS / "glossary.md").read_text("utf-8")
    assert [word for word in get_args(words) if f"`{word}`" not in text] == []


def test_a_word_is_explained_once():
    rows = re.findall(r"^\| ([^|]+?) \|", (DOCS / "glossary.md").read_text("utf-8"), re.MULTILINE)
    words = [word for row in rows if row not in ("word", "---") for word in row.split(", ")]
    assert sorted(words) == sorted(set(words))
