"""`crossfade pairs`, and the one file through `fit`, `evaluate` and `plan`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.embedders.server import Server, fails
from tests.lookups import models
from tests.stores.apps import LanceApp, PostgresApp

from crossfade import Upgrade

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
    found = json.loads(Path("e.json").read_text())
    cases = found["cases"]
    assert set(cases) == {"new/old", "new/new", "B(new)/F(old)", "B(new)/old", "B(new)/B(new)"}
    # What new queries lack until all is filled, by a ranking made here.
    first, last = (gains(filled) for filled in (False, True))
    missing = last - first
    wait = found["until_filled"]["ndcg@10"]
    assert wait["untouched"] == pytest.approx(100 * first.mean(), abs=0.01)
    assert wait["filled"] == pytest.approx(100 * last.mean(), abs=0.01)
    assert wait["missing"] == pytest.approx(100 * missing.mean(), abs=0.01)
    half = 196 * missing.std() / len(missing) ** 0.5
    expected = [wait["missing"] - half, wait["missing"] + half]
    assert wait["ci95"] == pytest.approx(expected, abs=0.15 * half)
    assert wait["missing"] > half
    low, high = wait["ci95"]
    assert (
        f"new queries have {wait['untouched']:.1f} on the untouched index and "
        f"{wait['filled']:.1f} once all is filled (ndcg@10): {wait['missing']:.1f} points "
        f"[{low:.1f}, {high:.1f}] are missing until then"
    ) in ran.out
    assert found["today"] is None and found["asking"] is None
    ran = crossfade("evaluate", "upgrade", "pairs.npz", "--require", "none")
    assert ran.code == 0
    assert "points" in ran.out
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


def gains(filled):
    """Of each lookup its nDCG@10 by new queries alone: one row is relevant, ties count against."""
    upgrade = Upgrade.load("upgrade")
    with np.load("pairs.npz") as arrays:
        items = arrays["lookup_items"]
        queries = upgrade.backward(arrays["lookup_new"])
        rows = upgrade.backward(arrays["held_new"]) if filled else arrays["held_old"]
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    scores = queries[:, : rows.shape[1]] @ rows.T
    own = scores[np.arange(len(items)), items]
    ranks = (scores >= own[:, None]).sum(axis=1)
    return np.where(ranks <= 10, 1 / np.log2(1 + ranks), 0)


def test_without_the_old_model_new_queries_are_judged_by_the_level_of_today(crossfade, plain):
    assert crossfade("pairs", plain.address, "--embed", NEW, *SIZES).code == 0
    assert crossfade("fit", "pairs.npz", "--solver", "closed_form").code == 0
    words = ("evaluate", "upgrade", "pairs.npz", "--json", "e.json", "--today")
    level = 100 * gains(False).mean()
    found = {}
    for today, word in ((level + 25, "not compatible"), (level, "inconclusive")):
        ran = crossfade(*words, today, "--markdown", "e.md", "--plot", "bars.png")
        found[word] = json.loads(Path("e.json").read_text())
        assert ran.code == (1 if word == "not compatible" else 0), ran.err
        assert f"`new` is {word} against today's {today:g}" in ran.out
        assert f"against today's {today:g}" in Path("e.md").read_text()
        assert "are missing until then" in ran.out
        assert "150 rows sampled of a store" in ran.err
    assert f"below today's {level + 25:g}" not in ran.err
    below, level_with = found.values()
    verdict = below["verdicts"]["B(new)/old"]["metrics"]["ndcg@10"]
    assert verdict["difference"] == pytest.approx(-25, abs=0.01)
    low, high = below["cases"]["B(new)/old"]["ci95"]["ndcg@10"]
    assert verdict["ci95"] == pytest.approx([low - level - 25, high - level - 25])
    assert (below["today"], below["judged"], below["asking"]) == (level + 25, True, "new")
    assert "B(new)/old" in below["failed"] and not level_with["failed"]
    assert below["verdicts"]["both/old"]["verdict"] == "not judged"
    ran = crossfade(*words, 1)
    assert ran.code == 0 and "`new` is compatible against today's 1;" in ran.out
    # A migration takes such an evaluation for one.
    start = ("migrate", "start", plain.address, "upgrade", "--source", "body", "--dry-run")
    assert crossfade(*start, "--evaluation", "e.json").code == 0
    # On the whole store, whose level it is, the held rows are not judged by it.
    ran = crossfade(*words, level + 25, "--store", plain.address)
    assert ran.code == 1 and "fill before they are served" in ran.err
    whole = json.loads(Path("e.json").read_text())
    assert whole["data"]["gallery"] == ROWS
    assert whole["verdicts"]["B(new)/old"]["verdict"] == "not compatible"
    assert "`new` is not compatible against today's" in ran.out
    assert whole["sample"]["judged"] is False and whole["sample"]["until_filled"]
    for more, cause in (
        (("--metric", "mrr@10", "--metric", "mAP"), "given for one metric, and 2 decide"),
        (("--metric", "agreement@10"), "given for one metric, and none decides"),
    ):
        ran = crossfade(*words, 40, *more)
        assert ran.code == 2 and cause in ran.err
    assert crossfade(*words, 140).code == 2
    both = ("pairs", plain.address, "--embed", NEW, "--embed-old", OLD, *SIZES, "--overwrite")
    assert crossfade(*both).code == 0
    ran = crossfade(*words, 40)
    assert ran.code == 2 and "today's level is measured on these queries" in ran.err


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
