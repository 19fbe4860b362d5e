"""An estimate from a trial: what it reads, what it costs, and that it writes nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.embedders.server import Server
from tests.migration.conftest import D, texts_of
from tests.stores.apps import LanceApp

from crossfade import Upgrade
from crossfade.embedders import EndpointSettings, open_embedder
from crossfade.errors import BadInput
from crossfade.journal import open_migrating
from crossfade.migration.trial import Measured, try_out

ROWS = 900


@pytest.fixture
def app(models, tmp_path):
    made, texts = LanceApp(tmp_path), texts_of(ROWS)
    made.create(list(range(ROWS)), texts, [1] * ROWS, models.old(texts))
    return made


@pytest.fixture
def server(models):
    made = Server(models.new)
    made.start()
    yield made
    made.stop()


def test_a_mean_has_the_interval_of_its_t_distribution():
    values = [3.0, 4.0, 8.0, 5.0, 6.0, 5.5]
    found = Measured.of(values)
    from scipy.stats import ttest_1samp

    low, high = ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (found.mean, found.low, found.high) == pytest.approx((np.mean(values), low, high))
    whole = found.times(10).plus(Measured(1.0, 1.0, 1.0))
    assert whole.mean == pytest.approx(10 * found.mean + 1)


def test_a_trial_embeds_some_rows_and_writes_nothing(app, models, server, upgrade_folder):
    import lance

    before = lance.dataset(app.address).version
    settings = EndpointSettings(model="fine", batch_size=16, cost_per_million_tokens=1e6)
    embedder = open_embedder(server.url, endpoint=settings)
    store = open_migrating(app.address)
    trial = try_out(store, Upgrade.load(upgrade_folder), embedder, source="body", rows=32)
    embedder.close()
    assert trial.rows == 9 * 32 == sum(len(asked["input"]) for asked in server.requests)
    assert lance.dataset(app.address).version == before
    assert store.describe().added == ()
    assert store.get("migration") is None
    told = trial.estimate(1_000_000, {"stop": 0.25, "full": 1.0})
    # The endpoint counts words, of which each text has one, at a price of one.
    assert told["backfill"]["stop"]["cost"]["mean"] == pytest.approx(250_000)
    assert told["backfill"]["full"]["tokens"]["high"] == pytest.approx(1_000_000)
    assert told["backfill"]["stop"]["requests"] == -(-250_000 // 16)
    assert told["trial"]["spent"] == pytest.approx(9 * 32)
    assert told["storage_bytes"] == 1_000_000 * (4 * 16 + 80)
    assert told["not_measured"] and json.dumps(told)
    for seconds in (told["forward"]["seconds"], told["backfill"]["full"]["seconds"]):
        assert 0 <= seconds["low"] <= seconds["mean"] <= seconds["high"] < 1e6
    assert trial.cost_per_1k == pytest.approx(1000)


def test_what_costs_nothing_and_sends_no_requests_says_so(app, models, upgrade_folder):
    store = open_migrating(app.address)
    trial = try_out(
        store, Upgrade.load(upgrade_folder), open_embedder(models.new), source="body", rows=16
    )
    full = trial.estimate(100, {"full": 1.0})["backfill"]["full"]
    assert (full["requests"], full["tokens"], full["cost"]) == (None, None, None)
    assert trial.items_per_second > 0


def test_what_cannot_be_tried_out_is_refused(app, models, upgrade_folder, tmp_path):
    upgrade, embedder = Upgrade.load(upgrade_folder), open_embedder(models.new)
    store = open_migrating(app.address)
    with pytest.raises(BadInput, match="needs the items' text"):
        try_out(store, upgrade, embedder)
    with pytest.raises(BadInput, match="has no column 'text'"):
        try_out(store, upgrade, embedder, source="text")
    other = LanceApp(tmp_path / "other")
    other.create([1, 2], ["a", "b"], [1, 1], models.old(["a", "b"]))
    with pytest.raises(BadInput, match="2 rows, too few"):
        try_out(open_migrating(other.address), upgrade, embedder, source="body")
    wide = LanceApp(tmp_path / "wide")
    wide.create([1, 2], ["a", "b"], [1, 1], np.ones((2, D + 1), np.float32))
    with pytest.raises(BadInput, match="13 dimensions"):
        try_out(open_migrating(wide.address), upgrade, embedder, source="body")


def test_the_command_estimates(app, models, server, upgrade_folder, tmp_path):
    from typer.testing import CliRunner

    from crossfade.cli import app as command

    texts = texts_of(300, seed=7)
    labels = np.array([ord(t[0]) for t in texts])
    np.savez(tmp_path / "held.npz", old=models.old(texts), new=models.new(texts), labels=labels)
    asked = ["plan", upgrade_folder, tmp_path / "held.npz", "-o", tmp_path / "plan"]
    asked += ["--order", "random", "--blend", "1", "--ask", "new", "--items", "5000000"]
    asked += ["--trial", app.address, "--embed", server.url, "--model", "m", "--source", "body"]
    asked += ["--cost-per-1m-tokens", "2", "--json", tmp_path / "plan.json"]
    found = CliRunner().invoke(command, [str(one) for one in asked])
    assert found.exit_code == 0, found.output
    told = json.loads((tmp_path / "plan.json").read_text())
    assert told["estimate"]["items"] == 5_000_000
    assert told["estimate"]["backfill"]["full"]["cost"]["mean"] == pytest.approx(10.0)
    assert told["costs"]["full"]["cost"] == pytest.approx(10.0)
    kept = json.loads((tmp_path / "plan" / "plan.json").read_text())
    assert kept["estimate"] == told["estimate"]
