"""The short form on a shard of Qdrant's engine, in the process that is killed."""

from __future__ import annotations

import pytest
from tests.adversary.points import crash_at_points
from tests.adversary.rounds import kill_at_random
from tests.adversary.summary import Summary
from tests.adversary.world import Harness


@pytest.fixture(scope="module")
def harness():
    made = Harness("qdrant-edge", rows=30, seed=1)
    yield made
    made.close()


def test_kills_at_random_moments_do_no_harm(harness):
    harness.summary = summary = Summary("qdrant-edge", 1)
    kill_at_random(harness, 4)
    assert summary.kills.total() >= 4
    assert summary.searches > 0
    assert not summary.violations, summary.text()


def test_crashes_at_durable_acts_do_no_harm(harness):
    harness.summary = summary = Summary("qdrant-edge", 1)
    crash_at_points(harness, most=2)
    assert summary.points.total() >= 2
    assert not summary.violations, summary.text()
