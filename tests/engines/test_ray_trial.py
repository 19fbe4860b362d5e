"""An estimate from a trial whose work is done by Ray: what its workers cost once, and a rate."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pytest
from tests.engines import letters
from tests.engines.conftest import MODEL, create
from typer.testing import CliRunner

from crossfade import Upgrade
from crossfade.cli import app
from crossfade.engines.ray import RayEngine
from crossfade.errors import BadInput
from crossfade.journal import open_migrating
from crossfade.migration.trial import try_out


def test_workers_lift_a_copy_and_what_they_cost_once_is_told_apart(
    tmp_path, upgrade_folder, cluster
):
    store = open_migrating(create("parquet", tmp_path / "items"))
    there = sorted(tmp_path.rglob("*"))
    with (
        RayEngine(address=cluster, num_actors=1) as engine,
        engine.embedder(MODEL, None) as embedder,
    ):
        trial = try_out(
            store,
            Upgrade.load(upgrade_folder),
            embedder,
            source="body",
            rows=32,
            write=True,
            engine=engine,
        )
    assert sorted(tmp_path.rglob("*")) == there
    told = [trial.estimate(items, {"full": 1.0}) for items in (1000, 1_000_000, 1_999_000)]
    assert told[0]["engine"] == "ray"
    assert told[0]["not_measured"] == []
    # An actor is a process that has to come, which no row waits for again.
    fixed = told[0]["forward"]["fixed_seconds"]
    assert 0.1 < fixed < 60
    assert fixed >= trial.start_up
    for step in ("forward", "verify", "finish"):
        means = [one[step]["seconds"]["mean"] for one in told]
        one, other = (b - a for a, b in pairwise(means))
        assert one == pytest.approx(other)
        assert means[0] >= told[0][step]["fixed_seconds"]
    # The first thousand rows take hardly longer than an actor to come; a million do.
    assert told[0]["forward"]["seconds"]["mean"] < 2 * fixed + 1
    full = told[1]["backfill"]["full"]
    assert 0 <= full["seconds"]["low"] <= full["seconds"]["mean"] <= full["seconds"]["high"]


def test_the_command_tries_a_store_out_by_ray(tmp_path, upgrade_folder, cluster):
    address = create("lancedb", tmp_path / "items")
    texts = letters.texts_of(200, seed=7)
    labels = np.array([ord(text[0]) for text in texts])
    pairs = {"old": letters.old(texts), "new": letters.new(texts), "labels": labels}
    np.savez(tmp_path / "held.npz", **pairs)
    asked = ["plan", upgrade_folder, tmp_path / "held.npz", "-o", tmp_path / "plan"]
    asked += ["--order", "random", "--blend", "1", "--ask", "new", "--engine", "ray"]
    ran = CliRunner().invoke(app, [str(one) for one in asked])
    assert isinstance(ran.exception, BadInput)
    assert "neither was given" in ran.exception.cause
    asked += ["--items", "1000000", "--trial", address, "--embed", MODEL, "--source", "body"]
    asked += ["--address", cluster, "--num-actors", "1", "--json", "-"]
    ran = CliRunner().invoke(app, [str(one) for one in asked])
    assert ran.exit_code == 0, ran.output
    told = json.loads(ran.stdout)["estimate"]
    assert told["engine"] == "ray"
    assert told["forward"]["fixed_seconds"] > 0.1
    rate = told["trial"]["seconds_per_item"]["reading"]["mean"]
    expected = told["forward"]["fixed_seconds"] + 1_000_000 * rate
    assert told["forward"]["seconds"]["mean"] == pytest.approx(expected)
