"""Pairs that `crossfade fit` can be given, in any format."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy

QUICK = ("--solver", "closed_form")


@pytest.fixture
def pairs(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return made()._asdict()


def write(pairs, path):
    if path.suffix == ".npz":
        np.savez(path, **pairs)
    elif path.suffix == ".safetensors":
        safetensors.numpy.save_file(pairs, path)
    else:
        columns = {side: pa.array(list(pairs[side])) for side in ("old", "new")}
        pq.write_table(pa.table(columns | {"labels": pairs["labels"]}), path)
    return path
