"""The example runs from the first old query to the last new one, and reports what was so."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from examples.application import Queries, read_log
from examples.documents import parts_of
from examples.texts import read_corpus
from examples.timeline import served
from examples.upgrade_store import upgrade_store
from sklearn.metrics import average_precision_score

from crossfade import Upgrade
from crossfade.backfill.plan import Plan
from crossfade.demo.models import NEW_DIMENSION, embed_old
from crossfade.journal.journal import load_journal
from crossfade.migration.order import find_places
from crossfade.stores import open_store
from crossfade.stores.rows import matrix

STILL = ["before", "started", "lifted", "80% new", "100% new", "finished"]
BETWEEN = ["start", "forward", "backfill to 100%", "verify", "finish"]


@pytest.fixture(scope="module")
def corpus():
    return read_corpus(("networkx", "numpy"), limit=120)


@pytest.fixture(scope="module")
def folder(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("example")
    # The gradient solver has tests of its own. Forty pairs are too few for anything but a test.
    fit = ("--solver", "closed_form", "--no-labels", "--force")
    upgrade_store("lancedb", corpus, folder, 0.3, fit=fit)
    return folder


@pytest.fixture(scope="module")
def report(folder):
    return json.loads((folder / "report.json").read_text())


def test_no_search_failed_at_any_stage(folder, report):
    searches = read_log(folder / "searches.jsonl")
    assert [search for search in searches if search["failed"] is not None] == []
    seen = {one["name"]: one for one in report["served"]}
    assert {*STILL, *BETWEEN} <= seen.keys()
    for one in seen.values():
        assert one["searches"] > 0
        assert 0 < one["p50"] <= one["p95"]
    assert seen["before"]["model"] == "old"
    assert seen["lifted"]["model"] == "both"
    assert seen["finished"]["model"] == "new"


def test_quality_is_reported_at_each_stage_beside_its_prediction(report):
    names = [stage["name"] for stage in report["stages"]]
    assert [name for name in STILL if name in names] == STILL
    for stage in report["stages"]:
        assert stage["quality"].keys() == {"cmc@1", "mAP", "MRR"}
        assert "MRR" in stage["predicted"]
        assert all(0 <= value <= 100 for value in stage["quality"].values())
    first = report["stages"][0]
    assert all(low == high == 0 for low, high in first["above"].values())


def test_what_was_measured_through_the_store_is_what_the_vectors_say(corpus, folder, report):
    stored = parts_of(corpus).stored
    old = embed_old([corpus.texts[i] for i in stored])
    labels = np.array([corpus.labels[i] for i in stored])
    upgrade = Upgrade.load(folder / "upgrade")
    related = Queries.load(folder / "related.npz")
    measured = report["new_alone"] | {"before": report["stages"][0]["quality"]}
    for name, queries, gallery in (
        ("before", related.old, old),
        ("started", upgrade.backward(related.new)[:, : old.shape[1]], old),
        ("lifted", upgrade.backward(related.new), upgrade.forward(old)),
    ):
        scores = queries @ (gallery / np.linalg.norm(gallery, axis=1, keepdims=True)).T
        right = labels == np.array(related.labels)[:, None]
        first = right[np.arange(len(right)), scores.argmax(axis=1)]
        precision = [average_precision_score(*one) for one in zip(right, scores, strict=True)]
        assert measured[name]["cmc@1"] == pytest.approx(100 * first.mean())
        assert measured[name]["mAP"] == pytest.approx(100 * np.mean(precision), abs=0.01)


def test_the_store_is_finished_with_the_shared_vectors_alone(folder, report):
    store = open_store(folder / "store" / "documents.lance")
    found = store.describe()
    assert found.rows == report["rows"] == report["stages"][-1]["new"]
    assert (found.dim, found.added) == (NEW_DIMENSION, ())
    assert set(found.columns) == {"id", "text", "label", "vector"}
    journal = load_journal(store)
    assert journal.stage == "finished"
    # Rows of the pairs hold the vectors that were known, mapped and blended as the plan says.
    with np.load(folder / "pairs.npz") as pairs:
        ids, old, new = pairs["ids"].tolist(), pairs["old"], pairs["new"]
    upgrade = Upgrade.load(folder / "upgrade")
    task = journal.backfill
    places = find_places(Path(task.order_file), ids, task.order_rows)
    plan = Plan.load(folder / "plan", upgrade)
    at = np.array([places[key] for key in ids])
    expected = plan.stored(upgrade.backward(new), upgrade.forward(old), at, task.order_rows)
    # Turned back into the new model's own space.
    expected = expected @ upgrade.backward_.map.weight
    assert matrix(store.read(ids, ["vector"])["vector"]) == pytest.approx(expected, abs=1e-4)


def test_nothing_that_was_fitted_or_planned_on_is_searched_for(corpus):
    parts = parts_of(corpus)
    asked = {*parts.related.tolist(), *parts.lookups.tolist()}
    assert not asked & {*parts.train.tolist(), *parts.held.tolist()}
    assert not {*parts.related.tolist(), *parts.held.tolist()} & {*parts.stored.tolist()}
    assert {*parts.train.tolist(), *parts.lookups.tolist()} <= {*parts.stored.tolist()}


def test_latency_and_live_quality_are_those_of_a_stages_own_searches():
    searches = [
        {"stage": "a", "model": "old", "kind": "related", "seconds": 0.001 * i, "failed": None}
        | {"right": i % 2 == 0, "reciprocal_rank": 0.0}
        for i in range(101)
    ]
    failed = {"stage": "b", "model": "new", "kind": "lookups", "seconds": 1.0, "failed": "gone"}
    good = {"stage": "b", "model": "new", "kind": "lookups", "seconds": 3.0, "failed": None}
    first, second = served([*searches, failed, good | {"right": False, "reciprocal_rank": 0.5}])
    assert (first.searches, first.failed, first.p50, first.p95) == (101, 0, 50.0, 95.0)
    assert first.right == pytest.approx(100 * 51 / 101)
    assert (second.searches, second.failed, second.p50, second.mrr) == (2, 1, 2000.0, 50.0)
