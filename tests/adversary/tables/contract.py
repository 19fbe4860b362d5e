"""What the application can do to its rows, and what the harness may look at afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from tests.adversary.history import Content, Operation

Float = NDArray[np.float32]
OWN = ("id", "body", "kind", "vector")


class Refused(Exception):
    """The store said no: nothing has happened."""


class Found(NamedTuple):
    """A row as it is."""

    id: int
    body: str | None
    kind: int | None
    vector: Float | None


class Table(Protocol):
    """A table of `id`, `body`, `kind` and `vector`."""

    unit_length: bool
    """Whether the store may keep vectors at length one."""
    transactions: bool
    """Whether two rows can be changed at once."""
    zero_is_none: bool
    """Whether a row without a vector is kept as one of zeros."""

    def create(self, rows: Mapping[int, Content], *, indexed: bool) -> None: ...
    def insert(self, key: int, content: Content) -> None: ...
    def set_text(self, key: int, content: Content) -> None: ...
    def set_vector(self, key: int, content: Content) -> None: ...
    def set_both(self, rows: Mapping[int, Content]) -> None: ...
    def delete(self, key: int) -> None: ...

    def dimension(self, key: int | None = None) -> int | None:
        """Of the vector column, or where rows may differ of this row's; None if there is none."""
        ...

    def rows(self) -> list[Found]:
        """All rows, an id as often as it is there."""
        ...

    def leftovers(self) -> list[str]:
        """What is there beside the application's own, now that the migration is over."""
        ...

    def lost(self) -> list[str]:
        """What the application had beside its rows, and has not any more after a rollback."""
        ...

    def close(self) -> None: ...


def apply(table: Table, operation: Operation) -> None:
    """Do it, in the way an application does."""
    rows = {key: content for key, content in operation.rows.items() if content is not None}
    if operation.name == "delete":
        for key in operation.rows:
            table.delete(key)
    elif operation.name in ("insert", "reuse"):
        for key, content in rows.items():
            table.insert(key, content)
    elif operation.name == "text":
        for key, content in rows.items():
            table.set_text(key, content)
    elif operation.name in ("both", "transaction"):
        table.set_both(rows)
    else:
        for key, content in rows.items():
            table.set_vector(key, content)
