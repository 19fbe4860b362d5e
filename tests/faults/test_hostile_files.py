"""Files that claim or unpack to far more than they are: refused in one line and little memory."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.lib import format as npy_format

from crossfade import Upgrade
from crossfade.errors import BadInput
from crossfade.files import list_arrays, open_source, read_values

HUGE = 1_200_000_000
# The imports of every command take some 200 MB.
MOST_MB = 700

# The peak of this process alone: what getrusage gives would include the one that started it.
SCRIPT = """
import atexit

def peak():
    line = next(l for l in open("/proc/self/status") if l.startswith("VmHWM"))
    open("peak", "w").write(str(int(line.split()[1]) >> 10))

atexit.register(peak)
from crossfade.cli import main
main()
"""


def header(descr, shape) -> bytes:
    """The first bytes of an array in numpy's format."""
    stream = io.BytesIO()
    said = {"descr": descr, "fortran_order": False, "shape": shape}
    npy_format.write_array_header_1_0(stream, said)
    return stream.getvalue()


def save(path, **members) -> None:
    """An npz of arrays, or of first bytes and how many zeros come behind them."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, made in members.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                if isinstance(made, np.ndarray):
                    npy_format.write_array(member, made)
                    continue
                first, zeros = made
                member.write(first)
                for _ in range(zeros // (1 << 20)):
                    member.write(bytes(1 << 20))
                member.write(bytes(zeros % (1 << 20)))


HOSTILE = {
    "one wide string": (header("<U300000000", (1,)), HUGE),
    "wide bytes": (header("|S1200000000", (1,)), HUGE),
    "empty strings": (header("<U3000", (100_000,)), HUGE),
    "empty bytes": (header("|S12000", (100_000,)), HUGE),
    "numbers": (header("<i8", (150_000_000,)), HUGE),
    "truths": (header("|b1", (HUGE,)), HUGE),
    "objects": (header("|O", (100,)), HUGE),
    "no type": (header("|V1200000000", (1,)), HUGE),
    "nothing, often": (header("<U0", (10**15,)), 0),
    "a number of things": (header([("a", "<f8", (10**6,))], (150,)), HUGE),
    "a long header": (npy_format.magic(2, 0) + HUGE.to_bytes(4, "little"), HUGE),
    "more than there is": (header("<i8", (10**18,)), 1000),
    "no size": (header("<i8", (-5,)), 1000),
    "a deep header": (npy_format.magic(1, 0) + (9000).to_bytes(2, "little") + b"(" * 9000, 0),
    "no characters": (header("<U2", (100,)), 0, b"\xff" * 800),
    "half characters": (header("<U1", (100,)), 0, b"\x00\xd8\x00\x00" * 100),
}


@pytest.fixture(scope="module")
def upgrade(tmp_path_factory, made):
    return Upgrade(solver="closed_form").fit(*made()).save(tmp_path_factory.mktemp("up") / "up")


def ran(folder, *arguments) -> tuple[int, str, int]:
    """Exit code, what was said, and the peak in MB of a command."""
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    return told.returncode, told.stderr, int((folder / "peak").read_text())


def refused(folder, *arguments) -> str:
    code, said, peak = ran(folder, *arguments)
    assert code == 2, said
    assert said.startswith("error ")
    assert said.count("\n") == 1, said
    assert peak < MOST_MB
    return said


@pytest.mark.parametrize("kind", HOSTILE)
def test_labels_that_are_not_what_they_seem(tmp_path, made, kind):
    old, new, _ = made()
    first, zeros, *rest = HOSTILE[kind]
    save(tmp_path / "x.npz", old=old, new=new, labels=(first + b"".join(rest), zeros))
    assert (tmp_path / "x.npz").stat().st_size < 14_000_000
    said = refused(tmp_path, "fit", "x.npz", "-o", "upgrade", "--solver", "closed_form")
    assert "x.npz" in said
    assert not (tmp_path / "upgrade").exists()


@pytest.mark.parametrize("command", ["inspect", "evaluate", "plan", "qrels", "ids"])
def test_whatever_reads_them(tmp_path, made, upgrade, command):
    old, new, labels = made()
    hostile = HOSTILE["numbers"]
    save(tmp_path / "x.npz", old=old, new=new, labels=hostile)
    save(tmp_path / "qrels.npz", qrels=(header("<i8", (75_000_000, 2)), HUGE))
    np.savez(tmp_path / "good.npz", old=old, new=new, labels=labels)
    arguments = {
        "inspect": ["inspect", "x.npz"],
        "evaluate": ["evaluate", upgrade, "x.npz"],
        "plan": ["plan", upgrade, "x.npz"],
        "qrels": ["evaluate", upgrade, "good.npz", "--qrels", "qrels.npz"],
        "ids": ["evaluate", upgrade, "good.npz", "--ids", "x.npz:labels"],
    }
    assert "unpacks from" in refused(tmp_path, *arguments[command])


def test_vectors_of_a_dimension_that_none_has(tmp_path):
    save(tmp_path / "x.npz", old=(header("<f4", (1, HUGE // 4)), HUGE), new=np.ones((1, 3), "f4"))
    assert "dimensions" in refused(tmp_path, "fit", "x.npz")


def test_qrels_that_are_none(tmp_path, made, upgrade):
    old, new, labels = made()
    np.savez(tmp_path / "good.npz", old=old, new=new, labels=labels)
    np.save(tmp_path / "objects.npy", np.array([[{}, {}]], dtype=object), allow_pickle=True)
    np.save(tmp_path / "words.npy", np.array([["a", "b"]]))
    np.save(tmp_path / "flat.npy", np.arange(4))
    for name in ("objects", "words", "flat"):
        said = refused(tmp_path, "evaluate", upgrade, "good.npz", "--qrels", f"{name}.npy")
        assert "is no list of judgements" in said


def test_a_table_that_repeats_one_long_string(tmp_path, made):
    old, new, _ = made()
    columns = {
        name: pa.array(list(x), pa.list_(pa.float32())) for name, x in (("old", old), ("new", new))
    }
    names = pa.array(["a" * 20_000_000, "b"])
    labels = pa.DictionaryArray.from_arrays(pa.array([0, 1] * (len(old) // 2)), names)
    table = pa.table(columns | {"labels": labels.cast(pa.string())})
    pq.write_table(table, tmp_path / "x.parquet", compression="zstd")
    assert (tmp_path / "x.parquet").stat().st_size < 1_000_000
    assert "has 20,000,000 bytes" in refused(tmp_path, "fit", "x.parquet")


def test_a_single_long_name_among_many_classes(tmp_path):
    rows = 160_000
    vectors = pa.FixedSizeListArray.from_arrays(np.ones(2 * rows, "f4"), 2)
    labels = ["x" * 4000, *map(str, range(1, rows))]
    pq.write_table(
        pa.table({"old": vectors, "new": vectors, "labels": labels}), tmp_path / "x.parquet"
    )
    said = refused(tmp_path, "fit", "x.parquet")
    assert "160,000 classes have names of up to 4,000 characters" in said


def test_what_is_large_and_packed_well_is_read_where_it_is_not_hostile(tmp_path):
    values = np.repeat(np.array(["a label", "another label of some length"]), 50_000)
    np.savez_compressed(tmp_path / "x.npz", labels=values)
    assert read_values(tmp_path / "x.npz").to_pylist() == values.tolist()
    np.savez_compressed(tmp_path / "y.npz", labels=np.arange(1_000_000) // 1000)
    assert len(read_values(tmp_path / "y.npz")) == 1_000_000


@pytest.mark.parametrize("packed", [False, True])
def test_a_damaged_zip_is_told_whatever_is_damaged(tmp_path, packed):
    """Every byte of a small file changed in turn: it is read, or refused, and nothing else."""
    path = tmp_path / "x.npz"
    arrays = {"vector": np.ones((3, 2), np.float32), "labels": np.array(["a", "bb", "c"])}
    (np.savez_compressed if packed else np.savez)(path, **arrays)
    data = path.read_bytes()
    refusals = 0
    for place in range(len(data)):
        for value in (0, 0xFF, data[place] ^ 0x20):
            path.write_bytes(data[:place] + bytes([value]) + data[place + 1 :])
            try:
                list_arrays(path)
                read_values(path, "labels")
                list(open_source(path, "vector").batches(2))
            except BadInput as error:
                refusals += 1
                assert str(error).startswith(f"{path}: ")
    assert refusals > len(data)
