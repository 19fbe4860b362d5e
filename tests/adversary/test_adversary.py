"""The short form of `python -m tests.adversary`, for every store.

A class for each, so that they can run beside each other.
"""

from __future__ import annotations

import pytest
from tests.adversary.points import crash_at_points
from tests.adversary.rounds import kill_at_random
from tests.adversary.summary import Summary
from tests.adversary.world import Harness

KILLS, POINTS = 5, 5
ROWS = 40


@pytest.fixture(scope="class")
def harness(request):
    made = Harness(request.cls.kind, rows=ROWS, seed=1)
    yield made
    made.close()


@pytest.fixture
def summary(harness) -> Summary:
    harness.summary = Summary(harness.kind, harness.seed)
    return harness.summary


class ShortForm:
    """Five kills at random, and a crash before and after five acts of a migration."""

    kind: str

    def test_kills_at_random_moments_do_no_harm(self, harness, summary):
        kill_at_random(harness, KILLS)
        assert summary.kills.total() >= KILLS
        assert summary.rows_checked > 0
        assert summary.searches > 0
        assert not summary.violations, summary.text()

    def test_crashes_at_durable_acts_do_no_harm(self, harness, summary):
        crash_at_points(harness, most=POINTS)
        assert summary.points.total() >= POINTS
        assert summary.operations.total() > 0
        assert not summary.violations, summary.text()


class TestLanceDB(ShortForm):
    kind = "lancedb"


class TestPgvector(ShortForm):
    kind = "pgvector"


class TestParquet(ShortForm):
    kind = "parquet"


class TestQdrant(ShortForm):
    kind = "qdrant"


class TestSqlite(ShortForm):
    kind = "sqlite"


class TestFaiss(ShortForm):
    kind = "faiss"
