"""Vectors on their way into a file: on disk, so that memory does not grow with the rows."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from crossfade.files.rawrows import copy_chunks, read_rows

Float = NDArray[np.float32]
FLOAT = np.dtype("<f4")
_ROWS = 4096


class Spool:
    """Rows of one array, kept in a file without a name, which is gone when the process is.

    >>> spool = Spool(Path(tempfile.mkdtemp()))
    >>> spool.add(np.ones((2, 3), np.float32))
    >>> spool.rows, spool.dim, next(spool.blocks()).tolist()
    (2, 3, [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    >>> spool.close()
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115  (see close)
        self.rows = self.dim = 0

    def add(self, block: Float) -> None:
        """Append rows, all of one dimension."""
        self.dim = block.shape[1]
        self._file.write(np.ascontiguousarray(block, FLOAT).tobytes())
        self.rows += len(block)

    def blocks(self) -> Iterator[Float]:
        """All rows, a few thousand at a time."""
        self._file.seek(0)
        yield from read_rows(self._file, (self.rows, self.dim), FLOAT, _ROWS, self._folder)

    def rows_at(self, rows: NDArray[np.int64]) -> Float:
        """These rows, which ascend."""
        found, start = [], 0
        for block in self.blocks():
            first, last = np.searchsorted(rows, [start, start + len(block)])
            found.append(block[rows[first:last] - start])
            start += len(block)
        return np.concatenate(found)

    def chunks(self) -> Iterator[bytes]:
        """All rows as bytes, little-endian."""
        self._file.seek(0)
        yield from copy_chunks(self._file, self.nbytes, self._folder)

    @property
    def nbytes(self) -> int:
        return self.rows * self.dim * FLOAT.itemsize

    def close(self) -> None:
        self._file.close()
