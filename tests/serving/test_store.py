"""A gateway bound to a store gives what its stage needs, while the migration goes on under it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import httpx
import numpy as np
import pytest
from tests.serving.conftest import CLIENT, QUERIES, TEXTS, until
from tests.serving.models import NEW, OLD, embed_new, embed_old
from tests.stores.apps import LanceApp

from crossfade import Migration, Searcher
from crossfade.backfill.plan import HASH, PLAN, content_hash
from crossfade.demo.texts import load_texts

ROWS = TEXTS[900:1200]


@pytest.fixture
def shop(tmp_path):
    """An application's table with the old model's vectors."""
    app = LanceApp(tmp_path)
    app.create(list(range(len(ROWS))), ROWS, [i % 3 for i in range(len(ROWS))], embed_old(ROWS))
    return app


@pytest.fixture
def migration(shop, upgrade_folder):
    made = Migration(shop.address, upgrade_folder)
    yield made
    made.close()


@pytest.fixture
def bound(serve, shop, old_upstream):
    gateway = serve(store=shop.address, upstream_old=old_upstream.url, model_old=OLD)
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        yield client


def for_store(client: httpx.Client, stage: str) -> np.ndarray:
    """Queries from `NEW@store`, once the gateway has seen the stage."""
    asked = {"model": f"{NEW}@store", "input": QUERIES}
    answers: list[httpx.Response] = []

    def seen() -> bool:
        answers.append(client.post("/v1/embeddings", json=asked))
        assert answers[-1].status_code == 200, answers[-1].text
        return answers[-1].headers["crossfade-stage"] == stage

    until(seen)
    return np.array([item["embedding"] for item in answers[-1].json()["data"]], np.float32)


def search(client: httpx.Client, **asked) -> dict:
    answer = client.post("/v1/search", json=asked)
    assert answer.status_code == 200, answer.text
    return answer.json()


def ids(found: dict) -> list[int]:
    return [hit["id"] for hit in found["data"]]


def nearest(query: np.ndarray, rows: np.ndarray, k: int = 10) -> list[int]:
    scores = rows @ query / np.linalg.norm(rows, axis=1)
    return np.argsort(-scores, kind="stable")[:k].tolist()


def test_an_application_asks_the_same_through_every_stage(bound, migration, upgrade):
    old, new = embed_old(ROWS), embed_new(ROWS)
    asked = embed_new(QUERIES)
    as_old = upgrade.query_for_old(asked)
    lifted = upgrade.forward(old) @ upgrade.backward_.map.weight

    def holds(stage: str, queries: np.ndarray, rows: np.ndarray) -> None:
        # What an application gets is for the column that it has always asked.
        own = asked if stage == "finished" else as_old
        assert np.allclose(for_store(bound, stage), own, rtol=0, atol=2e-6)
        for text, query in zip(QUERIES, queries, strict=True):
            found = search(bound, query=text, ask="new")
            assert ids(found) == nearest(query, rows)
            assert found["stage"] == (None if stage == "none" else stage)

    holds("none", as_old, old)
    migration.start(source="body", force=True)
    holds("started", as_old, old)
    migration.forward()
    holds("forward", asked, lifted)
    migration.backfill(embed_new, share=1.0)
    holds("backfilling", asked, new)
    migration.finish(force=True)
    holds("finished", asked, new)


def test_rolled_back_it_asks_the_old_vectors_again(bound, migration, upgrade):
    migration.start(source="body", force=True)
    migration.forward()
    for_store(bound, "forward")
    migration.rollback()
    wanted = upgrade.query_for_old(embed_new(QUERIES))
    assert np.allclose(for_store(bound, "rolled back"), wanted, rtol=0, atol=2e-6)
    assert ids(search(bound, query=QUERIES[0], ask="new")) == nearest(wanted[0], embed_old(ROWS))


def test_before_a_migration_search_is_todays(bound):
    found = search(bound, query=QUERIES[0])
    assert found["ask"] == "old"
    assert ids(found) == nearest(embed_old(QUERIES[:1])[0], embed_old(ROWS))
    refused = bound.post("/v1/search", json={"query": "a", "ask": "both"})
    assert refused.status_code == 400
    assert "migrate start" in refused.json()["error"]["message"]


def test_both_models_are_asked_side_by_side_and_hits_are_a_searchers(
    bound, migration, upgrade, new_upstream, old_upstream
):
    migration.start(source="body", force=True)
    migration.forward()
    migration.backfill(embed_new, share=0.5)
    for_store(bound, "backfilling")
    searcher = Searcher(migration.store, upgrade)
    for text in QUERIES:
        found = search(bound, query=text, k=5, where={"kind": [0, 1]}, columns=["body"])
        assert found["ask"] == "both"
        wanted = searcher.search(
            embed_new([text])[0],
            5,
            old=embed_old([text])[0],
            where={"kind": [0, 1]},
            columns=["body"],
        )
        assert ids(found) == [hit.id for hit in wanted]
        scores = [hit["score"] for hit in found["data"]]
        assert np.allclose(scores, [hit.score for hit in wanted], atol=1e-4)
        assert [hit["values"]["body"] for hit in found["data"]] == [ROWS[n] for n in ids(found)]
    assert set(found["usage"]) == {"new", "old"}
    assert new_upstream.requests[-1]["input"] == old_upstream.requests[-1]["input"] == QUERIES[-1]


def test_vectors_may_be_given_instead_of_a_text_and_nobody_is_asked_for_them(
    bound, migration, new_upstream, old_upstream
):
    migration.start(source="body", force=True)
    migration.forward()
    for_store(bound, "forward")
    new_upstream.requests.clear()
    new, old = embed_new(QUERIES[:1])[0].tolist(), embed_old(QUERIES[:1])[0].tolist()
    by_vectors = search(bound, new=new, old=old)
    assert new_upstream.requests == old_upstream.requests == []
    assert ids(by_vectors) == ids(search(bound, query=QUERIES[0]))
    assert search(bound, new=new)["ask"] == "new"
    assert search(bound, old=old)["ask"] == "old"


@pytest.mark.parametrize(
    ("asked", "status", "words"),
    [
        ({}, 400, "no query"),
        ({"query": 3}, 400, "'query' is a text"),
        ({"query": "a", "k": 0}, 400, "from 1 to 1000"),
        ({"query": "a", "k": 10**9}, 400, "from 1 to 1000"),
        ({"query": "a", "ask": "loudly"}, 400, "'ask' is one of"),
        ({"query": "a", "limit": 3}, 400, "there is no 'limit'"),
        ({"new": ["x"]}, 400, "finite numbers"),
        ({"new": [1e39] * 256}, 400, "finite numbers"),
        ({"new": [1.0, 2.0]}, 400, "256"),
        ({"query": "a", "columns": ["nothing"]}, 400, "nothing"),
        ({"query": "a", "where": {"kind; DROP TABLE items": 1}}, 400, "DROP"),
        ({"query": "a", "where": {"kind": {"above": 1}}}, 400, "'least', 'most'"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused_by_what_is_wrong(bound, asked, status, words):
    answer = bound.post("/v1/search", json=asked)
    assert (answer.status_code, words in answer.json()["error"]["message"]) == (status, True), (
        answer.text
    )


def test_a_gateway_without_a_store_says_so(http):
    answer = http.post("/v1/search", json={"query": "a"})
    assert answer.status_code == 404
    assert "--store" in answer.json()["error"]["message"]
    assert http.post(
        "/v1/embeddings", json={"model": f"{NEW}@store", "input": "a"}
    ).status_code == (404)


def test_another_upgrade_than_the_migrations_is_refused(
    tmp_path, serve, shop, migration, upgrade_folder
):
    from crossfade import Upgrade

    migration.start(source="body", force=True)
    migration.forward()
    some = TEXTS[:700]
    other = tmp_path / "other"
    Upgrade(solver="closed_form").fit(embed_old(some), embed_new(some)).save(other)
    url = serve(store=shop.address, upgrade=other).url
    answer = CLIENT.post(f"{url}/v1/embeddings", json={"model": f"{NEW}@store", "input": "a"})
    assert answer.status_code == 409
    assert "crossfade migrate status" in answer.json()["error"]["message"]
    assert CLIENT.post(f"{url}/v1/search", json={"query": "a"}).status_code == 409
    assert CLIENT.post(f"{url}/v1/embeddings", json={"model": NEW, "input": "a"}).status_code == 200


def test_a_shadow_counts_how_far_another_way_agrees(serve, shop, migration, old_upstream, upgrade):
    migration.start(source="body", force=True)
    migration.forward()
    gateway = serve(
        store=shop.address,
        upstream_old=old_upstream.url,
        model_old=OLD,
        shadow=1.0,
        shadow_ask="new",
    )
    asked = TEXTS[:12]
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        live = [ids(search(client, query=text, ask="old")) for text in asked]
        until(lambda: gateway.gateway.live()["shadow"]["asked"] == len(asked))
        metrics = client.get("/metrics").text
    told = gateway.gateway.live()["shadow"]
    searcher = Searcher(migration.store, upgrade)
    other = [[hit.id for hit in searcher.search(v)] for v in embed_new(asked)]
    wanted = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(live, other, strict=True)])
    assert (told["share"], told["way"]) == (1.0, "new")
    assert told["agreement"] == pytest.approx(wanted, abs=1e-4)
    assert 0 < wanted < 1
    assert told["score_change"] is not None
    assert f"crossfade_shadow_asked_total {len(asked)}" in metrics


def test_a_shadow_that_fails_is_nobodys_trouble(serve, shop, migration, old_upstream):
    gateway = serve(
        store=shop.address,
        upstream_old=old_upstream.url,
        model_old=OLD,
        shadow=1.0,
        shadow_ask="both",
    )
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        # No migration is under way, and both cannot be asked.
        assert search(client, query="a")["ask"] == "old"
        until(lambda: gateway.gateway.shadow.failed == 1)
    assert gateway.gateway.live()["shadow"]["agreement"] is None


def make_plan(folder, upgrade_folder, ask: str):
    """A plan made by the command, to ask in one way."""
    some = slice(900, 1200)
    labels = [name.split(".")[0] for name in load_texts().ids[some]]
    pairs = folder / "pairs.npz"
    old, new = embed_old(TEXTS[some]), embed_new(TEXTS[some])
    np.savez(pairs, old=old, new=new, labels=np.unique(labels, return_inverse=True)[1])
    command = [sys.executable, "-m", "crossfade", "plan", upgrade_folder, pairs, "-o"]
    command += [folder / ask, "--order", "random", "--blend", "1", "--ask", ask]
    subprocess.run([*map(str, command)], check=True, capture_output=True)
    return folder / ask


def asking(plan, asked: list):
    """The same plan, which asks from these shares on in these ways."""
    record = json.loads((plan / PLAN).read_text(encoding="utf-8"))
    record.pop(HASH)
    record["asked"] = asked
    record[HASH] = content_hash(record, plan)
    (plan / PLAN).write_text(json.dumps(record), encoding="utf-8")
    return plan


def test_a_plan_says_how_to_ask_and_a_new_one_says_so_anew(
    tmp_path, serve, shop, migration, old_upstream, upgrade_folder
):
    plan = make_plan(tmp_path, upgrade_folder, "new")
    migration.start(source="body", force=True)
    migration.forward()
    old = {"upstream_old": old_upstream.url, "model_old": OLD}
    gateway = serve(store=shop.address, plan=plan, **old)
    with httpx.Client(base_url=gateway.url, timeout=60) as client:
        assert search(client, query="a")["ask"] == "new"
        # On so few rows new queries alone would do from the start.
        other = asking(make_plan(tmp_path, upgrade_folder, "both"), [])
        plan.rename(tmp_path / "former")
        other.rename(plan)
        until(lambda: search(client, query="a")["ask"] == "both")


def test_a_plan_that_asks_by_share_is_followed_as_the_share_grows(
    tmp_path, serve, shop, migration, old_upstream, upgrade_folder
):
    plan = asking(make_plan(tmp_path, upgrade_folder, "both"), [[0.0, "both"], [0.5, "new"]])
    migration.start(source="body", plan=plan, force=True)
    migration.forward()
    old = {"upstream_old": old_upstream.url, "model_old": OLD}
    by_journal = serve(store=shop.address, **old)
    by_plan = serve(store=shop.address, plan=plan, **old)
    with (
        httpx.Client(base_url=by_journal.url, timeout=60) as one,
        httpx.Client(base_url=by_plan.url, timeout=60) as other,
    ):
        for client in (one, other):
            assert search(client, query="a")["ask"] == "both"
        migration.backfill(embed_new, plan=plan, share=0.6)
        for client in (one, other):
            for_store(client, "backfilling")
            until(lambda client=client: search(client, query="a")["ask"] == "new", 45)
            # What a search says itself counts more, and one vector is all there is to ask with.
            assert search(client, query="a", ask="old")["ask"] == "old"
            assert search(client, old=embed_old(["a"])[0].tolist())["ask"] == "old"


def start_process(upgrade_folder, shop, new_upstream, old_upstream) -> tuple:
    """`crossfade serve` as its own process, and where it answers."""
    command = [sys.executable, "-m", "crossfade", "serve", upgrade_folder, "--model", NEW]
    command += ["--upstream", new_upstream.url, "--store", shop.address, "--port", "0"]
    command += ["--upstream-old", old_upstream.url, "--model-old", OLD]
    process = subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True)
    for line in process.stderr:
        if line.startswith("{") and json.loads(line)["event"] == "serving":
            return process, json.loads(line)["url"]
    raise AssertionError(process.wait())


def test_killed_and_started_while_a_migration_goes_on_it_picks_up_the_stage(
    shop, migration, upgrade_folder, upgrade, new_upstream, old_upstream
):
    parts = upgrade_folder, shop, new_upstream, old_upstream
    process, url = start_process(*parts)
    with httpx.Client(base_url=url, timeout=60) as client:
        for_store(client, "none")
        migration.start(source="body", force=True)
        for_store(client, "started")
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.stderr.close()
    migration.forward()
    process, url = start_process(*parts)
    with httpx.Client(base_url=url, timeout=60) as client:
        as_old = upgrade.query_for_old(embed_new(QUERIES))
        assert np.allclose(for_store(client, "forward"), as_old, rtol=0, atol=2e-6)
        migration.backfill(embed_new, share=1.0)
        found = search(client, query=QUERIES[0], ask="new")
        assert ids(found) == nearest(embed_new(QUERIES[:1])[0], embed_new(ROWS))
        os.kill(process.pid, signal.SIGTERM)
    assert process.wait() == 0
    assert '"event":"stopped"' in process.stderr.read()
    process.stderr.close()
