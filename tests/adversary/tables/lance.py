"""A LanceDB user."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from tests.adversary.history import Content
from tests.adversary.models import D
from tests.adversary.tables.contract import OWN, Found, Refused

_CONFLICTS = ("conflict", "concurrent", "preempted", "retry")
_ATTEMPTS = 20
# Tables grow in pieces: Lance keeps each as a fragment.
_PIECE = 80


class LanceTable:
    """Opens the table anew for every operation, as many services do for every request."""

    unit_length, transactions = False, False
    zero_is_none = False

    def __init__(self, place: str) -> None:
        self._path = Path(place)
        self._database = lancedb.connect(self._path.parent)

    def create(self, rows: Mapping[int, Content], *, indexed: bool) -> None:
        items = list(rows.items())
        self._database.create_table(self._path.stem, _table(dict(items[:_PIECE])))
        for first in range(_PIECE, len(items), _PIECE):
            self._open().add(_table(dict(items[first : first + _PIECE])))

    def insert(self, key: int, content: Content) -> None:
        self._try(lambda table: table.add(_table({key: content})))

    def set_text(self, key: int, content: Content) -> None:
        self._update(key, {"body": content.body})

    def set_vector(self, key: int, content: Content) -> None:
        self._update(key, {"vector": _listed(content)})

    def set_both(self, rows: Mapping[int, Content]) -> None:
        for key, content in rows.items():
            self._update(key, {"body": content.body, "vector": _listed(content)})

    def delete(self, key: int) -> None:
        self._try(lambda table: table.delete(f"id = {key}"))

    def dimension(self, key: int | None = None) -> int | None:
        schema = self._open().schema
        return schema.field("vector").type.list_size if "vector" in schema.names else None

    def rows(self) -> list[Found]:
        found = self._open().to_arrow().to_pylist()
        return [
            Found(row["id"], row["body"], row["kind"], _vector(row.get("vector"))) for row in found
        ]

    def leftovers(self) -> list[str]:
        columns = [name for name in self._open().schema.names if name not in OWN]
        # The journal and the lock stay; and what lies inside the table's folder is Lance's.
        known = {self._path.name, *(f".{self._path.name}.crossfade.{x}" for x in ("json", "lock"))}
        return columns + [p.name for p in self._path.parent.iterdir() if p.name not in known]

    def lost(self) -> list[str]:
        return []

    def close(self) -> None:
        """Nothing is held open."""

    def _open(self) -> Any:
        return self._database.open_table(self._path.stem)

    def _update(self, key: int, values: dict[str, Any]) -> None:
        self._try(lambda table: table.update(where=f"id = {key}", values=values))

    def _try(self, act: Callable[[Any], object]) -> None:
        """Again, if another writer was first; a failed commit has done nothing."""
        for attempt in range(_ATTEMPTS):
            try:
                act(self._open())
                return
            except (ValueError, RuntimeError, OSError) as error:
                if any(word in str(error).lower() for word in _CONFLICTS):
                    time.sleep(0.01 * attempt)
                    continue
                dim = self.dimension()
                if dim == D:
                    raise
                why = "there is no column" if dim is None else "the column is of the new dimension"
                raise Refused(why) from None
        raise Refused("conflicts with other writers")


def _listed(content: Content) -> list[float] | None:
    return None if content.vector is None else content.vector.tolist()


def _vector(found: Any) -> np.ndarray | None:
    return None if found is None else np.array(found, np.float32)


def _table(rows: Mapping[int, Content]) -> pa.Table:
    dim = next((len(c.vector) for c in rows.values() if c.vector is not None), D)
    return pa.table(
        {
            "id": pa.array(list(rows), pa.int64()),
            "body": [content.body for content in rows.values()],
            "kind": pa.array([content.kind for content in rows.values()], pa.int64()),
            "vector": pa.array(map(_listed, rows.values()), pa.list_(pa.float32(), dim)),
        }
    )
