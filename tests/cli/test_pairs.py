"""`crossfade pairs`, and the one file through `fit`, `evaluate` and `plan`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.embedders.server import Server, fails
from tests.lookups import models
from tests.stores.apps import LanceApp, PostgresApp

ROWS = 400
NEW, OLD = "tests.lookups.models:new", "tests.lookups.models:old"


@pytest.fixture(params=["lancedb", "pgvector"])
def app(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = (LanceApp if request.param == "lancedb" else PostgresApp)(tmp_path)
    texts = models.texts_of(ROWS)
    made.create(list(range(ROWS)), texts, [n % 4 for n in range(ROWS)], models.old(texts))
    yield made
    made.close()


@pytest.fixture
def plain(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = LanceApp(tmp_path)
    texts = models.texts_of(ROWS)
    made.create(list(range(ROWS)), texts, [n % 4 for n in range(ROWS)], models.old(texts))
    return made


SIZES = ("--rows", 250, "--held", 150, "--lookups", 120, "--source", "body", "-o", "pairs.npz")


def test_one_file_is_fitted_evaluated_and_planned_with(crossfade, app):
    ran = crossfade("pairs", app.address, "--embed", NEW, "--embed-old", OLD, *SIZES)
    assert ran.code == 0, ran.err
    assert "250 pairs (12 → 24), 150 rows held out of the fit, 120 lookups of them" in ran.out
    assert "next: crossfade fit pairs.npz -o upgrade" in ran.out
    ran = crossfade("fit", "pairs.npz", "-o", "upgrade", "--solver", "closed_form")
    assert ran.code == 0, ran.err
    ran = crossfade(
        *("evaluate", "upgrade", "pairs.npz", "--require", "none", "--json", "e.json"),
        *("--metric", "mAP"),
    )
    assert ran.code == 0, ran.err
    assert "120 queries on 150 items, cosine, relevance from lookups" in ran.out
    assert "fitted on" not in ran.err
    ran = crossfade(
        *("evaluate", "upgrade", "pairs.npz", "--store", app.address, "--require", "none"),
        *("--json", "all.json", "--markdown", "all.md", "--metric", "mAP"),
    )
    assert ran.code == 0, ran.err
    assert "120 queries on 400 items of " in ran.out
    assert "on the rows held out of the fit, not on the store:" in ran.out
    whole, sample = (json.loads(Path(name).read_text()) for name in ("all.json", "e.json"))
    assert whole["data"]["gallery"] == 400
    assert whole["sample"]["cases"] == sample["cases"]
    assert "new/new" not in whole["cases"]
    assert whole["verdicts"]["new/old"]["verdict"] == "not compatible"
    ran = crossfade(
        *("plan", "upgrade", "pairs.npz", "-o", "plan", "--order", "random", "--blend", "1"),
        *("--json", "plan.json"),
    )
    assert ran.code == 0, ran.err
    assert "fitted on" not in ran.err
    plan = json.loads(Path("plan.json").read_text())
    assert plan["held_out"] is True
    for case in ("old/old", "new/new"):
        assert plan["quality"]["mAP"][case] == pytest.approx(sample["cases"][case]["mAP"])


def test_pairs_may_cover_the_store_and_a_plan_be_judged_on_all_of_it(crossfade, plain):
    covering = ("--sampling", "covering")
    ran = crossfade("pairs", plain.address, "--embed", NEW, "--embed-old", OLD, *SIZES, *covering)
    assert ran.code == 0, ran.err
    assert crossfade("fit", "pairs.npz", "--solver", "closed_form").code == 0
    words = ("plan", "upgrade", "pairs.npz", "--optimize", "mrr@10", "--order", "random")
    words += ("--blend", "1", "--lift", "0.5", "--json", "plan.json", "-o")
    ran = crossfade(*words, "few")
    assert ran.code == 0, ran.err
    few = json.loads(Path("plan.json").read_text())
    assert set(few["lifts"]) == {"1", "0.5"}
    ran = crossfade(*words, "all", "--store", plain.address)
    assert ran.code == 0, ran.err
    assert "is made up after held ones" in " ".join(ran.err.split())
    found = json.loads(Path("plan.json").read_text())
    assert found["gallery"] == ROWS
    assert found["sample"]["quality"] == few["quality"]
    assert found["quality"]["mrr@10"]["old/old"] < few["quality"]["mrr@10"]["old/old"]
    assert crossfade("plan", "upgrade", "pairs.npz", "--store-id", "id").code == 2


def test_without_the_old_model_the_rest_is_done_and_said(crossfade, plain):
    ran = crossfade("pairs", plain.address, "--embed", NEW, *SIZES)
    assert ran.code == 0, ran.err
    assert "without --embed-old nothing can be compared with today's search" in ran.err
    assert crossfade("fit", "pairs.npz", "--solver", "closed_form").code == 0
    ran = crossfade("evaluate", "upgrade", "pairs.npz", "--plot", "bars.png", "--json", "e.json")
    assert ran.code == 1
    assert "not judged: old/old cannot be measured without the old model" in ran.err
    assert "make the pairs with --embed-old" in ran.err
    cases = json.loads(Path("e.json").read_text())["cases"]
    assert set(cases) == {"new/old", "new/new", "B(new)/F(old)", "B(new)/old", "B(new)/B(new)"}
    ran = crossfade("evaluate", "upgrade", "pairs.npz", "--require", "none")
    assert ran.code == 0
    ran = crossfade("plan", "upgrade", "pairs.npz", "--ask", "both")
    assert ran.code == 2
    assert "make the pairs with --embed-old" in ran.err
    words = ("plan", "upgrade", "pairs.npz", "--optimize", "mrr@10", "--order", "random")
    ran = crossfade(*words, "-o", "unknown", "--json", "-")
    assert ran.code == 0
    assert "give its level with --today" in ran.err
    unknown = json.loads(ran.out)
    assert unknown["asking"] == "new"
    assert "old/old" not in unknown["quality"]["mrr@10"]
    # Nobody knows whether it begins below today's search: the store is not touched for that.
    start = ("migrate", "start", plain.address, "upgrade", "--source", "body")
    ran = crossfade(*start, "--plan", "unknown")
    assert ran.code == 1
    assert "does not know today's level" in " ".join(ran.err.split())
    ran = crossfade(*words, "-o", "known", "--today", "1", "--json", "-")
    known = json.loads(ran.out)
    assert known["quality"]["mrr@10"]["old/old"] == 1
    assert known["alone"]["mrr@10"]["reaches"] is not None


def test_both_models_may_be_endpoints(crossfade, plain):
    servers = [Server(models.new), Server(models.old)]
    for server in servers:
        server.start()
    try:
        new, old = (server.url for server in servers)
        both = ("--embed", new, "--model", "large", "--embed-old", old, "--model-old", "small")
        money = ("--cost-per-1m-tokens", 10, "--max-spend", 1)
        ran = crossfade("pairs", plain.address, *both, *SIZES, *money, "--json", "-")
        assert ran.code == 0, ran.err
        told = json.loads(ran.out)
        words = [sum(len(t.split()) for r in s.requests for t in r["input"]) for s in servers]
        assert told["spent"] == pytest.approx(sum(words) * 1e-5)
        assert {r["model"] for r in servers[0].requests} == {"large"}
        assert {r["model"] for r in servers[1].requests} == {"small"}
        # The old model reads lookups, and some texts that show whose vectors are stored.
        assert sum(len(r["input"]) for r in servers[1].requests) == 120 + 32
        with np.load("pairs.npz") as arrays:
            texts = models.texts_of(ROWS)
            expected = models.new([texts[key] for key in arrays["ids"].tolist()])
            np.testing.assert_allclose(arrays["new"], expected, rtol=1e-5)
        before = Path("pairs.npz").read_bytes()
        servers[0].plans = [None, None, fails(400, "no such model")]
        ran = crossfade("pairs", plain.address, *both, *SIZES, "--overwrite")
        assert ran.code == 3
        ran = crossfade(
            *("pairs", plain.address, *both, *SIZES, "--overwrite"),
            *("--cost-per-1m-tokens", 10, "--max-spend", 0.02),
        )
        assert ran.code == 2
        assert "nothing is written" in ran.err and "--max-spend" in ran.err
        assert Path("pairs.npz").read_bytes() == before
    finally:
        for server in servers:
            server.stop()


def test_a_log_is_learned_from(crossfade, plain, tmp_path):
    (tmp_path / "log.txt").write_text("\n".join(models.texts_of(40, seed=8)))
    ran = crossfade(
        *("pairs", plain.address, "--embed", NEW, "--embed-old", OLD, *SIZES),
        *("--queries", "log.txt"),
    )
    assert ran.code == 0, ran.err
    assert "250 pairs and 40 logged queries" in ran.out
    assert crossfade("fit", "pairs.npz", "--solver", "closed_form").code == 0
    config = json.loads((tmp_path / "upgrade" / "config.json").read_text())
    assert config["fit"]["rows"] == 290
    facts = json.loads(crossfade("inspect", "pairs.npz", "--json").out)
    assert (facts["rows"], facts["held"], facts["lookups"]) == (290, 150, 120)
    assert facts["logged_queries"] == 40


@pytest.mark.parametrize(
    ("arguments", "code", "cause"),
    [
        (("--embed", NEW, "--source", "words"), 2, "has no column 'words' → name one of"),
        (("--embed", NEW), 2, "needs the items' text → name it with --source"),
        (("--embed", "no.such:model", "--source", "body"), 2, "there is no module 'no'"),
        (("--embed", NEW, "--source", "body", "--max-spend", 1), 2, "is for an endpoint"),
        (("--embed", NEW, "--source", "body", "--model", "x"), 2, "is for an endpoint"),
        (("--embed", NEW, "--source", "body", "-o", "p.csv"), 2, "ends in .npz or .safetensors"),
        (("--embed", NEW, "--source", "body", "-o", "no/p.npz"), 2, "no/p.npz"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(crossfade, plain, arguments, code, cause):
    ran = crossfade("pairs", plain.address, *arguments)
    assert ran.code == code, ran.err
    assert cause in " ".join(ran.err.split())
    assert "Traceback" not in ran.err


def test_evaluate_with_a_store_wants_lookups(crossfade, plain):
    ran = crossfade("pairs", plain.address, "--embed", NEW, "--embed-old", OLD, *SIZES)
    assert ran.code == 0, ran.err
    assert crossfade("fit", "pairs.npz", "--solver", "closed_form").code == 0
    with np.load("pairs.npz") as arrays:
        np.savez("own.npz", old=arrays["held_old"], new=arrays["held_new"])
    ran = crossfade(
        "evaluate", "upgrade", "own.npz", "--store", plain.address, "--metric", "agreement@10"
    )
    assert ran.code == 2
    assert "has no lookups" in ran.err
    ran = crossfade("evaluate", "upgrade", "pairs.npz", "--store-id", "id")
    assert ran.code == 2
