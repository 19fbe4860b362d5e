"""What the application did, written down before and after, and what every row may hold by it.

The log is a file of JSON lines. An operation is written before it is begun and again when its
outcome is known; one whose outcome is not known (the process was killed, the connection was lost)
may have happened or not, and both count as right from then on.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.adversary.models import D

Float = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Content:
    """What a row holds: the application's columns, and its vector as the application wrote it.

    `sources` are the texts that its new vector may be of: its own, but for a text that changed
    when the vectors had been switched already, or perhaps had been.
    """

    body: str
    kind: int
    vector: Float | None
    sources: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        vector = None if self.vector is None else self.vector.tolist()
        return {"body": self.body, "kind": self.kind, "vector": vector}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Content:
        vector = told["vector"]
        kept = None if vector is None else np.array(vector, np.float32)
        return cls(told["body"], told["kind"], kept, (told["body"],))


@dataclass(frozen=True)
class Operation:
    """One operation: `rows` says what each row it touches holds after it, None if it is gone."""

    name: str
    rows: Mapping[int, Content | None]

    def record(self) -> dict[str, Any]:
        rows = {str(key): c and c.record() for key, c in self.rows.items()}
        return {"name": self.name, "rows": rows}

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Operation:
        rows = {int(key): c and Content.of(c) for key, c in told["rows"].items()}
        return cls(told["name"], rows)


class Log:
    """Appends to the file, each line at once: a process that is killed has written what it did."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def begin(self, rows: Mapping[int, Content]) -> None:
        """The rows that are there before anything happens."""
        self._write({"begin": {str(key): content.record() for key, content in rows.items()}})

    def intend(self, number: int, operation: Operation) -> None:
        self._write({"intend": number, "at": time.monotonic(), **operation.record()})

    def done(self, number: int, dims: Mapping[int, int | None]) -> None:
        """`dims` is the dimension that each row's vector column has after it."""
        told = {str(key): dim for key, dim in dims.items()}
        self._write({"done": number, "at": time.monotonic(), "dims": told})

    def refused(self, number: int, why: str) -> None:
        """The store said no: it has surely not happened."""
        self._write({"refused": number, "at": time.monotonic(), "why": why})

    def unsure(self, number: int, why: str) -> None:
        self._write({"unsure": number, "at": time.monotonic(), "why": why})

    def _write(self, told: dict[str, Any]) -> None:
        os.write(self._handle, (json.dumps(told) + "\n").encode())

    def close(self) -> None:
        os.close(self._handle)


@dataclass
class Row:
    """What is known of one id: all that it may hold now (None: it is not there), and its past."""

    may_hold: list[Content | None]
    ever: list[Content] = field(default_factory=list)
    touched: bool = False
    lines: tuple[int, ...] = ()
    last_at: float = 0.0

    @property
    def sure(self) -> bool:
        return len(self.may_hold) == 1


class History:
    """The log read back."""

    def __init__(self, path: Path) -> None:
        self.rows: dict[int, Row] = {}
        self.operations = 0
        self.outcomes: dict[str, int] = {}
        self.not_done: dict[str, int] = {}
        self._lines: list[dict[str, Any]] = []
        open_at: dict[int, tuple[int, Operation]] = {}
        for told in _lines(path):
            at = len(self._lines)
            self._lines.append(told)
            if "begin" in told:
                for key, content in told["begin"].items():
                    held = Content.of(content)
                    self.rows[int(key)] = Row([held], [held])
            elif "intend" in told:
                open_at[told["intend"]] = (at, Operation.of(told))
                self.operations += 1
            else:
                how = next(name for name in ("done", "refused", "unsure") if name in told)
                began, operation = open_at.pop(told[how])
                self._apply(operation, how, told, (began, at))
        for began, operation in open_at.values():
            self._apply(operation, "unsure", {"at": self._lines[began]["at"]}, (began,))

    def past(self, key: int) -> list[dict[str, Any]]:
        """The operations on one row, as they were logged."""
        row = self.rows.get(key)
        out = []
        for at in () if row is None else row.lines:
            told = dict(self._lines[at])
            if "rows" in told:
                told["rows"] = {str(key): told["rows"][str(key)]}
            out.append(told)
        return out

    def _apply(
        self, operation: Operation, how: str, told: Mapping[str, Any], lines: tuple[int, ...]
    ) -> None:
        name = f"{operation.name} {how}"
        self.outcomes[name] = self.outcomes.get(name, 0) + 1
        if how != "done":
            why = f"{how}: {told.get('why', 'its process was killed')}"
            self.not_done[why] = self.not_done.get(why, 0) + 1
        dims = told.get("dims", {})
        for key, after in operation.rows.items():
            row = self.rows.setdefault(key, Row([None]))
            row.lines += lines
            row.touched = True
            if how == "refused":
                continue
            row.last_at = told["at"]
            held = _texts(operation.name, after, row.may_hold, dims.get(str(key), D))
            row.may_hold = [held] if how == "done" else [*row.may_hold, held]
            row.ever += [] if held is None else [held]


def _texts(
    name: str, after: Content | None, before: Sequence[Content | None], dim: int | None
) -> Content | None:
    """A text that changes once the vectors are switched leaves its vector as it was.

    The dimension was looked at after the operation: if it is still the old one, the switch came
    later; if not, it came before or in between, and nobody can tell.
    """
    if after is None or name != "text" or dim == D:
        return after
    known = [text for content in before if content is not None for text in content.sources]
    return replace(after, sources=(*after.sources, *known))


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().splitlines():
        yield json.loads(line)
