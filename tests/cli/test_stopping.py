"""Ctrl-C and SIGTERM, sent to real processes: exit 130 or 143, one line, nothing half done."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.migration.conftest import texts_of
from tests.stores.apps import LanceApp

from crossfade import Upgrade
from crossfade.cli.interrupt import Stopped, ending_at_once, stopping
from crossfade.journal import open_migrating
from crossfade.journal.columns import STATE
from crossfade.migration import Migration

LINE = "stopped: not done → run the same command again"
MODULE = """
import time
from tests.migration.conftest import Models
models = Models()
def embed(texts):
    return models.new(texts)
def slowly(texts):
    time.sleep(0.2)
    return models.new(texts)
def never(texts):
    open("asked", "w").close()
    while True:
        time.sleep(0.01)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, made):
    """Pairs on which every command works for seconds, and an upgrade fitted on others."""
    folder = tmp_path_factory.mktemp("stopping")
    old, new, labels = made(rows=6500, d=64, n=96, classes=40, noise=1.0)
    np.savez(folder / "pairs.npz", old=old[500:], new=new[500:], labels=labels[500:])
    np.save(folder / "old.npy", np.tile(old, (50, 1)))
    Upgrade(solver="closed_form").fit(old[:500], new[:500], labels[:500]).save(folder / "upgrade")
    return folder


class Running:
    """A command under way."""

    def __init__(self, *arguments: object) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "crossfade", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def worked(self) -> float:
        """Processor seconds: the imports take one, whatever else the machine does."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def until(self, ready) -> Running:
        while not ready():
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.01)
        return self

    def told(self, number: signal.Signals) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate()
        return self.process.returncode, out, err


COMMANDS = {
    "fit": ["fit", "pairs.npz", "-o", "OUT"],
    "evaluate": ["evaluate", "upgrade", "pairs.npz", "--json", "OUT"],
    "plan": ["plan", "upgrade", "pairs.npz", "-o", "OUT", "--json", "OUT.json"],
    "apply": ["apply", "upgrade", "old.npy", "OUT.npy", "--direction", "forward",
              "--batch-rows", "1"],
    "demo": ["demo", "-o", "OUT"],
}  # fmt: skip


# The two differ in their exit code alone.
@pytest.mark.parametrize(
    ("name", "number"), [*((name, signal.SIGINT) for name in COMMANDS), ("fit", signal.SIGTERM)]
)
def test_a_command_that_is_stopped_leaves_nothing_and_says_so(
    folder, tmp_path, monkeypatch, name, number
):
    monkeypatch.chdir(folder)
    arguments = [a.replace("OUT", str(tmp_path / "out")) for a in COMMANDS[name]]
    running = Running(*arguments)
    running.until(lambda: running.worked() > (1.5 if name == "apply" else 2.5))
    code, out, err = running.told(number)
    assert code == 128 + number, err
    assert err.splitlines()[-1] == LINE
    assert "Traceback" not in err
    assert "error" not in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("handled", [ending_at_once, stopping])
def test_a_library_that_makes_an_error_of_its_own_of_it_changes_nothing(handled, capsys):
    def callback():
        try:
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)
        except BaseException as error:
            raise OSError(f"External error: {error}") from None

    with pytest.raises(Stopped) as stopped, handled():
        callback()
    assert stopped.value.exit_code == 130
    with pytest.raises(OSError, match="its own"), handled():
        raise OSError("its own")


def test_a_command_is_stopped_while_it_is_still_importing(folder, monkeypatch):
    monkeypatch.chdir(folder)
    running = Running("fit", "pairs.npz")
    maps = Path(f"/proc/{running.process.pid}/maps")
    # The command imports numpy, and the handler stands before that.
    running.until(lambda: "_multiarray_umath" in maps.read_text())
    code, _, err = running.told(signal.SIGINT)
    assert (code, err.strip()) == (130, LINE)


def test_who_is_not_to_hear_ctrl_c_does_not(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    # As nohup does it, or a script's &.
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN);"
        "from crossfade.__main__ import main; main()"
    )
    arguments = ["fit", "pairs.npz", "--solver", "closed_form", "-o", str(tmp_path / "up")]
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
    )
    maps = Path(f"/proc/{process.pid}/maps")
    while "_multiarray_umath" not in maps.read_text():
        time.sleep(0.01)
    for _ in range(5):
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
    process.communicate()
    assert process.returncode == 0
    Upgrade.load(tmp_path / "up")


@pytest.fixture
def shop(tmp_path, models, upgrade_folder, plan_folder, monkeypatch):
    """A started migration of a LanceDB table, with models that take their time."""
    monkeypatch.chdir(tmp_path)
    app = LanceApp(tmp_path)
    texts = texts_of(3000)
    app.create(list(range(len(texts))), texts, [ord(t[0]) for t in texts], models.old(texts))
    (tmp_path / "my_model.py").write_text(MODULE)
    app.plan = str(plan_folder)
    Migration(app.address, upgrade_folder).start(source="body", force=True)
    return app


@pytest.mark.parametrize(("number", "as_json"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_forward_finishes_its_batch_and_says_how_far_it_has_come(shop, number, as_json):
    arguments = ["migrate", "forward", shop.address, "--batch", "1"]
    running = Running(*arguments, *(["--json", "-"] if as_json else []))
    store = open_migrating(shop.address)
    running.until(lambda: json.loads(store.get("migration"))["stage"] == "forwarding")
    code, out, err = running.told(number)
    assert code == 128 + number, err
    assert err.splitlines() == ["stopping after this batch; once more to stop at once", LINE]
    journal = json.loads(store.get("migration"))
    assert journal["stage"] == "forwarding"
    if as_json:
        told = json.loads(out)
        assert told["stopped"] is True
        assert told["rows"] < 3000
    else:
        assert out.startswith("stopped: ")
        assert f"next: crossfade migrate forward {shop.address}" in out
    migration = Migration(shop.address)
    migration.forward()
    assert migration.store.tally(STATE) == {"lifted": 3000}


def test_backfill_finishes_its_batch_and_names_the_next_command(shop, upgrade_folder):
    migration = Migration(shop.address, upgrade_folder)
    migration.forward()
    arguments = ["migrate", "backfill", shop.address, "--plan", shop.plan, "--labels", "kind"]
    running = Running(*arguments, "--share", "1", "--embed", "my_model:slowly", "--batch", "10")
    running.until(lambda: migration.store.tally(STATE).get("filled", 0) >= 10)
    code, out, err = running.told(signal.SIGTERM)
    assert code == 143, err
    assert err.splitlines()[-1] == LINE
    new = migration.store.tally(STATE)["filled"]
    assert f"stopped: {new} rows backfilled; {new} of 3,000 are filled" in out
    assert f"next: crossfade migrate backfill {shop.address}" in out


def test_a_second_ctrl_c_ends_it_at_once(shop, upgrade_folder):
    migration = Migration(shop.address, upgrade_folder)
    migration.forward()
    arguments = ["migrate", "backfill", shop.address, "--plan", shop.plan, "--labels", "kind"]
    running = Running(*arguments, "--share", "1", "--embed", "my_model:never")
    running.until(Path("asked").exists)
    running.process.send_signal(signal.SIGINT)
    assert running.process.stderr.readline().startswith("stopping after this batch")
    code, out, err = running.told(signal.SIGINT)
    assert (code, out, err.strip()) == (130, "", LINE)


def test_verify_is_stopped(shop, upgrade_folder):
    migration = Migration(shop.address, upgrade_folder)
    migration.forward()
    arguments = ["migrate", "backfill", shop.address, "--plan", shop.plan, "--labels", "kind"]
    Running(*arguments, "--share", "0.1", "--embed", "my_model:embed").process.communicate()
    running = Running("migrate", "verify", shop.address, "--embed", "my_model:never", "--json", "-")
    running.until(Path("asked").exists)
    code, out, err = running.told(signal.SIGTERM)
    assert (code, out, err.strip()) == (143, "", LINE)


def test_finish_is_stopped_at_its_question(shop, upgrade_folder):
    migration = Migration(shop.address, upgrade_folder)
    migration.forward()
    read, write = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "crossfade", "migrate", "finish", shop.address, "--force"],
        stdin=read,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    # It waits for an answer that nobody gives.
    asked = ""
    while "gone for good" not in asked and (more := os.read(process.stderr.fileno(), 1000)):
        asked += more.decode()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    os.close(read)
    os.close(write)
    assert "gone for good" in asked
    assert process.returncode == 130
    assert LINE in err
    assert migration.journal.stage == "forward"
