"""The application's side of each store: what it does to its own rows, with its own library.

Nothing here goes through Crossfade, so that the tests see stores as their applications do.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from crossfade.files.arrow import to_arrow


class App(Protocol):
    """An application with a table of `id`, `body`, `kind` and old vectors."""

    place: str

    def create(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None: ...
    def insert(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None: ...
    def change(self, key: Any, body: str, old: np.ndarray) -> None: ...
    def delete(self, key: Any) -> None: ...
    def old(self) -> dict[Any, np.ndarray]: ...


class LanceApp:
    """A LanceDB user."""

    def __init__(self, folder: Path) -> None:
        import lancedb

        self.database = lancedb.connect(folder / "db")
        self.place = str(folder / "db" / "items.lance")

    def create(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        self.database.create_table("items", _table(ids, bodies, kinds, old))

    def insert(self, ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> None:
        self._open().add(_table(ids, bodies, kinds, old))

    def change(self, key: Any, body: str, old: np.ndarray) -> None:
        table = self._open()
        table.update(where=f"id = {key!r}", values={"body": body, "vector": old.tolist()})

    def delete(self, key: Any) -> None:
        self._open().delete(f"id = {key!r}")

    def old(self) -> dict[Any, np.ndarray]:
        rows = self._open().to_arrow().select(["id", "vector"]).to_pylist()
        return {row["id"]: np.array(row["vector"], np.float32) for row in rows}

    def _open(self) -> Any:
        return self.database.open_table("items")


def _table(ids: list, bodies: list[str], kinds: list[int], old: np.ndarray) -> pa.Table:
    vectors = to_arrow(old.astype(np.float32))
    return pa.table({"id": ids, "body": bodies, "kind": kinds, "vector": vectors})
