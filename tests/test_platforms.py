"""What only some systems have is taken away: everything is imported and works without it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from crossfade import threads
from crossfade.files import atomic
from crossfade.stores.address import Address
from crossfade.stores.registry import address_of

WITHOUT = """
import os, signal, sys
sys.modules |= dict.fromkeys(["fcntl", "resource", "pwd", "grp", "termios"])
for name in ("sched_getaffinity", "process_cpu_count", "nice", "fork", "getuid", "geteuid",
             "sched_setaffinity", "O_DIRECTORY", "killpg", "setsid"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "SIGUSR1", "SIGALRM", "SIGKILL"):
    delattr(signal, name)
"""
IMPORTS = """
import importlib, pkgutil
import crossfade
for module in pkgutil.walk_packages(crossfade.__path__, "crossfade."):
    if module.name.endswith("__main__"):
        continue
    try:
        importlib.import_module(module.name)
    except crossfade.MissingExtra as error:
        # What LlamaIndex itself needs of the system is its own affair.
        if module.name != "crossfade.integrations.llama_index":
            raise
print("imported")
"""
MIGRATES = """
import numpy as np, lance, pyarrow as pa, sys
from pathlib import Path
from crossfade import Migration, Upgrade
from crossfade.files.arrow import to_arrow
folder = Path(sys.argv[1])
rng = np.random.default_rng(0)
new = rng.normal(size=(300, 8)).astype("f4") + 1
old = new[:, :4] + 0.1 * rng.normal(size=(300, 4)).astype("f4")
Upgrade(solver="closed_form").fit(old, new).save(folder / "upgrade")
texts = [str(row) for row in range(300)]
lance.write_dataset(
    pa.table({"id": range(300), "text": texts, "vector": to_arrow(old)}), folder / "items.lance"
)
migration = Migration(folder / "items.lance", folder / "upgrade")
migration.start(source="text", force=True)
migration.forward()
done = migration.backfill(lambda texts: new[[int(text) for text in texts]], share=0.5)
assert done.filled == 150, done
assert migration.verify().passed
migration.finish(force=True)
migration.close()
print("migrated")
"""


def run(script: str, *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT + script, *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": ""},
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_every_module_is_imported_without_what_posix_alone_has():
    assert run(IMPORTS) == "imported\n"


def test_a_migration_runs_without_what_posix_alone_has(tmp_path):
    assert run(MIGRATES, str(tmp_path)).endswith("migrated\n")


def test_processors_are_counted_in_the_way_the_system_has(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "process_cpu_count", lambda: 3, raising=False)
    assert threads.cores() == 3
    monkeypatch.delattr(os, "process_cpu_count")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 5}, raising=False)
    assert threads.cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert threads.cores() == 1
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    assert threads.cores() == 7


def test_folders_are_written_where_none_can_be_opened_or_exchanged(tmp_path, monkeypatch):
    class NoFolders:
        """The module `os`, but that it opens no folder."""

        def __getattr__(self, name):
            return getattr(os, name)

        def open(self, path, *arguments):
            if Path(path).is_dir():
                raise PermissionError(13, "Permission denied", str(path))
            return os.open(path, *arguments)

    def no_library(*_, **__):
        raise TypeError("bad argument type for built-in operation")

    monkeypatch.setattr(atomic, "os", NoFolders())
    monkeypatch.setattr("ctypes.CDLL", no_library)
    for text in ("first", "second"):
        with atomic.replacing(tmp_path / "folder", overwrite=True) as temporary:
            temporary.mkdir()
            (temporary / "note.txt").write_text(text)
        assert (tmp_path / "folder" / "note.txt").read_text() == text
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


@pytest.mark.parametrize("place", ["C:/shop/items.lance", "C://items.lance", "D:\\items.lance"])
def test_a_drive_is_no_scheme(place):
    assert address_of(place) == Address("lancedb", str(Path(place)))
