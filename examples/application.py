"""The application that uses the store: a process of its own that never stops searching.

Where a store is open in one process at a time, it is a thread of that process. It is told which
stage the store is in only to write that beside each search. Which map a query needs is `Searcher`'s
affair, and switching to it is the application's one change.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from crossfade import Upgrade
from crossfade.journal import open_migrating
from crossfade.search import Searcher
from crossfade.stores import Hit, Store

Model = Literal["old", "both", "new"]
PAGE = 10
# A user or two, not a load test: the store, the model and this process share one small machine.
_SECONDS_BETWEEN = 0.02
_NEVER_STARTED_SECONDS = 120


@dataclass(frozen=True, eq=False)
class Queries:
    """Query i is of, or about, the document `ids[i]`, whose label is `labels[i]`."""

    old: NDArray[np.float32]
    new: NDArray[np.float32]
    labels: Sequence[str]
    ids: Sequence[str]

    @classmethod
    def load(cls, path: Path) -> Queries:
        with np.load(path) as held:
            return cls(held["old"], held["new"], held["labels"].tolist(), held["ids"].tolist())

    def __len__(self) -> int:
        return len(self.ids)


class Application:
    """Looks documents up: with the old model's queries, with both models' while a migration goes
    on, and with the new one's when it is over."""

    def __init__(self, store: Store, upgrade: Upgrade, refresh: float = 1.0) -> None:
        self.store = store
        self.searcher = Searcher(store, upgrade, refresh=refresh)

    def search(self, queries: Queries, i: int, model: Model, k: int = PAGE) -> list[Hit]:
        """The answer to query i."""
        kept = {"k": k, "columns": ["label"]}
        if model == "old":
            return self.store.search(queries.old[i], column=self.store.vector, **kept)
        other = {"old": queries.old[i]} if model == "both" else {}
        return self.searcher.search(queries.new[i], **other, **kept)


class Running:
    """The application as whoever started it sees it."""

    def __init__(self, line: Connection) -> None:
        self._line = line

    def now(self, stage: str, model: Model) -> None:
        """Searches from here on are of this stage; returns when the last one before has ended."""
        self._line.send((stage, model))
        self._line.recv()


@contextmanager
def running(
    place: str, upgrade: Path, queries: Sequence[Path], log: Path, *, within: bool = False
) -> Iterator[Running]:
    """Start the process, or a thread `within` this one, give its handle, stop it at the end; `log`
    has a line for each search."""
    # Not forked: Lance and torch have threads.
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    work = (there, place, upgrade, queries, log)
    if within:
        with ThreadPoolExecutor(1) as pool:
            thread = pool.submit(_work, *work)
            with _spoken_with(here) as handle:
                yield handle
            thread.result()
        return
    process = context.Process(target=_work, args=work)
    process.start()
    there.close()
    try:
        with _spoken_with(here) as handle:
            yield handle
    finally:
        process.join()
    if process.exitcode:
        raise RuntimeError(f"the application ended with {process.exitcode}")


@contextmanager
def _spoken_with(line: Connection) -> Iterator[Running]:
    """The application, once it has started; it ends when the line is closed."""
    try:
        if not line.poll(_NEVER_STARTED_SECONDS):
            raise TimeoutError("the application does not start")
        line.recv()
        yield Running(line)
    finally:
        # One that is gone already has closed its end.
        line.close()


def read_log(log: Path) -> list[dict[str, Any]]:
    """What became of each search."""
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]


def _work(line: Connection, place: str, upgrade: Path, files: Sequence[Path], log: Path) -> None:
    with line:
        _search_on(line, place, upgrade, files, log)


def _search_on(
    line: Connection, place: str, upgrade: Path, files: Sequence[Path], log: Path
) -> None:
    kinds = {path.stem: Queries.load(path) for path in files}
    asked = [(kind, i) for kind, queries in kinds.items() for i in range(len(queries))]
    turns = np.random.default_rng(0).permutation(len(asked))
    store = open_migrating(place)
    application = Application(store, Upgrade.load(upgrade))
    # What is loaded by the first search of a process is no part of any stage.
    application.search(kinds[asked[0][0]], 0, "old")
    line.send("ready")
    stage, model, turn = "", "old", 0
    with log.open("w", encoding="utf-8") as out:
        while True:
            try:
                if not stage or line.poll():
                    stage, model = line.recv()
                    line.send("done")
            except EOFError:
                break
            kind, i = asked[turns[turn % len(turns)]]
            seen = _one(application, kinds[kind], i, model)
            out.write(json.dumps({"stage": stage, "model": model, "kind": kind} | seen) + "\n")
            out.flush()
            turn += 1
            time.sleep(_SECONDS_BETWEEN)
    store.close()


def _one(application: Application, queries: Queries, i: int, model: Model) -> dict[str, Any]:
    at, begin = time.time(), time.perf_counter()
    try:
        hits = application.search(queries, i, model)
    except Exception as error:  # Whatever goes wrong is a search that failed.
        seconds = time.perf_counter() - begin
        return {"at": at, "seconds": seconds, "failed": f"{type(error).__name__}: {error}"}
    seconds = time.perf_counter() - begin
    places = [place for place, hit in enumerate(hits, 1) if hit.id == queries.ids[i]]
    return {
        "at": at,
        "seconds": seconds,
        "failed": None if len(hits) == PAGE else f"{len(hits)} results, not {PAGE}",
        "right": hits[0].values["label"] == queries.labels[i] if hits else False,
        "reciprocal_rank": 1 / places[0] if places else 0.0,
    }
