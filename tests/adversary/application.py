"""The application: it inserts, changes, empties, deletes and reuses rows, and logs all of it.

It writes vectors of the old model until the store refuses them because the column has the new
dimension. Then the switch has happened, and it stops or goes on with vectors of the new model.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tests.adversary import control, models
from tests.adversary.history import Content, History, Log, Operation
from tests.adversary.tables import Refused, Table, apply, open_table

After = Literal["stop", "new"]
Mode = Literal["all", "with vectors", "inserts", "none"]
"""`with vectors`: only what brings its vector along, or deletes the row with it."""
_WEIGHTS = {
    "insert": 16,
    "vector": 13,
    "text": 13,
    "both": 13,
    "delete": 12,
    "reuse": 8,
    "null": 6,
    "restore": 8,
    "zero": 5,
    "transaction": 8,
}
# A store that has no column at the moment gets one soon.
_PAUSE_WHEN_REFUSED = 0.02


class Application:
    """Goes on from where its log ends; rows in `spared` are left alone."""

    def __init__(
        self, table: Table, log: Path, spared: set[int], seed: list[int], after: After
    ) -> None:
        history = History(log)
        self._table, self._log, self._after = table, Log(log), after
        self._number = history.operations
        # A row that may be one thing or the other is not touched again: the model allows both.
        held = {k: r.may_hold[0] for k, r in history.rows.items() if r.sure and k not in spared}
        self._rows = {key: content for key, content in held.items() if content is not None}
        self._gone = [key for key, content in held.items() if content is None]
        self._next = max(history.rows, default=-1) + 1
        self._dim = models.D
        self._rng = np.random.default_rng([*seed, self._number])
        self.over = False
        self._acts: dict[str, Callable[[], Operation | None]] = {
            "insert": lambda: self._put("insert", self._next),
            "reuse": lambda: self._put("reuse", self._any(self._gone)),
            "delete": lambda: self._set("delete", self._any(self._rows)),
            "transaction": self._two,
        }

    def act(self, mode: Mode = "all") -> None:
        """One operation, chosen by lot among those that the rows allow."""
        if self.over or mode == "none":
            return
        operation = None
        while operation is None:
            name = "insert"
            if mode != "inserts":
                weights = np.array(list(_WEIGHTS.values()), float)
                name = str(self._rng.choice(list(_WEIGHTS), p=weights / weights.sum()))
            if mode == "with vectors" and name in ("null", "text"):
                continue
            operation = self._acts.get(name, lambda name=name: self._change(name))()
        number, self._number = self._number, self._number + 1
        self._log.intend(number, operation)
        try:
            apply(self._table, operation)
        except Refused as error:
            self._log.refused(number, str(error))
            self._refused()
        except Exception as error:
            said = " ".join(str(error).split())[:200]
            self._log.unsure(number, f"{type(error).__name__}: {said}")
            for key in operation.rows:
                self._rows.pop(key, None)
                self._gone = [gone for gone in self._gone if gone != key]
                self._next = max(self._next, key + 1)
        else:
            dims = {key: self._table.dimension(key) for key in operation.rows}
            self._log.done(number, dims)
            self._remember(operation)

    def switch(self) -> None:
        """The column has the new dimension: no more old vectors."""
        self.over, self._dim = self._after == "stop", models.N

    def close(self) -> None:
        self._log.close()
        self._table.close()

    def _refused(self) -> None:
        if self._table.dimension() == models.N:
            self.switch()
        else:
            time.sleep(_PAUSE_WHEN_REFUSED)

    def _remember(self, operation: Operation) -> None:
        for key, content in operation.rows.items():
            self._next = max(self._next, key + 1)
            self._gone = [gone for gone in self._gone if gone != key]
            self._rows.pop(key, None)
            if content is None:
                self._gone.append(key)
            else:
                self._rows[key] = content

    def _any(self, keys: Any) -> int | None:
        return int(self._rng.choice(sorted(keys))) if keys else None

    def _text(self) -> str:
        return f"text {self._number} {self._rng.integers(1 << 30)}"

    def _vector(self, text: str) -> np.ndarray:
        return (models.old if self._dim == models.D else models.new)([text])[0]

    def _put(self, name: str, key: int | None) -> Operation | None:
        """Another content, with a kind that no other content has."""
        if key is None:
            return None
        text = self._text()
        kind = 1_000_000 + self._number
        empty = name == "insert" and self._rng.random() < 0.1
        vector = None if empty else self._vector(text)
        return Operation(name, {key: Content(text, kind, vector, (text,))})

    def _set(self, name: str, key: int | None) -> Operation | None:
        return None if key is None else Operation(name, {key: None})

    def _change(self, name: str) -> Operation | None:
        """A row that is there gets another text, another vector, none, or one that is zero."""
        without = [k for k, c in self._rows.items() if c.vector is None or not c.vector.any()]
        key = self._any(without if name == "restore" else self._rows)
        if key is None:
            return None
        before = self._rows[key]
        body = self._text() if name in ("text", "both") else before.body
        vector = before.vector
        if name == "null":
            vector = None
        elif name == "zero":
            vector = np.zeros(self._dim, np.float32)
        elif name != "text":
            # Not of its own text: a vector that is changed alone is of no known text.
            vector = self._vector(body if name == "both" else self._text())
        return Operation(name, {key: Content(body, before.kind, vector, (body,))})

    def _two(self) -> Operation | None:
        if not self._table.transactions or len(self._rows) < 2:
            return None
        changes = [self._change("both") for _ in range(2)]
        rows = {key: row for change in changes if change for key, row in change.rows.items()}
        return Operation("transaction", rows) if len(rows) == 2 else None


class _Running:
    """An application in a process of its own: at its own pace, or when it is asked to."""

    def __init__(self) -> None:
        self.application: Application | None = None
        self.mode: Mode = "none"
        self.pace = 0.0
        self._rng = np.random.default_rng()

    def handle(self, what: str, told: dict[str, Any]) -> Any:
        if what == "begin":
            table = open_table(told["kind"], told["place"])
            spared = set(told["spared"])
            self.application = Application(
                table, Path(told["log"]), spared, told["seed"], told["after"]
            )
            self.mode = "none"
            self._rng = np.random.default_rng(told["seed"])
        elif what == "mode":
            self.mode, self.pace = told["mode"], told["pace"]
        elif what == "switch" and self.application is not None:
            self.application.switch()
        elif what == "act" and self.application is not None:
            for _ in range(told["times"]):
                self.application.act(told["mode"])
        elif what == "close" and self.application is not None:
            self.application.close()
            self.application = None
        return "done"

    def idle(self) -> float:
        if self.application is None or self.mode == "none":
            return 0.2
        self.application.act(self.mode)
        return float(self._rng.exponential(self.pace))


def run(socket: str) -> None:
    """The process."""
    running = _Running()
    control.answer(Path(socket), running.handle, running.idle)
