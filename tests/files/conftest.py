"""Each format written and read by its own library, as the independent way of doing it."""

from __future__ import annotations

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import safetensors.numpy


def _table(x: np.ndarray) -> pa.Table:
    flat = pa.array(x.reshape(-1))
    return pa.table({"vector": pa.FixedSizeListArray.from_arrays(flat, x.shape[1])})


def _array(table: pa.Table) -> np.ndarray:
    column = table.column("vector").combine_chunks()
    return column.flatten().to_numpy().reshape(len(column), -1)


class Library:
    """Saves and loads one array, under the name `vector` where the format has names."""

    def __init__(self, extension: str) -> None:
        self.extension = extension

    def save(self, path: Path, x: np.ndarray) -> None:
        match self.extension:
            case "npy":
                np.save(path, x)
            case "npz":
                np.savez(path, vector=x)
            case "safetensors":
                safetensors.numpy.save_file({"vector": x}, path)
            case "parquet":
                pq.write_table(_table(x), path)
            case "lance":
                lance.write_dataset(_table(x), str(path))

    def load(self, path: Path) -> np.ndarray:
        match self.extension:
            case "npy":
                return np.load(path)
            case "npz":
                with np.load(path) as found:
                    return found["vector"]
            case "safetensors":
                return safetensors.numpy.load_file(path)["vector"]
            case "parquet":
                return _array(pq.read_table(path))
            case _:
                return _array(lance.dataset(str(path)).to_table())


EXTENSIONS = ("npy", "npz", "safetensors", "parquet", "lance")


@pytest.fixture(params=EXTENSIONS)
def library(request: pytest.FixtureRequest) -> Library:
    return Library(request.param)


@pytest.fixture(params=EXTENSIONS)
def other_library(request: pytest.FixtureRequest) -> Library:
    return Library(request.param)
