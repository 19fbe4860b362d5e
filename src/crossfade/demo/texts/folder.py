"""What the demo on texts leaves behind: every file a step reads, both tables, and what it shows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from crossfade.backfill.plan import check_plan_target
from crossfade.demo import folder as demo_folder
from crossfade.demo.texts.narration import markdown
from crossfade.demo.texts.picture import draw
from crossfade.demo.texts.upgrade import (
    BEFORE,
    EVALUATION,
    HELD,
    LOOKUPS,
    PAIRS,
    PLAN,
    TABLE,
    Report,
    Story,
    run_story,
)
from crossfade.errors import BadInput
from crossfade.files import replacing

NUMBERS, PICTURE, CARD = "quality.json", "quality.png", "quality.md"
FILES = (PAIRS, HELD, LOOKUPS, EVALUATION, NUMBERS, PICTURE, CARD)
TABLES = (BEFORE, TABLE)
_MINE = {"demo": "texts"}


def run(folder: Path, seed: int = 0, report: Report = lambda what, done, total: None) -> Story:
    """The whole demo: every step on a real table in `folder`, and what it shows beside it."""
    # Before the work, not after it.
    check_folder(folder)
    with demo_folder.made(folder):
        clear(folder)
        story = run_story(folder, seed, report)
        fill(folder, story)
    return story


def check_folder(folder: Path) -> None:
    """Refuse a folder that could not be filled, or that holds tables of somebody else's."""
    demo_folder.check_folder(folder, FILES)
    if not folder.exists():
        return
    if (folder / PLAN).exists():
        check_plan_target(folder / PLAN, overwrite=True)
    found = [name for name in TABLES if (folder / name).exists()]
    if found and not _is_mine(folder):
        raise BadInput(
            "is there and is not the demo's", where=folder / found[0], step="name another folder"
        )


def clear(folder: Path) -> None:
    """Away with the tables of an earlier run. From here on tables of these names are the demo's,
    however this run ends."""
    _write_numbers(folder, {})
    for name in TABLES:
        if (folder / name).exists():
            shutil.rmtree(folder / name)
        # The journal of a migration stands beside its table, whoever ran it.
        for left in folder.glob(f".{name}.crossfade.*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def fill(folder: Path, story: Story) -> None:
    """Add the numbers, the picture and the card to what the steps have written."""
    _write_numbers(folder, story.record())
    with replacing(folder / PICTURE, overwrite=True) as temporary:
        temporary.write_bytes(draw(story))
    with replacing(folder / CARD, overwrite=True) as temporary:
        temporary.write_text(markdown(story, PICTURE), encoding="utf-8")


def _write_numbers(folder: Path, record: dict[str, Any]) -> None:
    with replacing(folder / NUMBERS, overwrite=True) as temporary:
        text = json.dumps(_MINE | record, indent=2, ensure_ascii=False)
        temporary.write_text(text + "\n", encoding="utf-8")


def _is_mine(folder: Path) -> bool:
    try:
        found = json.loads((folder / NUMBERS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(found, dict) and found.get("demo") == _MINE["demo"]
