"""A LanceDB table in use, an upgrade and a plan for it, and the page that shows it."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from tests.browser import browser
from tests.stores.apps import LanceApp
from tests.stores.conftest import app  # noqa: F401  (every store in turn)

from crossfade import Held, Migration, Pairs, Upgrade, plan
from crossfade.migration.live_quality import Queries

ROWS = 300
FITTED, HELD, STORED = slice(0, 300), slice(300, 600), slice(600, 600 + ROWS)
ASKED = slice(900, 940)


@pytest.fixture(scope="session")
def seen():
    """Items of classes as two models see them, the old one through noise."""
    rng = np.random.default_rng(0)
    labels = np.arange(940) % 12
    items = rng.normal(size=(12, 10))[labels] + 0.7 * rng.normal(size=(940, 10))
    new = (items @ rng.normal(size=(10, 16)) + 2).astype(np.float32)
    noise = 2.2 * rng.normal(size=(940, 12))
    old = (items @ rng.normal(size=(10, 12)) + noise + 2).astype(np.float32)
    return SimpleNamespace(old=old, new=new, labels=labels)


@pytest.fixture(scope="session")
def upgrade_folder(seen, tmp_path_factory):
    folder = tmp_path_factory.mktemp("upgrade") / "upgrade"
    upgrade = Upgrade(solver="closed_form", old_model="coarse", new_model="fine")
    upgrade.fit(seen.old[FITTED], seen.new[FITTED], seen.labels[FITTED]).save(folder)
    return folder


@pytest.fixture(scope="session")
def plan_folder(seen, upgrade_folder, tmp_path_factory):
    """A plan that asks both models, and has something to fill."""
    folder = tmp_path_factory.mktemp("plan") / "plan"
    held = Held.of(Pairs.from_arrays(seen.old[HELD], seen.new[HELD], seen.labels[HELD]))
    made = plan(
        Upgrade.load(upgrade_folder),
        held,
        optimize=["mAP"],
        orders=["random"],
        blends=[1.0],
        ask=["both"],
    )
    assert made.record.stop > 0.8
    made.save(folder)
    return folder


@pytest.fixture(scope="module")
def chromium():
    with browser() as one:
        yield one


@pytest.fixture
def place(seen, tmp_path):
    """The application's table, as it is before anybody migrates it."""
    user = LanceApp(tmp_path)
    rows = range(600, 600 + ROWS)
    texts, labels = [str(row) for row in rows], seen.labels[STORED].tolist()
    user.create(list(range(ROWS)), texts, labels, seen.old[STORED])
    yield user.address
    user.close()


@pytest.fixture
def migration(place, upgrade_folder):
    made = Migration(place, upgrade_folder)
    yield made
    made.close()


@pytest.fixture
def embed(seen):
    """The new model, which knows an item by the number that is its text."""
    return lambda texts: seen.new[[int(text) for text in texts]]


@pytest.fixture
def queries(seen):
    return Queries(seen.old[ASKED], seen.new[ASKED], seen.labels[ASKED].tolist(), "kind")


@pytest.fixture
def under_way(migration, plan_folder, embed):
    """A migration with four tenths filled."""
    migration.start(source="body", plan=plan_folder, force=True)
    migration.forward()
    migration.backfill(embed, plan=plan_folder, share=0.4)
    return migration


@contextmanager
def watching(place, *options: object):
    """`crossfade migrate watch`, as a process of its own; gives it with its address."""
    command = [
        sys.executable,
        "-m",
        "crossfade",
        "migrate",
        "watch",
        str(place),
        *map(str, options),
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stderr.readline()
        address = re.search(r"http://\S+/", line)
        assert address, line + process.stderr.read()
        yield SimpleNamespace(process=process, address=address[0])
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


@contextmanager
def served(watch):
    """The page inside the test's own process, which can change what is shown."""
    import uvicorn
    from starlette.applications import Starlette

    from crossfade.serving.dashboard import dashboard_routes

    site = Starlette(routes=dashboard_routes(watch))
    server = uvicorn.Server(uvicorn.Config(site, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/"
    finally:
        watch.close()
        server.should_exit = True
        thread.join()


@pytest.fixture
def hostile(seen, tmp_path):
    """An upgrade whose models have names that want to be elements."""
    names = {"old_model": "<img src=x onerror=alert(1)>", "new_model": "</p><script>alert(2)//"}
    upgrade = Upgrade(solver="closed_form", **names)
    upgrade.fit(seen.old[FITTED], seen.new[FITTED]).save(tmp_path / "hostile")
    return tmp_path / "hostile", names
