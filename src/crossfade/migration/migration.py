"""`Migration`: an upgrade carried out on a store, step by step, from Python."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from crossfade.backfill.gallery import notes_on
from crossfade.distance import Distance
from crossfade.embedders import (
    BaseEmbedder,
    Embed,
    Embedder,
    EndpointSettings,
    VectorFile,
    open_embedder,
)
from crossfade.engines import Engine
from crossfade.errors import BadInput, CrossfadeError, StoreBusy
from crossfade.journal.columns import columns
from crossfade.journal.journal import Journal, load_journal, need_journal
from crossfade.journal.opening import open_migrating
from crossfade.journal.transitions import Step
from crossfade.migration.backfill import Filled, fill
from crossfade.migration.checks import refuse_duplicates
from crossfade.migration.finish import Confirm
from crossfade.migration.finish import finish as end
from crossfade.migration.forward import Lifted, Progress, Stop, lift_all
from crossfade.migration.live_quality import Queries
from crossfade.migration.preparation import BATCH, Wanted, prepare
from crossfade.migration.proof import keep_proof, unproven
from crossfade.migration.rollback import find_journal, roll_back
from crossfade.migration.start import Outlook, begin, look_ahead
from crossfade.migration.status import Status, read_status
from crossfade.migration.together import fill_together
from crossfade.migration.verify import Verified, verify
from crossfade.migration.workers import (
    alone,
    joinable,
    look_at_workers,
    refuse_workers,
    worker_name,
)
from crossfade.remote import to_path
from crossfade.search.searcher import Searcher
from crossfade.stores import Store
from crossfade.stores.contract import ROWS
from crossfade.upgrade import Upgrade

log = logging.getLogger(__name__)


class Migration:
    """One store, one upgrade. Every step is journaled in the store and can be repeated.

    >>> import lance, numpy as np, pyarrow as pa, tempfile
    >>> from crossfade.files.arrow import to_arrow
    >>> rng = np.random.default_rng(0)
    >>> new = rng.normal(size=(300, 8)).astype("f4") + 1
    >>> old = new[:, :4] + 0.1 * rng.normal(size=(300, 4)).astype("f4")
    >>> upgrade = Upgrade(solver="closed_form").fit(old, new)
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = upgrade.save(folder / "upgrade")
    >>> table = pa.table({"id": range(300), "vector": to_arrow(old)})
    >>> _ = lance.write_dataset(table, folder / "items.lance")
    >>> migration = Migration(folder / "items.lance", folder / "upgrade")
    >>> _ = migration.start(force=True)
    >>> migration.forward().written
    300
    >>> [hit.id for hit in migration.searcher().search(new[7], k=1)]
    [7]
    >>> migration.rollback().stage
    'rolled back'
    """

    def __init__(
        self,
        store: Store | str | Path,
        upgrade: Upgrade | str | Path | None = None,
        *,
        id: str | None = None,
        vector: str | None = None,
        distance: Distance | None = None,
    ) -> None:
        if isinstance(store, (str, Path)):
            store = open_migrating(store, id=id, vector=vector, distance=distance)
        self.store: Store = store
        self._folder = to_path(upgrade) if isinstance(upgrade, (str, Path)) else None
        self._given = upgrade if isinstance(upgrade, Upgrade) else None
        self._upgrade: Upgrade | None = None

    @property
    def journal(self) -> Journal:
        """What the migration has written down, as it is now."""
        return need_journal(self.store)

    @property
    def spent(self) -> float:
        """On embedding so far, by all workers, in the units of the prices that were given."""
        team = look_at_workers(self.store)
        return self.journal.spent if team is None else team.spent

    @property
    def upgrade(self) -> Upgrade:
        """The upgrade, checked against the one the migration was started with."""
        if self._upgrade is None:
            journal = load_journal(self.store)
            if self._given is not None:
                found, name = self._given, "the given upgrade"
            else:
                folder = self._folder
                if folder is None and journal is not None:
                    folder = to_path(journal.upgrade_folder)
                if folder is None:
                    raise BadInput("which upgrade?", where=self.store.name, step="name its folder")
                found, name = Upgrade.load(folder), str(folder)
            over = journal is None or journal.after_step("rollback")
            if journal is not None and not over and journal.upgrade != found.hash_:
                raise BadInput(
                    f"is upgrade {found.hash_[:12]}, and the migration was started with "
                    f"{journal.upgrade[:12]}",
                    where=name,
                    step="restore that one, or roll back and start with this one",
                )
            self._upgrade = found
        return self._upgrade

    def outlook(
        self,
        *,
        source: str | None = None,
        evaluation: Path | None = None,
        plan: Path | None = None,
        force: bool = False,
    ) -> Outlook:
        """What `start` would begin; nothing is written."""
        return look_ahead(
            self.store,
            self._new_upgrade(),
            source=source,
            evaluation=evaluation,
            plan=plan,
            force=force,
        )

    def start(
        self,
        *,
        source: str | None = None,
        evaluation: Path | None = None,
        plan: Path | None = None,
        force: bool = False,
    ) -> Outlook:
        """Check, write the journal, add the columns."""
        folder = self._folder
        if folder is None:
            raise BadInput("an upgrade in memory", step="save it and pass its folder")
        with alone(self.store):
            seen = self.outlook(source=source, evaluation=evaluation, plan=plan, force=force)
            begin(self.store, self._new_upgrade(), folder, seen, source)
        self._log("start", f"{seen.store.rows:,} rows, upgrade {seen.upgrade[:12]}")
        return seen

    def forward(
        self,
        *,
        progress: Progress | None = None,
        stop: Stop = lambda: False,
        size: int = ROWS,
        index: bool = True,
        engine: Engine | None = None,
    ) -> Lifted:
        """F(old) into the shared column of every row that needs it, then its index.

        With an `engine` (`crossfade.engines.open_engine`) its workers do the work.
        """
        with self._holding() as journal:
            journal.require("forward", self.store.name)
            refuse_duplicates(self.store)
            # A kill between the journal and the columns leaves them for now.
            self._columns(journal)
            _, done = lift_all(
                self.store,
                self.upgrade,
                journal,
                progress=progress,
                stop=stop,
                size=size,
                index=index,
                engine=engine,
            )
        self._log(
            "forward",
            f"{done.written:,} rows lifted, {done.looked_at:,} looked at, in {done.seconds:.1f} s"
            + ", stopped" * done.stopped,
        )
        return done

    def backfill(
        self,
        embed: Embedder | Embed | str | Path,
        *,
        plan: str | Path | None = None,
        source: str | None = None,
        share: float | None = None,
        items: int | None = None,
        labels: str | None = None,
        priority: str | None = None,
        batch: int = BATCH,
        processors: float = 1.0,
        known: str | Path | None = None,
        endpoint: EndpointSettings | None = None,
        join: bool = False,
        worker: str | None = None,
        progress: Progress | None = None,
        stop: Stop = lambda: False,
        engine: Engine | None = None,
    ) -> Filled:
        """New vectors, in the plan's order, until the planned share.

        Parameters
        ----------
        embed : where new vectors come from: a function from a list of texts to vectors, what the
            command takes ("module:function", "https://host/v1", a file of ids and vectors), or an
            `Embedder`. `endpoint` says how an address is asked.
        plan : the folder of a plan; later runs go on with it. Without one, `share` is filled at
            random.
        source : the text column, if not named at `start`.
        share, items : how far to fill, and how many rows at most in this run.
        labels, priority : columns, for orders that use them.
        batch, processors : rows at a time, and the share of this machine that reading and writing
            may take, not counting the model.
        known : a file of ids and new vectors that are there already: filled first, at no cost.
        join, worker : whether other processes, here or elsewhere, may fill the same store at the
            same time, where the store can (pgvector, Qdrant); and what this one is called.
        progress, stop : called with rows done and rows in all; asked whether to end.
        engine : has new vectors made by its workers (`crossfade.engines.open_engine`).
        """
        asked = _wanted(plan, source, share, items, labels, priority, batch, processors)
        with (
            nullcontext(open_embedder(embed, endpoint=endpoint))
            if engine is None
            else engine.embedder(embed, endpoint) as embedder,
            nullcontext() if join else self._holding() as journal,
        ):
            if journal is None:
                return self._backfill_together(embedder, asked, known, worker, progress, stop)
            ready = prepare(self.store, self.upgrade, journal, embedder, asked, progress)
            _, done = fill(
                self.store,
                self.upgrade,
                ready,
                embedder,
                asked,
                known=None if known is None else VectorFile(str(known)),
                progress=progress,
                stop=stop,
            )
        self._log(
            "backfill", f"{done.written:,} rows filled in {done.seconds:.1f} s, ended by {done.why}"
        )
        return done

    def _backfill_together(
        self,
        embedder: BaseEmbedder,
        asked: Wanted,
        known: str | Path | None,
        worker: str | None,
        progress: Progress | None,
        stop: Stop,
    ) -> Filled:
        store = joinable(self.store)
        if known is not None:
            raise BadInput(
                "vectors that are known are filled by one process",
                where=store.name,
                step="fill them first: backfill --known FILE --items 1, without --join",
            )
        name = worker_name() if worker is None else worker
        done = fill_together(
            store, self.upgrade, embedder, asked, name, progress=progress, stop=stop
        )
        self._log(
            "backfill",
            f"{done.written:,} rows filled by {name} in {done.seconds:.1f} s, ended by {done.why}",
        )
        return done

    def backfill_outlook(
        self,
        embed: Embedder | Embed | str | Path,
        *,
        plan: str | Path | None = None,
        source: str | None = None,
        share: float | None = None,
        labels: str | None = None,
        priority: str | None = None,
        endpoint: EndpointSettings | None = None,
    ) -> dict[str, Any]:
        """What `backfill` would do; the order is made, nothing is embedded or written."""
        embedder = open_embedder(embed, endpoint=endpoint)
        asked = _wanted(plan, source, share, None, labels, priority, BATCH, 1.0)
        ready = prepare(self.store, self.upgrade, self.journal, embedder, asked)
        task, found = ready.task, self.status()
        goal = task.goal(found.rows)
        return {
            "order": task.order,
            "blend": task.blend,
            "embedder": task.embedder,
            "rows": found.rows,
            "already_filled": found.filled,
            "to_embed": max(0, goal - found.filled),
            "target": task.target,
            "warnings": notes_on(to_path(task.order_file)),
        }

    def backfill_notes(self) -> list[str]:
        """What is worth a note about the order in which rows are filled."""
        task = self.journal.backfill
        return [] if task is None else notes_on(to_path(task.order_file))

    def status(self) -> Status:
        """Counts, rates, predicted quality, and the next command."""
        return read_status(self.store, self.journal)

    def verify(
        self,
        *,
        embed: Embedder | Embed | str | Path | None = None,
        endpoint: EndpointSettings | None = None,
        queries: Queries | None = None,
        progress: Progress | None = None,
    ) -> Verified:
        """Every row looked at, a sample recomputed, queries measured through the store.

        `embed` is what `backfill` takes: with it some rows are embedded again and compared.
        """
        embedder = None if embed is None else open_embedder(embed, endpoint=endpoint)
        journal = self.journal
        journal.require("verify", self.store.name)
        refuse_workers(self.store)
        version = self.store.version()
        found = verify(
            self.store,
            self.upgrade,
            journal,
            embedder=embedder,
            queries=queries,
            progress=progress,
        )
        unkept = None
        try:
            with self._holding() as now:
                if now == journal:
                    keep_proof(self.store, now, version, found)
                else:
                    # What it left is not what was looked at.
                    unkept = "another step ran meanwhile"
        except CrossfadeError as error:
            # The answer is as true as ever; `finish` alone does not hear of it.
            unkept = "another step runs" if isinstance(error, StoreBusy) else str(error)
        failed = [check.name for check in found.checks if check.passed is False]
        self._log("verify", f"failed: {', '.join(failed)}" if failed else "passed")
        return replace(found, unkept=unkept)

    def finish(
        self,
        *,
        force: bool = False,
        keep_old: bool = False,
        confirm: Confirm = lambda problems: None,
        progress: Progress | None = None,
    ) -> Journal:
        """The shared column becomes the only one, which cannot be undone: it wants a `verify` that
        has passed, and the planned share, unless forced. `confirm` is called with what speaks
        against it, and may raise. With `keep_old` both columns stay, to be asked together."""
        with self._holding() as journal:
            done = end(
                self.store,
                self.upgrade,
                journal,
                force=force,
                keep_old=keep_old,
                confirm=confirm,
                progress=progress,
            )
        self._log("finish", f"{done.stage}{', old vectors kept' * done.kept}")
        return done

    def statements(self, step: Step) -> list[str]:
        """What a step says to the store: of SQL the very statements."""
        return self.store.statements(columns(self.journal.shared_dim))[step]

    def unproven(self, *, keep_old: bool = False) -> list[str]:
        """What `finish` would refuse for; nothing is written."""
        return unproven(self.store, self.upgrade, self.journal, keep_old=keep_old)

    def rollback(self, *, force: bool = False) -> Journal | None:
        """Back to the old vectors alone, from any point before `finish` has dropped them.

        With `force` also where the journal is lost, which then there is none of to give, or where
        vectors that the application has written since the switch would be lost.
        """
        with alone(self.store):
            journal = find_journal(self.store, force=force)
            done = roll_back(self.store, journal, force=force)
        self._log("rollback", "rolled back" if done is None else done.stage)
        return done

    def searcher(self, *, refresh: float = 1.0) -> Searcher:
        """Search that fits whatever stage the store is in."""
        return Searcher(self.store, self.upgrade, refresh=refresh)

    def close(self) -> None:
        self.store.close()

    def _log(self, step: Step, text: str) -> None:
        # The name of a store holds no password.
        about = {"store": self.store.name, "step": step}
        log.info("%s: %s: %s", self.store.name, step, text, extra=about)

    def _new_upgrade(self) -> Upgrade:
        if self._folder is None and self._given is None:
            raise BadInput("which upgrade?", where=self.store.name, step="name its folder")
        if self._upgrade is None:
            given = self._given
            self._upgrade = Upgrade.load(str(self._folder)) if given is None else given
        return self._upgrade

    def _columns(self, journal: Journal) -> None:
        if journal.lifting:
            self.store.add_columns(columns(journal.shared_dim))

    @contextmanager
    def _holding(self) -> Iterator[Journal]:
        with alone(self.store):
            yield self.journal


def _wanted(plan: str | Path | None, *rest: Any) -> Wanted:
    return Wanted(None if plan is None else to_path(plan), *rest)
