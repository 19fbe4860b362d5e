"""What `finish` wants to know before it destroys old vectors: that all is as it should be, now."""

from __future__ import annotations

from datetime import UTC, datetime

from crossfade.journal.columns import FILLED, count_states
from crossfade.journal.journal import Journal, LiveQuality, Proof, save_journal, whole
from crossfade.journal.late import look_for_missing
from crossfade.migration.forward import Progress
from crossfade.migration.verify import Verified, look
from crossfade.stores import Store
from crossfade.upgrade import Upgrade


def keep_proof(store: Store, journal: Journal, version: str | None, verified: Verified) -> Journal:
    """Write down that a `verify` has passed, of the state that the store was in before it, and
    what it has measured."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    proof = Proof(at=now, version=version) if verified.passed else None
    measured = journal.measured
    if verified.quality is not None:
        found = verified.quality["measured"]
        measured = LiveQuality(
            at=now,
            share=verified.share,
            **{name: found[name] for name in ("queries", "new", "old", "difference")},
        )
    what = "verified" if verified.passed else "verify failed"
    return save_journal(store, journal.after(what, verified=proof, measured=measured))


def unproven(
    store: Store,
    upgrade: Upgrade,
    journal: Journal,
    progress: Progress | None = None,
    *,
    keep_old: bool = False,
) -> list[str]:
    """What speaks against finishing; nothing, if a `verify` of this very state has passed.

    A store that can tell its states apart is asked whether it is in the one that was verified; of
    any other every row is looked at.
    """
    if not journal.allows("verify"):
        return []
    out: list[str] = []
    proof = journal.verified
    if proof is None:
        out.append("no `verify` has passed since rows were last written")
    rows, filled = store.describe().rows, count_states(store)[FILLED]
    if journal.share is None:
        if filled < rows:
            out.append(
                f"no plan says how much is enough, and {filled:,} of {rows:,} rows are filled"
            )
    elif filled < whole(journal.share, rows - look_for_missing(store).unusable):
        out.append(
            f"{filled:,} of {rows:,} rows are filled, and the plan wants {journal.share:.0%} of "
            "them"
        )
    if not keep_old:
        out += _not_alone(store, journal, filled, rows)
    version = store.version()
    if proof is None or version is None or version != proof.version:
        seen = look(store, upgrade, journal, rows, progress)
        out += [f"{check.name}: {check.detail}" for check in seen.checks() if not check.passed]
    return out + [found.cause for found in store.obstacles()]


def _not_alone(store: Store, journal: Journal, filled: int, rows: int) -> list[str]:
    """Whether new queries, which are all that is left, would be below today's search."""
    if journal.asking in (None, "new"):
        return []
    usable = rows - look_for_missing(store).unusable
    if filled >= usable:
        return []
    enough = journal.alone_from
    if enough is None:
        return [
            f"it is asked with {journal.asking!r}, and nothing says that new queries alone are as "
            "good as today's search before every row is new: fill them all, or finish --keep-old"
        ]
    if filled >= whole(enough, usable):
        return []
    return [
        f"new queries alone are below today's search until {enough:.0%} of the rows are filled, by "
        "the plan: fill them, or finish --keep-old"
    ]
