"""Streaming a file takes the memory of a batch, not of the file."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

from crossfade.files.arrow import to_arrow

ROWS, DIM = 400_000, 256
FILE_MB = ROWS * DIM * 2 >> 20

# The peak of this process alone: what getrusage gives would include the one that started it.
SCRIPT = """
import sys
from crossfade.files import Layout, open_source, write_batches

def peak():
    line = next(l for l in open("/proc/self/status") if l.startswith("VmHWM"))
    return int(line.split()[1]) >> 10

next(open_source(sys.argv[2]).batches(1))
before = peak()
source = open_source(sys.argv[2])
write_batches(sys.argv[1], source.batches(8192), Layout(source.schema, source.column, source.rows))
print(peak() - before)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    x = np.ones((ROWS, DIM), np.float16)
    np.save(folder / "x.npy", x)
    np.savez(folder / "x.npz", vector=x)
    safetensors.numpy.save_file({"vector": x}, folder / "x.safetensors")
    table = pa.table({"vector": to_arrow(x)})
    # One row group and no dictionary: the most that reading by row groups would have to hold.
    pq.write_table(table, folder / "x.parquet", row_group_size=ROWS, use_dictionary=False)
    yield folder
    for path in folder.iterdir():
        path.unlink()


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("npy", "npy"),
        ("npz", "npz"),
        ("safetensors", "safetensors"),
        ("parquet", "npy"),
        ("npy", "parquet"),
        ("npy", "faiss"),
    ],
)
def test_memory_is_that_of_a_batch(folder, source, target):
    paths = [str(folder / f"y.{target}"), str(folder / f"x.{source}")]
    ran = subprocess.run(
        [sys.executable, "-c", SCRIPT, *paths], capture_output=True, text=True, timeout=120
    )
    (folder / f"y.{target}").unlink(missing_ok=True)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) < FILE_MB // 2
