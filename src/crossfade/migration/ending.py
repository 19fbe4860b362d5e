"""How a migration ends: `finish` keeps the shared vectors alone, `rollback` the old ones."""

from __future__ import annotations

from crossfade.errors import BadInput
from crossfade.migration.columns import KNOWN, STATE, VECTOR, columns
from crossfade.migration.journal import Journal, save_journal
from crossfade.stores import Store


def finish(store: Store, journal: Journal) -> Journal:
    """Make the shared column the only one. Cannot be undone; killed, it can be run again."""
    if journal.stage == "finished":
        return journal
    if journal.stage not in ("forward", "backfilling", "finishing"):
        raise BadInput(
            f"cannot be finished from the stage {journal.stage!r}",
            where=store.name,
            step="run: crossfade migrate forward",
        )
    if journal.stage != "finishing":
        late = store.tally(STATE).get(None, 0) - journal.unusable
        if late > 0:
            raise BadInput(
                f"{late:,} rows have no shared vector yet",
                where=store.name,
                step="run: crossfade migrate forward",
            )
        journal = save_journal(store, journal.after("finish begun", stage="finishing"))
    name = store.promote(VECTOR, KNOWN)
    done = journal.after("finished: the old vectors are gone", stage="finished", vector=name)
    return save_journal(store, done)


def rollback(store: Store, journal: Journal) -> Journal:
    """Drop everything the migration added; the old vectors were never touched."""
    if journal.stage == "rolled back":
        return journal
    if journal.stage in ("finishing", "finished"):
        raise BadInput(
            "the old vectors are gone or going: finish cannot be rolled back",
            where=store.name,
            step="run: crossfade migrate finish"
            if journal.stage == "finishing"
            else "restore a backup, or migrate back with an upgrade in the other direction",
        )
    journal = save_journal(store, journal.after("rollback begun", stage="rolling back"))
    store.drop_columns([c.name for c in columns(journal.shared_dim)])
    done = journal.after("rolled back: the old vectors alone", stage="rolled back", cursor=None)
    return save_journal(store, done)
