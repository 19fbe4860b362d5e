"""A migration whose work is done by Ray: what is written is what a local run writes."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest
from tests.engines.conftest import MODEL, SLOW, _quietly, assert_same, create, node, written

from crossfade.engines import open_engine
from crossfade.engines.ray import RayEngine
from crossfade.errors import BadInput, CrossfadeError
from crossfade.migration import Migration

KINDS = ["lancedb", "parquet"]


def lifted(address: str, upgrade, engine=None) -> Migration:
    migration = Migration(address, upgrade)
    migration.start(source="body", force=True)
    migration.forward(size=200, engine=engine)
    return migration


@pytest.mark.parametrize("kind", KINDS)
def test_forward_and_backfill_by_ray_write_what_a_local_run_writes(
    kind, tmp_path, upgrade_folder, cluster
):
    here = lifted(create(kind, tmp_path / "here"), upgrade_folder)
    with RayEngine(address=cluster, num_actors=2) as engine:
        there = lifted(create(kind, tmp_path / "there"), upgrade_folder, engine)
        assert_same(written(there), written(here))
        options = {"share": 0.6, "batch": 700}
        here.backfill(MODEL, **options)
        done = there.backfill(MODEL, **options, engine=engine)
    assert (done.written, done.filled) == (1080, 1080)
    assert_same(written(there), written(here))
    assert there.verify(embed=MODEL).passed
    assert there.journal.stage == here.journal.stage == "backfilling"


def test_a_node_that_is_lost_during_backfill_costs_nothing_but_time(tmp_path, upgrade_folder):
    from ray.cluster_utils import Cluster

    here = lifted(create("lancedb", tmp_path / "here"), upgrade_folder)
    here.backfill(MODEL, share=1.0)
    there = lifted(create("lancedb", tmp_path / "there"), upgrade_folder)
    nodes = _quietly(lambda: Cluster(initialize_head=True, head_node_args=node(1)))
    try:
        lost = _quietly(lambda: nodes.add_node(**node(1)))
        seen: list[int] = []

        def progress(done: int, total: int) -> None:
            seen.append(done)
            if len(seen) == 1:
                # Without a word to anyone, in the middle of what its actor has in hand.
                killing.start()

        killing = threading.Timer(0.1, lambda: nodes.remove_node(lost, allow_graceful=False))
        with RayEngine(address=nodes.address, num_actors=2) as engine:
            done = there.backfill(SLOW, share=1.0, batch=512, progress=progress, engine=engine)
        killing.join()
        assert not lost.any_processes_alive()
    finally:
        _quietly(nodes.shutdown)
    assert done.filled == done.written == 1800
    assert_same(written(there), written(here))
    assert there.verify(embed=MODEL).passed


def test_a_model_is_loaded_once_by_each_actor_and_not_here(
    tmp_path, upgrade_folder, cluster, monkeypatch
):
    import os

    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_model.py").write_text(
        "import os\n"
        "from tests.engines.letters import new\n"
        f"open({str(tmp_path / 'loaded')!r}, 'a').write(f'{{os.getpid()}}\\n')\n"
    )
    migration = lifted(create("parquet", tmp_path / "items"), upgrade_folder)
    with RayEngine(address=cluster, num_actors=2) as engine:
        migration.backfill("own_model:new", share=1.0, batch=900, engine=engine)
    loaded = (tmp_path / "loaded").read_text().split()
    # One may have done all there was to do before the other was there.
    assert 1 <= len(loaded) == len(set(loaded)) <= 2
    assert str(os.getpid()) not in loaded


@pytest.mark.parametrize(
    ("embed", "cause"),
    [
        ("tests.engines.letters:nothing", "has no 'nothing'"),
        ("tests.engines.letters:old", "dimensions"),
    ],
)
def test_a_model_that_is_no_good_is_reported_as_it_is_locally(
    embed, cause, tmp_path, upgrade_folder, cluster
):
    migration = lifted(create("parquet", tmp_path / "items"), upgrade_folder)
    with (
        RayEngine(address=cluster, num_actors=1) as engine,
        pytest.raises(CrossfadeError, match=cause),
    ):
        migration.backfill(embed, share=1.0, engine=engine)
    assert migration.status().filled == 0


def test_a_stopped_forward_goes_on_later(tmp_path, upgrade_folder, cluster):
    migration = Migration(create("lancedb", tmp_path / "items"), upgrade_folder)
    migration.start(source="body", force=True)
    with RayEngine(address=cluster, num_actors=1) as engine:
        first = migration.forward(size=100, stop=lambda: True, engine=engine)
        assert first.stopped
        assert first.written == 300
        assert migration.forward(size=100, engine=engine).written == 1500
    assert migration.status().lifted == 1800
    assert migration.verify().passed


def test_workers_without_ray_are_refused():
    with pytest.raises(BadInput, match="add --engine ray"):
        open_engine("local", num_actors=2)
    with pytest.raises(BadInput, match="number above 0"):
        open_engine("ray", num_actors=0)


def test_more_gpus_than_there_are_are_refused(tmp_path, upgrade_folder, cluster):
    migration = lifted(create("parquet", tmp_path / "items"), upgrade_folder)
    with (
        RayEngine(address=cluster, gpus_per_actor=1) as engine,
        pytest.raises(BadInput, match="the cluster has 0"),
    ):
        migration.backfill(MODEL, share=1.0, engine=engine)


KILLED = """
import sys
from crossfade.engines.ray import RayEngine
from crossfade.migration import Migration
migration = Migration(sys.argv[1])
with RayEngine(address=sys.argv[2], num_actors=2) as engine:
    migration.backfill(
        "tests.engines.letters:slow", share=1.0, batch=300, engine=engine,
        progress=lambda done, total: print("at", done, flush=True),
    )
"""


def test_a_killed_command_is_gone_on_with(tmp_path, upgrade_folder, cluster):
    import subprocess
    import sys

    here = lifted(create("lancedb", tmp_path / "here"), upgrade_folder)
    here.backfill(MODEL, share=1.0, batch=300)
    there = lifted(create("lancedb", tmp_path / "there"), upgrade_folder)
    # It has a plan, so that the command that is killed needs none.
    there.backfill(MODEL, share=1.0, items=1, batch=300)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, there.store.name, cluster],
        stdout=subprocess.PIPE,
        text=True,
    ) as killed:
        assert killed.stdout.readline().startswith("at")
        killed.kill()
    assert 0 < there.status().filled < 1800
    with RayEngine(address=cluster, num_actors=2) as engine:
        done = there.backfill(MODEL, share=1.0, batch=300, engine=engine)
    assert done.filled == 1800
    assert_same(written(there), written(here))


def test_a_worker_that_dies_at_its_work_is_replaced_and_four_of_them_are_reported(
    tmp_path, upgrade_folder, cluster, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dying_model.py").write_text(
        "import os\n"
        "from pathlib import Path\n"
        "from tests.engines import letters\n"
        "def once(texts):\n"
        "    mark = Path(__file__).with_name('died')\n"
        "    if not mark.exists():\n"
        "        mark.touch()\n"
        "        os._exit(1)\n"
        "    return letters.new(texts)\n"
        "def always(texts):\n"
        "    os._exit(1)\n"
    )
    migration = lifted(create("parquet", tmp_path / "items"), upgrade_folder)
    with RayEngine(address=cluster, num_actors=1) as engine:
        done = migration.backfill("dying_model:once", share=0.2, batch=900, engine=engine)
        assert done.filled == 360
        with pytest.raises(CrossfadeError, match="4 workers were lost with the same items"):
            migration.backfill("dying_model:always", share=0.4, batch=900, engine=engine)
    assert migration.status().filled == 360
    assert migration.verify(embed=MODEL).passed


def test_an_endpoint_has_one_pace_and_one_cap_for_all_actors(tmp_path, upgrade_folder, cluster):
    from tests.embedders.server import Server, fails
    from tests.engines import letters

    from crossfade.embedders import EndpointSettings

    server = Server(letters.new)
    server.start()
    migration = lifted(create("parquet", tmp_path / "items"), upgrade_folder)
    settings = EndpointSettings(
        model="letters",
        batch_size=50,
        first_wait=0.01,
        requests_per_second=10.0,
        cost_per_million_tokens=1_000_000.0,
        # A text is a token by the server's count, and 30 at the most until it has answered.
        max_spend=600.0,
    )
    try:
        with RayEngine(address=cluster, num_actors=2) as engine:
            begin = time.monotonic()
            done = migration.backfill(
                server.url, endpoint=settings, share=1.0, batch=600, engine=engine
            )
            seconds = time.monotonic() - begin
            assert "spent" in done.why
            assert migration.journal.spent <= settings.max_spend
            assert 450 <= done.filled <= 600
            # By two actors, and at no more than the pace of one.
            assert len(server.requests) <= seconds * 10 + 1
            server.plans = [fails(503), fails(500)]
            settings = replace(settings, requests_per_second=None, max_spend=None)
            again = migration.backfill(
                server.url, endpoint=settings, share=1.0, batch=600, engine=engine
            )
    finally:
        server.stop()
    assert again.filled == 1800
    assert not server.plans
    assert migration.verify(embed=MODEL).passed


def test_the_commands_take_an_engine(tmp_path, upgrade_folder, cluster):
    import json

    from typer.testing import CliRunner

    from crossfade.cli import app

    migration = Migration(create("lancedb", tmp_path / "items"), upgrade_folder)
    migration.start(source="body", force=True)
    workers = ["--engine", "ray", "--address", cluster, "--num-actors", "1", "--full-speed"]
    told = []
    for step in (["forward"], ["backfill", "--embed", MODEL, "--share", "0.5"]):
        command = ["migrate", step[0], migration.store.name, *step[1:], *workers, "--json", "-"]
        ran = CliRunner().invoke(app, command)
        assert ran.exit_code == 0, ran.output
        told.append(json.loads(ran.stdout))
    assert told[0]["written"] == 1800
    assert told[1]["filled"] == 900
