"""Searches at every moment of a migration: none may raise, and rows nobody touched are found.

A row is searched by the new model's vector of its own text, and by its own old vector. It must be
among the first three: F(old), B(new) and the blend of a text are within a few degrees of each
other here, and other rows are not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tests.adversary import control, models

_FIRST = 3
_REFRESH = 0.1
# A searcher that stays, as a service has it, and now and then a fresh one, as a new process has.
_SEARCHES_EACH = 25


class Searching:
    """Searches one store, and appends what came of it to a file."""

    def __init__(
        self, place: str, upgrade: str, texts: Mapping[int, str], log: Path, seed: list[int]
    ) -> None:
        from crossfade import Upgrade

        self._place, self._upgrade = place, Upgrade.load(upgrade)
        self._texts = dict(texts)
        self._handle = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._rng = np.random.default_rng(seed)
        self._searcher: Any = None
        self._done = 0
        self._begun = False

    def once(self, key: int | None = None, model: str | None = None) -> None:
        """One search, of a row chosen by lot; before there is a migration nothing is counted."""
        from crossfade import Searcher

        key = int(self._rng.choice(list(self._texts))) if key is None else key
        model = str(self._rng.choice(["new", "old", "both"])) if model is None else model
        text = [self._texts[key]]
        query = {"new": models.new(text)[0], "old": models.old(text)[0]}
        if model != "both":
            query = {model: query[model]}
        fresh = self._searcher is None
        try:
            if self._searcher is None:
                self._searcher = Searcher(self._place, self._upgrade, refresh=_REFRESH)
            hits = [int(hit.id) for hit in self._searcher.search(k=_FIRST, **query)]
        except Exception as error:
            self._leave()
            if "no migration was started" in str(error) and not self._begun:
                return
            said = " ".join(str(error).split())[:300]
            self._tell(raised=f"{type(error).__name__}: {said}", fresh=fresh, model=model)
            return
        self._begun = True
        self._done += 1
        if key not in hits:
            self._tell(missed=key, model=model, fresh=fresh, found=hits)
        else:
            os.write(self._handle, b".\n")
        if self._done % _SEARCHES_EACH == 0:
            self._leave()

    def all(self) -> None:
        """Every row, by each model and by both."""
        for key in self._texts:
            for model in ("new", "old", "both"):
                self.once(key, model)

    def close(self) -> None:
        self._leave()
        os.close(self._handle)

    def _leave(self) -> None:
        if self._searcher is not None:
            self._searcher.store.close()
            self._searcher = None

    def _tell(self, **told: Any) -> None:
        os.write(self._handle, json.dumps(told).encode() + b"\n")


def read_searches(log: Path) -> tuple[int, list[dict[str, Any]]]:
    """How many searches there were, and those that raised or missed their row."""
    lines = log.read_bytes().splitlines() if log.is_file() else []
    return len(lines), [json.loads(line) for line in lines if line != b"."]


class _Running:
    """Searches in a process of its own, all the time."""

    def __init__(self) -> None:
        self.searching: Searching | None = None
        self.pace = 0.0

    def handle(self, what: str, told: dict[str, Any]) -> Any:
        if what == "begin":
            texts = {int(key): text for key, text in told["texts"].items()}
            self.searching = Searching(
                told["place"], told["upgrade"], texts, Path(told["log"]), told["seed"]
            )
            self.pace = told["pace"]
        elif what == "all" and self.searching is not None:
            self.searching.all()
        elif what == "close" and self.searching is not None:
            self.searching.close()
            self.searching = None
        return "done"

    def idle(self) -> float:
        if self.searching is None:
            return 0.2
        self.searching.once()
        return self.pace


def run(socket: str) -> None:
    """The process."""
    running = _Running()
    control.answer(Path(socket), running.handle, running.idle)
