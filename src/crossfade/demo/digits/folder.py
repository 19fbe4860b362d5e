"""What the demo on digits leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from crossfade.demo.digits.picture import draw
from crossfade.demo.digits.story import Embedded, Report, Story, run_story
from crossfade.demo.folder import UPGRADE, check_folder, made
from crossfade.files import replacing

PAIRS, TEST, TABLE, PICTURE = "pairs.npz", "test.npz", "demo.json", "spaces.png"
FILES = (PAIRS, TEST, TABLE, PICTURE)


def run(folder: Path, seed: int = 0, report: Report = lambda what, done, total: None) -> Story:
    """The whole demo: train, learn, measure, and leave everything in `folder`."""
    # Before the work, not after it.
    check_folder(folder, FILES)
    story = run_story(seed, report)
    fill(folder, story)
    return story


def fill(folder: Path, story: Story) -> None:
    """Write the upgrade, both sets of vectors, the numbers and the picture into `folder`.

    Files of an earlier run are replaced; anything else in the folder is left alone.
    """
    with made(folder):
        story.upgrade.save(folder / UPGRADE, overwrite=True)
        _save(folder / PAIRS, story.train)
        _save(folder / TEST, story.test)
        with replacing(folder / TABLE, overwrite=True) as temporary:
            text = json.dumps(story.record(), indent=2, ensure_ascii=False)
            temporary.write_text(text + "\n", encoding="utf-8")
        with replacing(folder / PICTURE, overwrite=True) as temporary:
            temporary.write_bytes(draw(story.spaces))


def _save(path: Path, rows: Embedded) -> None:
    with replacing(path, overwrite=True) as temporary, temporary.open("wb") as file:
        np.savez(file, old=rows.old, new=rows.new, labels=rows.labels)
