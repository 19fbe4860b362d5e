"""Several processes fill one table: nothing twice, nothing lost, whoever dies or sleeps."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from tests.workers.conftest import ROWS, eventually, filled
from tests.workers.working import MODEL, Process

from crossfade.errors import BadInput, StoreBusy, WorkerLost
from crossfade.journal.work import KEY
from crossfade.migration import Migration


def test_workers_share_the_order_and_embed_nothing_twice(table, endpoint, migration):
    endpoint.seconds = 0.05
    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(table.work, endpoint.url, "one", share=0.5)]
        eventually(lambda: endpoint.texts.total() > 0)
        for name in ("two", "three"):
            running.append(pool.submit(table.work, endpoint.url, name, share=0.5))
        done = [one.result() for one in running]
    assert sum(one.written for one in done) == ROWS // 2
    assert all(one.written for one in done)
    assert len(endpoint.texts) == endpoint.texts.total() == ROWS // 2
    status = migration.status()
    assert (status.filled, status.stage, status.workers) == (ROWS // 2, "backfilling", [])
    assert status.rate["backfill"] > 0
    assert f"{ROWS // 2} rows backfilled by 3 workers" in [one["what"] for one in status.events]
    expected = dict(zip(table.texts, range(ROWS), strict=True))
    assert {expected[text] for text in endpoint.texts} == set(filled(migration))
    assert migration.verify().passed
    # Alone it goes on where they stopped.
    rest = migration.backfill(endpoint.url, share=0.6, endpoint=MODEL)
    assert rest.written == ROWS // 10


def test_together_they_write_what_one_writes_alone(table, endpoint, migration, plan_folder):
    with ThreadPoolExecutor(2) as pool:
        wanted = {"plan": plan_folder, "labels": "kind", "share": 0.3}
        list(pool.map(lambda name: table.work(endpoint.url, name, **wanted), ["one", "two"]))
    together = filled(migration)
    migration.rollback()
    migration.start(source="body", force=True)
    migration.forward()
    migration.backfill(endpoint.url, share=0.3, endpoint=MODEL, plan=plan_folder, labels="kind")
    alone = filled(migration)
    # Which rows they are is the order's say, and not of who was faster, but for the last stretches.
    assert len(set(together) ^ set(alone)) <= 2 * 16
    for key in set(together) & set(alone):
        np.testing.assert_allclose(together[key], alone[key], atol=1e-6)


def test_rows_that_came_later_are_filled_too(table, endpoint, migration, plan_folder):
    wanted = {"plan": plan_folder, "labels": "kind", "share": 0.1}
    table.work(endpoint.url, "one", **wanted)
    late = [f"late {n}" for n in range(40)]
    table.app.insert(list(range(9000, 9040)), late, [ord("l")] * 40, table.models.old(late))
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: table.work(endpoint.url, name), ["one", "two"]))
    assert migration.status().filled == ROWS + 40
    assert set(endpoint.texts.values()) == {1}


def test_ten_workers_three_of_them_killed(table, endpoint, migration):
    endpoint.seconds = 0.5
    chance = random.Random(5)  # noqa: S311
    workers = [Process(table, endpoint.url, f"worker {n}", seconds=4.0) for n in range(10)]
    doomed = chance.sample(workers, 3)
    eventually(lambda: len(migration.status().workers) == 10)
    endpoint.seconds = 0.1
    for worker in doomed:
        time.sleep(0.3 * chance.random())
        worker.kill()
    codes = [worker.wait() for worker in workers]
    assert sorted(codes) == [-signal.SIGKILL] * 3 + [0] * 7
    assert migration.status().filled == ROWS
    assert set(endpoint.texts) == set(table.texts)
    events = " ".join(one["what"] for one in migration.status().events)
    (died,) = map(int, re.findall(r"workers ended, (\d+) of which died", events))
    # On a busy machine one that lives may be taken for dead, and joins again.
    assert died >= 3
    # A death leaves what was sent and not written: at most the stretch that the worker had.
    assert endpoint.texts.total() - ROWS <= 16 * died
    assert migration.verify().passed
    assert migration.store.get(KEY) is None


def test_status_tells_who_is_at_work_and_other_steps_are_refused(table, endpoint, migration):
    endpoint.seconds = 0.1
    worker = Process(table, endpoint.url, "one", seconds=30.0)
    try:
        eventually(lambda: [one for one in migration.status().workers if one.rows])
        (one,) = migration.status().workers
        assert (one.name, one.state) == ("one", "at work")
        assert one.idle < 10 and one.rate > 0
        for step in (
            migration.forward,
            migration.verify,
            migration.finish,
            migration.rollback,
            lambda: migration.backfill(endpoint.url, share=1.0, endpoint=MODEL),
        ):
            with pytest.raises(StoreBusy, match=r"a worker is filling it \(one\)"):
                step()
        assert migration.status().filled > 0
    finally:
        worker.kill()
        worker.wait()


def test_a_worker_that_sleeps_past_its_lease_damages_nothing(table, endpoint, migration):
    endpoint.seconds = 0.05
    sleeper = Process(table, endpoint.url, "sleeper", seconds=1.0)
    eventually(lambda: endpoint.texts.total() > 40)
    sleeper.signal(signal.SIGSTOP)
    time.sleep(1.5)
    # Another does all there is to do, and then it is over: the next migration has begun.
    done = table.work(endpoint.url, "two", seconds=1.0)
    assert done.filled == ROWS
    migration.rollback()
    migration.start(source="body", force=True)
    migration.forward()
    assert migration.status().filled == 0
    sleeper.signal(signal.SIGCONT)
    assert sleeper.wait() != 0
    assert migration.status().filled == 0
    assert migration.verify().passed


def test_a_worker_that_wakes_up_while_others_work_does_no_harm(table, endpoint, migration):
    endpoint.seconds = 0.05
    sleeper = Process(table, endpoint.url, "sleeper", seconds=1.0)
    other = Process(table, endpoint.url, "other", seconds=1.0)
    eventually(lambda: endpoint.texts.total() > 40)
    sleeper.signal(signal.SIGSTOP)
    time.sleep(1.5)
    sleeper.signal(signal.SIGCONT)
    # It joins again as another, or ends and says why; where it was caught decides.
    assert other.wait() == 0
    assert sleeper.wait() in (0, 1)
    assert migration.status().filled == ROWS
    assert endpoint.texts.total() - ROWS <= 16
    assert migration.verify().passed


def test_the_spend_cap_is_one_for_all_workers(table, endpoint, migration):
    endpoint.seconds = 0.01
    price = 1000.0
    # As many tokens as the endpoint counts for 200 of these texts, of two words each.
    cap = 400 * price / 1e6
    settings = replace(MODEL, cost_per_million_tokens=price, max_spend=cap)
    with ThreadPoolExecutor(3) as pool:
        done = list(
            pool.map(
                lambda name: table.work(endpoint.url, name, settings=settings),
                ["one", "two", "three"],
            )
        )
    assert all("spent" in one.why for one in done)
    spent = 2 * endpoint.texts.total() * price / 1e6
    assert spent <= cap
    assert migration.status().spent == pytest.approx(spent)
    assert migration.status().filled == endpoint.texts.total() > 50
    # What they have spent counts for whoever comes next.
    more = table.work(endpoint.url, "four", settings=settings)
    assert more.written <= 2 * 8


def test_one_that_is_stopped_leaves_the_rest_to_others(table, endpoint, migration):
    endpoint.seconds = 0.02
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(table.work, endpoint.url, "first", items=20)
        # Or there might be nothing left for it.
        eventually(lambda: endpoint.texts.total() > 0)
        second = pool.submit(table.work, endpoint.url, "second")
    assert first.result().written == 20
    assert second.result().written == ROWS - 20
    assert set(endpoint.texts.values()) == {1}


def test_a_plan_and_its_order_may_lie_elsewhere_on_another_machine(
    table, endpoint, migration, plan_folder, tmp_path
):
    endpoint.seconds = 0.1
    here, there = tmp_path / "here", tmp_path / "there"
    shutil.copytree(plan_folder, here, ignore=shutil.ignore_patterns("orders"))
    wanted = {"plan": here, "labels": "kind", "share": 1.0}
    first = Process(table, endpoint.url, "first", **wanted)
    try:
        eventually(lambda: endpoint.texts.total() > 8)
        shutil.copytree(here, there)
        (order,) = (here / "orders").glob("*.parquet")
        order.rename(tmp_path / "away.parquet")
        assert table.work(endpoint.url, "second", plan=there, items=8).written == 8
        (copied,) = (there / "orders").glob("*.parquet")
        with pytest.raises(BadInput, match="its workers fill a share of 1"):
            table.work(endpoint.url, "second", plan=there, share=0.4)
        content = bytearray(copied.read_bytes())
        content[100] ^= 1
        copied.write_bytes(content)
        with pytest.raises(BadInput, match="is another order than that of the other workers"):
            table.work(endpoint.url, "second", plan=there)
        copied.unlink()
        with pytest.raises(BadInput, match="is not here"):
            table.work(endpoint.url, "second", plan=there)
        (there / "plan.json").write_text("{}")
        with pytest.raises(BadInput, match="is not the plan of the workers"):
            table.work(endpoint.url, "second", plan=there)
        # Those that were refused have left.
        names = [one.name for one in migration.status().workers if one.alive]
        assert names == ["first"]
    finally:
        first.kill()
        first.wait()


def test_a_store_of_one_process_cannot_be_joined(tmp_path, models, upgrade_folder):
    from tests.stores.apps import LanceApp

    app = LanceApp(tmp_path)
    app.create([1, 2], ["a", "b"], [1, 1], models.old(["a", "b"]))
    migration = Migration(app.address, upgrade_folder)
    migration.start(source="body", force=True)
    migration.forward()
    with pytest.raises(BadInput, match="is filled by one process at a time"):
        migration.backfill(models.new, share=1.0, join=True)


def test_workers_of_a_server_that_goes_away_for_a_moment_go_on(table, endpoint, migration):
    endpoint.seconds = 0.02
    worker = threading.Thread(target=table.work, args=(endpoint.url, "one"))
    worker.start()
    eventually(lambda: endpoint.texts.total() > 40)
    for _ in range(3):
        # As when a server is started anew: every connection of the worker ends.
        table.app.run(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'crossfade' AND datname = current_database()"
        )
        time.sleep(0.2)
    worker.join()
    assert migration.status().filled == ROWS
    assert migration.verify().passed


def test_the_command_joins(table, endpoint, migration):
    import subprocess
    import sys

    command = [sys.executable, "-m", "crossfade", "migrate"]
    fill = [*command, "backfill", table.app.address, "--embed", endpoint.url, "--model", "fine"]
    fill += ["--share", "1", "--join", "--worker", "machine 7", "--items", "64", "--batch", "32"]
    subprocess.run(fill, check=True, capture_output=True)
    assert endpoint.texts.total() == 64
    endpoint.seconds = 0.1
    other = Process(table, endpoint.url, "machine 8", seconds=30.0)
    try:
        eventually(lambda: endpoint.texts.total() > 80)
        shown = subprocess.run(
            [*command, "status", table.app.address], check=True, capture_output=True, text=True
        ).stdout
        assert "machine 8" in shown and "at work" in shown
    finally:
        other.kill()
        other.wait()


def test_a_disowned_worker_writes_nothing_more(table):
    with (
        contextlib.closing(table.migration()) as mine,
        contextlib.closing(table.migration()) as others,
    ):
        with mine.store.join("mark"):
            rows = mine.store.read([1, 2], ["crossfade_state"])
            assert len(rows) == 2
            others.store.disown("mark")
            with pytest.raises(WorkerLost, match="its part is another's"):
                mine.store.read([1, 2], ["crossfade_state"])
        assert len(mine.store.read([1, 2], ["crossfade_state"])) == 2
