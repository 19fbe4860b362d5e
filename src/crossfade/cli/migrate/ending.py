"""What `finish` and `rollback` show: the statements they would run, and where all ended."""

from __future__ import annotations

from crossfade.cli.migrate.options import show_statements
from crossfade.cli.output import PlainConsole, note, write_json
from crossfade.journal.journal import Journal
from crossfade.journal.transitions import Step
from crossfade.migration import Migration


def show_statements_of(
    migration: Migration, step: Step, json_file: str | None, more: dict[str, list[str]]
) -> None:
    """What the step would say to the store, and what speaks against it."""
    statements = migration.statements(step)
    record = {"dry_run": True, "statements": statements} | more
    if not write_json(record, json_file):
        for problem in more.get("unproven", []):
            note(f"would be refused: {problem}")
        show_statements({step: statements})


def show_end(done: Journal | None, json_file: str | None) -> None:
    """A rollback by force may have no journal to speak of."""
    stage = "rolled back" if done is None else done.stage
    vector = None if done is None else done.vector
    space = done.space if done is not None and stage == "finished" else None
    kept = done is not None and done.kept and stage != "finished"
    record = {"dry_run": False, "stage": stage, "vector": vector, "space": space, "kept": kept}
    if not write_json(record, json_file):
        where = "" if vector is None else f": vectors are in {vector!r}"
        if kept:
            where = ": old and new vectors are kept; ask both with `Searcher`, and lift what comes"
        PlainConsole().print(f"{stage}{where}")
        if space == "new":
            note("they are in the new model's own space: insert and ask plain new vectors")
        elif space == "shared" and done is not None:
            note(
                "they are in the shared space, for B does more than turn the new model's: put new "
                f"vectors through B before you insert or ask them (Upgrade.backward, or `crossfade "
                f"export --onnx`; the upgrade is in {done.upgrade_folder})"
            )
