"""The compatibility table against separate computations of what it holds."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade import Upgrade
from crossfade.cases import CASES
from crossfade.compatibility import Held, evaluate
from crossfade.compatibility.verdicts import ASKED, CROSS_MODEL
from crossfade.errors import BadInput
from crossfade.pairs import Pairs
from crossfade.retrieval import SameClass, measure, neighbours


def unit(x):
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def by_hand(scene, case, metric):
    """Each case from the upgrade's public methods, cut to what both have."""
    side = {
        "old": scene.old,
        "new": scene.new,
        "F(old)": scene.upgrade.forward(scene.old),
        "B(new)": scene.upgrade.backward(scene.new),
    }
    q, g = (side[name] for name in case.split("/"))
    dim = min(q.shape[1], g.shape[1])
    scores = unit(q[:, :dim]) @ unit(g[:, :dim]).T
    hits, precisions = [], []
    for i, row in enumerate(scores):
        order = [j for j in np.argsort(-row) if j != i]
        found = scene.labels[order] == scene.labels[i]
        hits.append(found[0])
        precisions.append(np.mean(np.cumsum(found)[found] / (np.flatnonzero(found) + 1)))
    return 100 * np.mean(hits if metric == "cmc@1" else precisions)


@pytest.mark.parametrize(("d", "n"), [(6, 8), (8, 6), (7, 7)])
def test_all_eight_cases_are_what_they_say(scene, d, n):
    made = scene(rows=160, d=d, n=n, noise=1.0)
    found = evaluate(made.upgrade, made.held, resamples=100)
    assert list(found.cases) == [*CASES, *ASKED]
    for case in CASES:
        for metric in ("cmc@1", "mAP"):
            expected = by_hand(made, case, metric)
            assert found.means()[case][metric] == pytest.approx(expected, abs=1e-4)


def test_old_old_is_the_index_of_today_uncut(scene):
    made = scene(d=9, n=4, noise=1.2)
    found = evaluate(made.upgrade, made.held, resamples=100)
    whole = measure(made.old, made.old, SameClass.among(made.labels), ["mAP"]).mean("mAP")
    cut = measure(made.old[:, :4], made.old[:, :4], SameClass.among(made.labels), ["mAP"])
    assert found.cases["old/old"].mean("mAP") == pytest.approx(whole)
    assert abs(cut.mean("mAP") - whole) > 1


def test_a_rotated_old_is_cut_along_its_principal_axes(scene):
    plain = scene(d=9, n=4, noise=1.2)
    turned = scene(d=9, n=4, noise=1.2, rotate_old=True)
    scores = [evaluate(s.upgrade, s.held, resamples=100).means() for s in (plain, turned)]
    assert scores[0]["old/old"]["mAP"] == pytest.approx(scores[1]["old/old"]["mAP"])
    assert scores[1]["B(new)/old"]["mAP"] != pytest.approx(scores[0]["B(new)/old"]["mAP"], abs=0.5)


def test_an_orthogonal_b_keeps_the_new_models_retrieval_to_the_last_query(scene):
    made = scene(noise=1.0)
    found = evaluate(made.upgrade, made.held, resamples=100)
    for metric, values in found.cases["new/new"].values.items():
        assert np.array_equal(values, found.cases["B(new)/B(new)"].values[metric])


def test_intervals_are_those_of_a_bootstrap_over_queries(scene):
    made = scene(rows=600, noise=1.2)
    found = evaluate(made.upgrade, made.held, resamples=4000)
    values = found.cases["B(new)/old"].values["mAP"] * 100
    base = found.cases["old/old"].values["mAP"] * 100
    # For means over many queries the bootstrap is the normal interval.
    half = 1.96 * values.std() / np.sqrt(len(values))
    low, high = found.ci95["B(new)/old"]["mAP"]
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.15)
    paired = found.verdicts["B(new)/old"].metrics["mAP"]
    half = 1.96 * (values - base).std() / np.sqrt(len(values))
    assert paired.difference == pytest.approx((values - base).mean())
    assert (paired.ci95[1] - paired.ci95[0]) / 2 == pytest.approx(half, rel=0.1)


def test_the_same_seed_gives_the_same_intervals(scene):
    made = scene(noise=1.0)
    first, second = (evaluate(made.upgrade, made.held, resamples=200, seed=5) for _ in range(2))
    assert first.ci95 == second.ci95
    assert evaluate(made.upgrade, made.held, resamples=200, seed=6).ci95 != first.ci95


def test_qrels_come_with_queries_of_their_own(scene):
    made = scene(rows=300)
    queries = Pairs.from_arrays(made.old[:30], made.new[:30])
    gallery = Pairs.from_arrays(made.old[30:], made.new[30:])
    rng = np.random.default_rng(0)
    qrels = np.stack([rng.integers(0, 20, 60), np.arange(60), rng.integers(1, 3, 60)], axis=1)
    held = Held.of(gallery, queries, qrels=qrels)
    found = evaluate(made.upgrade, held, resamples=100)
    assert found.metrics == ("ndcg@10", "recall@10", "mrr@10")
    assert found.decisive == ("ndcg@10",)
    assert found.data["evaluated_queries"] == len(np.unique(qrels[:, 0]))
    assert found.data["queries_with_nothing_relevant"] == 30 - len(np.unique(qrels[:, 0]))
    assert not found.data["leave_one_out"]
    assert not found.definition


def test_without_labels_agreement_with_the_new_model_is_measured(scene):
    made = scene(noise=0.8)
    held = Held.of(Pairs.from_arrays(made.old, made.new))
    found = evaluate(made.upgrade, held, resamples=100)
    assert found.metrics == ("agreement@1", "agreement@10")
    assert found.means()["new/new"] == {"agreement@1": 100.0, "agreement@10": 100.0}
    own = np.arange(len(made.new))
    truth = neighbours(made.new, made.new, 10, own=own)
    lifted = made.upgrade.forward(made.old)
    expected = measure(lifted, lifted, truth, ["agreement@10"]).mean("agreement@10")
    assert found.means()["F(old)/F(old)"]["agreement@10"] == pytest.approx(expected)


def test_without_labels_nothing_is_judged_however_well_it_agrees(scene):
    made = scene(noise=0.8)
    held = Held.of(Pairs.from_arrays(made.old, made.new))
    found = evaluate(made.upgrade, held, resamples=200)
    # New queries agree with the new model far better than old ones: no verdict on either.
    means = found.means()
    assert means["B(new)/F(old)"]["agreement@10"] > means["old/old"]["agreement@10"] + 5
    assert not found.judged
    assert {verdict.word for verdict in found.verdicts.values()} == {"not judged"}
    assert {verdict.record()["compatible"] for verdict in found.verdicts.values()} == {None}
    assert found.failed == found.required
    assert not found.warnings
    assert evaluate(made.upgrade, held, required=(), resamples=200).failed == ()


def test_agreement_is_shown_beside_labels_and_decides_nothing(scene):
    made = scene()
    found = evaluate(made.upgrade, made.held, metrics=["mAP", "agreement@5", "mAP"], resamples=100)
    assert found.metrics == ("mAP", "agreement@5")
    assert found.decisive == ("mAP",)
    assert set(found.means()["old/old"]) == {"mAP", "agreement@5"}
    assert set(found.verdicts["B(new)/old"].metrics) == {"mAP"}
    alone = evaluate(made.upgrade, made.held, metrics=["agreement@5"], resamples=100)
    assert alone.verdicts["B(new)/old"].word == "not judged"


def test_values_per_class_average_to_the_whole(scene):
    made = scene(rows=300, noise=1.0)
    found = evaluate(made.upgrade, made.held, per_class=True, resamples=100)
    classes = found.per_class["B(new)/old"]
    assert set(classes) == set(made.labels.tolist())
    sizes = np.bincount(made.labels)
    whole = sum(classes[c]["mAP"] * sizes[c] for c in classes) / sizes.sum()
    assert whole == pytest.approx(found.means()["B(new)/old"]["mAP"])


def test_queries_with_nothing_relevant_are_counted_and_left_out(scene):
    made = scene(rows=200)
    labels = made.labels.copy()
    labels[:3] = [100, 101, 102]
    pairs = Pairs.from_arrays(made.old[3:], made.new[3:], labels[3:])
    with_them = Held.of(pairs, Pairs.from_arrays(made.old, made.new, made.labels))
    assert evaluate(made.upgrade, with_them, resamples=100).data["evaluated_queries"] == 100
    relevance = SameClass.among(labels)
    held = Held(
        "x", made.old, made.new, made.old, made.new, np.arange(100), relevance, "labels", labels
    )
    found = evaluate(made.upgrade, held, resamples=100)
    assert found.data["queries_with_nothing_relevant"] == 3
    rest = measure(made.old, made.old, relevance, ["mAP"])
    assert found.means()["old/old"]["mAP"] == pytest.approx(np.nanmean(rest.values["mAP"]) * 100)


@pytest.mark.parametrize("distance", ["dot", "l2"])
def test_other_distances(scene, distance):
    made = scene(noise=1.0)
    found = evaluate(made.upgrade, made.held, distance=distance, resamples=100)
    b, f = made.upgrade.backward(made.new), made.upgrade.forward(made.old)
    expected = measure(b, f, SameClass.among(made.labels), ["mAP"], distance=distance)
    assert found.means()["B(new)/F(old)"]["mAP"] == pytest.approx(expected.mean("mAP"))


def test_progress_names_the_case(scene):
    made = scene(rows=120)
    seen = []
    evaluate(made.upgrade, made.held, resamples=100, progress=lambda *x: seen.append(x))
    assert [case for case, done, total in seen if done == total] == [*CASES, *ASKED]


def test_a_required_case_that_fails_is_named(scene):
    made = scene(noise=1.0)
    found = evaluate(made.upgrade, made.held, required=CROSS_MODEL, resamples=200)
    assert found.verdicts["new/old"].word == "not compatible"
    assert "new/old" in found.failed
    assert evaluate(made.upgrade, made.held, required=(), resamples=200).failed == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"required": ["new/new"]}, "'new/new' is not a cross-model case → use one of new/old"),
        ({"resamples": 99}, "99 resamples are too few → use at least 100"),
        ({"metrics": ["speed"]}, "there is no metric named 'speed'"),
        ({"metrics": []}, "no metric was named"),
        ({"distance": "hamming"}, "there is no distance 'hamming'"),
    ],
)
def test_options_that_make_no_sense_are_refused(scene, options, message):
    made = scene(rows=120)
    with pytest.raises(BadInput, match=message):
        evaluate(made.upgrade, made.held, **{"resamples": 100} | options)


def test_metrics_of_labels_are_refused_without_any(scene):
    made = scene(rows=120)
    held = Held.of(Pairs.from_arrays(made.old, made.new))
    with pytest.raises(
        BadInput, match=r"mAP needs labels or qrels → give them, or use agreement@k"
    ):
        evaluate(made.upgrade, held, metrics=["mAP"], resamples=100)


def test_vectors_of_other_models_are_refused(scene, made):
    scenery = scene(rows=120)
    old, new, labels = made(d=5, n=8)
    with pytest.raises(BadInput, match="forward reads old vectors of dimension 6"):
        evaluate(scenery.upgrade, Held.of(Pairs.from_arrays(old, new, labels)), resamples=100)


def test_nothing_relevant_to_anyone_is_refused(scene):
    made = scene(rows=120)
    queries = Pairs.from_arrays(made.old, made.new)
    held = Held.of(queries, queries, qrels=np.empty((0, 3), int))
    with pytest.raises(BadInput, match="no query has a relevant item"):
        evaluate(made.upgrade, held, resamples=100)


def warned(found, text):
    return [w for w in found.warnings if text in w]


def test_rows_the_upgrade_has_seen_are_warned_of(scene, made):
    scenery = scene(rows=200)
    old, new, labels = made(rows=200)
    whole = Held.of(Pairs.from_arrays(old, new, labels))
    assert warned(evaluate(scenery.upgrade, whole, resamples=100), "50% of the queries were among")
    assert not warned(evaluate(scenery.upgrade, scenery.held, resamples=100), "were among")


def test_a_new_model_that_is_no_better_is_warned_of(made):
    old, new, labels = made(rows=400, noise=1.5)
    worse = Upgrade(solver="closed_form").fit(new[:200], old[:200], labels[:200])
    found = evaluate(
        worse, Held.of(Pairs.from_arrays(new[200:], old[200:], labels[200:])), resamples=200
    )
    assert warned(found, "the new model is not better than the old one on this data (cmc@1 ")
    better = Upgrade(solver="closed_form").fit(old[:200], new[:200], labels[:200])
    found = evaluate(
        better, Held.of(Pairs.from_arrays(old[200:], new[200:], labels[200:])), resamples=200
    )
    assert not warned(found, "is not better")


def test_a_sample_too_small_for_its_verdict_is_warned_of(scene):
    small = scene(rows=100, noise=1.2)
    found = evaluate(small.upgrade, small.held, resamples=200)
    assert warned(found, "only 50 queries: too few for these verdicts, use at least 100")
    large = scene(rows=400, noise=1.2)
    assert not warned(evaluate(large.upgrade, large.held, resamples=200), "too few")


def test_a_k_beyond_the_gallery_is_warned_of_once(scene):
    made = scene(rows=120)
    found = evaluate(made.upgrade, made.held, metrics=["recall@60", "recall@59"], resamples=100)
    assert len(warned(found, "recall@60 looks at more items than the gallery has (60)")) == 1
    assert not warned(found, "recall@59 looks")
