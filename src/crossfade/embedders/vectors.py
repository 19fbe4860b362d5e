"""New vectors from a file in which they already lie, looked up by id."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crossfade.embedders.contract import BaseEmbedder, Id, Vectors
from crossfade.embedders.idindex import MISSING, IdIndex
from crossfade.embedders.rowstore import RowStore
from crossfade.errors import BadInput, MissingVectors
from crossfade.files import list_arrays, open_source, read_values, split_name

_ID_NAMES = ("id", "ids")


class VectorFile(BaseEmbedder):
    """Ids and vectors of a parquet, lance, npz, safetensors or FAISS file.

    The ids stay in memory, sorted. The vectors do as long as they are few; more of them are copied
    once to a temporary file, because an order of backfilling asks for rows from all over the file,
    and formats that pack many rows together would unpack all of it for every batch.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "new.npz"
    >>> np.savez(path, ids=np.array(["a", "b"]), vectors=np.eye(2, dtype=np.float32))
    >>> file = VectorFile(path)
    >>> file.embed(["b"], None).tolist(), file.has(["a", "c"]).tolist()
    ([[0.0, 1.0]], [True, False])
    """

    needs_source = False
    prepared = True

    def __init__(
        self,
        path: str | Path,
        *,
        ids: str | None = None,
        memory_bytes: int = 256 << 20,
        scratch: str | Path | None = None,
    ) -> None:
        """`path` is FILE or FILE:NAME; `ids` names its column of ids, else `id` or `ids`.

        Vectors of more than `memory_bytes` go to a temporary file in the folder `scratch`.
        """
        file, column = split_name(path)
        self.name = str(file)
        column_of_ids = _ids_named(file, ids)
        source = open_source(file, column)
        values = read_values(file, column_of_ids)
        if len(values) != source.rows:
            raise BadInput(
                f"has {len(values)} values in '{column_of_ids}' and {source.rows} vectors",
                where=file,
                step="give one id for each vector",
            )
        self._index = IdIndex(values, where=file, column=column_of_ids)
        self.dimension = source.dim
        self._rows = RowStore(source, memory_bytes, scratch)

    def __repr__(self) -> str:
        return f"VectorFile({self.name!r}, {len(self)} × {self.dimension})"

    def __len__(self) -> int:
        return len(self._index)

    def has(self, ids: Sequence[Id]) -> NDArray[np.bool_]:
        """Which of `ids` the file holds a vector for."""
        return np.asarray(self._index.rows(ids) != MISSING)

    def embed(self, ids: Sequence[Id], sources: Sequence[str] | None = None) -> Vectors:
        """The vectors of `ids`; `MissingVectors` lists those that the file lacks."""
        rows = self._index.rows(ids)
        missing = np.flatnonzero(rows == MISSING)
        if len(missing):
            raise MissingVectors(
                [ids[place] for place in missing.tolist()],
                where=self.name,
                step="embed them into the file, or leave them as they are",
            )
        return self._rows.take(rows)


def _ids_named(file: Path, name: str | None) -> str:
    present = [array.name for array in list_arrays(file)]
    if name is not None and name in present:
        return name
    found = [usual for usual in _ID_NAMES if usual in present]
    if name is None and found:
        return found[0]
    held = ", ".join(f"'{one}'" for one in present)
    raise BadInput(
        f"has no ids: {f'no {name!r}' if name is not None else 'no id or ids'} among {held}",
        where=file,
        step="keep the ids beside the vectors, in a column called id or one that you name",
    )
