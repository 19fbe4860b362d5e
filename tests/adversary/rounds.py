"""Migrations whose process is killed at random moments of every step."""

from __future__ import annotations

import math
import time
from functools import partial

import numpy as np
from tests.adversary.application import After, Mode
from tests.adversary.course import Abandoned, Course
from tests.adversary.steps import Event, Outcome
from tests.adversary.world import Harness, World

# Kills of one step, and what else may happen while it runs.
_MOST_KILLS = 5
_BACKEND, _SERVER = 0.2, 0.03
# When a migration is rolled back: before a step, or when its `finish` was killed.
_GIVE_UP = {"never": 0.6, "forward": 0.06, "backfill": 0.07, "finish": 0.07, "in finish": 0.2}
_AFTER_SWITCH = 0.15
_FASTER = 8.0


def kill_at_random(harness: Harness, kills: int) -> None:
    """One migration after another, until the process has been killed so many times."""
    seconds = _calm(harness)
    number = 0
    while harness.summary.kills.total() < kills:
        _Round(harness, number + 1, seconds).run()
        number += 1


def _calm(harness: Harness) -> dict[str, float]:
    """An undisturbed migration, and an undisturbed rollback: what each step takes."""
    seconds: dict[str, float] = {}
    for number, names in enumerate(
        (("start", "forward", "backfill", "verify", "finish"), ("start", "forward", "rollback"))
    ):
        with harness.world(harness.seed, 1_000_000 + number, "stop") as world:
            for name in names:
                out = world.run(name)
                if out.how != "done":
                    raise RuntimeError(f"undisturbed, {name} {out.how}: {out.said} {out.failed}")
                seconds[name] = out.seconds
                world.claim_filled(out.filled)
            world.check("finished" if names[-1] == "finish" else "rolled back")
    return seconds


class _Round:
    """One migration: its steps in order, each killed a few times, then its end."""

    def __init__(self, harness: Harness, number: int, seconds: dict[str, float]) -> None:
        self.harness, self.seconds = harness, seconds
        self.number, self.seed = number, harness.seed + number - 1
        self.rng = np.random.default_rng(self.seed)
        self.world: World

    def run(self) -> None:
        after: After = "new" if self.rng.random() < 0.5 else "stop"
        with self.harness.world(self.seed, self.number, after) as self.world:
            self.world.begin()
            try:
                ending = self._migrate()
                if ending == "finished":
                    # Whoever goes on with new vectors is given time to.
                    self.world.mode("all")
                    time.sleep(_AFTER_SWITCH)
                    self.world.act(2)
                self.world.check(ending)
            except Abandoned:
                self.harness.summary.migrations["abandoned"] += 1

    def _migrate(self) -> str:
        """Gives how it ended."""
        give_up = str(self.rng.choice(list(_GIVE_UP), p=list(_GIVE_UP.values())))
        course, ending, at = Course(self.world), "", None
        while not ending:
            if course.left[0] == give_up:
                course.roll_back()
                give_up = ""
            if at != (course.left, course.refused):
                at, name = (course.left, course.refused), course.left[0]
                # Steps that are done again and again are killed less.
                again = course.refused > 0 and name not in ("finish", "rollback")
                kills = int(self.rng.integers(0, 1 + (1 if again else _MOST_KILLS)))
                if (give_up, name) == ("in finish", "finish"):
                    kills = 1
            out = self._run(name, course, kill=kills > 0)
            ending = course.went(out)
            if out.how == "killed":
                kills -= 1
                self._dead(name)
                if (give_up, name) == ("in finish", "finish"):
                    course.roll_back()
                    give_up = ""
        return ending

    def _dead(self, name: str) -> None:
        """Where the application is not apart it has its turn now."""
        self.harness.summary.kills[name] += 1
        if self.harness.kind == "chroma" and name == "finish":
            self.world.act(int(self.rng.integers(0, 3)))
        if not self.harness.apart:
            self.world.act(int(self.rng.integers(0, 3)))
            self.world.search()

    def _run(self, name: str, course: Course, *, kill: bool) -> Outcome:
        whole = self.seconds[name]
        events = self._events(whole)
        quiet = name in course.quiet
        files = self.harness.kind in ("parquet", "faiss") and name == "finish"
        mode: Mode = "none" if quiet else "all"
        if files:
            # Files refuse nothing: old vectors that come once it is done are nobody's fault.
            mode = "all" if kill and not quiet else "none"
        if self.harness.kind == "chroma" and name == "finish":
            # Between the last look at the old collection and its end nobody can notice a write:
            # there the application acts while a killed `finish` waits to go on.
            mode = "none"
        if name == "finish" and course.refused and not quiet:
            # What it wants to find as it was verified is disturbed once it has begun.
            moment = float(self.rng.uniform(0.0, whole))
            disturb = partial(self.world.mode, mode, faster=_FASTER)
            events, mode = (*events, Event(moment, disturb)), "none"
        # The step is short, and the application is to meet it.
        self.world.mode(mode, faster=_FASTER if name == "finish" else 1.0)
        begin = time.monotonic()
        moment = float(self.rng.uniform(0.0, whole))
        out = self.world.run(
            name,
            kill_after=moment if kill else math.inf,
            events=events,
            quiet=(name,) if quiet else (),
            force=course.force,
        )
        if files:
            self.world.mode("none")
            if out.how == "done":
                # Files refuse nothing: whoever writes them has to be told.
                self.harness.ask("application", "switch")
                self.world.switched = (begin, time.monotonic())
            elif not quiet:
                self.world.mode("all")
        if out.how == "done":
            # The machine may have become slower, or the table larger.
            self.seconds[name] = 0.8 * whole + 0.2 * out.seconds
        return out

    def _events(self, whole: float) -> tuple[Event, ...]:
        """What else happens to PostgreSQL while a step runs."""
        server, summary = self.harness.server, self.harness.summary
        if self.harness.kind != "pgvector":
            return ()
        moment, which = float(self.rng.uniform(0, whole)), int(self.rng.integers(100))
        lot = self.rng.random()
        if lot < _SERVER:
            summary.servers_killed += 1
            return (Event(moment, server.kill),)
        if lot < _SERVER + _BACKEND:
            summary.backends_ended += 1
            return (Event(moment, lambda: server.end_backend(which)),)
        return ()
