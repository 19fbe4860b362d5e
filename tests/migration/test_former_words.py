"""A migration begun when states were called `forward` and `new` goes on."""

from __future__ import annotations

import pyarrow as pa
import pytest
from tests.migration.conftest import ROWS, Function

from crossfade.journal.columns import KNOWN, STATE, VECTOR, count_states
from crossfade.journal.journal import load_journal
from crossfade.stores import TOKEN

FORMER = {"lifted": "forward", "filled": "new"}


def in_former_words(store) -> None:
    for rows in list(store.stream([VECTOR, *KNOWN])):
        states = [FORMER[state.as_py()] for state in rows[STATE]]
        columns = {name: rows[name] for name in rows.schema.names if name != TOKEN}
        store.write(pa.RecordBatch.from_pydict(columns | {STATE: pa.array(states)}))


@pytest.fixture
def former(world, lifted, plan_folder):
    lifted.backfill(Function(world.models), plan=plan_folder, labels="kind", share=0.3)
    text = world.texts[7]
    new, old = world.models.new([text])[0], world.models.old([text])[0]
    before = [hit.score for hit in lifted.searcher(refresh=0).search(new, old=old, ask="both")]
    in_former_words(lifted.store)
    assert set(lifted.store.tally(STATE)) == {"forward", "new"}
    again = [hit.score for hit in lifted.searcher(refresh=0).search(new, old=old, ask="both")]
    assert again == pytest.approx(before, abs=1e-5)
    return lifted


def test_it_is_read_searched_and_verified(world, former):
    status = former.status()
    assert (status.lifted, status.filled) == (ROWS - int(0.3 * ROWS), int(0.3 * ROWS))
    assert former.verify(embed=Function(world.models)).passed
    former.forward()
    embedder = Function(world.models)
    assert former.backfill(embedder, share=0.5).filled == ROWS // 2
    assert len(set(embedder.asked)) == ROWS // 2 - int(0.3 * ROWS)
    assert count_states(former.store) == {"old": 0, "lifted": ROWS // 2, "filled": ROWS // 2}


def test_it_is_finished(former):
    former.finish(force=True)
    assert load_journal(former.store).stage == "finished"
    assert former.status().filled == int(0.3 * ROWS)
