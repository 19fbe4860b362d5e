"""What comes next: the steps of a migration, and those again that said no.

A step that was killed is run again. One that says no is answered as its user would: `verify` and
`finish` by another `forward` and `verify`, while the application pauses, for they want a store that
was verified as it is. Every other migration is finished by force from the first, so that rows that
are late or changed are there when the columns change places; the others only when nothing helps.
"""

from __future__ import annotations

from tests.adversary.checking import Violation
from tests.adversary.steps import Outcome
from tests.adversary.world import World

STEPS = ("start", "forward", "backfill", "forward", "verify", "finish")
_AGAIN = ("forward", "verify", "finish")
# Rows that came or changed are not filled, and the plan's share may be missed without them.
_PROVE = ("forward", "backfill", "verify", "finish")
# What `verify` must never find: rows that changed and rows that wait are the application's doing.
_DAMAGE = ("checksums", "recomputed", "upgrade")
# How often steps may say no before that counts as a failure, from when on nobody disturbs, and from
# when on `finish` is forced whatever was wanted.
_PATIENCE, _CALM_FROM, _FORCE_FROM = 16, 7, 12


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

    @property
    def force(self) -> bool:
        """Whether `finish` is to do without proof."""
        return self.world.forced or self.refused >= _FORCE_FROM

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
        if out.done[-1] == "rollback":
            return "rolled back"
        self.world.harness.summary.proven += not self.force
        return "finished"

    def roll_back(self) -> None:
        """From here, whatever was to come."""
        self.left = ("rollback",)

    def _answer(self, out: Outcome) -> None:
        nobody_wrote = "verify" in self.quiet and not self.world.disturbed
        calm = nobody_wrote and "finish" in self.quiet
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
        elif out.at == "finish":
            if calm and "NotProven" in out.said and not self._unverified:
                self._violate("finish refuses what was verified while nobody writes", out.said)
            self.left = _PROVE
        elif out.at == "verify":
            self.left = ("backfill", *_AGAIN) if self.refused % 3 == 2 else _AGAIN

    def _violate(self, what: str, found: str) -> None:
        self.world.violate(Violation(what, found=found))
