"""The pages in docs/results say what their data says."""

from __future__ import annotations

from pathlib import Path

import pytest
from experiments import markdown
from experiments.__main__ import judged
from experiments.outcome import Outcome

RESULTS = Path(__file__).parents[2] / "docs" / "results"
RUNS = sorted(RESULTS.glob("*.json"))


@pytest.mark.parametrize("path", RUNS, ids=lambda p: p.stem)
def test_a_page_is_made_from_its_data(path):
    found = judged(Outcome.read(path))
    assert path.with_suffix(".md").read_text() == markdown.page(found, f"{path.stem}.png")
    assert path.with_suffix(".png").is_file()


def test_every_page_is_linked_and_every_claim_is_listed():
    assert (RESULTS / "claims.md").read_text() == markdown.overview(
        [judged(Outcome.read(path)) for path in RUNS]
    )
    front = (RESULTS / "README.md").read_text()
    assert [p.stem for p in RUNS if f"({p.stem}.md)" not in front] == []


def test_lambda_12_is_met_with_either_weight():
    for path in RESULTS.glob("regularizers-*.json"):
        found = Outcome.read(path)
        for weight in ("1", "0.1"):
            reached = found.row(weight, "λ = 12").runs["‖WᵀW−I‖"]
            assert len(reached) == 3
            assert all(abs(value - 12) <= 0.6 for value in reached)
