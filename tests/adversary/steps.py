"""The process that is killed: it carries out steps of a migration, and says how far it has come."""

from __future__ import annotations

import json
import math
import os
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from tests.adversary import control
from tests.adversary.acts import Acts, When, take_turns
from tests.adversary.application import After, Application, Mode
from tests.adversary.models import Embedder
from tests.adversary.nursery import Nursery
from tests.adversary.searching import Searching
from tests.adversary.tables import open_table

from crossfade.errors import CrossfadeError
from crossfade.journal.columns import FILLED, STATE
from crossfade.migration import Migration
from crossfade.stores.chroma import state

# Small, so that a step is many acts.
BATCH = 20
SHARE = 0.6
# Seconds that a killed process holds a server, and the time to take a lease of Milvus.
LEASES = {"chroma": 0.8, "milvus-server": 6.0}
_SETTLE = 1.5
# Steps take a second: one that takes this long waits for something that does not come.
_LONGEST = 300.0
# How likely the application, and a search, come before a call to the store.
_TURNS = (0.08, 0.04)


@dataclass(frozen=True)
class Turns:
    """Others that come in between, in the process that is killed or asked by it.

    `socket` is that of an application in a process of its own, asked at every `every`-th act.
    Without it the application and the searches are in this process: by lot before a call to the
    store, or, where `every` is given, at every `every`-th act.
    """

    socket: str = ""
    every: int = 0
    quiet: tuple[str, ...] = ()
    """Steps in which the application does nothing."""
    log: str = ""
    searches: str = ""
    texts: dict[int, str] = field(default_factory=dict)
    seed: tuple[int, ...] = ()
    after: After = "stop"
    mode: Mode = "all"


@dataclass(frozen=True)
class Job:
    """Steps to do, one after the other, and where to die on the way."""

    kind: str
    address: str
    upgrade: str
    plan: str
    answer: str
    steps: tuple[str, ...]
    count: bool = False
    """Whether acts are counted."""
    die_in: str = ""
    die_at: int = 0
    when: When = "before"
    turns: Turns | None = None
    force: bool = False
    """Whether `finish` does without a `verify` that passed for the rows as they are."""

    @classmethod
    def of(cls, told: dict[str, Any]) -> Job:
        """From JSON."""
        turns = told["turns"]
        if turns is not None:
            texts = {int(key): text for key, text in turns["texts"].items()}
            turns = Turns(**turns | {"texts": texts})
        return cls(**told | {"turns": turns})


@dataclass
class Outcome:
    """How far a process came: the steps it did, the one it was at, and why it ended there."""

    how: str
    done: list[str]
    at: str | None
    said: str = ""
    failed: list[str] = field(default_factory=list)
    filled: list[int] = field(default_factory=list)
    """Rows that were filled when it verified."""
    acts: dict[str, int] = field(default_factory=dict)
    """How many durable acts each step had."""
    died: str = ""
    seconds: float = 0.0
    """What its last step took."""


def do(name: str, migration: Migration, plan: str, *, force: bool) -> list[str]:
    """One step, whatever was done of it before; gives the checks that failed."""
    if name == "start":
        try:
            migration.start(source="body", force=True)
        except CrossfadeError as error:
            # Killed after the journal was written: it is under way, and `forward` makes it whole.
            if "under way" not in str(error):
                raise
    elif name == "forward":
        migration.forward(size=BATCH)
    elif name == "backfill":
        migration.backfill(Embedder(), plan=Path(plan), share=SHARE, batch=BATCH)
    elif name == "verify":
        found = migration.verify()
        return [f"{check.name}: {check.detail}" for check in found.checks if check.passed is False]
    elif name == "finish":
        migration.finish(force=force)
    elif name == "rollback":
        migration.rollback()
    return []


def filled(migration: Migration) -> list[int]:
    store = migration.store
    out: list[int] = []
    for rows in store.stream([STATE]):
        states = zip(rows[store.id].to_pylist(), rows[STATE].to_pylist(), strict=True)
        out += [int(key) for key, state in states if state == FILLED]
    return out


def work(told: dict[str, Any]) -> None:
    """What the process does."""
    job = Job.of(told)
    answer = os.open(job.answer, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def say(**told: Any) -> None:
        os.write(answer, json.dumps({**told, "time": time.monotonic()}).encode() + b"\n")

    if job.kind == "milvus-server":
        # A killed process holds its lease until that runs out.
        from crossfade.stores.milvus import state as milvus

        milvus.LEASE_SECONDS, milvus.SETTLE_SECONDS = LEASES[job.kind], _SETTLE
    at = ""
    turn = None if job.turns is None else _turn(job, job.turns, lambda: at)
    acts = Acts(say, job.die_in, job.die_at, job.when, turn if job.count else None)
    if job.kind == "chroma":
        # A killed process holds its lease until that runs out.
        state.LEASE_SECONDS = LEASES[job.kind]
    try:
        migration = Migration(job.address, job.upgrade)
        if job.count:
            acts.watch(job.kind)
        elif turn is not None:
            take_turns(job.kind, lambda: turn(0))
        for name in job.steps:
            at = name
            acts.begin(name)
            say(begun=name)
            failed = do(name, migration, job.plan, force=job.force)
            if name == "verify":
                say(filled=filled(migration))
            if failed:
                say(refused=name, said="verify did not pass", failed=failed)
                return
            say(done=name, acts=acts.number)
        migration.close()
        say(ended=True)
    except CrossfadeError as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        say(refused=at, said=said)
    except BaseException:
        say(raised=at, said=traceback.format_exc())


def _turn(job: Job, turns: Turns, step: Callable[[], str]) -> Callable[[int], None]:
    """What happens before an act."""
    # Files refuse nothing, so old vectors may come when all is done; Qdrant and Chroma have no way
    # to end old vectors and look at the last that came in one step.
    silent = job.kind in ("parquet", "faiss", "qdrant", "qdrant-edge", "chroma")
    quiet = {*turns.quiet, *(("finish",) if silent else ())}
    if turns.socket:

        def elsewhere(number: int) -> None:
            if number % turns.every == 0 and step() not in quiet:
                # An application that waits for a lock of ours is not waited for.
                control.ask(Path(turns.socket), "act", times=1, mode="all", patience=0.3)

        return elsewhere
    # Other turns after every kill, but the same whenever the same has happened before.
    rng = np.random.default_rng([*turns.seed, Path(turns.log).stat().st_size])
    application: list[Application] = []
    searching: list[Searching] = []

    def here(number: int) -> None:
        act, search = rng.random(2) < _TURNS
        if turns.every:
            act = search = number % turns.every == 0
        if act and step() not in quiet:
            if not application:
                table = open_table(job.kind, job.address)
                spared, seed = set(turns.texts), list(turns.seed)
                application.append(Application(table, Path(turns.log), spared, seed, turns.after))
            application[0].act(turns.mode)
        if search and step() not in ("", "start"):
            if not searching:
                log, seed = Path(turns.searches), list(turns.seed)
                searching.append(Searching(job.address, job.upgrade, turns.texts, log, seed))
            searching[0].once()

    return here


@dataclass(frozen=True)
class Event:
    """Something that the harness does to the world while a process works."""

    after: float
    act: Callable[[], None]


def run(
    nursery: Nursery,
    job: Job,
    *,
    kill_after: float = math.inf,
    events: tuple[Event, ...] = (),
) -> Outcome:
    """Do the job in a process of its own, killed so many seconds after its first step began.

    A process that ends meanwhile is not killed: then its step is done.
    """
    answer = Path(job.answer)
    answer.unlink(missing_ok=True)
    child = nursery.start("steps", "work", asdict(job))
    while child.wait(0.001) is None and not (answer.exists() and answer.stat().st_size):
        pass
    begin = time.monotonic()
    for event in sorted(events, key=lambda event: event.after):
        if event.after < kill_after:
            child.wait(max(0.0, begin + event.after - time.monotonic()))
            event.act()
    if kill_after < math.inf and (
        child.wait(max(0.0, begin + kill_after - time.monotonic())) is None
    ):
        child.kill()
    status = child.wait(_LONGEST)
    hangs = status is None
    if hangs:
        child.kill()
        status = child.wait()
    out = _outcome(answer, job)
    if hangs:
        out.how, out.said = "raised", f"it was not done after {_LONGEST:.0f} seconds"
    elif out.how == "killed" and status != -signal.SIGKILL:
        out.how, out.said = "raised", f"the process ended with {status}"
    return out


def _outcome(answer: Path, job: Job) -> Outcome:
    out = Outcome("killed", [], job.steps[0])
    begun = 0.0
    for line in answer.read_bytes().splitlines() if answer.is_file() else []:
        told = json.loads(line)
        out.seconds = told["time"] - begun
        if "begun" in told:
            out.at, begun = told["begun"], told["time"]
        elif "done" in told:
            out.done.append(told["done"])
            left = job.steps[len(out.done) :]
            out.at = left[0] if left else None
            out.acts[told["done"]] = max(told["acts"], out.acts.get(told["done"], 0))
        elif "died" in told:
            out.died = told["died"]
        elif "filled" in told:
            out.filled = told["filled"]
        elif "ended" in told:
            out.how = "done"
        else:
            out.how = "refused" if "refused" in told else "raised"
            out.said, out.failed = told["said"], told.get("failed", [])
    if out.at is None:
        # Killed at its last breath, when all was done.
        out.how = "done"
    return out
