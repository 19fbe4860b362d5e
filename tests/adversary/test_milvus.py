"""The short form of `python -m tests.adversary milvus`, and shorter still: it takes its time."""

from __future__ import annotations

from tests.adversary.points import crash_at_points
from tests.adversary.rounds import kill_at_random
from tests.adversary.test_adversary import harness, summary  # noqa: F401  (fixtures)

KILLS, POINTS = 3, 2


class TestMilvus:
    """A few kills at random, and a crash before and after a few acts."""

    kind = "milvus"

    def test_kills_at_random_moments_do_no_harm(self, harness, summary):  # noqa: F811
        kill_at_random(harness, KILLS)
        assert summary.kills.total() >= KILLS
        assert summary.rows_checked > 0
        assert summary.searches > 0
        assert not summary.violations, summary.text()

    def test_crashes_at_durable_acts_do_no_harm(self, harness, summary):  # noqa: F811
        crash_at_points(harness, most=POINTS)
        assert summary.points.total() >= POINTS
        assert summary.operations.total() > 0
        assert not summary.violations, summary.text()
