"""The table of stages and steps: drawn in the docs as it is, and kept to by the code."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.migration.conftest import Function

from crossfade.errors import BadInput
from crossfade.journal.journal import load_journal, save_journal
from crossfade.journal.transitions import OVER, TRANSITIONS, allowed, drawn

STAGES = {stage for one in TRANSITIONS for stage in (*one.begins, one.during, one.ends)} - {None}


def test_the_docs_show_the_table():
    page = Path(__file__).parents[2] / "docs" / "migrate.md"
    assert drawn() in page.read_text()


def test_every_stage_can_be_left_but_the_ends():
    for stage in STAGES:
        steps = {one.step for one in TRANSITIONS if stage in one.begins and one.ends != stage}
        leaving = {one.step for one in TRANSITIONS if stage in one.begins and one.ends is not None}
        assert leaving == {"start"} if stage in OVER else "rollback" in steps


def test_a_step_goes_on_from_the_stage_it_runs_in():
    for one in TRANSITIONS:
        if one.during is not None and one.step != "start":
            assert one.during in allowed(one.step)


@pytest.mark.parametrize("stage", sorted(STAGES - set(OVER)))
def test_what_the_table_forbids_is_refused(world, lifted, stage):
    journal = load_journal(lifted.store)
    steps = {
        "start": lambda: lifted.start(force=True),
        "forward": lifted.forward,
        "backfill": lambda: lifted.backfill(Function(world.models), share=0.1),
        "verify": lifted.verify,
        "finish": lambda: lifted.finish(force=True),
    }
    for step, act in steps.items():
        if stage not in allowed(step):
            save_journal(lifted.store, journal.after(stage=stage))
            with pytest.raises(BadInput, match=r"in the stage|is under way"):
                act()
            assert load_journal(lifted.store).stage == stage
