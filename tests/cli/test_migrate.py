"""`crossfade migrate …`: every step from the command line, with what it says and how it ends."""

from __future__ import annotations

import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from tests.migration.conftest import Models, texts_of
from tests.stores.apps import LanceApp, PostgresApp

from crossfade import Plan, Upgrade
from crossfade.journal import open_migrating
from crossfade.journal.columns import STATE
from crossfade.migration import Migration
from crossfade.report.sentences import headline
from crossfade.stores.lance.store import LanceStore

ROWS = 240
MODULE = """
import time
from tests.migration.conftest import Models
models = Models()
def embed(texts):
    return models.new(texts)
def slowly(texts):
    time.sleep(0.2)
    return models.new(texts)
def broken(texts):
    raise RuntimeError("out of memory")
"""


@pytest.fixture
def shop(tmp_path, models, upgrade_folder, plan_folder, monkeypatch):
    """A LanceDB table, with an upgrade, a plan and an embedder that fit it."""
    return _shop(LanceApp(tmp_path), tmp_path, models, upgrade_folder, plan_folder, monkeypatch)


def _shop(app, tmp_path, models: Models, upgrade_folder, plan_folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = texts_of(ROWS)
    app.create(list(range(ROWS)), texts, [ord(t[0]) for t in texts], models.old(texts))
    (tmp_path / "my_model.py").write_text(MODULE)
    queries = texts_of(60, seed=4)
    np.savez(
        tmp_path / "queries.npz",
        old=models.old(queries),
        new=models.new(queries),
        labels=np.array([ord(t[0]) for t in queries]),
    )
    app.upgrade, app.plan = str(upgrade_folder), str(plan_folder)
    return app


def test_the_whole_way(shop, crossfade):
    place = shop.address
    ran = crossfade(
        "migrate", "start", place, shop.upgrade, "--source", "body", "--plan", shop.plan
    )
    assert ran.code == 0, ran.err
    assert "coarse, 12 dimensions" in ran.out
    assert "add_columns" in ran.out
    assert f"next: crossfade migrate forward {place}" in ran.out.replace("\n", " ")
    ran = crossfade("migrate", "forward", place, "--json", "-")
    assert json.loads(ran.out)["written"] == ROWS
    ran = crossfade(
        "migrate", "backfill", place, "--plan", shop.plan, "--embed", "my_model:embed",
        "--labels", "kind", "--share", "0.5", "--json", "-",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["filled"] == ROWS // 2
    status = json.loads(crossfade("migrate", "status", place, "--json", "-").out)
    assert (status["lifted"], status["filled"], status["old"]) == (120, 120, 0)
    assert set(status["quality"]["now"]) == {"cmc@1", "mAP"}
    shown = crossfade("migrate", "status", place).out
    assert "filled 50.0%, and the plan wants" in shown
    promises = Plan.load(shop.plan).record.promises
    lines = [*promises.of_the_way(), *promises.of_the_end()]
    assert lines
    flat = " ".join(shown.split())
    assert all(f"by the plan, {line}" in flat for line in lines)
    assert "next: crossfade migrate verify" in shown
    ran = crossfade("migrate", "finish", place, "--yes")
    assert ran.code == 1
    assert "no `verify` has passed" in ran.err
    ran = crossfade(
        "migrate", "verify", place, "--embed", "my_model:embed", "--queries", "queries.npz",
        "--labels", "kind",
    )  # fmt: skip
    assert ran.code == 0, ran.out + ran.err
    assert "60 queries" in ran.out
    assert "the plan predicted" in ran.out
    ran = crossfade("migrate", "finish", place, "--dry-run")
    assert "drop_columns" in ran.out
    assert "next: crossfade migrate finish" in crossfade("migrate", "status", place).out
    ran = crossfade("migrate", "finish", place, "--yes", "--json", "-")
    ended = json.loads(ran.out)
    assert (ended["stage"], ended["space"]) == ("finished", "new")
    assert open_migrating(place).describe().dim == 16
    shown = crossfade("migrate", "status", place).out
    assert "the application's own vectors are the new ones" in shown
    assert "those of the moment at which `finish` began" in shown
    assert "120" in shown
    assert "none: the migration is over" in shown


def test_a_store_without_a_column_of_classes_is_filled_with_a_warning(shop, crossfade):
    warning = "no labels: each item counts to the nearest class mean of the plan"
    crossfade("migrate", "start", shop.address, shop.upgrade, "--force", "--source", "body")
    crossfade("migrate", "forward", shop.address)
    fill = ["migrate", "backfill", shop.address, "--plan", shop.plan, "--embed", "my_model:embed"]
    for more in (["--dry-run"], ["--share", "0.2"]):
        ran = crossfade(*fill, *more, "--json", "-")
        assert ran.code == 0, ran.err
        assert f"warning: {warning}" in ran.err
        (told,) = json.loads(ran.out)["warnings"]
        assert told.startswith(warning)
    ran = crossfade(*fill, "--share", "0.3")
    assert ran.code == 0, ran.err
    assert f"warning: {warning}" in ran.err


def carried(shop, crossfade, upgrade: str, *ending: str):
    """A whole migration without a plan; what `finish` says."""
    place = shop.address
    crossfade("migrate", "start", place, upgrade, "--force", "--source", "body")
    crossfade("migrate", "forward", place)
    fill = ["--embed", "my_model:embed", "--share", "1"]
    assert crossfade("migrate", "backfill", place, *fill).code == 0
    assert crossfade("migrate", "verify", place, "--embed", "my_model:embed").code == 0
    ran = crossfade("migrate", "finish", place, "--yes", *ending)
    assert ran.code == 0, ran.err
    return ran


def test_finish_says_what_the_application_inserts_from_then_on(shop, crossfade):
    ran = carried(shop, crossfade, shop.upgrade)
    assert "insert and ask plain new vectors" in ran.err


def test_old_vectors_may_be_kept_to_ask_both(shop, crossfade):
    ran = carried(shop, crossfade, shop.upgrade, "--keep-old")
    assert "old and new vectors are kept" in ran.out.replace("\n", " ")
    kept = open_migrating(shop.address)
    assert kept.describe().dim == 12
    assert {"vector", "crossfade_vector"} <= set(kept.describe().columns) | set(
        kept.describe().added
    )
    kept.close()
    ran = crossfade("migrate", "finish", shop.address, "--yes")
    assert ran.code == 0, ran.err
    assert open_migrating(shop.address).describe().dim == 16


def test_with_a_near_orthogonal_b_it_is_said_that_b_is_needed(shop, crossfade, models, tmp_path):
    texts = texts_of(600, seed=98)
    near = Upgrade(backward_map="near-orthogonal", lam=1.0, epochs=3, old_model="coarse")
    near.fit(models.old(texts), models.new(texts), [ord(t[0]) for t in texts])
    near.save(tmp_path / "near")
    ran = carried(shop, crossfade, "near")
    said = " ".join(ran.err.split())
    assert "put new vectors through B before you insert or ask them" in said
    assert str(tmp_path / "near") in said
    store = open_migrating(shop.address)
    query = near.backward(models.new(texts_of(ROWS)[7:8])[0])
    hits = store.search(query, column="vector", k=1)
    assert [hit.id for hit in hits] == [7]
    store.close()


def test_finish_asks_first(shop, crossfade, monkeypatch):
    place = shop.address
    crossfade("migrate", "start", place, shop.upgrade, "--force")
    crossfade("migrate", "forward", place)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    ran = crossfade("migrate", "finish", place, "--force")
    assert ran.code == 1
    assert "gone for good" in ran.err
    assert "forced although no `verify` has passed" in ran.err
    assert (
        json.loads(crossfade("migrate", "status", place, "--json", "-").out)["stage"] == "forward"
    )


@pytest.mark.parametrize("step", ["start", "forward", "backfill", "finish", "rollback"])
def test_a_dry_run_changes_nothing(shop, crossfade, step):
    place = shop.address
    arguments = {
        "start": [shop.upgrade, "--force"],
        "backfill": ["--plan", shop.plan, "--embed", "my_model:embed", "--source", "body",
                     "--labels", "kind"],
    }  # fmt: skip
    if step != "start":
        crossfade("migrate", "start", place, shop.upgrade, "--force")
    if step in ("backfill", "finish"):
        crossfade("migrate", "forward", place)
    store = open_migrating(place)
    before = store.get("migration"), store.describe()
    ran = crossfade("migrate", step, place, *arguments.get(step, []), "--dry-run", "--json", "-")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["dry_run"] is True
    assert (store.get("migration"), store.describe()) == before


def test_start_refuses_a_negative_verdict(shop, crossfade, tmp_path):
    from crossfade import Upgrade

    evaluation = {
        "upgrade": {"hash": Upgrade.load(shop.upgrade).hash_},
        "verdicts": {
            "B(new)/old": {"verdict": "not compatible"},
            "B(new)/F(old)": {"verdict": "compatible"},
        },
    }
    (tmp_path / "evaluation.json").write_text(json.dumps(evaluation))
    asked = ["migrate", "start", shop.address, shop.upgrade, "--evaluation", "evaluation.json"]
    ran = crossfade(*asked)
    assert ran.code == 1
    assert "B(new)/old is not compatible" in ran.err
    ran = crossfade(*asked, "--force")
    assert ran.code == 0
    assert "forced although" in ran.err


def test_start_without_an_evaluation_is_refused(shop, crossfade):
    asked = ["migrate", "start", shop.address, shop.upgrade]
    ran = crossfade(*asked)
    assert ran.code == 1
    error = " ".join(ran.err.split())
    assert "no evaluation says that the upgrade is good enough: run crossfade evaluate" in error
    assert "add --force to migrate all the same" in error
    assert open_migrating(shop.address).describe().added == ()
    ran = crossfade(*asked, "--force")
    assert ran.code == 0
    assert "warning: forced although no evaluation says" in " ".join(ran.err.split())


def test_start_refuses_an_evaluation_that_judged_nothing(shop, crossfade):
    evaluated = ["evaluate", shop.upgrade, "queries.npz", "--no-labels", "--json", "agreed.json"]
    assert crossfade(*evaluated, "--require", "none").code == 0
    asked = ["migrate", "start", shop.address, shop.upgrade, "--evaluation", "agreed.json"]
    ran = crossfade(*asked)
    assert ran.code == 1
    for case in ("B(new)/old", "B(new)/F(old)"):
        assert f"{case} is not judged by agreed.json" in ran.err
    assert crossfade(*asked, "--force").code == 0


@pytest.fixture
def astray(models, tmp_path):
    """An upgrade learned from shuffled rows: its B leads nowhere until rows are filled."""
    from crossfade import Upgrade

    texts = texts_of(600, seed=21)
    old, new = models.old(texts), models.new(texts)
    shuffled = np.random.default_rng(0).permutation(600)
    Upgrade(solver="closed_form", backward_map="orthogonal").fit(
        old[shuffled], new, force=True
    ).save(tmp_path / "astray")
    return str(tmp_path / "astray")


def planned(crossfade, models, upgrade, *options, texts=None):
    """A plan of its own, on labelled texts that nothing was fitted on."""
    texts = texts_of(300, seed=8) if texts is None else texts
    labels = np.array([ord(t[0]) for t in texts])
    np.savez("plan.npz", old=models.old(texts), new=models.new(texts), labels=labels)
    made = ["plan", upgrade, "plan.npz", "-o", "mine", "--order", "random", "--blend", "1"]
    ran = crossfade(*made, *options, "--json", "plan.json")
    assert ran.code == 0, ran.err
    return json.loads(Path("plan.json").read_text(encoding="utf-8"))


def test_start_refuses_a_plan_that_begins_below_today(shop, crossfade, models, astray, tmp_path):
    plan = planned(crossfade, models, astray, "--optimize", "mAP", "--start", "old", "--ask", "new")
    # Filling everything would be well worth it, so the plan itself says nothing against it.
    assert plan["recommendation"] != "do not upgrade"
    now, today = plan["quality"]["mAP"]["at 0 %"], plan["quality"]["mAP"]["old/old"]
    assert now < today - 5
    asked = ["migrate", "start", shop.address, astray, "--plan", "mine"]
    ran = crossfade(*asked)
    assert ran.code == 1
    said = f"the plan's curve begins below old/old: mAP {now:.1f} against {today:.1f}"
    assert said in " ".join(ran.err.split())
    # Without its curves a plan has no band, and its points count as they are.
    (tmp_path / "mine" / "curves.parquet").unlink()
    assert said in " ".join(crossfade(*asked).err.split())
    assert crossfade(*asked, "--force").code == 0


def test_a_plan_below_today_by_less_than_its_band_is_no_refusal(shop, crossfade, models):
    from crossfade.backfill.plan import Plan, content_hash, upper_at_start

    def changed(old_old):
        made.pop("hash", None)
        made["quality"]["mAP"]["old/old"] = old_old
        sealed = made | {"hash": content_hash(made, Path("mine"))}
        Path("mine/plan.json").write_text(json.dumps(sealed), encoding="utf-8")
        return crossfade("migrate", "start", shop.address, shop.upgrade, "--plan", "mine",
                         "--dry-run")  # fmt: skip

    made = planned(crossfade, models, shop.upgrade, "--optimize", "mAP")
    high = upper_at_start(Path("mine"), Plan.load(Path("mine")).record, "mAP")
    now = made["quality"]["mAP"]["at 0 %"]
    assert now < high < now + 10
    assert changed((now + high) / 2).code == 0
    assert changed(high + 0.1).code == 1


def test_a_plan_on_held_out_pairs_counts_as_an_evaluation(shop, crossfade, models):
    asked = ["migrate", "start", shop.address, shop.upgrade, "--plan", "mine", "--dry-run"]
    planned(crossfade, models, shop.upgrade)
    ran = crossfade(*asked)
    assert ran.code == 0, ran.err
    assert "warning: B(new)/old, which answers until forward is done, is not judged" in ran.err
    planned(crossfade, models, shop.upgrade, "--start", "old", "--overwrite")
    ran = crossfade(*asked)
    assert ran.code == 0, ran.err
    assert "not judged" not in ran.err


def test_a_plan_on_the_rows_that_chose_the_upgrade_is_no_evidence(shop, crossfade, models):
    fitted = texts_of(1200, seed=99)
    assert planned(crossfade, models, shop.upgrade, texts=fitted)["held_out"] is False
    ran = crossfade("migrate", "start", shop.address, shop.upgrade, "--plan", "mine")
    assert ran.code == 1
    said = "the plan was made on the fit's own validation rows, which are no evidence"
    assert said in " ".join(ran.err.split())


def test_start_refuses_another_upgrades_evaluation(shop, crossfade, tmp_path):
    (tmp_path / "other.json").write_text('{"upgrade": {"hash": "ab"}, "verdicts": {}}')
    ran = crossfade("migrate", "start", shop.address, shop.upgrade, "--evaluation", "other.json")
    assert ran.code == 2
    assert "evaluate this upgrade" in ran.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["status", "nowhere"], 2, "no such store"),
        (["status", "mysql://host/db#t"], 2, "'mysql' is not known"),
        (["status", "postgresql://u:secret@127.0.0.1:1/db"], 2, "names no table"),
        (["forward", "PLACE"], 2, "no migration was started"),
        (["start", "PLACE", "nothing"], 2, "nothing"),
        (["start", "PLACE", "UPGRADE", "--source", "no_such"], 2, "no column 'no_such'"),
        (["start", "PLACE", "UPGRADE", "--distance", "hamming"], 2, "no distance 'hamming'"),
        (["start", "PLACE", "UPGRADE", "--vector", "body"], 2, "holds no vectors"),
    ],
)
def test_bad_input_is_told(shop, crossfade, arguments, code, said):
    given = [{"PLACE": shop.address, "UPGRADE": shop.upgrade}.get(a, a) for a in arguments]
    ran = crossfade("migrate", *given)
    assert (ran.code, said in ran.err) == (code, True), ran.err
    assert "secret" not in ran.err


def test_an_embedder_that_fails_ends_with_3_and_loses_nothing(shop, crossfade):
    place = shop.address
    crossfade("migrate", "start", place, shop.upgrade, "--force", "--source", "body")
    crossfade("migrate", "forward", place)
    fill = ["migrate", "backfill", place, "--plan", shop.plan, "--labels", "kind", "--share", "1"]
    ran = crossfade(*fill, "--embed", "my_model:broken")
    assert ran.code == 3
    assert "out of memory" in ran.err
    assert open_migrating(place).tally(STATE) == {"lifted": ROWS}
    ran = crossfade(*fill, "--embed", "my_model:embed", "--json", "-")
    assert json.loads(ran.out)["filled"] == ROWS


def test_ctrl_c_ends_cleanly_and_the_next_run_goes_on(shop, crossfade, tmp_path):
    place = shop.address
    crossfade("migrate", "start", place, shop.upgrade, "--force", "--source", "body")
    crossfade("migrate", "forward", place)
    fill = ["migrate", "backfill", place, "--plan", shop.plan, "--labels", "kind", "--share", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "crossfade", *fill, "--batch", "10", "--embed", "my_model:slowly",
         "--json", "-"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    store = open_migrating(place)
    while store.tally(STATE).get("filled", 0) < 20:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130, err
    told = json.loads(out)
    assert told["stopped"] is True
    assert "stop" in told["why"]
    assert "stopping after this batch" in err
    assert 20 <= told["filled"] < ROWS
    assert store.tally(STATE)["filled"] == told["filled"]
    ran = crossfade(*fill, "--embed", "my_model:embed", "--json", "-")
    assert json.loads(ran.out)["written"] == ROWS - told["filled"]


def test_a_password_appears_nowhere(tmp_path, models, upgrade_folder, plan_folder, monkeypatch,
                                    crossfade):  # fmt: skip
    app = PostgresApp(tmp_path)
    _shop(app, tmp_path, models, upgrade_folder, plan_folder, monkeypatch)
    app.run("CREATE ROLE shopper LOGIN SUPERUSER")
    # The test's server trusts everyone; what libpq gets is tested with the addresses.
    place = app.address.replace("postgres:@", "shopper:hun/ter#t2@[hunter2@")
    assert "hunter2" in place
    said = ""
    steps = (
        ["migrate", "start", place, app.upgrade, "--force", "--dry-run"],
        ["migrate", "start", place, app.upgrade, "--force"],
        ["migrate", "start", place, app.upgrade, "--force", "--json", "-"],
        ["migrate", "forward", place],
        ["migrate", "status", place],
        ["migrate", "status", place, "--json", "-"],
        ["inspect", place],
        ["inspect", place, "--json"],
        ["migrate", "verify", place, "--vector", "no_such"],
        ["migrate", "status", place + "_no_such"],
        ["migrate", "status", place.replace("#items", "")],
        ["migrate", "status", place, place],
        ["migrate", "start", app.upgrade, place],
        ["fit", place],
        ["evaluate", app.upgrade, place],
        ["apply", app.upgrade, place, place, "--direction", "forward"],
        ["plan", app.upgrade, "pairs.npz", "--gallery", place],
        ["inspect", "--old", place, "--new", place],
        ["migrate", "backfill", place, "--embed", place, "--plan", place],
    )
    codes = []
    for step in steps:
        ran = crossfade(*step)
        codes.append(ran.code)
        said += ran.out + ran.err
    assert codes == [0, 0, 2, 0, 0, 0, 0, 0] + [2] * 11, said
    said += str(app.run("SELECT * FROM crossfade_state"))
    # A server that is not there is a failure of the store, and says no more than where.
    ran = crossfade("migrate", "status", "postgresql://shopper:hun/ter2@127.0.0.1:1/db#items")
    assert ran.code == 3
    said += ran.out + ran.err
    assert "127.0.0.1:1" in said
    assert "hun" not in said
    assert "ter2" not in said


def test_the_next_command_can_be_typed(tmp_path, models, upgrade_folder, plan_folder, monkeypatch,
                                       crossfade):  # fmt: skip
    app = PostgresApp(tmp_path)
    _shop(app, tmp_path, models, upgrade_folder, plan_folder, monkeypatch)
    assert "?host=" in app.address, "on a socket, whose folder only the query names"
    ran = crossfade("migrate", "start", app.address, app.upgrade, "--force", "--source", "body")
    for stage in ("forwarding", "forward"):
        (line,) = [line for line in ran.out.splitlines() if line.startswith("next: ")]
        _, *words = shlex.split(line.removeprefix("next: "))
        status = crossfade("migrate", "status", words[2], "--json", "-")
        assert status.code == 0, status.err
        if stage == "forwarding":
            assert words[:2] == ["migrate", "forward"]
            ran = crossfade(*words)
            assert ran.code == 0, ran.err
    assert json.loads(status.out)["stage"] == "forward"


def test_inspect_shows_a_store(shop, crossfade):
    facts = json.loads(crossfade("inspect", shop.address, "--json").out)
    assert (facts["kind"], facts["rows"], facts["dim"]) == ("lancedb", ROWS, 12)
    assert facts["migration"] is None
    crossfade("migrate", "start", shop.address, shop.upgrade, "--force")
    shown = crossfade("inspect", shop.address).out
    assert "started" in shown
    assert "crossfade_vector" in shown


def test_status_says_which_vectors_the_application_finds(shop, crossfade, monkeypatch):
    def told() -> tuple[str, str]:
        shown = crossfade("migrate", "status", shop.address).out
        (line,) = [line for line in shown.splitlines() if "own vectors" in line]
        asked = crossfade("migrate", "status", shop.address, "--json", "-").out
        return json.loads(asked)["own_vectors"], line

    def cut_short(*_):
        raise RuntimeError("cut short")

    old = ("old", "the application's own vectors are the old ones")
    new = ("new", "the application's own vectors are the new ones")
    crossfade("migrate", "start", shop.address, shop.upgrade, "--force")
    crossfade("migrate", "forward", shop.address)
    assert told() == old
    settle = LanceStore._settle
    monkeypatch.setattr(LanceStore, "_settle", cut_short)
    with closing(Migration(shop.address)) as migration:
        with pytest.raises(RuntimeError, match="cut short"):
            migration.finish(force=True)
        # The old vectors are there still, by another name; the columns of the store do not tell.
        assert migration.store.describe().dim == 12
        assert {len(vector) for vector in shop.old().values()} == {16}
        assert told() == new
        assert headline(migration.status()).endswith(new[1])
    monkeypatch.setattr(LanceStore, "_settle", settle)
    assert crossfade("migrate", "rollback", shop.address).code == 0
    assert told() == old
