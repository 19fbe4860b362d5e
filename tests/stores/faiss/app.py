"""Users of FAISS: an index in a file and a table of what else there is, replaced by renaming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TEXT_IDS = ("b", "a", "it's", "Ä", 'quo"te', "z", "gone")
LISTS = 4


def unit(x: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(x, axis=-1, keepdims=True)
    return np.asarray(x / np.where(lengths > 0, lengths, 1), np.float32)


class FaissApp:
    """Compares by cosine, and so has vectors at length one; ids are in an `IndexIDMap`, or as text
    in a file beside the index."""

    text_ids, unit_length = TEXT_IDS, True

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.path = folder / "items.index"
        self.address = f"faiss:{self.path}"

    def make(self, dim: int) -> Any:
        return faiss.IndexFlatIP(dim)

    def with_ids(self, index: Any) -> Any:
        """What keeps ids for an index that has none itself."""
        return faiss.IndexIDMap2(index)

    def read(self, index: Any) -> tuple[list, np.ndarray]:
        """Ids, or places where they lie beside it, and vectors."""
        if isinstance(index, faiss.IndexIDMap2):
            ids = faiss.vector_to_array(index.id_map).tolist()
            return ids, faiss.downcast_index(index.index).reconstruct_n(0, index.ntotal)
        return list(range(index.ntotal)), index.reconstruct_n(0, index.ntotal)

    def create(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        self._put(ids, bodies, kinds, unit(old))

    def insert(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        had = self._all()
        vectors = np.concatenate([had[3], unit(old)])
        self._put(had[0] + list(ids), had[1] + list(bodies), had[2] + list(kinds), vectors)

    def change(self, key: Any, body: str, old: np.ndarray) -> None:
        ids, bodies, kinds, vectors = self._all()
        at = ids.index(key)
        bodies[at], vectors[at] = body, unit(old)
        self._put(ids, bodies, kinds, vectors)

    def empty(self, key: Any) -> None:
        """An index has no other way to have none."""
        ids, bodies, kinds, vectors = self._all()
        vectors[ids.index(key)] = 0.0
        self._put(ids, bodies, kinds, vectors)

    def delete(self, key: Any) -> None:
        ids, bodies, kinds, vectors = self._all()
        at = ids.index(key)
        left = [i for i in range(len(ids)) if i != at]
        kept = ([column[i] for i in left] for column in (ids, bodies, kinds))
        self._put(*kept, vectors[left])

    def old(self) -> dict[Any, np.ndarray]:
        ids, _, _, vectors = self._all()
        return dict(zip(ids, vectors, strict=True))

    def close(self) -> None:
        """Nothing is held open."""

    def _all(self) -> tuple[list, list, list, np.ndarray]:
        ids, vectors = self.read(faiss.read_index(str(self.path)))
        beside = self.path.with_name("items.ids.txt")
        if beside.exists():
            ids = beside.read_text().split("\n")
        table = pq.read_table(self.path.with_name("items.parquet"))
        row = {key: n for n, key in enumerate(table["id"].to_pylist())}
        bodies, kinds = (table[name].to_pylist() for name in ("body", "kind"))
        places = [row[key] for key in ids]
        return ids, [bodies[n] for n in places], [kinds[n] for n in places], vectors

    def _put(self, ids: list, bodies: list, kinds: list, vectors: np.ndarray) -> None:
        table = pa.table({"id": ids, "body": bodies, "kind": pa.array(kinds, pa.int64())})
        pq.write_table(table, self.path.with_name(".items.parquet"))
        self.path.with_name(".items.parquet").replace(self.path.with_name("items.parquet"))
        index = self.make(vectors.shape[1])
        index.train(vectors)
        if isinstance(ids[0], str):
            index.add(vectors)
            written = self.path.with_name(".items.ids.txt")
            written.write_text("\n".join(ids))
            written.replace(self.path.with_name("items.ids.txt"))
        else:
            index = self.with_ids(index)
            index.add_with_ids(vectors, np.array(ids, np.int64))
        faiss.write_index(index, str(self.path.with_name(".items.index")))
        self.path.with_name(".items.index").replace(self.path)


class HnswApp(FaissApp):
    """With a graph over the vectors."""

    def make(self, dim: int) -> Any:
        return faiss.IndexHNSWFlat(dim, 8, faiss.METRIC_INNER_PRODUCT)


class IvfApp(FaissApp):
    """With lists, all of which a search goes through: they keep ids themselves."""

    def make(self, dim: int) -> Any:
        made = faiss.IndexIVFFlat(faiss.IndexFlatIP(dim), dim, LISTS, faiss.METRIC_INNER_PRODUCT)
        made.nprobe = LISTS
        return made

    def with_ids(self, index: Any) -> Any:
        return index

    def read(self, index: Any) -> tuple[list, np.ndarray]:
        _, (ids,), (vectors,) = index.search_and_reconstruct(
            np.zeros((1, index.d), np.float32), index.ntotal
        )
        order = np.argsort(ids)
        return ids[order].tolist(), vectors[order]
