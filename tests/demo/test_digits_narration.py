"""The narration says what the numbers say, whichever way they fall."""

from __future__ import annotations

import numpy as np
import pytest

from crossfade.cases import CASES
from crossfade.demo.digits.measure import guessing
from crossfade.demo.digits.narration import AFTER, BEFORE, MEANING, explanation

GOOD = {
    "old/old": 70.0,
    "new/old": 11.0,
    "new/new": 95.0,
    "F(old)/old": 75.0,
    "F(old)/F(old)": 90.0,
    "B(new)/F(old)": 90.0,
    "B(new)/old": 85.0,
    "B(new)/B(new)": 95.0,
}


def told(**changes: float) -> list[str]:
    top1 = GOOD | {case.replace("_", "/"): value for case, value in changes.items()}
    cases = {case: {"cmc@1": value, "mAP": value} for case, value in top1.items()}
    return explanation(cases, 540, 10.0).splitlines()


def test_every_case_is_in_one_table_and_has_words() -> None:
    assert (*BEFORE, *AFTER) == CASES
    assert set(MEANING) == set(CASES)


def test_a_good_upgrade_is_told_as_one() -> None:
    _, without, backward, lifted, finished = told()
    assert "11.0 %" in without and "no better than guessing" in without
    assert "85.0 %, against 70.0 %" in backward and "above the old model" in backward
    assert "may be chance" not in backward
    assert "80 % of the way" in lifted
    assert "equals new/new" in finished


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (60.0, "not above the old model. Lift the gallery"),
        (69.0, "not above the old model, a gap that may be chance"),
        (70.0, "level with the old model"),
        (71.0, "above the old model from the first day, a gap that may be chance"),
    ],
)
def test_a_backward_map_that_does_not_pay_is_said_plainly(value: float, words: str) -> None:
    assert words in told(**{"B(new)_old": value})[2]


@pytest.mark.parametrize(
    ("value", "words"),
    [(40.0, "far below today's"), (72.0, "happen to understand each other")],
)
def test_models_that_are_not_strangers_are_not_called_so(value: float, words: str) -> None:
    assert words in told(new_old=value)[1]


@pytest.mark.parametrize(
    ("value", "words"), [(65.0, "F does not pay"), (95.5, "all that re-embedding everything")]
)
def test_a_lifted_gallery_is_judged_by_its_number(value: float, words: str) -> None:
    assert words in told(**{"B(new)_F(old)": value})[3]


def test_a_backward_map_that_loses_something_is_not_called_lossless() -> None:
    finished = told(**{"B(new)_B(new)": 94.0})[4]
    assert "94.0 %" in finished and "equals" not in finished


def test_guessing_is_what_random_answers_reach() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), (10, 20, 30, 40))
    drawn = []
    for _ in range(2000):
        # Any shift but 0: a query never finds itself.
        others = (np.arange(100) + rng.integers(1, 100, size=100)) % 100
        drawn.append(np.mean(labels[others] == labels))
    assert guessing(labels) == pytest.approx(100 * np.mean(drawn), abs=0.5)
