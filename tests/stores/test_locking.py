"""One migration of a folder at a time, whoever holds the lock, and however it lets go of it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys

import pytest

from crossfade.errors import StoreBusy, StoreError
from crossfade.stores.locking import folder_lock

HOLD = """
import sys, time
from pathlib import Path
from crossfade.stores.locking import folder_lock
with folder_lock(Path(sys.argv[1]), "items"):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "folder" / "lock"


def test_the_second_is_refused_and_may_come_when_the_first_is_done(path):
    for _ in range(2):
        with (
            folder_lock(path, "items"),
            pytest.raises(StoreBusy, match="items: another process is migrating this store"),
            folder_lock(path, "items"),
        ):
            pass


def test_a_process_that_is_killed_holds_nothing_any_more(path):
    command = [sys.executable, "-c", HOLD, str(path)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(StoreBusy), folder_lock(path, "items"):
            pass
        other.kill()
        other.wait()
    with folder_lock(path, "items"):
        pass


def test_a_plain_flock_on_the_same_file_and_ours_exclude_each_other(path):
    with folder_lock(path, "items"):
        inode = path.stat().st_ino
        with path.open("r+") as handle, pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with path.open("r+") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(StoreBusy), folder_lock(path, "items"):
            pass
    with folder_lock(path, "items"):
        assert path.stat().st_ino == inode, "who waits for the file waits for the same one"


def test_a_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(StoreError, match=r"items: cannot be written to \(.*\) → check its perm"),
        folder_lock(tmp_path / "file" / "lock", "items"),
    ):
        pass
