"""What goes wrong while an upgrade is applied leaves no target, and the one there as it was."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crossfade.errors import BadInput, BadRow
from crossfade.files.arrow import to_arrow
from crossfade.upgrade import Upgrade
from crossfade.upgrade.apply import apply_file

OLD_DIM, NEW_DIM = 6, 8

# Applies in a process of its own, so that a limit or a kill meets nothing else. It waits for a
# byte on its input after the first batch if asked to.
SCRIPT = """
import resource, sys
from crossfade.upgrade.apply import apply_file
from crossfade.errors import CrossfadeError
from crossfade.upgrade import Upgrade

folder, source, target, limit, wait = sys.argv[1:]
upgrade = Upgrade.load(folder)

def progress(done, rows):
    if wait == "wait":
        print("busy", flush=True)
        sys.stdin.read(1)

if int(limit):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
try:
    apply_file(upgrade, source, target, direction="forward", batch_rows=64, overwrite=True,
               progress=progress)
except CrossfadeError as error:
    print(error)
    sys.exit(error.exit_code)
"""


@pytest.fixture(scope="module")
def upgrade():
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(200, OLD_DIM)), rng.normal(size=(200, NEW_DIM))
    return Upgrade(solver="closed_form").fit(old, new, force=True)


@pytest.fixture(scope="module")
def upgrade_folder(upgrade, tmp_path_factory):
    folder = tmp_path_factory.mktemp("upgrade") / "upgrade"
    upgrade.save(folder)
    return folder


@pytest.fixture
def old(tmp_path):
    np.save(tmp_path / "old.npy", np.random.default_rng(1).normal(size=(5000, OLD_DIM)))
    return tmp_path / "old.npy"


def refused(upgrade, source, target, direction="forward", kind=BadInput, **options):
    with pytest.raises(kind) as caught:
        apply_file(upgrade, source, target, direction=direction, **options)
    assert caught.value.exit_code == 2
    assert not Path(target).is_file()
    assert not [entry for entry in Path(source).parent.iterdir() if ".tmp-" in entry.name]
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "problem"), [(np.nan, "a NaN"), (np.inf, "an infinite value"), (0.0, "all zeros")]
)
def test_a_bad_row_has_the_row_of_the_file(tmp_path, upgrade, value, problem):
    x = np.random.default_rng(1).normal(size=(500, OLD_DIM))
    x[417] = value
    np.save(tmp_path / "x.npy", x)
    message = refused(upgrade, tmp_path / "x.npy", tmp_path / "y.npy", kind=BadRow, batch_rows=64)
    assert message.startswith(f"{tmp_path}/x.npy: row 417 of 'vector' ")
    assert problem in message
    assert " → " in message


def test_vectors_of_the_other_model(tmp_path, upgrade, old):
    message = refused(upgrade, old, tmp_path / "y.npy", direction="backward")
    assert message == (
        f"{old}: 'vector' has dimension 6, and backward reads new vectors of dimension 8 "
        "→ these look like old vectors: use --direction forward"
    )


def test_vectors_of_neither_model(tmp_path, upgrade):
    np.save(tmp_path / "x.npy", np.ones((5, 7)))
    message = refused(upgrade, tmp_path / "x.npy", tmp_path / "y.npy")
    assert "'vector' has dimension 7, and forward reads old vectors of dimension 6 → " in message


def tagged(path, dim, space):
    x = np.random.default_rng(1).normal(size=(50, dim)).astype(np.float32)
    table = pa.table({"vector": to_arrow(x)})
    pq.write_table(table.replace_schema_metadata({"crossfade.space": space}), path)
    return path


def test_vectors_that_are_already_mapped(tmp_path, upgrade):
    source = tagged(tmp_path / "x.parquet", OLD_DIM, "shared")
    message = refused(upgrade, source, tmp_path / "y.parquet")
    assert "its vectors are already in the shared space" in message
    assert message.endswith("→ give the old model's own vectors")


def test_an_output_is_not_taken_as_an_input_again(tmp_path, upgrade):
    source = tagged(tmp_path / "x.parquet", NEW_DIM, "new")
    apply_file(upgrade, source, tmp_path / "y.parquet", direction="backward")
    message = refused(upgrade, tmp_path / "y.parquet", tmp_path / "z.parquet", direction="backward")
    assert f"already in the shared space (upgrade {upgrade.hash_[:12]})" in message


def test_vectors_that_say_they_are_the_other_side(tmp_path, upgrade):
    source = tagged(tmp_path / "x.parquet", OLD_DIM, "new")
    message = refused(upgrade, source, tmp_path / "y.parquet")
    assert message == (
        f"{source}: says that it holds new vectors, and forward reads old ones "
        "→ use --direction backward"
    )


def test_an_existing_target(tmp_path, upgrade, old):
    (tmp_path / "y.npy").write_text("precious")
    with pytest.raises(BadInput, match=r"y.npy: already exists → name another file, or add --over"):
        apply_file(upgrade, old, tmp_path / "y.npy", direction="forward")
    assert (tmp_path / "y.npy").read_text() == "precious"


def test_a_batch_of_no_rows(tmp_path, upgrade, old):
    assert "a batch of 0 rows → " in refused(upgrade, old, tmp_path / "y.npy", batch_rows=0)


@pytest.mark.parametrize("extension", ["npy", "npz", "safetensors", "parquet", "lance", "faiss"])
@pytest.mark.parametrize("parent", ["missing", "old.npy", "/proc"])
def test_a_folder_that_cannot_be_written(tmp_path, upgrade, old, extension, parent):
    target = tmp_path / parent / f"y.{extension}"
    message = refused(upgrade, old, target)
    assert message.startswith(f"{target}: cannot be written (")
    assert message.endswith("→ name a folder you can write to")
    assert not (tmp_path / "missing").exists()


def run(folder, source, target, limit=0):
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, str(folder), str(source), str(target), str(limit), "go"],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("extension", ["npy", "npz", "safetensors", "parquet", "faiss"])
def test_a_disk_that_takes_no_more(tmp_path, upgrade_folder, old, extension):
    target = tmp_path / f"y.{extension}"
    target.write_text("precious")
    ran = run(upgrade_folder, old, target, limit=40_000)
    assert ran.returncode == 2, ran.stderr
    assert f"{target}: the file would be larger than this system allows" in ran.stdout
    assert " → " in ran.stdout
    assert ran.stderr == ""
    assert target.read_text() == "precious"
    assert {entry.name for entry in tmp_path.iterdir()} == {"old.npy", target.name}


def test_a_disk_that_takes_no_more_of_a_lance_dataset(tmp_path, upgrade_folder, old):
    target = tmp_path / "y.lance"
    ran = run(upgrade_folder, old, target, limit=40_000)
    assert ran.returncode == 2, ran.stderr
    assert f"{target}: the file would be larger than this system allows" in ran.stdout
    assert {entry.name for entry in tmp_path.iterdir()} == {"old.npy"}


@pytest.mark.parametrize("extension", ["npy", "parquet"])
def test_a_kill_leaves_no_target_and_a_second_run_works(tmp_path, upgrade_folder, old, extension):
    target = tmp_path / f"y.{extension}"
    command = [
        sys.executable,
        "-c",
        SCRIPT,
        str(upgrade_folder),
        str(old),
        str(target),
        "0",
        "wait",
    ]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"busy\n"
        process.kill()
        process.wait(timeout=30)
    assert not target.exists()
    ran = run(upgrade_folder, old, target)
    assert ran.returncode == 0, ran.stderr
    assert target.exists()


def test_an_interrupt_leaves_nothing(tmp_path, upgrade, old):
    def interrupt(done, rows):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apply_file(
            upgrade,
            old,
            tmp_path / "y.npy",
            direction="forward",
            batch_rows=64,
            progress=interrupt,
        )
    assert {entry.name for entry in tmp_path.iterdir()} == {"old.npy"}
