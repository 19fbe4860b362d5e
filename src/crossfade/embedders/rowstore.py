"""Rows of a file of vectors in any order, with a bounded part of them in memory."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.embedders.contract import Vectors
from crossfade.errors import EmbedderError
from crossfade.files import Source
from crossfade.files.guards import cannot_write

_BATCH_BYTES = 4 << 20


class RowStore:
    """All vectors of a source, read once; afterwards the file is not looked at again.

    >>> import crossfade.files
    >>> path = Path(tempfile.mkdtemp()) / "new.npy"
    >>> np.save(path, np.arange(6, dtype=np.float32).reshape(3, 2))
    >>> RowStore(crossfade.files.open_source(path), memory_bytes=0).take(np.array([2, 0])).tolist()
    [[4.0, 5.0], [0.0, 1.0]]
    """

    def __init__(
        self, source: Source, memory_bytes: int, scratch: str | Path | None = None
    ) -> None:
        row_bytes = source.dim * source.dtype.itemsize
        pieces = source.vectors(max(1, _BATCH_BYTES // row_bytes))
        self._dtype, self._dim = source.dtype, source.dim
        self._array: NDArray[Any] | None = None
        self._file: Any = None
        self._lock = threading.Lock()
        if source.rows * row_bytes <= memory_bytes:
            self._array = np.empty((source.rows, source.dim), source.dtype)
            start = 0
            for piece in pieces:
                self._array[start : start + len(piece)] = piece
                start += len(piece)
            return
        folder = Path(scratch or tempfile.gettempdir())
        try:
            # Without a name from the start, so that nothing is left of it after a kill. It is open
            # for as long as this object is there.
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
            for piece in pieces:
                _write(self._file, np.ascontiguousarray(piece).reshape(-1).view(np.uint8).data)
        except OSError as error:
            if self._file is not None:
                self._file.close()
            raise cannot_write(folder, error) from error

    def __del__(self) -> None:
        file = getattr(self, "_file", None)
        if file is not None:
            file.close()

    def take(self, rows: NDArray[np.int64]) -> Vectors:
        """The vectors (len(rows), dim) of these rows."""
        if self._array is not None:
            found = self._array[rows]
        else:
            found = np.empty((len(rows), self._dim), self._dtype)
            row_bytes = self._dim * self._dtype.itemsize
            # In the order of the file: what lies together is read while the disk is there.
            with self._lock:
                for place in np.argsort(rows).tolist():
                    self._file.seek(int(rows[place]) * row_bytes)
                    _fill(self._file, memoryview(found[place]).cast("B"))
        # A float64 beyond float32's range becomes infinite, and is then refused as a bad row.
        with np.errstate(over="ignore"):
            return np.asarray(found, np.float32)


def _write(file: Any, view: memoryview) -> None:
    while len(view):
        view = view[file.write(view) :]


def _fill(file: Any, view: memoryview) -> None:
    while len(view):
        count = file.readinto(view)
        if not count:
            raise EmbedderError("the temporary copy of the vectors was cut short", step="resume")
        view = view[count:]
