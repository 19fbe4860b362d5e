"""Which of the candidates of a plan are shown: all of a few, the best of many."""

from __future__ import annotations

import json

from tests.cli.plan.conftest import QUICK


def rows_of(out):
    """Cells of the first table."""
    lines = out.split("└")[0].splitlines()
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]


def test_a_few_candidates_are_shown_all(crossfade, folder):
    ran = crossfade("plan", "mine", "held.npz", "-o", "p", *QUICK, "--ask", "new")
    assert ran.code == 0, ran.err
    plan = json.loads((folder / "p/plan.json").read_text(encoding="utf-8"))
    assert len(rows_of(ran.out)) == len(plan["candidates"]) == 12
    assert "plan.json" not in ran.out


def test_of_many_the_best_of_each_order_are_shown(crossfade, folder, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    ran = crossfade("plan", "mine", "held.npz", "-o", "p")
    assert ran.code == 0, ran.err
    plan = json.loads((folder / "p/plan.json").read_text(encoding="utf-8"))
    assert f"all {len(plan['candidates'])} are in plan.json" in " ".join(ran.out.split())
    best = {}
    for candidate in plan["candidates"]:
        area = sum(candidate["area"].values())
        key = candidate["asking"], candidate["order"]
        best[key] = max(area, best.get(key, 0.0))
    shown = rows_of(ran.out)
    assert ["new", "random", "1"] in [row[:3] for row in shown]
    assert [plan["asking"], plan["order"]] in [row[:2] for row in shown]
    first = {}
    for way, order, _, *cells in shown:
        first.setdefault((way, order), sum(map(float, cells[::2])))
    assert first.keys() == best.keys()
    for order, area in first.items():
        assert abs(area - best[order]) < 0.011
