"""Names are the user's own, shown as they are: no markup, no emoji, no orders to a terminal."""

from __future__ import annotations

import os
import subprocess
import sys

import lance
import numpy as np
import pyarrow as pa
import pytest
from tests.migration.conftest import texts_of

from crossfade import Upgrade
from crossfade.files.arrow import to_arrow

# Tags that are closed but never opened end rich's patience, others vanish, and words between
# colons become pictures.
ODD = "[/] [bold]x[/bold] [/nothing] :boom: [link=x]"
PAIRS, UPGRADE = "odd [red] :boom: {0} it's.npz", "odd[red][bold]"


@pytest.fixture
def folder(tmp_path, monkeypatch, made):
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.chdir(tmp_path)
    old, new, _ = made(rows=300)
    labels = np.array([f"{ODD} {n % 6}" for n in range(300)])
    np.savez(tmp_path / PAIRS, old=old, new=new, labels=labels)
    upgrade = Upgrade(solver="closed_form", old_model=ODD, new_model=f"new {ODD}")
    upgrade.fit(old[:150], new[:150], labels[:150]).save(tmp_path / UPGRADE)
    return tmp_path


def test_a_fit_and_an_inspection(folder, crossfade):
    arguments = ["fit", PAIRS, "-o", "[bold]up", "--solver", "closed_form"]
    ran = crossfade(*arguments, "--old-model", ODD, "--new-model", ":boom:")
    assert ran.code == 0, ran.err
    assert "written: [bold]up" in ran.out
    ran = crossfade("inspect", "[bold]up")
    assert ran.code == 0, ran.err
    assert ODD in ran.out
    assert ":boom:" in ran.out
    ran = crossfade("inspect", PAIRS)
    assert ran.code == 0, ran.err
    assert PAIRS in ran.out
    assert ODD in ran.out, "the labels of the largest classes"


def test_an_evaluation_and_a_plan(folder, crossfade):
    ran = crossfade("evaluate", UPGRADE, PAIRS, "--require", "none")
    assert ran.code == 0, ran.err
    ran = crossfade("evaluate", UPGRADE, PAIRS, "--require", "[/]")
    assert ran.code == 2
    assert "[/]" in ran.err
    np.savez("held.npz", **{k: v[150:] for k, v in np.load(PAIRS).items()})
    options = ["--order", "random", "--blend", "1"]
    ran = crossfade("plan", UPGRADE, "held.npz", "-o", "[bold]plan", *options)
    assert ran.code == 0, ran.err
    assert "written: [bold]plan" in ran.out


def test_a_sequence_of_models(folder, crossfade):
    arrays = dict(np.load(PAIRS))
    np.save("newest.npy", arrays["new"][:, ::-1])
    newest = Upgrade(solver="closed_form", old_model=f"new {ODD}", new_model=f"newest {ODD}")
    newest.fit(arrays["new"][:150], arrays["new"][:150, ::-1], arrays["labels"][:150])
    newest.save("newest")
    then = ["--then", "newest=newest.npy"]
    ran = crossfade("evaluate", UPGRADE, PAIRS, "--require", "none", *then)
    assert ran.code == 0, ran.err
    for model in (ODD, f"new {ODD}", f"newest {ODD}"):
        assert f" {model} " in ran.out


@pytest.fixture
def shop(tmp_path, models, monkeypatch):
    """A store whose name, columns, ids and models are all odd."""
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.chdir(tmp_path)
    texts = texts_of(1200, seed=99)
    labels = np.array([ord(t[0]) for t in texts])
    upgrade = Upgrade(solver="closed_form", old_model=ODD, new_model=":boom:")
    upgrade.fit(models.old(texts), models.new(texts), labels).save(tmp_path / UPGRADE)
    held = texts_of(400, seed=7)
    np.savez(
        "held.npz", old=models.old(held), new=models.new(held), labels=[ord(t[0]) for t in held]
    )
    (tmp_path / "boom.py").write_text(
        "from tests.migration.conftest import Models\n"
        "def x(texts): return Models().new(texts)\n"
        "def bad(texts): raise RuntimeError('[/] :boom: \\x1b[31m')\n"
    )
    texts = texts_of(240)
    old = models.old(texts)
    old[3] = 0
    table = pa.table({"id": [f"{ODD} {n}" for n in range(240)], "body": texts})
    place = PAIRS.replace(".npz", ".lance")
    lance.write_dataset(table.append_column("vector", to_arrow(old)), place)
    return place


def test_a_migration(shop, crossfade):
    def run(*arguments, code=0):
        ran = crossfade(*arguments)
        assert ran.code == code, ran.err
        return ran

    run("plan", UPGRADE, "held.npz", "-o", "plan", "--order", "random", "--blend", "1")
    said = run("migrate", "start", shop, UPGRADE, "--force", "--source", "body").out
    assert f"{ODD}, 12 dimensions" in said
    assert f"lancedb: {shop}" in said
    ran = run("migrate", "forward", shop)
    assert f"{ODD} 3" in ran.err, "a row without a usable vector, by its id"
    fill = ["migrate", "backfill", shop, "--plan", "plan", "--share", "0.5", "--labels", "body"]
    assert "embedder: boom:x" in run(*fill, "--embed", "boom:x", "--dry-run").out
    ran = run(*fill, "--embed", "boom:bad", code=3)
    assert r"[/] :boom: \x1b[31m" in ran.err
    run(*fill, "--embed", "boom:x")
    said = run("migrate", "status", shop).out
    assert f"{shop}: backfilling" in " ".join(said.split()), "a title is as wide as its table"
    assert "with boom:x, order" in said, "an event"
    said = run("migrate", "verify", shop).out
    assert shop in " ".join(said.split())
    assert shop in run("inspect", shop).out
    run("migrate", "rollback", shop)


def test_errors_are_one_line_and_orders_are_not_passed_on(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "40"}
    shown = {
        "a\nb [/] \x1b[31m.npz": rb"a\nb [/] \x1b[31m.npz: no such file",
        b"a/\xff :boom:.npz": rb"a/\udcff :boom:.npz: no such file",
        "a\u2028b.npz": rb"a\u2028b.npz: no such file",
    }
    for name, said in shown.items():
        for encoding in ("utf-8", "ascii"):
            ran = subprocess.run(
                [sys.executable, "-m", "crossfade", "inspect", name],
                capture_output=True,
                env=env | {"PYTHONIOENCODING": encoding},
            )
            assert ran.returncode == 2, ran.stderr
            assert ran.stderr.count(b"\n") == 1
            assert b"\x1b" not in ran.stderr
            assert said in ran.stderr
