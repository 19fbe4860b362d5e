"""Every step of a migration of a pgvector table, and what the application beside it feels.

    python -m benchmarks steps [--rows 200000] [--dim 384] [--turns 1] [--only steps|traffic]

The table has an HNSW index of the application's. Each step is held against what the server does
with nothing in between, in the same run: `forward` against a COPY of the same vectors into a table
with a primary key; the index against CREATE INDEX with the server's own settings, which are made
for small indexes, and against one with memory and workers; the backfill against COPY and one
upsert over a single connection into a table with such an index; `finish` against the way that
takes the table away while it lasts: CREATE TABLE AS, its primary key and its index.

Then the migration is done again beside traffic: two threads search, one through `Searcher` and one
in SQL, a third changes two rows in a transaction, in random order, and, during `finish`, a fourth
holds a transaction open for three seconds again and again. A fifth says SELECT 1, which waits for
no lock of anybody's: what that waits for is the machine. The same traffic alone is the control.
Aborts are counted by those they happen to, and in the server's log.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import re
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.machine import clear_peak, machine, peak_memory
from benchmarks.migrate import Paced, fitted, plan_for, turned, vectors
from benchmarks.stores import BATCH, Postgres
from crossfade.cli.migrate.priority import SHARE, give_way
from crossfade.files.arrow import to_arrow
from crossfade.migration import Migration

FILLED = 0.1
# What a bare upsert is timed with: its rate does not change with how many there are.
UPSERTED = 2000
STALL = 0.2
STEPS = ("start", "forward", "backfill", "verify", "finish")
SPAWN = multiprocessing.get_context("spawn")


@dataclass(frozen=True)
class Setting:
    """What is migrated, and with what."""

    address: str
    upgrade: str
    plan: str
    new: str
    """A file of new vectors, by id."""
    gentle: bool
    """Whether the migration gives way, as its commands do by default."""


@dataclass(frozen=True)
class Done:
    """One step as its process saw it; times are of one clock for all processes."""

    begin: float
    end: float
    first: float
    """Seconds until the index was begun, where the step ends with one."""
    written: int
    peak: float
    held: tuple[tuple[float, float], ...]
    """When it had the application's table for itself."""

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def migrating(pipe: Pipe, setting: Setting) -> None:
    """A process that does the steps it is told."""
    from crossfade.stores.postgres import promote as pgpromote

    held: list[tuple[float, float]] = []
    act_exclusively = pgpromote.act_exclusively

    def timed(pool: Any, statements: Any, act: Callable[[Any], Any], **more: Any) -> Any:
        at = [0.0]

        def acting(connection: Any) -> Any:
            at[0] = time.monotonic()
            return act(connection)

        out = act_exclusively(pool, statements, acting, **more)
        held.append((at[0], time.monotonic()))
        return out

    pgpromote.act_exclusively = timed
    if setting.gentle:
        give_way(full_speed=False)
    migration = Migration(setting.address, setting.upgrade)
    embedder = Paced(np.load(setting.new, mmap_mode="r"), None)
    share = SHARE if setting.gentle else 1.0
    wanted = {"plan": Path(setting.plan), "share": FILLED, "processors": share}
    while (name := pipe.recv()) is not None:
        held.clear()
        clear_peak()
        first, written, begin = 0.0, 0, time.monotonic()
        if name == "start":
            migration.start(force=True)
        elif name == "forward":
            lifted = migration.forward()
            first, written = lifted.seconds, lifted.written
        elif name == "backfill":
            filled = migration.backfill(embedder, **wanted)
            first, written = filled.seconds, filled.written
        elif name == "verify":
            migration.verify()
        else:
            migration.finish(force=True)
        pipe.send(Done(begin, time.monotonic(), first, written, peak_memory(), tuple(held)))
    migration.close()
    pipe.send(None)


@contextmanager
def migration_of(setting: Setting) -> Iterator[Callable[[str], Done]]:
    """Steps, each done when it is called."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=migrating, args=(there, setting), daemon=True)
    process.start()
    there.close()

    def step(name: str) -> Done:
        here.send(name)
        done: Done = here.recv()
        return done

    try:
        yield step
        here.send(None)
        here.recv()
    finally:
        process.join(60)


def connected(home: Postgres) -> Any:
    import psycopg

    return psycopg.connect(home.server.get_uri(), autocommit=True)


def timed(act: Callable[[], object]) -> float:
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


def copy_in(connection: Any, table: str, ids: np.ndarray, rows: np.ndarray) -> None:
    from crossfade.stores.postgres.copy import encode

    for first in range(0, len(rows), BATCH):
        some = slice(first, first + BATCH)
        data = encode([pa.array(ids[some]), to_arrow(rows[some])], ["integer", "vector"])
        with connection.cursor().copy(f"COPY {table} FROM STDIN (FORMAT BINARY)") as copy:
            copy.write(data)


def limits(home: Postgres, place: str, old: np.ndarray) -> dict[str, float]:
    """Seconds of what the server does by itself; `upsert` is for one row."""
    name, dim, ids = place.rsplit("#", 1)[1], old.shape[1], np.arange(len(old))
    memory = f"SET maintenance_work_mem = '{len(old) * (4 * dim + 700) // 1024 + 65536}kB'"
    hnsw = "CREATE INDEX ON {} USING hnsw (v vector_cosine_ops)"
    out: dict[str, float] = {}
    with connected(home) as connection:
        run = connection.execute
        run(f"CREATE TABLE bare (id bigint PRIMARY KEY, v vector({dim}))")
        out["copy"] = timed(lambda: copy_in(connection, "bare", ids, old))
        run("VACUUM ANALYZE bare")
        out["default index"] = timed(lambda: run(hnsw.format("bare")))
        run(f"CREATE TEMP TABLE coming (id bigint, v vector({dim}))")
        some = np.random.default_rng(1).choice(ids, min(UPSERTED, len(ids)), replace=False)

        near = old[some] + 0.02 * np.random.default_rng(2).normal(size=(len(some), dim))

        def upsert() -> None:
            # Of the same space, where new vectors are near the ones they replace.
            copy_in(connection, "coming", some, np.asarray(near, np.float32))
            run(
                "INSERT INTO bare SELECT id, v FROM coming "
                "ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v"
            )

        out["upsert"] = timed(upsert) / len(some)
        run("DROP TABLE bare")
        run(memory)

        def copied() -> None:
            run(f"CREATE TABLE offline AS SELECT id, body, vector AS v FROM {name}")  # noqa: S608
            run("ALTER TABLE offline ADD PRIMARY KEY (id)")

        out["table as"] = timed(copied)
        run("ALTER TABLE offline SET (parallel_workers = 8)")
        out["index"] = timed(lambda: run(hnsw.format("offline")))
        run("DROP TABLE offline")
    return out


@dataclass(frozen=True)
class Line:
    """One step, and what it is held against."""

    step: str
    seconds: float
    rows: int = 0
    limit: str = ""
    bare: float = 0.0
    peak: float = 0.0


def measure_steps(home: Postgres, setting: Setting, old: np.ndarray) -> list[Line]:
    bare = limits(home, setting.address, old)
    with migration_of(setting) as step:
        done = {name: step(name) for name in STEPS}
    forward, backfill, finish = (done[name] for name in ("forward", "backfill", "finish"))
    rows, indexed = len(old), forward.seconds - forward.first
    upserted = bare["upsert"] * backfill.written
    offline = bare["table as"] + bare["index"]
    return [
        Line("start", done["start"].seconds, peak=done["start"].peak),
        Line("forward", forward.first, rows, "COPY", bare["copy"], forward.peak),
        Line("its index", indexed, rows, "the server's settings", bare["default index"]),
        Line("its index", indexed, rows, "memory and workers", bare["index"]),
        Line("backfill", backfill.first, backfill.written, "upsert", upserted, backfill.peak),
        Line("its tidying", backfill.seconds - backfill.first),
        Line("verify", done["verify"].seconds, rows, peak=done["verify"].peak),
        Line("finish", finish.seconds, rows, "CREATE TABLE AS", offline, finish.peak),
    ]


def show_steps(turns: list[list[Line]]) -> None:
    print("| step | s | rows/s | held against | its s | ratio | client's peak MB |")
    print("|---" * 7 + "|")
    for lines in zip(*turns, strict=True):
        one = lines[0]
        seconds = statistics.median(line.seconds for line in lines)
        cells = [one.step, f"{seconds:.1f}", f"{one.rows / seconds:,.0f}" if one.rows else ""]
        if one.limit:
            bare = statistics.median(line.bare for line in lines)
            ratio = statistics.median(line.seconds / line.bare for line in lines)
            cells += [one.limit, f"{bare:.1f}", f"{ratio:.2f}"]
        else:
            cells += ["", "", ""]
        peak = max(line.peak for line in lines)
        print("|", " | ".join([*cells, f"{peak:.0f}" if peak else ""]), "|", flush=True)


@dataclass(frozen=True)
class Event:
    """Something the application did: what, when, for how long, the error it got, and by whom."""

    what: str
    begin: float
    took: float
    error: str = ""
    by: str = ""


def application(setting: Setting, old: np.ndarray, rows: int, stop: Any, long: Any,
                found: Any) -> None:  # fmt: skip
    """A process with the application's threads; `long` is set while transactions are to be."""
    import psycopg

    from crossfade import Upgrade
    from crossfade.journal import open_migrating
    from crossfade.search import Searcher

    url, name = setting.address.rsplit("#", 1)
    # Tuples, for these are many, and no garbage collection has to go through them, which would
    # hold up every thread.
    events: list[tuple[str, float, float, str, str]] = []

    def thread(what: str, pause: float, make: Callable[[Any], Callable[[], None]]) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            act = make(connection)
            while not stop.is_set():
                begin, error = time.monotonic(), ""
                try:
                    act()
                except Exception as problem:
                    state = getattr(problem, "sqlstate", None)
                    error = f"{type(problem).__name__} {state or problem}"
                took = time.monotonic() - begin
                events.append((what, begin, took, error, make.__name__))
                time.sleep(pause)

    def searching(_: Any) -> Callable[[], None]:
        store = open_migrating(setting.address)
        searcher, turn = Searcher(store, Upgrade.load(setting.upgrade)), iter(range(10**9))
        new = turned(old)

        def act() -> None:
            hits = searcher.search(new[next(turn) % len(new)], k=10)
            if len(hits) != 10:
                raise RuntimeError(f"{len(hits)} hits")

        return act

    def selecting(connection: Any) -> Callable[[], None]:
        turn = iter(range(10**9))
        ask = f"SELECT id FROM {name} ORDER BY vector <=> %s::vector LIMIT 10"  # noqa: S608

        def act() -> None:
            query = str(old[next(turn) % len(old)].tolist())
            if len(connection.execute(ask, [query]).fetchall()) != 10:
                raise RuntimeError("too few rows")

        return act

    def changing(connection: Any) -> Callable[[], None]:
        lot = random.Random(5)  # noqa: S311

        def act() -> None:
            one, other = lot.sample(range(rows), 2)
            vector = str(old[lot.randrange(len(old))].tolist())
            changes: list[tuple[str, list[Any]]] = [
                (f"UPDATE {name} SET vector = %s WHERE id = %s", [vector, one]),  # noqa: S608
                (f"UPDATE {name} SET body = %s WHERE id = %s", ["y", other]),  # noqa: S608
            ]
            lot.shuffle(changes)
            with connection.transaction():
                for statement, values in changes:
                    connection.execute(statement, values)

        return act

    def holding(connection: Any) -> Callable[[], None]:
        def act() -> None:
            if not long.is_set():
                return
            with connection.transaction():
                connection.execute(f"SELECT body FROM {name} LIMIT 1")  # noqa: S608
                time.sleep(3.0)

        return act

    def pinging(connection: Any) -> Callable[[], None]:
        return lambda: connection.execute("SELECT 1")

    acts: list[tuple[str, float, Any]] = [
        ("search", 0.01, searching),
        ("search", 0.01, selecting),
        ("change", 0.02, changing),
        ("hold", 1.5, holding),
        ("ping", 0.005, pinging),
    ]
    threads = [threading.Thread(target=thread, args=act) for act in acts]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    found.put(events)


def measure_traffic(
    home: Postgres, setting: Setting, old: np.ndarray, rows: int, control: float
) -> None:
    """The steps beside the application, and what either of them felt."""
    stop, long, found = SPAWN.Event(), SPAWN.Event(), SPAWN.Queue()
    words = (setting, old, rows, stop, long, found)
    process = SPAWN.Process(target=application, args=words, daemon=True)
    log = Path(str(home.server.pgdata)) / "log"
    with migration_of(setting) as step:
        done = {"start": step("start")}
        process.start()
        time.sleep(5.0)  # Until its imports are over.
        size, deadlocks, begin = log.stat().st_size, count_deadlocks(home), time.monotonic()
        time.sleep(control)
        end = time.monotonic()
        for name in STEPS[1:]:
            if name == "finish":
                long.set()
            done[name] = step(name)
        stop.set()
        events = [Event(*one) for one in found.get()]
        process.join()
    last = done["finish"]
    # The longest is the switch; the others add a column and settle constraints.
    switch = max(last.held, key=lambda held: held[1] - held[0])
    print("| during | s | searches | p50 / p99 ms | longest | over 200 ms | SELECT 1, longest "
          "| transactions | longest | aborted |\n" + "|---" * 10 + "|")  # fmt: skip
    forward = done["forward"]
    lifted = forward.begin + forward.first
    phases = [
        ("nothing (control)", begin, end),
        ("forward", forward.begin, lifted),
        ("its index", lifted, forward.end),
        *((name, done[name].begin, done[name].end) for name in ("backfill", "verify", "finish")),
    ]
    slow = [
        line
        for name, first, until in phases
        for line in show_phase(name, first, until, events, switch)
    ]
    print("", *slow, sep="\n")
    across = [e.took for e in events if e.what == "search" and crosses(e, switch)]
    longest = 1000 * max(across, default=0.0)
    print(
        f"\nThe switch had the table for {1000 * (switch[1] - switch[0]):.0f} ms; the longest "
        f"search across it took {longest:.0f} ms, {len(across)} waited."
    )
    held = [e for e in events if e.what == "hold" and e.took > 1 and e.begin < last.end]
    print(f"{len(held)} transactions were held open for 3 s while `finish` ran.")
    errors = Counter(
        line.split(":", 1)[1].strip() if ":" in line else line
        for line in re.findall(r"(?:ERROR|FATAL|PANIC):.*", read_from(log, size))
    )
    print(f"Deadlocks counted by the server: {count_deadlocks(home) - deadlocks}.")
    print(f"Errors in the server's log: {dict(errors) or 'none'}.")
    print(f"Errors of the application: {dict(Counter(e.error for e in events if e.error))}.")


def show_phase(
    name: str, begin: float, end: float, events: list[Event], switch: tuple[float, float] | None
) -> list[str]:
    """What the application felt between two moments, but for the switch; gives what to say of
    searches that were held up."""
    there = [e for e in events if e.begin < end and e.begin + e.took > begin]
    of = {
        what: np.array([e.took for e in there if e.what == what and not crosses(e, switch)] or [0])
        for what in ("search", "change", "ping")
    }
    times = 1000 * of["search"]
    failed = sum(1 for e in there if e.error)
    print(
        f"| {name} | {end - begin:.0f} | {len(times):,} | {np.quantile(times, 0.5):.1f} / "
        f"{np.quantile(times, 0.99):.1f} | {times.max():.0f} | "
        f"{int((times > 1000 * STALL).sum())} | {1000 * of['ping'].max():.0f} | "
        f"{len(of['change']):,} | {1000 * of['change'].max():.0f} | {failed} |",
        flush=True,
    )
    slow = [e for e in there if e.what == "search" and e.took > STALL and not crosses(e, switch)]
    return [told_slow(name, begin, e, events) for e in slow]


def told_slow(name: str, begin: float, slow: Event, events: list[Event]) -> str:
    """One slow search, and the longest of all else that was under way with it."""
    span = (slow.begin, slow.begin + slow.took)
    beside = [e for e in events if e is not slow and e.what != "hold" and crosses(e, span)]
    longest = {by: max(e.took for e in beside if e.by == by) for by in {e.by for e in beside}}
    others = ", ".join(f"{by} {1000 * took:.0f}" for by, took in sorted(longest.items()))
    when = f"{name}, {slow.begin - begin:.1f} s after its beginning"
    return f"{when}: {slow.by} {1000 * slow.took:.0f} ms; meanwhile {others}"


def crosses(event: Event, switch: tuple[float, float] | None) -> bool:
    return switch is not None and event.begin < switch[1] and event.begin + event.took > switch[0]


def count_deadlocks(home: Postgres) -> int:
    with connected(home) as connection:
        found = connection.execute("SELECT sum(deadlocks)::bigint FROM pg_stat_database")
        return int(found.fetchone()[0])


def read_from(log: Path, size: int) -> str:
    with log.open("rb") as file:
        file.seek(size)
        return file.read().decode(errors="replace")


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks steps", description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--control", type=float, default=30.0, help="seconds of traffic alone")
    parser.add_argument("--only", choices=["steps", "traffic"])
    chosen = parser.parse_args(arguments)
    print(machine(), f"\n{chosen.rows:,} × {chosen.dim}\n", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        old = vectors(chosen.rows, seed=2, dim=chosen.dim)
        np.save(folder / "new.npy", turned(old))
        upgrade = fitted(folder, "affine", dim=chosen.dim)
        plan = plan_for(folder, upgrade, chosen.rows, dim=chosen.dim)
        others = vectors(200, seed=5, dim=chosen.dim)
        home = Postgres(folder)
        try:

            def setting(gentle: bool) -> Setting:
                """A fresh table with the application's index, to be migrated."""
                place = home.fresh(old)
                home.index(place)
                files = (str(upgrade), str(plan), str(folder / "new.npy"))
                return Setting(place, *files, gentle=gentle)

            if chosen.only != "traffic":
                turns = [
                    measure_steps(home, setting(gentle=False), old) for _ in range(chosen.turns)
                ]
                show_steps(turns)
                print(flush=True)
            if chosen.only != "steps":
                measure_traffic(home, setting(gentle=True), others, chosen.rows, chosen.control)
        finally:
            home.close()
