"""What comes next: the steps of a migration, and those again that said no.

A step that was killed is run again. One that says no is answered as its user would: `verify` and
`finish` by another `forward` and `verify`, while the application pauses, for they want a store that
was verified as it is.
"""

from __future__ import annotations

from tests.adversary.checking import Violation
from tests.adversary.steps import Outcome
from tests.adversary.world import World

STEPS = ("start", "forward", "backfill", "forward", "verify", "finish")
_AGAIN = ("forward", "verify", "finish")
# What `verify` must never find: rows that changed and rows that wait are the application's doing.
_DAMAGE = ("checksums", "recomputed", "upgrade")
# How often steps may say no before that counts as a failure, and from when on nobody disturbs.
_PATIENCE, _CALM_FROM = 16, 7


class Abandoned(Exception):
    """A violation after which a migration cannot go on."""


class Course:
    """The steps that are left of one migration."""

    def __init__(self, world: World, left: tuple[str, ...] = STEPS) -> None:
        self.world = world
        self.left = left
        self.refused = 0
        self._unverified = False

    @property
    def quiet(self) -> tuple[str, ...]:
        """Steps in which the application pauses."""
        if self.refused >= _CALM_FROM:
            return STEPS
        return ("forward", "backfill", "verify") if self.refused else ()

    def went(self, out: Outcome) -> str:
        """Take note of what a process did; gives how the migration ended, if it has."""
        self.world.claim_filled(out.filled)
        self.left = self.left[len(out.done) :]
        if out.how == "raised":
            self._violate(f"{out.at} raised an error that is not Crossfade's", out.said)
            raise Abandoned
        if out.how == "refused":
            self._answer(out)
        if self.left:
            return ""
        return "rolled back" if out.done[-1] == "rollback" else "finished"

    def roll_back(self) -> None:
        """From here, whatever was to come."""
        self.left = ("rollback",)

    def _answer(self, out: Outcome) -> None:
        nobody_wrote = "verify" in self.quiet and not self.world.disturbed
        self.world.disturbed = False
        self.refused += 1
        summary = self.world.harness.summary
        summary.calmed += self.refused == 1
        summary.refused(str(out.at), " ".join([out.said, *out.failed]))
        for failed in out.failed:
            if failed.split(":")[0] in _DAMAGE:
                self._violate("verify found damage", failed)
        if self.refused > _PATIENCE:
            self._violate("the migration cannot be ended", f"{out.said} {out.failed}")
            raise Abandoned
        if out.at == "rollback":
            # Where the application has written new vectors since, going back would lose those.
            newer = "since the switch" in out.said
            if self.world.old_vectors_are_there() and not newer:
                self._violate("rollback was refused while all old vectors were there", out.said)
            self.left = ("finish",)
        elif "'finishing'" in out.said:
            # What `finish` has begun nothing else can go on with.
            self.left = ("finish",)
        elif out.at == "verify" and nobody_wrote:
            if not self._unverified:
                self._violate("verify fails while nobody writes", "; ".join(out.failed))
            self._unverified = True
            self.left = ("finish",)
        elif out.at in ("verify", "finish"):
            self.left = ("backfill", *_AGAIN) if self.refused % 3 == 2 else _AGAIN

    def _violate(self, what: str, found: str) -> None:
        self.world.violate(Violation(what, found=found))
