"""MNIST's own file form, as MNIST and Fashion-MNIST come: `*-images-idx3-ubyte`, plain or .gz."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade import BadInput

LARGEST = 1 << 30


def read(path: Path) -> NDArray[np.uint8]:
    """The array of an idx file of bytes."""
    how: Any = gzip.open if path.suffix == ".gz" else open
    with how(path, "rb") as file:
        head = file.read(4)
        if len(head) < 4 or head[:2] != b"\0\0" or head[2] != 8:
            raise BadInput("is not an idx file of bytes", where=path)
        shape = struct.unpack(f">{head[3]}I", file.read(4 * head[3]))
        size = int(np.prod(shape, dtype=np.int64))
        if size > LARGEST:
            raise BadInput(f"holds {size} bytes, more than is believed", where=path)
        data = file.read(size)
    if len(data) != size:
        raise BadInput(f"ends after {len(data)} of {size} bytes", where=path, step="get it again")
    return np.frombuffer(data, np.uint8).reshape(shape)


def write(path: Path, array: NDArray[np.uint8]) -> None:
    """The same form, plain."""
    head = struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    path.write_bytes(head + np.ascontiguousarray(array).tobytes())


def folder(path: Path, split: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (rows, height, width) and labels of `train` or `t10k`."""
    parts = []
    for kind in ("images-idx3", "labels-idx1"):
        # torchvision and some mirrors write a dot for the second dash.
        dotted = kind.replace("-", ".")
        names = [f"{split}-{k}-ubyte{end}" for k in (kind, dotted) for end in ("", ".gz")]
        there = [path / name for name in names if (path / name).is_file()]
        if not there:
            raise BadInput(f"has no {names[0]}", where=path, step="name MNIST's folder")
        parts.append(read(there[0]))
    return parts[0], parts[1].astype(np.int64)


def digits() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """scikit-learn's 1,797 digits, scaled from 8×8 to MNIST's 28×28."""
    from scipy.ndimage import zoom
    from sklearn.datasets import load_digits

    found = load_digits()
    images = zoom(found.images, (1, 2.5, 2.5), order=1).clip(0, 16) * (255 / 16)
    framed = np.pad(images, ((0, 0), (4, 4), (4, 4)))
    return framed.astype(np.uint8), found.target.astype(np.int64)
