"""`Migration`: an upgrade carried out on a store, step by step, from Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from crossfade.backfill.gallery import notes_on
from crossfade.embedders import Embed, Embedder, EndpointSettings, VectorFile, open_embedder
from crossfade.errors import BadInput, CrossfadeError, StoreBusy
from crossfade.journal.journal import Journal, load_journal, need_journal
from crossfade.journal.opening import open_migrating
from crossfade.migration import ending
from crossfade.migration.backfill import Filled, fill
from crossfade.migration.checks import refuse_duplicates
from crossfade.migration.forward import Lifted, Progress, Stop, lift_all
from crossfade.migration.preparing import BATCH, Wanted, prepare
from crossfade.migration.proof import keep_proof, unproven
from crossfade.migration.start import Outlook, begin, outlook
from crossfade.migration.status import Status, status
from crossfade.migration.through import Queries
from crossfade.migration.verify import Verified, verify
from crossfade.search.searcher import Searcher
from crossfade.stores import Metric, Store
from crossfade.stores.contract import ROWS
from crossfade.upgrade import Upgrade


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
        metric: Metric | None = None,
    ) -> None:
        if isinstance(store, (str, Path)):
            store = open_migrating(store, id=id, vector=vector, metric=metric)
        self.store: Store = store
        self._folder = Path(upgrade) if isinstance(upgrade, (str, Path)) else None
        self._given = upgrade if isinstance(upgrade, Upgrade) else None
        self._upgrade: Upgrade | None = None

    @property
    def journal(self) -> Journal:
        """What the migration has written down, as it is now."""
        return need_journal(self.store)

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
                    folder = Path(journal.upgrade_folder)
                if folder is None:
                    raise BadInput("which upgrade?", where=self.store.name, step="name its folder")
                found, name = Upgrade.load(folder), str(folder)
            over = journal is None or journal.stage == "rolled back"
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
        return outlook(
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
        with self.store.lock():
            seen = self.outlook(source=source, evaluation=evaluation, plan=plan, force=force)
            begin(self.store, self._new_upgrade(), folder, seen, source)
        return seen

    def forward(
        self,
        *,
        progress: Progress | None = None,
        stop: Stop = lambda: False,
        size: int = ROWS,
        index: bool = True,
    ) -> Lifted:
        """F(old) into the shared column of every row that needs it, then its index."""
        with self._holding() as journal:
            journal.require("forward", self.store.name)
            refuse_duplicates(self.store)
            # A kill between the journal and the columns leaves them for now.
            self._columns(journal)
            return lift_all(
                self.store,
                self.upgrade,
                journal,
                progress=progress,
                stop=stop,
                size=size,
                index=index,
            )[1]

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
        progress: Progress | None = None,
        stop: Stop = lambda: False,
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
        progress, stop : called with rows done and rows in all; asked whether to end.
        """
        embedder = open_embedder(embed, endpoint=endpoint)
        asked = _wanted(plan, source, share, items, labels, priority, batch, processors)
        with self._holding() as journal:
            ready = prepare(self.store, self.upgrade, journal, embedder, asked, progress)
            return fill(
                self.store,
                self.upgrade,
                ready,
                embedder,
                asked,
                known=None if known is None else VectorFile(str(known)),
                progress=progress,
                stop=stop,
            )[1]

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
        task, found = ready.backfill, self.status()
        if task is None:
            raise BadInput("nothing is prepared", where=self.store.name)
        goal = task.goal(found.rows)
        return {
            "order": task.order,
            "blend": task.blend,
            "embedder": task.embedder,
            "rows": found.rows,
            "already_filled": found.filled,
            "to_embed": max(0, goal - found.filled),
            "target": task.target,
            "warnings": notes_on(Path(task.order_file)),
        }

    def backfill_notes(self) -> list[str]:
        """What is worth a note about the order in which rows are filled."""
        task = self.journal.backfill
        return [] if task is None else notes_on(Path(task.order_file))

    def status(self) -> Status:
        """Counts, rates, predicted quality, and the next command."""
        return status(self.store, self.journal)

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
                    keep_proof(self.store, now, version, passed=found.passed)
                else:
                    # What it left is not what was looked at.
                    unkept = "another step ran meanwhile"
        except CrossfadeError as error:
            # The answer is as true as ever; `finish` alone does not hear of it.
            unkept = "another step runs" if isinstance(error, StoreBusy) else str(error)
        return replace(found, unkept=unkept)

    def finish(
        self,
        *,
        force: bool = False,
        keep_old: bool = False,
        confirm: ending.Confirm = lambda problems: None,
        progress: Progress | None = None,
    ) -> Journal:
        """The shared column becomes the only one, which cannot be undone: it wants a `verify` that
        has passed, and the planned share, unless forced. `confirm` is called with what speaks
        against it, and may raise. With `keep_old` both columns stay, to be asked together."""
        with self._holding() as journal:
            return ending.finish(
                self.store,
                self.upgrade,
                journal,
                force=force,
                keep_old=keep_old,
                confirm=confirm,
                progress=progress,
            )

    def unproven(self, *, keep_old: bool = False) -> list[str]:
        """What `finish` would refuse for; nothing is written."""
        return unproven(self.store, self.upgrade, self.journal, keep_old=keep_old)

    def rollback(self, *, force: bool = False) -> Journal | None:
        """Back to the old vectors alone, from any point before `finish` has dropped them.

        With `force` also where the journal is lost, which then there is none of to give, or where
        vectors that the application has written since the switch would be lost.
        """
        with self.store.lock():
            journal = ending.journal_to_roll_back(self.store, force=force)
            return ending.rollback(self.store, journal, force=force)

    def searcher(self, *, refresh: float = 1.0) -> Searcher:
        """Search that fits whatever stage the store is in."""
        return Searcher(self.store, self.upgrade, refresh=refresh)

    def close(self) -> None:
        self.store.close()

    def _new_upgrade(self) -> Upgrade:
        if self._folder is None and self._given is None:
            raise BadInput("which upgrade?", where=self.store.name, step="name its folder")
        if self._upgrade is None:
            given = self._given
            self._upgrade = Upgrade.load(str(self._folder)) if given is None else given
        return self._upgrade

    def _columns(self, journal: Journal) -> None:
        from crossfade.journal.columns import columns

        if journal.lifting:
            self.store.add_columns(columns(journal.shared_dim))

    @contextmanager
    def _holding(self) -> Iterator[Journal]:
        with self.store.lock():
            yield self.journal


def _wanted(plan: str | Path | None, *rest: Any) -> Wanted:
    return Wanted(None if plan is None else Path(plan), *rest)
