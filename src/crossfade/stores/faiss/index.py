"""An index of FAISS as a matrix of vectors, and another one like it of other vectors.

Flat, IVF-flat and HNSW-flat indexes keep the vectors that were added, and give them back to the
last bit. Kinds that keep codes (PQ, SQ and others) do not: to lift what comes out of them would
lose twice, so they are refused, and whoever has the vectors builds such an index of lifted ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.errors import BadInput, StoreError
from crossfade.files.faiss import FlatFile, find_index, library, read_ids, read_index
from crossfade.files.guards import reading

_WHOLE = ("IndexFlat", "IndexFlatIP", "IndexFlatL2", "IndexIVFFlat", "IndexHNSWFlat")
_ROWS = 65_536


@dataclass(frozen=True, eq=False)
class Held:
    """The vectors (n, d) of an index in the order of its rows, and its own ids if it has any."""

    vectors: NDArray[np.float32]
    ids: NDArray[np.int64] | None
    metric: str


def read_vectors(path: Path) -> Held:
    """All of an index; `BadInput` if it keeps codes in the place of vectors."""
    found = find_index(path)
    if isinstance(found, FlatFile):
        with reading(path), path.open("rb") as file:
            ids = None if found.ids is None else read_ids(file, found, path)
            file.seek(found.vectors)
            data = np.fromfile(file, "<f4", found.rows * found.dim)
        return Held(data.astype(np.float32).reshape(found.rows, found.dim), ids, found.metric)
    kind = type(found.inner).__name__
    if kind not in _WHOLE:
        raise BadInput(
            f"is an {kind}, which keeps codes and not the vectors it was built of",
            where=path,
            step="migrate those vectors as a folder of Parquet files, then build it of the new",
        )
    parts = [np.zeros((0, found.dim), np.float32), *(block for _, block in found.blocks(_ROWS))]
    return Held(np.concatenate(parts), found.ids, found.metric)


def write_like(path: Path, made: Path, vectors: NDArray[np.float32]) -> None:
    """Write an index of the same kind and ids, of other vectors in the order of its rows; of the
    first rows alone, where there are fewer of them."""
    faiss = library("a FAISS store")
    owner = read_index(path)
    index = faiss.downcast_index(owner)
    mapped = isinstance(index, (faiss.IndexIDMap, faiss.IndexIDMap2))
    inner = faiss.downcast_index(index.index) if mapped else index
    held = read_vectors(path)
    bare = _like(faiss, inner, vectors)
    fresh = type(index)(bare) if mapped else bare
    vectors = np.ascontiguousarray(vectors, np.float32)
    if held.ids is not None:
        fresh.add_with_ids(vectors, held.ids[: len(vectors)])
    else:
        fresh.add(vectors)
    if isinstance(inner, faiss.IndexIVFFlat):
        # By which an application is given vectors by their ids; as they are added, FAISS would
        # enter those without an id by a wrong one.
        bare.set_direct_map_type(inner.direct_map.type)
    try:
        faiss.write_index(fresh, str(made))
    except RuntimeError as error:
        raise StoreError(
            "the new index cannot be written", where=made, step="check the disk's space"
        ) from error


def _like(faiss: Any, index: Any, vectors: NDArray[np.float32]) -> Any:
    """An empty index of the same kind, trained where it has to be."""
    dim, metric = vectors.shape[1], index.metric_type
    if isinstance(index, faiss.IndexHNSWFlat):
        made = faiss.IndexHNSWFlat(dim, index.hnsw.nb_neighbors(1), metric)
        made.hnsw.efConstruction = index.hnsw.efConstruction
        made.hnsw.efSearch = index.hnsw.efSearch
        return made
    if isinstance(index, faiss.IndexIVFFlat):
        coarse = _like(faiss, faiss.downcast_index(index.quantizer), vectors)
        made = faiss.IndexIVFFlat(coarse, dim, index.nlist, metric)
        # The index has its quantizer with it, and takes it along when it goes.
        coarse.this.disown()
        made.own_fields = True
        made.nprobe = index.nprobe
        usable = vectors[np.abs(vectors).sum(axis=1) > 0]
        if len(usable) < index.nlist:
            raise BadInput(
                f"has {index.nlist} lists, and {len(usable)} rows to make them of",
                step="build it with fewer lists first",
            )
        made.train(np.ascontiguousarray(usable, np.float32))
        return made
    return faiss.IndexFlat(dim, metric)
