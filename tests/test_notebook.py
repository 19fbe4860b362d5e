"""Upgrades, compatibility tables and plans show themselves in a notebook, whatever their names."""

from __future__ import annotations

from html.parser import HTMLParser

import numpy as np
import pytest

from crossfade import Held, Pairs, Upgrade, evaluate, plan

NAME = "<script>alert(1)</script> & co"


class Tags(HTMLParser):
    """Every tag that is opened, and the text of every cell."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.opened: list[str] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.opened.append(tag)

    def handle_data(self, data):
        self.cells.append(data)


@pytest.fixture(scope="module")
def scene():
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 4
    new = np.eye(6)[labels] + 0.3 * rng.normal(size=(300, 6))
    old = new[:, :4] + 0.3 * rng.normal(size=(300, 4))
    upgrade = Upgrade(solver="closed_form", old_model=NAME, new_model="new model")
    upgrade.fit(old[:150], new[:150], labels[:150])
    return upgrade, Held.of(Pairs.from_arrays(old[150:], new[150:], labels[150:], name=NAME))


def test_an_upgrade_shows_what_it_reached_on_validation(scene):
    upgrade, _ = scene
    shown = Tags(upgrade._repr_html_())
    assert set(shown.opened) <= {"table", "caption", "b", "tr", "th", "td"}
    assert f"{NAME} → new model" in shown.cells[0]
    row = shown.cells.index("B(new)/old")
    scores = upgrade.validation_["B(new)/old"]
    assert shown.cells[row + 1 : row + 1 + len(scores)] == [f"{x:.1f}" for x in scores.values()]


def test_an_upgrade_that_is_not_fitted_shows_its_options():
    assert "Upgrade(seed=3)" in Upgrade(seed=3)._repr_html_()


def test_a_compatibility_table_shows_cases_and_verdicts(scene):
    found = evaluate(*scene, resamples=100)
    shown = Tags(found._repr_html_())
    assert set(shown.opened) <= {"table", "caption", "b", "tr", "th", "td"}
    assert NAME in shown.cells[0]
    for case in found.cases:
        assert case in shown.cells
    assert found.verdicts["B(new)/old"].word in shown.cells


def test_a_plan_shows_its_recommendation_and_quality(scene):
    made = plan(*scene, orders=["random"], seed=0)
    shown = Tags(made._repr_html_())
    assert made.record.recommendation in shown.cells[0]
    row = shown.cells.index("mAP")
    assert shown.cells[row + 2] == f"{made.quality_at(0.0, 'mAP'):.1f}"
