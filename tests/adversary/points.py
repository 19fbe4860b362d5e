"""Crash points: a migration dies before and after each of its durable acts, one after the other.

Nothing is left to chance here. The application acts at every few acts of the migration, and
whenever that is dead; it is asked to, and waited for. A migration that died in `finish` is ended in
both ways, by going on and by a rollback.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import Any

from tests.adversary.acts import When
from tests.adversary.application import After
from tests.adversary.course import Abandoned, Course
from tests.adversary.world import Harness, World

# The application acts at every so many acts of the migration.
_EVERY = 4
_WHILE_DEAD = 3
# So many acts in a row that no migration had are beyond the end.
_MISSES = 4
_made = count(1)


def crash_at_points(harness: Harness, only: int | None = None, most: int | None = None) -> None:
    """Every act, before and after; with `most`, that many evenly spread; with `only`, that one."""
    undisturbed = _Migration(harness, 0)
    undisturbed.run()
    harness.summary.acts = total = undisturbed.acts
    numbers: Iterable[int] = count(1) if only is None else [only]
    if most is not None and total > most:
        numbers = sorted({1 + round(n * (total - 1) / (most - 1)) for n in range(most)})
    missed = 0
    for number in numbers:
        died = [_crash(harness, number, when) for when in ("before", "after")]
        # What the application does differs from point to point, and so does the number of acts.
        missed = 0 if any(died) else missed + 1
        if number > total and missed == _MISSES:
            return


def _crash(harness: Harness, number: int, when: When) -> bool:
    """Whether a migration has so many acts."""
    at = _Migration(harness, number, when).run()
    if at == "finish":
        _Migration(harness, number, when, roll_back=True).run()
    return at is not None


class _Migration:
    """One migration that dies at one act, is taken up again, and is checked at its end."""

    def __init__(
        self,
        harness: Harness,
        number: int,
        when: When = "before",
        *,
        roll_back: bool = False,
    ) -> None:
        self.harness, self.number, self.when, self.roll_back = harness, number, when, roll_back
        self.acts = 0

    def run(self) -> str | None:
        """The step it died in."""
        after: After = "new" if self.number % 2 else "stop"
        at = None
        with self.harness.world(self.harness.seed, next(_made), after, self.number) as world:
            world.where["repeat"] += f" --point {self.number}"
            world.begin()
            course, ending = Course(world), ""
            try:
                while not ending:
                    more: dict[str, Any] = {"every": _EVERY, "quiet": course.quiet}
                    if self.number and at is None:
                        more |= {"die_at": self.number, "when": self.when}
                    out = world.run(*course.left, count=True, number=self.acts, **more)
                    self.acts = out.acts
                    ending = course.went(out)
                    if out.died:
                        at = str(out.at)
                        self._dead(world, at, out.died)
                        if self.roll_back:
                            course.roll_back()
                world.check(ending)
            except Abandoned:
                self.harness.summary.migrations["abandoned"] += 1
        return at

    def _dead(self, world: World, at: str, died: str) -> None:
        """Others go on while the migration is dead."""
        world.where |= {"died": f"{died}, in {at}", "rolled back": self.roll_back}
        self.harness.summary.points[f"{at}, rolled back" if self.roll_back else at] += 1
        world.act(_WHILE_DEAD)
        world.search()
