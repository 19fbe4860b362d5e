"""A user of FAISS: an index by cosine in a file, and a Parquet file of what else its rows have.

Every change writes a file anew and renames it into place, so between its reading and its renaming
whatever another did to that file is lost: as with Parquet files the application does not write
while the `finish` runs that comes to its end (see docs/reliability.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.adversary.history import Content
from tests.adversary.models import D
from tests.adversary.tables.contract import OWN, Found, Refused

_KEPT = {"items.index", "items.parquet", *(f".items.index.crossfade.{x}" for x in ("json", "lock"))}
_SIDE = ".items.index.crossfade.columns"
Row = dict[str, Any]


class FaissTable:
    """Reads both files for every operation."""

    unit_length, transactions = True, False
    zero_is_none = False

    def __init__(self, place: str) -> None:
        self._index = Path(place.removeprefix("faiss:"))
        self._payload = self._index.with_suffix(".parquet")

    def create(self, rows: Mapping[int, Content], *, indexed: bool) -> None:
        """Every other index has a graph."""
        self._index.parent.mkdir()
        self._write_payload({key: _told(content) for key, content in rows.items()})
        inner = (
            faiss.IndexHNSWFlat(D, 8, faiss.METRIC_INNER_PRODUCT)
            if indexed
            else faiss.IndexFlatIP(D)
        )
        vectors = {key: _unit(content.vector) for key, content in rows.items()}
        self._write_index(faiss.IndexIDMap2(inner), vectors)

    def insert(self, key: int, content: Content) -> None:
        vectors = self._fitting({key: content})
        self._write_payload(self._told() | {key: _told(content)})
        self._write_index(None, vectors | {key: _unit(content.vector)})

    def set_text(self, key: int, content: Content) -> None:
        told = self._told()
        told[key] |= {"body": content.body}
        self._write_payload(told)

    def set_vector(self, key: int, content: Content) -> None:
        vectors = self._fitting({key: content})
        self._write_index(None, vectors | {key: _unit(content.vector)})

    def set_both(self, rows: Mapping[int, Content]) -> None:
        for key, content in rows.items():
            vectors = self._fitting({key: content})
            self.set_text(key, content)
            self._write_index(None, vectors | {key: _unit(content.vector)})

    def delete(self, key: int) -> None:
        vectors = self._vectors()
        del vectors[key]
        self._write_index(None, vectors)
        self._write_payload({k: row for k, row in self._told().items() if k != key})

    def dimension(self, key: int | None = None) -> int | None:
        return int(faiss.read_index(str(self._index)).d)

    def rows(self) -> list[Found]:
        told = self._told()
        nothing: Row = {"body": None, "kind": None}
        return [
            Found(
                key,
                told.get(key, nothing)["body"],
                told.get(key, nothing)["kind"],
                # An index has no other way to have none.
                None if _is_none(vector) else vector,
            )
            for key, vector in self._vectors().items()
        ]

    def leftovers(self) -> list[str]:
        columns = [name for name in pq.read_schema(self._payload).names if name not in OWN]
        here = [path.name for path in self._index.parent.iterdir()]
        side = self._index.parent / _SIDE
        inside = [f"{_SIDE}/{path.name}" for path in side.iterdir() if path.name != "columns.json"]
        return columns + [name for name in here if name not in {*_KEPT, _SIDE}] + inside

    def lost(self) -> list[str]:
        return []

    def close(self) -> None:
        """Nothing is held open."""

    def _vectors(self) -> dict[int, np.ndarray]:
        index = faiss.read_index(str(self._index))
        ids = faiss.vector_to_array(index.id_map).tolist()
        inner = faiss.downcast_index(index.index)
        return dict(zip(ids, inner.reconstruct_n(0, index.ntotal), strict=True))

    def _told(self) -> dict[int, Row]:
        return {row.pop("id"): row for row in pq.read_table(self._payload).to_pylist()}

    def _fitting(self, rows: Mapping[int, Content]) -> dict[int, np.ndarray]:
        """What is there, if these could be put beside it."""
        vectors, dim = self._vectors(), self.dimension()
        for content in rows.values():
            if content.vector is None:
                raise Refused("an index has no row without a vector")
            if _is_none(content.vector):
                raise Refused("zeros are for rows without a vector")
            if len(content.vector) != dim:
                raise Refused("the index is of another dimension")
        return vectors

    def _write_index(self, index: Any, vectors: Mapping[int, np.ndarray]) -> None:
        if index is None:
            # What is within it goes with it.
            owner = faiss.read_index(str(self._index))
            inner = faiss.downcast_index(owner.index)
            inner.reset()
            index = faiss.IndexIDMap2(inner)
        index.add_with_ids(np.array(list(vectors.values())), np.array(list(vectors), np.int64))
        beside = self._index.with_name("..index")
        faiss.write_index(index, str(beside))
        beside.replace(self._index)

    def _write_payload(self, rows: Mapping[int, Row]) -> None:
        table = pa.table(
            {
                "id": pa.array(list(rows), pa.int64()),
                "body": [row["body"] for row in rows.values()],
                "kind": pa.array([row["kind"] for row in rows.values()], pa.int64()),
            }
        )
        beside = self._payload.with_name("..parquet")
        pq.write_table(table, beside)
        beside.replace(self._payload)


def _is_none(vector: np.ndarray) -> bool:
    """Whether a vector is what a row without one has, once the index is the new one."""
    return len(vector) != D and not vector.any()


def _told(content: Content) -> Row:
    return {"body": content.body, "kind": content.kind}


def _unit(vector: np.ndarray | None) -> np.ndarray:
    if vector is None:
        raise Refused("an index has no row without a vector")
    length = float(np.linalg.norm(vector))
    return np.asarray(vector / length if length else vector, np.float32)
