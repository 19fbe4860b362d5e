"""One table with its application and its searches, and the migration that is done to it."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.adversary import control, models
from tests.adversary.application import After, Application, Mode
from tests.adversary.checking import Checker, Finished, Violation
from tests.adversary.history import Content, History, Log
from tests.adversary.maps import Maps
from tests.adversary.nursery import Child, Nursery
from tests.adversary.searching import Searching, read_searches
from tests.adversary.steps import LEASES, Event, Job, Outcome, Turns, run
from tests.adversary.summary import Summary
from tests.adversary.tables import IN_PROCESS, Table, open_table

# Rows that nobody touches, for the searches.
_SPARED = 8
# Seconds between operations of the application, and between searches.
_PACE, _SEARCH_PACE = 0.03, 0.05


class Harness:
    """What all migrations of a run share: upgrade, plan, processes, and the summary."""

    def __init__(self, kind: str, rows: int, seed: int, pace: float = _PACE) -> None:
        self.kind, self.rows, self.seed, self.pace = kind, rows, seed, pace
        self.folder = Path(tempfile.mkdtemp(prefix="adversary", dir=memory()))
        self.upgrade = models.make_upgrade(self.folder / "upgrade")
        self.plan = models.make_plan(self.folder / "plan", self.upgrade)
        self.maps = Maps(self.upgrade, self.plan)
        self.summary = Summary(kind, seed)
        self.server: Any = None
        if kind == "pgvector":
            from tests.adversary.server import Server

            self.server = Server(memory())
        if kind == "milvus-server":
            from examples.milvus_server import Server as Milvus

            self.server = Milvus(memory(), quick=True)
        self.chroma: Any = None
        if kind == "chroma":
            from tests.stores.chroma.server import Server as Chroma

            self.chroma = Chroma(memory())
        self.apart = kind not in IN_PROCESS
        """Whether application and searches have processes of their own."""
        self.nursery = Nursery(self.folder / "nursery")
        self._beside: dict[str, Child] = {}
        if self.apart:
            for name in ("application", "searching"):
                socket = self.folder / name
                self._beside[name] = child = self.nursery.start(name, "run", str(socket))
                control.wait_for(socket, lambda child=child: child.wait(0.0) is None)
        self.summary.begun = time.monotonic()

    def ask(self, who: str, what: str, **told: Any) -> None:
        if control.ask(self.folder / who, what, **told) is None:
            raise RuntimeError(f"the {who} does not answer when asked to {what}")

    def close(self) -> None:
        for name, child in self._beside.items():
            self.ask(name, "end")
            child.wait()
        self.nursery.close()
        if self.server is not None:
            self.server.stop()
        if self.chroma is not None:
            self.chroma.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextmanager
    def world(self, seed: int, number: int, after: After, point: int = 0) -> Iterator[World]:
        """A fresh table, gone at the end."""
        made = World(self, seed, number, after, point)
        try:
            yield made
        finally:
            made.close()


def memory() -> str | None:
    """A folder in memory, where there is one.

    A process that is killed loses nothing that it has written, whatever the disk does: to wait for
    a disk here would only cost time.
    """
    shared = Path("/dev/shm")  # noqa: S108  (what is made there has a name of its own)
    return str(shared) if os.access(shared, os.W_OK) else None


class World:
    """A table of `rows` rows, the log of what is done to it, and a plan folder of its own."""

    def __init__(self, harness: Harness, seed: int, number: int, after: After, point: int) -> None:
        self.harness, self.seed, self.after = harness, seed, after
        # Two in a row, for every other table is indexed.
        self.forced = number // 2 % 2 == 1
        """Whether `finish` is forced."""
        self.where = {"repeat": f"python -m tests.adversary {harness.kind} --seed {seed}"}
        """What it takes to see it again."""
        # Another application at every crash point.
        self._lot = [seed, point]
        self.folder = harness.folder / f"world{number}"
        self.folder.mkdir()
        self.log, self.searches = self.folder / "log", self.folder / "searches"
        self.plan = Path(shutil.copytree(harness.plan, self.folder / "plan"))
        self.address = {
            "lancedb": str(self.folder / "db" / "items.lance"),
            "pgvector": f"{harness.server and harness.server.url}#items_{number}",
            "parquet": str(self.folder / "items"),
            "qdrant": f"qdrant:{self.folder / 'qdrant'}#items",
            "faiss": f"faiss:{self.folder / 'items' / 'items.index'}",
            "sqlite": f"sqlite:{self.folder / 'sqlite' / 'shop.db'}#items",
            "milvus": f"milvus:{self.folder / 'milvus.db'}#items",
            "milvus-server": f"{harness.server and harness.server.url}#items_{number}",
            "qdrant-edge": f"qdrant-edge:{self.folder / 'shard'}",
            "chroma": f"{harness.chroma and harness.chroma.url}#items-{number}",
        }[harness.kind]
        texts = [f"row {key} of {seed}" for key in range(harness.rows)]
        old = models.old(texts)
        rows = {key: Content(text, key, old[key], (text,)) for key, text in enumerate(texts)}
        self.texts = {key: texts[key] for key in range(_SPARED)}
        log = Log(self.log)
        log.begin(rows)
        log.close()
        self._table: Table | None = None
        with self._opened() as table:
            table.create(rows, indexed=bool(number % 2))
        self.disturbed = False
        """Whether the application was asked to act, though it should perhaps pause."""
        self._begun = self._finishing = False
        self._claimed: frozenset[int] = frozenset()
        self.switched: tuple[float, float] | None = None

    def begin(self) -> None:
        """From now on the application and the searches are there."""
        self._begun = True
        if self.harness.apart:
            told = {"place": self.address, "seed": self._lot}
            self.harness.ask(
                "application",
                "begin",
                kind=self.harness.kind,
                log=str(self.log),
                spared=list(self.texts),
                after=self.after,
                **told,
            )
            self.harness.ask(
                "searching",
                "begin",
                upgrade=str(self.harness.upgrade),
                texts=self.texts,
                log=str(self.searches),
                pace=_SEARCH_PACE,
                **told,
            )

    def mode(self, mode: Mode, *, faster: float = 1.0) -> None:
        """What the application does by itself, where it has a process of its own."""
        if self.harness.apart:
            pace = self.harness.pace / faster
            self.harness.ask("application", "mode", mode=mode, pace=pace)

    @property
    def acts(self) -> Mode:
        """What the application does when it is asked to.

        Qdrant's local mode drops vectors point by point, and gets new ones piece by piece. In the
        midst of it nobody can tell those that the application has taken away since, nor lift again
        a row whose text has changed, and its users are told so (docs/reliability.md).
        """
        here = self.harness.kind in ("qdrant", "qdrant-edge")
        return "with vectors" if here and self._finishing else "all"

    def act(self, times: int) -> None:
        """The application does something now, while nobody migrates."""
        self.disturbed, mode = True, self.acts
        if self.harness.apart:
            self.harness.ask("application", "act", times=times, mode=mode)
            return
        table = open_table(self.harness.kind, self.address)
        spared = set(self.texts)
        here = Application(table, self.log, spared, self._lot, self.after)
        for _ in range(times):
            here.act(mode)
        here.close()

    def search(self) -> None:
        """Every row that nobody touches is searched now, while nobody migrates."""
        if self.harness.apart:
            self.harness.ask("searching", "all")
            return
        upgrade = str(self.harness.upgrade)
        here = Searching(self.address, upgrade, self.texts, self.searches, self._lot)
        here.all()
        here.close()

    def run(
        self,
        *names: str,
        kill_after: float = math.inf,
        events: tuple[Event, ...] = (),
        **more: Any,
    ) -> Outcome:
        """Steps of the migration, in a process that is killed after so many seconds."""
        job = self._job(*names, **more)
        out = run(self.harness.nursery, job, kill_after=kill_after, events=events)
        if self.harness.kind in LEASES and out.how == "killed":
            # Its lease runs out.
            time.sleep(LEASES[self.harness.kind])
        self._finishing = self._finishing or (out.how == "killed" and out.at == "finish")
        return out

    def _job(self, *names: str, **more: Any) -> Job:
        """In local mode the application and the searches come in between."""
        turns = None
        if self._begun and not self.harness.apart:
            turns = Turns(
                every=more.pop("every", 0),
                quiet=more.get("quiet", ()),
                log=str(self.log),
                searches=str(self.searches),
                texts=self.texts,
                seed=tuple(self._lot),
                after=self.after,
                mode=self.acts,
            )
        elif self._begun and "every" in more:
            socket = str(self.harness.folder / "application")
            turns = Turns(socket, more.pop("every"), more["quiet"])
        more.pop("quiet", None)
        return Job(
            self.harness.kind,
            self.address,
            str(self.harness.upgrade),
            str(self.plan),
            str(self.folder / "answer"),
            names,
            turns=turns,
            **more,
        )

    def old_vectors_are_there(self) -> bool:
        """As the application sees it."""
        history = History(self.log)
        with self._opened() as table:
            there = {found.id: found.vector for found in table.rows()}
            if table.dimension() != models.D:
                return False
        for key, row in history.rows.items():
            held = row.may_hold[0]
            if row.sure and held is not None and held.vector is not None and key in there:
                found = there[key]
                if found is None or len(found) != models.D:
                    return False
        return True

    def claim_filled(self, ids: Iterable[int]) -> None:
        """Remember rows that are filled by now: those that nobody touches stay so."""
        self._claimed |= frozenset(ids)

    def check(self, ending: str) -> None:
        """Compare all with the model; `ending` is `finished` or `rolled back`."""
        summary = self.harness.summary
        self._leave()
        summary.migrations[ending] += 1
        history = History(self.log)
        with self._opened() as table:
            checker = Checker(table, history, self.harness.maps)
            if ending == "finished":
                untouched = {key for key, row in history.rows.items() if not row.touched}
                late = self.switched if self.harness.kind in ("parquet", "faiss") else None
                end = Finished(self._claimed & untouched, late)
                found = checker.finished(end)
            else:
                found = checker.rolled_back()
        summary.rows_checked += len(history.rows)
        # A hidden one is what a killed ordering has left; the next takes it away.
        strays = [
            path
            for path in (self.plan / "orders").glob("*")
            if path.suffix != ".parquet" and not path.name.startswith(".")
        ]
        strays += [path for path in self.folder.iterdir() if path.name not in _KNOWN]
        found += [Violation(f"left over: {path.relative_to(self.folder)}") for path in strays]
        self.violate(*found)

    def violate(self, *found: Violation, **where: Any) -> None:
        """Count violations, with what it takes to repeat them."""
        for violation in found:
            told = {**self.where, **where}
            self.harness.summary.violations.append(replace(violation, where=told))

    def close(self) -> None:
        self._leave()
        summary = self.harness.summary
        history = History(self.log)
        for name, count in history.outcomes.items():
            operation, how = name.split()
            summary.operations[operation if how == "done" else how] += count
        summary.not_done.update(history.not_done)
        count, failures = read_searches(self.searches)
        summary.searches += count
        for told in failures:
            if "raised" in told:
                summary.searches_raised += 1
                what = f"a search raised: {told['raised']}"
            else:
                summary.searches_missed += 1
                what = f"a search missed the row it asked for: {told['found']}"
            self.violate(Violation(what, told.get("missed")), **told)
        if self._table is not None:
            self._table.close()
        if self.harness.server is not None:
            self.harness.server.drop(self.address.partition("#")[2])
        shutil.rmtree(self.folder)

    def _leave(self) -> None:
        if self._begun and self.harness.apart:
            self.harness.ask("application", "close")
            self.harness.ask("searching", "close")
        self._begun = False

    @contextmanager
    def _opened(self) -> Iterator[Table]:
        """The table in this process; kept open, but where only one process may have it."""
        if not self.harness.apart:
            table = open_table(self.harness.kind, self.address)
            try:
                yield table
            finally:
                table.close()
            return
        if self._table is None:
            self._table = open_table(self.harness.kind, self.address)
        yield self._table


_KNOWN = {"log", "searches", "plan", "answer", "db", "items", "qdrant", "sqlite", "milvus.db"}
_KNOWN |= {f".milvus.db.crossfade.items.{what}" for what in ("json", "lock")}
# What stays beside a shard: the journal, the lock, and of a killed process what it had to keep.
_KNOWN |= {"shard", *(f".shard.crossfade.{what}" for what in ("json", "lock", "config"))}
