"""Rows, claims and pages."""

from __future__ import annotations

import pytest
from experiments import markdown
from experiments.outcome import Outcome


def outcome(**runs):
    out = Outcome("x", "X", "Table X", "Nothing.", ("Method",), ("cmc@1",))
    for name, values in runs.items():
        out.add((name,), (50.0,) if name == "a" else None, {"cmc@1": values})
    return out


@pytest.mark.parametrize(
    ("a", "b", "verdict"),
    [
        ([60.0, 61.0], [50.0, 51.0], "holds"),
        ([50.0, 51.0], [60.0, 61.0], "does not hold"),
        ([50.0, 50.2], [50.0, 50.0], "level"),
        ([40.0, 62.0], [50.0, 51.0], "level"),
    ],
)
def test_a_claim_holds_beyond_spread_and_noise(a, b, verdict):
    out = outcome(a=a, b=b)
    out.claim("a above b", [(("a",), ("b",))])
    assert out.claims[0].verdict == verdict
    assert out.row("a").claims == [f"(1) {verdict}"]


def test_a_claim_of_several_pairs_holds_in_part_where_some_do():
    out = outcome(a=[60.0], b=[50.0], c=[70.0])
    out.claim("a above both", [(("a",), ("b",)), (("a",), ("c",))])
    assert out.claims[0].verdict == "holds in part"


@pytest.mark.parametrize(("b", "verdict"), [([60.1], "holds"), ([58.0], "does not hold")])
def test_a_claim_of_being_level(b, verdict):
    out = outcome(a=[60.0], b=b)
    out.claim("a is b", [(("a",), ("b",))], level=True)
    assert out.claims[0].verdict == verdict


def test_a_page_has_the_paper_this_run_and_the_claims(tmp_path):
    out = outcome(a=[60.0, 62.0], b=[50.0, 50.0])
    out.claim("a above b", [(("a",), ("b",))])
    page = markdown.page(out)
    assert "| a | 50.00 | 61.00 ± 1.00 | (1) holds |" in page
    assert "| b | – | 50.00 |  |" in page
    assert "| 1 | a above b | **holds** | a 61.00 against b 50.00 (cmc@1) |" in page
    assert markdown.page(Outcome.read(out.write(tmp_path))) == page
    assert [p.name for p in tmp_path.iterdir()] == ["x.json"]
