"""kill -9 while a request is under way: what it may have cost is known to the next run."""

from __future__ import annotations

import threading

import pytest
from tests.embedders.server import Server, changed, fails
from tests.faults.migrating import spending
from tests.migration.conftest import texts_of
from tests.stores.apps import LanceApp, PostgresApp

from crossfade.journal.columns import STATE
from crossfade.migration import Migration

ROWS, KILLS = 400, 25
APPS = {"lancedb": LanceApp, "pgvector": PostgresApp}


class Till(Server):
    """Charges a token for each letter that it is asked about, whatever becomes of the answer."""

    def __init__(self, model):
        super().__init__(model)
        self.held, self.gone = threading.Semaphore(0), threading.Event()

    def embedded(self, asked):
        return super().embedded(asked) | {"usage": {"total_tokens": letters(asked)}}

    @property
    def charged(self):
        return sum(map(letters, self.requests))


def letters(asked):
    return sum(map(len, asked["input"]))


def hold(till, handler, asked):
    """The money is taken, and the answer kept until nobody is there to hear it."""
    till.held.release()
    till.gone.wait()
    handler.close_connection = True


@pytest.fixture(params=sorted(APPS))
def app(request, tmp_path):
    return APPS[request.param](tmp_path)


@pytest.fixture
def lifted(app, models, upgrade_folder):
    """A store with every row lifted."""
    texts = texts_of(ROWS)
    app.create(list(range(ROWS)), texts, [ord(t[0]) for t in texts], models.old(texts))
    migration = Migration(app.address, upgrade_folder)
    migration.start(source="body", force=True)
    migration.forward()
    yield migration
    migration.close()


@pytest.fixture
def till(models):
    server = Till(lambda texts: models.new(list(texts)))
    server.start()
    yield server
    server.gone.set()
    server.stop()


def killed(till, passed: int, *arguments) -> None:
    """A run that is killed when some requests have come through, and all that are under way then
    were charged and are not answered: one more with each good answer."""
    till.plans = [None] * passed + [hold] * ROWS
    till.gone.clear()
    process = spending(*arguments)
    for _ in range(passed + 1):
        while not till.held.acquire(timeout=0.05):
            assert process.exitcode is None, f"ended with {process.exitcode} before it was held"
    process.kill()
    process.join()
    till.gone.set()


def test_killed_again_and_again_it_never_spends_more_than_the_cap(
    app, lifted, till, upgrade_folder, plan_folder
):
    cap = 19_000.0
    arguments = (app.address, str(upgrade_folder), str(plan_folder), till.url, cap)
    for kill in range(KILLS):
        before = till.charged
        # Now and then several are under way.
        killed(till, kill // 5 % 4 if kill % 5 == 0 else 0, *arguments)
        assert before < till.charged <= lifted.journal.spent <= cap
    assert till.most_under_way == 4
    filled = lifted.store.tally(STATE).get("filled", 0)
    till.plans = []
    last = spending(*arguments)
    last.join()
    assert last.exitcode == 0
    journal, rows = lifted.journal, lifted.store.tally(STATE)
    assert "is spent" in journal.events[-1].what
    assert till.charged <= journal.spent <= cap
    assert filled < rows["filled"] < ROWS, "it went on as far as there was money"
    # A text of 16 letters could cost 32, with what may stand around it.
    assert cap - journal.spent < 32
    print(f"{till.charged} of {cap:.0f} charged over {KILLS} kills; {rows}")


def says(tokens):
    return changed(lambda answer: answer.update(usage=tokens))


LIES = {
    "0 tokens": [says({"total_tokens": 0, "prompt_tokens": 0})],
    "1 token": [says({"total_tokens": 1})],
    "nothing": [says(None)],
    "busy": [fails(429), None],
    "broken": [fails(500), None],
}


@pytest.mark.parametrize("app", ["lancedb"], indirect=True)
@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_charges_and_says_otherwise_gets_no_more_than_the_cap(
    app, lifted, till, upgrade_folder, plan_folder, lie
):
    till.plans = LIES[lie] * ROWS
    cap = 2_000.0
    for _ in range(3):
        process = spending(app.address, str(upgrade_folder), str(plan_folder), till.url, cap)
        process.join()
        assert process.exitcode == 0
    assert 0 < till.charged <= lifted.journal.spent <= cap
    assert lifted.store.tally(STATE)["filled"] > 0
