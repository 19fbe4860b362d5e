"""Pairs and lookups from a live store: its rows, their old vectors, and what both models say.

Nothing is written to the store, and the file is there in whole at the end or not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from crossfade.embedders import open_embedder
from crossfade.errors import BadInput, BudgetSpent
from crossfade.files import refuse_existing
from crossfade.files.atomic import check_parent
from crossfade.lookups.covering import covering_ids, pool_size
from crossfade.lookups.file import HELD, ITEMS, LOOKUP_NEW, LOOKUP_OLD, check_kind, write_parts
from crossfade.lookups.log import SIDES, Log, LogFile
from crossfade.lookups.models import AskedModel, Model
from crossfade.lookups.rows import Columns, Part, RowReader
from crossfade.lookups.spool import Spool
from crossfade.lookups.text import lookup_of
from crossfade.pairs.files import LOG
from crossfade.pairs.matching import match, stretches
from crossfade.retrieval.ranking import unit_rows
from crossfade.solvers.doubts import FEWEST
from crossfade.stores import Description, Id, Store, open_store
from crossfade.stores.sampling import draw_ids

ROWS, HELD_ROWS, LOOKUPS = 5000, 2000, 500
Progress = Callable[[str, int, int], None]
Sampling = Literal["random", "covering"]
SAMPLING: tuple[Sampling, ...] = get_args(Sampling)
# Rows drawn beyond those wanted, for some have no text or no vector.
_SPARE = 10, 100
# Texts that tell whether the old model is the one that made the stored vectors.
_KNOWN = 32
_SAME = 1e-4


@dataclass(frozen=True)
class Sampled:
    """What was written; `left_out` counts rows that were drawn in vain, and those of which no
    lookup was made, by the reason."""

    path: str
    store: str
    rows: int
    held: int
    lookups: int
    logged_queries: int
    old_dim: int
    new_dim: int
    left_out: dict[str, int] = field(default_factory=dict)
    spent: float = 0.0
    warnings: list[str] = field(default_factory=list)


def sample_pairs(
    store: str | Path | Store,
    output: str | Path,
    *,
    embed: Model,
    embed_old: Model | None = None,
    source: str | None = None,
    title: str | None = None,
    labels: str | None = None,
    queries: str | Path | None = None,
    rows: int = ROWS,
    held: int = HELD_ROWS,
    lookups: int = LOOKUPS,
    sampling: Sampling = "random",
    id: str | None = None,
    vector: str | None = None,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Sampled:
    """Write `output` (.npz or .safetensors), which `fit`, `evaluate` and `plan` take as it is.

    Of the store `rows` random rows become pairs, and `held` further ones a gallery that the fit
    never sees, with `lookups` that want one of them back. A lookup is the row's `title`, or the
    first sentence of its `source`. `embed_old` makes the old vectors of lookups; without it today's
    search cannot be compared with. `queries` is a log, learned from like the rows: texts, which
    both models embed, or a file with the vectors of one or both that were stored while there were
    two (`crossfade.lookups.log`). In a store with fewer rows all are taken, in the same proportion.

    With `sampling="covering"` the pairs are chosen to cover the store: of ten times as many random
    rows each is the one farthest from all before it (`crossfade.lookups.covering`). What is held
    stays a random sample: intervals are true of nothing else.

    >>> import lance, pyarrow as pa, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> texts = [f"item {n} is one of {n % 7} and {n % 11}. It has more." for n in range(100)]
    >>> def model(texts):
    ...     return np.array([[len(t), *np.bincount(list(t.encode()), minlength=59)[48:58]]
    ...                      for t in texts], np.float32)
    >>> vectors = pa.array(model(texts)[:, :9].tolist(), pa.list_(pa.float32(), 9))
    >>> table = pa.table({"id": range(100), "body": texts, "vector": vectors})
    >>> _ = lance.write_dataset(table, folder / "items.lance")
    >>> made = sample_pairs(folder / "items.lance", folder / "pairs.npz", embed=model,
    ...                     source="body", rows=60, held=40, lookups=20)
    >>> made.rows, made.held, made.lookups
    (60, 40, 20)
    """
    path = Path(output)
    refuse_existing(path, overwrite=overwrite)
    check_parent(path)
    for name, value, least in (("rows", rows, 1), ("held", held, 1), ("lookups", lookups, 0)):
        if value < least:
            raise BadInput(f"{name} is {value}", step=f"give {least} or more")
    if sampling not in SAMPLING:
        raise BadInput(f"there is no sampling {sampling!r}", step=f"use {' or '.join(SAMPLING)}")
    if queries is not None and labels is not None:
        raise BadInput("queries of a log have no labels", step="leave --labels out, or --queries")
    with ExitStack() as stack:
        if isinstance(store, str | Path):
            store = open_store(store, id=id, vector=vector)
            stack.callback(store.close)
        found = store.describe()
        new = AskedModel(open_embedder(embed))
        old = None if embed_old is None else AskedModel(open_embedder(embed_old), found.dim)
        _check(store, found, path, new, old, (source, title, labels), lookups)
        file = None if queries is None else LogFile(queries)
        if file is not None:
            _check_log(file, store, found, new, old)
        log = None if file is None else file.sample(rows, seed)
        run = _Run(store, path, new, old, Columns(source, title, labels), lookups, stack)
        try:
            drawn = _with_spare(rows + held)
            if sampling == "covering":
                drawn = _with_spare(held) + pool_size(_with_spare(rows), found.dim)
            ids = _drawn(store, found, new, drawn, seed, progress)
            usable = min(rows + held, len(ids))
            # A store with fewer rows is divided in the same proportion.
            to_hold = max(1, round(usable * held / (rows + held)))
            run.check_old_model(ids)
            run.expect(usable + (0 if log is None else len(log)), progress)
            if log is not None:
                run.take_log(log)
            rest = run.take(ids, to_hold, held=True)
            if sampling == "covering":
                rest = covering_ids(
                    store,
                    rest,
                    _with_spare(rows),
                    progress=None
                    if progress is None
                    else lambda n, of: progress("covering", n, of),
                )
            run.take(rest, usable - len(run.held_ids), held=False)
            run.check_enough()
            run.embed_lookups()
        except BudgetSpent as spent:
            raise BadInput(
                f"{spent.cause}; nothing is written",
                where=spent.where,
                step="raise --max-spend, or sample fewer: --rows, --held",
            ) from spent
        notes = run.notes(rows + held, log)
        values = {"ids": np.asarray(run.ids), "held_ids": np.asarray(run.held_ids)}
        if labels is not None:
            values |= {"labels": np.asarray(run.labels), "held_labels": np.asarray(run.held_labels)}
        if run.lookups:
            values[ITEMS] = np.asarray([item for _, item in run.lookups], np.int64)
        vectors = {name: spool for name, spool in run.spools.items() if spool.rows}
        write_parts(path, vectors, values, overwrite=overwrite)
        return Sampled(
            path=str(path),
            store=store.name,
            rows=len(run.ids),
            held=len(run.held_ids),
            lookups=len(run.lookups),
            logged_queries=0 if log is None else len(log),
            old_dim=found.dim,
            new_dim=run.spools["new"].dim,
            left_out={why: count for why, count in run.left_out.items() if count},
            spent=sum(m.spent for m in (new, old) if m is not None),
            warnings=notes,
        )


def _check(
    store: Store,
    found: Description,
    path: Path,
    new: AskedModel,
    old: AskedModel | None,
    columns: tuple[str | None, ...],
    lookups: int,
) -> None:
    """Everything that can be known to be wrong before rows are read and models are paid."""
    source, title, _ = columns
    check_kind(path, text=found.id_type == "text")
    for name in columns:
        if name is not None and name not in found.columns:
            raise BadInput(
                f"has no column {name!r}",
                where=store.name,
                step=f"name one of {', '.join(found.columns)}",
            )
    if found.rows == 0:
        raise BadInput("is empty", where=store.name, step="there is nothing to sample")
    if new.needs_source and source is None:
        raise BadInput(
            f"{new.name} needs the items' text", where=store.name, step="name it with --source"
        )
    if old is not None and not old.needs_source:
        raise BadInput(
            "a file of vectors cannot embed queries",
            where=old.name,
            step="give a function or an endpoint as --embed-old",
        )
    if lookups and not new.needs_source:
        raise BadInput(
            "a file of vectors cannot embed lookups, which are new texts",
            where=new.name,
            step="give a function or an endpoint, or --lookups 0",
        )
    if lookups and source is None and title is None:
        raise BadInput("lookups are made of text", step="name it with --source, or --lookups 0")


def _check_log(
    log: LogFile, store: Store, found: Description, new: AskedModel, old: AskedModel | None
) -> None:
    """Whether what the log lacks can be made, and what it has is of these models."""
    for side, model in zip(SIDES, (old, new), strict=True):
        if side in log.vectors:
            continue
        if model is None:
            raise BadInput(
                "queries of a log are embedded by both models, or their vectors are stored",
                where=log.name,
                step="add --embed-old, or give a .parquet or .npz file with their 'old' vectors",
            )
        if not model.needs_source:
            raise BadInput(
                "a file of vectors cannot embed logged queries",
                where=model.name,
                step=f"give a function or an endpoint, or their {side!r} vectors in {log.path}",
            )
    stored = log.vectors.get("old")
    if stored is not None and stored.dim != found.dim:
        raise BadInput(
            f"'old' has {stored.dim} dimensions where the store's vectors have {found.dim}",
            where=log.path,
            step=f"give the queries' vectors of the model that filled {store.name}",
        )


def _drawn(
    store: Store,
    found: Description,
    new: AskedModel,
    wanted: int,
    seed: int,
    progress: Progress | None,
) -> list[Id]:
    file = new.embedder if new.embedder.prepared else None
    ids = draw_ids(
        store,
        wanted,
        seed,
        among=None if file is None else file.has,
        progress=None if progress is None else lambda n: progress("drawing", n, found.rows),
    )
    if file is not None and not ids:
        raise BadInput(f"has no vector of any row of {store.name}", where=file.name)
    return ids


def _with_spare(wanted: int) -> int:
    share, more = _SPARE
    return wanted + wanted // share + more


class _Run:
    """Rows go in, arrays come out."""

    def __init__(
        self,
        store: Store,
        path: Path,
        new: AskedModel,
        old: AskedModel | None,
        columns: Columns,
        lookups: int,
        stack: ExitStack,
    ) -> None:
        self.store, self.new, self.old = store, new, old
        self.reader, self.wanted_lookups = RowReader(store, columns), lookups
        self.spools = {}
        for name in ("old", "new", *HELD, LOOKUP_OLD, LOOKUP_NEW, *LOG):
            self.spools[name] = Spool(path.resolve().parent)
            stack.callback(self.spools[name].close)
        self.ids: list[Id] = []
        self.held_ids: list[Id] = []
        self.labels: list[Any] = []
        self.held_labels: list[Any] = []
        self.lookups: list[tuple[str, int]] = []
        """Each lookup's text, and the number of the held row that it wants."""
        self._in_vain = dict.fromkeys(
            ("without a title", "too short for a lookup", "with the same lookup as another"), 0
        )
        self._asked: set[str] = set()
        self._done = self._total = 0
        self._progress: Progress | None = None

    @property
    def left_out(self) -> dict[str, int]:
        return self.reader.left_out | self._in_vain

    def expect(self, rows: int, progress: Progress | None) -> None:
        """How many rows and logged queries will be taken, and who is told."""
        self._total, self._progress = rows + self.wanted_lookups, progress

    def take_log(self, log: Log) -> None:
        """Before the rows: a log that cannot be used should not cost more than itself."""
        for side, model, name in zip(SIDES, (self.old, self.new), LOG, strict=True):
            if side in log.vectors:
                for block in log.blocks(side):
                    self.spools[name].add(block)
            elif model is not None:
                self._embed(log.texts, model, name)
        if "new" in log.vectors:
            self._tell(len(log))
        self._check_matching(log)

    def take(self, ids: list[Id], wanted: int, *, held: bool) -> list[Id]:
        """Read, check and embed so many rows, from the first; gives the ids that are left."""
        into, at = self.held_ids if held else self.ids, 0
        while len(into) < wanted and at < len(ids):
            # Never more than are wanted: what is left is for others to choose from.
            step = min(self.new.size, wanted - len(into))
            part = self.reader.read(ids[at : at + step])
            at += step
            self._add(part, held=held)
            self._tell(len(part.ids))
        return ids[at:]

    def embed_lookups(self) -> None:
        """What the held rows are looked up by."""
        self._total -= self.wanted_lookups - len(self.lookups)
        texts = [text for text, _ in self.lookups]
        for model, name in ((self.old, LOOKUP_OLD), (self.new, LOOKUP_NEW)):
            if model is not None:
                self._embed(texts, model, name)

    def _embed(self, texts: list[str], model: AskedModel, name: str) -> None:
        for first in range(0, len(texts), model.size):
            asked = texts[first : first + model.size]
            self.spools[name].add(model(asked, asked))
            self._tell(len(asked) if model is self.new else 0)

    def _check_matching(self, log: Log) -> None:
        """Raise unless both sides are of the same queries, where there are enough to tell."""
        if len(log) < FEWEST or not log.vectors:
            return
        looked_at = stretches(len(log))
        rows = np.concatenate([np.arange(part.start, part.stop) for part in looked_at])
        old, new = (self.spools[name].rows_at(rows) for name in LOG)
        seen = match(old, new, looked_at)
        if seen.belongs is False:
            raise BadInput(
                f"row i of 'old' does not belong to row i of 'new' ({seen.how})",
                where=log.name,
                step="give the same queries in the same order, of the models of this upgrade",
            )

    def notes(self, wanted: int, log: Log | None) -> list[str]:
        """What was asked for and is not there."""
        out = []
        usable = len(self.ids) + len(self.held_ids)
        if usable < wanted:
            out.append(f"only {usable:,} rows of {wanted:,} could be sampled")
        if len(self.lookups) < self.wanted_lookups:
            out.append(f"only {len(self.lookups):,} lookups of {self.wanted_lookups:,}")
        if self.lookups and self.old is None:
            out.append(
                "without --embed-old nothing can be compared with today's search: evaluate judges "
                "nothing and plan asks `new` alone, unless told today's level with --today"
            )
        if log is not None and log.distinct > len(log):
            out.append(f"of {log.distinct:,} distinct queries of the log {len(log):,} by chance")
        return out

    def _add(self, part: Part, *, held: bool) -> None:
        if not part.ids:
            return
        new = self.new(part.ids, part.texts)
        logged = self.spools[LOG[1]]
        if logged.rows and logged.dim != new.shape[1]:
            raise BadInput(
                f"{self.new.name} answers with vectors of {new.shape[1]} dimensions, and 'new' of "
                f"the logged queries has {logged.dim}",
                where=self.store.name,
                step="give the queries' vectors of the model that is --embed",
            )
        if new.shape == part.old.shape and np.abs(unit_rows(new) - unit_rows(part.old)).max() < (
            _SAME
        ):
            raise BadInput(
                f"{self.new.name} gives the vectors that are stored already",
                where=self.store.name,
                step="give the new model as --embed",
            )
        names = HELD if held else ("old", "new")
        self.spools[names[0]].add(part.old)
        self.spools[names[1]].add(new)
        if held:
            for at, (text, title) in enumerate(zip(part.texts, part.titles, strict=True)):
                self._make_lookup(text, title, len(self.held_ids) + at)
        (self.held_ids if held else self.ids).extend(part.ids)
        (self.held_labels if held else self.labels).extend(part.labels)

    def _make_lookup(self, text: str, title: Any, item: int) -> None:
        if len(self.lookups) >= self.wanted_lookups:
            return
        if self.reader.columns.title is not None:
            query, lacking = title.strip() if isinstance(title, str) else "", "without a title"
        else:
            query, lacking = lookup_of(text) or "", "too short for a lookup"
        if not query:
            self._in_vain[lacking] += 1
        elif query in self._asked:
            # It cannot mean both.
            self._in_vain["with the same lookup as another"] += 1
        else:
            self._asked.add(query)
            self.lookups.append((query, item))

    def check_old_model(self, ids: list[Id]) -> None:
        """Raise unless the old model finds its own rows: else old/old would be no baseline."""
        if self.old is None or self.reader.columns.source is None:
            return
        keys, old, texts = self.reader.known(ids[: min(_KNOWN, self.old.size)])
        if len(keys) < 2:
            return
        scores = unit_rows(self.old(keys, texts)) @ unit_rows(old).T
        right = int((np.diag(scores) >= scores.max(axis=1) - _SAME).sum())
        if 2 * right < len(keys):
            raise BadInput(
                f"of {len(keys)} texts {right} are nearest to their own stored vector: this is "
                "not the model that filled the store, or not its text",
                where=self.old.name,
                step="give that model as --embed-old, or leave it out",
            )

    def check_enough(self) -> None:
        said = ", ".join(f"{count:,} {why}" for why, count in self.left_out.items() if count)
        if len(self.ids) < FEWEST:
            raise BadInput(
                f"only {len(self.ids)} pairs could be made beside {len(self.held_ids)} held rows"
                + (f" (left out: {said})" if said else ""),
                where=self.store.name,
                step=f"a fit wants {FEWEST}: name another --source, or fewer --held rows",
            )
        if self.wanted_lookups and not self.lookups:
            raise BadInput(
                f"no lookup could be made (left out: {said})",
                where=self.store.name,
                step="name a column of titles with --title, or --lookups 0",
            )

    def _tell(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress("embedding", self._done, self._total)
