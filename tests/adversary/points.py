"""Crash points: a migration dies before and after each of its durable acts, one after the other.

Nothing is left to chance here. The application acts at every few acts of the migration, and
whenever that is dead; it is asked to, and waited for. A migration that died in `finish` is ended in
both ways, by going on and by a rollback.
"""

from __future__ import annotations

from collections import Counter
from itertools import count
from typing import Any

from tests.adversary.acts import When
from tests.adversary.application import After
from tests.adversary.course import STEPS, Abandoned, Course
from tests.adversary.world import Harness, World

_TRIED = ("start", "forward", "backfill", "verify", "finish", "rollback")
_ROLLED_BACK = ("start", "forward", "backfill", "rollback")
# The application acts at every so many acts of a step.
_EVERY = 4
_WHILE_DEAD = 3
# So many acts in a row that no migration had are beyond the end of a step.
_MISSES = 2
# Names of tables on a server that others have made fresh tables on, by numbers from 1.
_made = count(1001)
Point = tuple[str, int]


def crash_at_points(harness: Harness, only: Point | None = None, most: int | None = None) -> None:
    """Every act, before and after; with `most`, that many evenly spread; with `only`, that one."""
    acts = harness.summary.acts
    for step in ("finish", "rollback"):
        undisturbed = _Migration(harness, (step, 0))
        undisturbed.run()
        acts |= undisturbed.acts
    if only is not None:
        _crash(harness, only)
    elif most is not None:
        points = [(step, number + 1) for step in _TRIED for number in range(acts[step])]
        chosen = {round(n * (len(points) - 1) / max(1, most - 1)) for n in range(most)}
        for at in sorted(chosen):
            _crash(harness, points[at])
    else:
        for step in _TRIED:
            _crash_all(harness, step, acts[step])


def _crash_all(harness: Harness, step: str, acts: int) -> None:
    """What the application does differs from point to point, and so does the number of acts."""
    missed = 0
    for number in count(1):
        missed = 0 if _crash(harness, (step, number)) else missed + 1
        if number > acts and missed >= _MISSES:
            return


def _crash(harness: Harness, point: Point) -> bool:
    """Whether there was such an act."""
    before, after = (_dies(harness, point, when) for when in ("before", "after"))
    return before or after


def _dies(harness: Harness, point: Point, when: When) -> bool:
    died = _Migration(harness, point, when).run()
    if died and point[0] == "finish":
        _Migration(harness, point, when, roll_back=True).run()
    return died


class _Migration:
    """One migration that dies at one act, is taken up again, and is checked at its end."""

    def __init__(
        self,
        harness: Harness,
        point: Point,
        when: When = "before",
        *,
        roll_back: bool = False,
    ) -> None:
        self.harness, self.point, self.when, self.roll_back = harness, point, when, roll_back
        self.acts: Counter[str] = Counter()

    def run(self) -> bool:
        """Whether it died."""
        step, number = self.point
        after: After = "new" if number % 2 else "stop"
        lot = 1000 * _TRIED.index(step) + number
        died = False
        with self.harness.world(self.harness.seed, next(_made), after, lot) as world:
            world.where["repeat"] += f" --point {step}:{number}"
            world.begin()
            course = Course(world, _ROLLED_BACK if step == "rollback" else STEPS)
            ending = ""
            try:
                while not ending:
                    more: dict[str, Any] = {"every": _EVERY, "quiet": course.quiet}
                    more["force"] = course.force
                    if not died:
                        more |= {"die_in": step, "die_at": number, "when": self.when}
                    out = world.run(*course.left, count=True, **more)
                    self.acts |= Counter(out.acts)
                    ending = course.went(out)
                    if out.died:
                        died = True
                        self._dead(world, out.died)
                        if self.roll_back:
                            course.roll_back()
                world.check(ending)
            except Abandoned:
                self.harness.summary.migrations["abandoned"] += 1
        return died

    def _dead(self, world: World, died: str) -> None:
        """Others go on while the migration is dead."""
        step = self.point[0]
        world.where |= {"died": died, "rolled back": self.roll_back}
        self.harness.summary.points[f"{step}, rolled back" if self.roll_back else step] += 1
        world.act(_WHILE_DEAD)
        world.search()
