"""Verdicts: what a difference and its interval say."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade.compatibility.bootstrap import interval, resampled_means
from crossfade.compatibility.verdicts import Difference, Verdict


@pytest.mark.parametrize(
    ("resampled", "word"),
    [
        ([0.1, 0.5, 1.0], "compatible"),
        ([-1.0, -0.5, -0.1], "not compatible"),
        ([-1.0, 0.5, 1.0], "inconclusive"),
        ([0.0, 0.0, 0.0], "inconclusive"),
    ],
)
def test_a_verdict_is_where_the_interval_lies(resampled, word):
    assert Difference.of(float(np.mean(resampled)), np.array(resampled)).verdict == word


@pytest.mark.parametrize(
    ("words", "word", "answer"),
    [
        (["compatible", "compatible"], "compatible", True),
        (["compatible", "inconclusive"], "inconclusive", None),
        (["inconclusive", "not compatible"], "not compatible", False),
        (["compatible", "not compatible"], "not compatible", False),
    ],
)
def test_a_case_is_as_good_as_its_worst_metric(words, word, answer):
    verdict = Verdict({str(i): Difference(0.0, (0.0, 0.0), w) for i, w in enumerate(words)})
    assert verdict.word == word
    assert verdict.record()["compatible"] is answer
    assert verdict.record()["verdict"] == word


def test_a_case_that_no_metric_can_decide_is_not_judged():
    verdict = Verdict({})
    assert verdict.word == "not judged"
    assert verdict.record() == {"compatible": None, "verdict": "not judged", "metrics": {}}


def test_the_queries_needed_shrink_the_interval_to_the_difference():
    assert Difference(0.5, (-0.5, 1.5), "inconclusive").queries_needed(200) == 800
    assert Difference(0.0, (-1.0, 1.0), "inconclusive").queries_needed(200) is None
    assert Difference(0.0, (0.0, 0.0), "inconclusive").queries_needed(200) is None


def test_resampled_means_are_those_of_drawn_rows():
    values = np.random.default_rng(0).normal(size=(40, 3))
    found = resampled_means(values, resamples=130, seed=7)
    rng = np.random.default_rng(7)
    for row in found:
        drawn = rng.integers(0, 40, size=40)
        assert np.allclose(row, values[drawn].mean(axis=0))


def test_the_interval_covers_the_true_mean_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    inside = 0
    for trial in range(300):
        values = rng.exponential(size=(200, 1))
        low, high = interval(resampled_means(values, 300, seed=trial)[:, 0])
        inside += low <= 1.0 <= high
    assert 0.90 < inside / 300 <= 0.99
