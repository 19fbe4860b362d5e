"""A save that fails or is killed leaves what was there, and overwrites nothing unasked."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time

import pytest

from crossfade import BadInput, Upgrade


def test_an_existing_folder_is_not_overwritten_unless_asked(upgrade, folder, made):
    other = Upgrade(solver="closed_form").fit(*made(seed=1))
    with pytest.raises(BadInput, match=r"already exists → name another folder, or --overwrite"):
        other.save(folder)
    assert Upgrade.load(folder).hash_ == upgrade.hash_
    other.save(folder, overwrite=True)
    assert Upgrade.load(folder).hash_ == other.hash_
    assert [path.name for path in folder.parent.iterdir()] == ["upgrade"]


def test_what_is_not_an_upgrade_is_never_overwritten(upgrade, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("precious")
    (tmp_path / "notes.txt").write_text("precious")
    for name in ("photos", "notes.txt"):
        with pytest.raises(BadInput, match="is there and is not an upgrade → name another folder"):
            upgrade.save(tmp_path / name, overwrite=True)
    assert (tmp_path / "photos" / "cat.jpg").read_text() == "precious"
    assert (tmp_path / "notes.txt").read_text() == "precious"


@pytest.mark.parametrize("parent", ["missing", "file"])
def test_a_parent_that_is_no_folder_is_named(upgrade, tmp_path, parent):
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadInput) as caught:
        upgrade.save(tmp_path / parent / "upgrade")
    assert str(caught.value) == (f"{tmp_path / parent}: is not a folder → make it, or name another")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_place_that_takes_no_files_is_named(upgrade):
    with pytest.raises(BadInput, match=r"/proc.*(cannot be written|not writable).* → "):
        upgrade.save("/proc/upgrade")


LIMITED = """
import resource, sys
from crossfade import Upgrade
from crossfade.errors import CrossfadeError

source, target, limit = sys.argv[1:]
upgrade = Upgrade.load(source)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    upgrade.save(target, overwrite=True)
except CrossfadeError as error:
    print(error)
    sys.exit(error.exit_code)
"""


@pytest.mark.parametrize("limit", [10, 1000])
@pytest.mark.parametrize("there", [True, False])
def test_a_disk_that_takes_no_more_leaves_what_was_there(folder, tmp_path, limit, there):
    if there:
        shutil.copytree(folder, tmp_path / "target")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    ran = subprocess.run(
        [sys.executable, "-c", LIMITED, folder, tmp_path / "target", str(limit)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 2, ran.stderr
    assert f"{tmp_path / 'target'}: " in ran.stdout
    assert "nothing was written → " in ran.stdout
    assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    if there:
        Upgrade.load(tmp_path / "target")


# Kills itself just before the k-th thing it asks of the file system, for every k, and looks at what
# is left each time. Python announces each of them to audit hooks.
KILLED_EVERYWHERE = """
import os, signal, sys
import crossfade.files
from crossfade import Upgrade
from crossfade.errors import CrossfadeError

source, target = sys.argv[1:]
upgrade = Upgrade.load(source)
upgrade.save(target, overwrite=True)
STEPS = {"open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "shutil.rmtree", "os.listdir"}
for k in range(1, 1000):
    child = os.fork()
    if child == 0:
        left = k
        def hook(event, arguments):
            global left
            if event in STEPS:
                left -= 1
                if left == 0:
                    print(k, event, arguments[:2], file=sys.stderr, flush=True)
                    os.kill(os.getpid(), signal.SIGKILL)
        sys.addaudithook(hook)
        upgrade.save(target, overwrite=True)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    try:
        Upgrade.load(target)
    except CrossfadeError as error:
        print(f"killed before step {k}: {error}")
        upgrade.save(target, overwrite=True)
    if os.WIFEXITED(status):
        assert os.WEXITSTATUS(status) == 0
        break
print("steps", k)
"""


def test_a_kill_at_any_step_of_a_save_leaves_an_upgrade(folder, tmp_path):
    ran = subprocess.run(
        [sys.executable, "-c", KILLED_EVERYWHERE, folder, tmp_path / "target"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ran.returncode == 0, ran.stderr
    *broken, last = ran.stdout.splitlines()
    assert int(last.removeprefix("steps ")) > 5, ran.stderr
    assert broken == [], ran.stderr


SAVING = """
import sys
from crossfade import Upgrade

source, target = sys.argv[1:]
upgrade = Upgrade.load(source)
while True:
    upgrade.save(target, overwrite=True)
    print("saved", flush=True)
"""


def test_a_kill_at_any_moment_leaves_an_upgrade(folder, tmp_path, upgrade):
    rng = random.Random(0)  # noqa: S311
    for _ in range(5):
        command = [sys.executable, "-c", SAVING, folder, tmp_path / "target"]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout.readline() == b"saved\n"
            time.sleep(rng.uniform(0, 0.05))
            process.kill()
            process.wait(timeout=30)
        assert Upgrade.load(tmp_path / "target").hash_ == upgrade.hash_
