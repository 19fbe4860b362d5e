"""Pairs and lookups from a live store: its rows, their old vectors, and what both models say.

Nothing is written to the store, and the file is there in whole at the end or not at all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.embedders import (
    CallableEmbedder,
    Embedder,
    Endpoint,
    VectorFile,
    embed_checked,
    open_embedder,
)
from crossfade.errors import BadInput, BudgetSpent, EmbedderError
from crossfade.files import refuse_existing
from crossfade.files.atomic import check_parent
from crossfade.lookups.file import HELD, ITEMS, LOOKUP_NEW, LOOKUP_OLD, check_kind, write_parts
from crossfade.lookups.log import read_log
from crossfade.lookups.spool import Spool
from crossfade.lookups.text import lookup_of
from crossfade.pairs.files import LOG
from crossfade.retrieval.ranking import unit_rows
from crossfade.solvers.doubts import FEWEST
from crossfade.stores import Description, Id, Store, open_store
from crossfade.stores.rows import id_list, matrix, unusable
from crossfade.stores.sampling import draw_ids

ROWS, HELD_ROWS, LOOKUPS = 5000, 2000, 500
Float = NDArray[np.float32]
Progress = Callable[[str, int, int], None]
Model = str | Embedder | Callable[[list[str]], Any]
"""What `open_embedder` takes, an open embedder, or a function of a list of texts."""
# A model is asked for so many items at a time: its memory may be small.
_ASKED = 256
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
    search cannot be compared with. `queries` is a log, embedded by both models and learned from
    like the rows. In a store with fewer rows all are taken, in the same proportion.

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
    if queries is not None and labels is not None:
        raise BadInput("queries of a log have no labels", step="leave --labels out, or --queries")
    if queries is not None and embed_old is None:
        raise BadInput("queries of a log are embedded by both models", step="add --embed-old")
    with ExitStack() as stack:
        if isinstance(store, str | Path):
            store = open_store(store, id=id, vector=vector)
            stack.callback(store.close)
        found = store.describe()
        new = _Asked(_embedder(embed, "new"))
        old = None if embed_old is None else _Asked(_embedder(embed_old, "old"), found.dim)
        _check(store, found, path, new, old, (source, title, labels), lookups)
        log, distinct = ([], 0) if queries is None else read_log(queries, rows, seed)
        run = _Run(store, path, new, old, _Columns(source, title, labels), lookups, stack)
        try:
            run.rows(_drawn(store, found, new, rows + held, seed, progress), rows, held, progress)
            run.queries(log, progress)
        except BudgetSpent as spent:
            raise BadInput(
                f"{spent.cause}; nothing is written",
                where=spent.where,
                step="raise --max-spend, or sample fewer: --rows, --held",
            ) from spent
        notes = run.notes(rows + held, distinct)
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
            logged_queries=len(log),
            old_dim=found.dim,
            new_dim=run.spools["new"].dim,
            left_out={why: count for why, count in run.left_out.items() if count},
            spent=sum(m.spent for m in (new, old) if m is not None),
            warnings=notes,
        )


def _embedder(given: Model, side: str) -> Embedder:
    if isinstance(given, str):
        return open_embedder(given)
    if not hasattr(given, "embed") and callable(given):
        return CallableEmbedder(given, getattr(given, "__name__", f"the {side} model"))
    made: Any = given
    return made  # type: ignore[no-any-return]


def _check(
    store: Store,
    found: Description,
    path: Path,
    new: _Asked,
    old: _Asked | None,
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


def _drawn(
    store: Store,
    found: Description,
    new: _Asked,
    wanted: int,
    seed: int,
    progress: Progress | None,
) -> list[Id]:
    share, more = _SPARE
    file = new.embedder if isinstance(new.embedder, VectorFile) else None
    ids = draw_ids(
        store,
        wanted + wanted // share + more,
        seed,
        among=None if file is None else file.has,
        progress=None if progress is None else lambda n: progress("drawing", n, found.rows),
    )
    if file is not None and not ids:
        raise BadInput(f"has no vector of any row of {store.name}", where=file.name)
    return ids


class _Asked:
    """An embedder, asked for a bounded number of texts at a time, whose dimension stays one."""

    def __init__(self, embedder: Embedder, dim: int | None = None) -> None:
        self.embedder, self.name = embedder, embedder.name
        self.needs_source = embedder.needs_source
        self._dim, self._stored = dim, dim is not None
        self.size = _ASKED
        if isinstance(embedder, Endpoint):
            # One request at a time.
            self.size = embedder.settings.batch_size

    @property
    def spent(self) -> float:
        return self.embedder.spend.spent if isinstance(self.embedder, Endpoint) else 0.0

    def __call__(self, ids: Sequence[Id], texts: Sequence[str]) -> Float:
        found = embed_checked(self.embedder, ids, texts if self.needs_source else None, None)
        if self._dim is None:
            self._dim = found.shape[1]
        if len(ids) and found.shape[1] != self._dim:
            whose = "the store's vectors have" if self._stored else "those before it have"
            raise EmbedderError(
                f"answers with vectors of {found.shape[1]} dimensions where {whose} {self._dim}",
                where=self.name,
                step="make sure that it is the model that filled the store"
                if self._stored
                else "make sure that it is one model",
            )
        return found


@dataclass(frozen=True)
class _Columns:
    source: str | None
    title: str | None
    labels: str | None

    def read(self, store: Store) -> list[str]:
        named = (store.vector, self.source, self.title, self.labels)
        return list(dict.fromkeys(name for name in named if name is not None))


@dataclass(frozen=True, eq=False)
class _Part:
    """Rows that can be used, as they were read."""

    ids: list[Id]
    old: Float
    texts: list[str]
    titles: list[Any]
    labels: list[Any]

    def cut(self, rows: slice) -> _Part:
        return _Part(
            self.ids[rows], self.old[rows], self.texts[rows], self.titles[rows], self.labels[rows]
        )


class _Run:
    """Rows go in, arrays come out."""

    def __init__(
        self,
        store: Store,
        path: Path,
        new: _Asked,
        old: _Asked | None,
        columns: _Columns,
        lookups: int,
        stack: ExitStack,
    ) -> None:
        self.store, self.new, self.old = store, new, old
        self.columns, self.wanted_lookups = columns, lookups
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
        self.left_out = dict.fromkeys(
            (
                "gone since they were drawn",
                "without a usable vector",
                "without text",
                "without a label",
                "with the same text as another",
                "too short for a lookup",
                "with the same lookup as another",
            ),
            0,
        )
        self._texts: set[bytes] = set()
        self._asked: set[str] = set()
        self._done = self._total = 0

    def rows(self, ids: list[Id], rows: int, held: int, progress: Progress | None) -> None:
        """Read, check and embed: what is held first, then the pairs."""
        usable = min(rows + held, len(ids))
        # A store with fewer rows is divided in the same proportion.
        held = max(1, round(usable * held / (rows + held)))
        self._total = usable + self.wanted_lookups
        for first in range(0, len(ids), self.new.size):
            part = self._read(ids[first : first + self.new.size])
            part = part.cut(slice(0, usable - len(self.held_ids) - len(self.ids)))
            if self.old is not None and not self.held_ids and self.columns.source is not None:
                self._check_old_model(part)
            to_hold = held - len(self.held_ids)
            self._add(part.cut(slice(0, to_hold)), held=True)
            self._add(part.cut(slice(to_hold, None)), held=False)
            self._tell(progress, len(part.ids))
            if len(self.held_ids) + len(self.ids) == usable:
                break
        self._check_enough()

    def queries(self, log: list[str], progress: Progress | None) -> None:
        """Embed the lookups, and what was logged."""
        self._total += len(log) - (self.wanted_lookups - len(self.lookups))
        texts = [text for text, _ in self.lookups]
        for names, some in (((LOOKUP_OLD, LOOKUP_NEW), texts), (LOG, log)):
            for model, name in ((self.old, names[0]), (self.new, names[1])):
                if model is None:
                    continue
                for first in range(0, len(some), model.size):
                    asked = some[first : first + model.size]
                    self.spools[name].add(model(asked, asked))
                    self._tell(progress, len(asked) if model is self.new else 0)

    def notes(self, wanted: int, distinct: int) -> list[str]:
        """What was asked for and is not there."""
        out = []
        usable = len(self.ids) + len(self.held_ids)
        if usable < wanted:
            out.append(f"only {usable:,} rows of {wanted:,} could be sampled")
        if len(self.lookups) < self.wanted_lookups:
            out.append(f"only {len(self.lookups):,} lookups of {self.wanted_lookups:,}")
        if self.lookups and self.old is None:
            out.append(
                "without --embed-old nothing can be compared with today's search: evaluate will "
                "judge nothing, and plan wants old queries"
            )
        logged = self.spools[LOG[1]].rows
        if distinct > logged:
            out.append(f"of {distinct:,} distinct queries of the log {logged:,} by chance")
        return out

    def _read(self, ids: list[Id]) -> _Part:
        """The rows that can be used of these; the others are counted."""
        read = self.store.read(ids, self.columns.read(self.store))
        old = matrix(read[self.store.vector])
        count = len(read)
        texts, titles, labels = (
            self._values(read, name)
            for name in (self.columns.source, self.columns.title, self.columns.labels)
        )
        self.left_out["gone since they were drawn"] += len(ids) - count
        good = []
        for row, bad in enumerate(unusable(read[self.store.vector], old).tolist()):
            why = "without a usable vector" if bad else self._why_not(texts[row], labels[row])
            if why is None:
                good.append(row)
            else:
                self.left_out[why] += 1
        keys = id_list(read[self.store.id])
        return _Part(
            [keys[row] for row in good],
            old[good],
            [texts[row] for row in good],
            [titles[row] for row in good],
            [labels[row] for row in good],
        )

    def _values(self, read: pa.RecordBatch, name: str | None) -> list[Any]:
        return [None] * len(read) if name is None else list(read[name].to_pylist())

    def _why_not(self, text: Any, label: Any) -> str | None:
        if self.columns.labels is not None and label is None:
            return "without a label"
        if self.columns.source is None:
            return None
        if not isinstance(text, str) or not text.strip():
            return "without text"
        # Equal texts have equal vectors: one on either side of the split would be seen by the fit.
        print_ = hashlib.blake2b(text.strip().encode("utf-8", "surrogatepass"), digest_size=16)
        if print_.digest() in self._texts:
            return "with the same text as another"
        self._texts.add(print_.digest())
        return None

    def _add(self, part: _Part, *, held: bool) -> None:
        if not part.ids:
            return
        new = self.new(part.ids, part.texts)
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
            for place, (text, title) in enumerate(zip(part.texts, part.titles, strict=True)):
                self._make_lookup(text, title, len(self.held_ids) + place)
        (self.held_ids if held else self.ids).extend(part.ids)
        (self.held_labels if held else self.labels).extend(part.labels)

    def _make_lookup(self, text: str, title: Any, item: int) -> None:
        if len(self.lookups) >= self.wanted_lookups:
            return
        if self.columns.title is not None:
            query = title.strip() if isinstance(title, str) and title.strip() else None
        else:
            query = lookup_of(text)
        if query is None:
            self.left_out["too short for a lookup"] += 1
        elif query in self._asked:
            # It cannot mean both.
            self.left_out["with the same lookup as another"] += 1
        else:
            self._asked.add(query)
            self.lookups.append((query, item))

    def _check_old_model(self, part: _Part) -> None:
        """Raise unless the old model finds its own rows: else old/old would be no baseline."""
        some = part.cut(slice(0, min(_KNOWN, self.old.size if self.old else 0)))
        if self.old is None or len(some.ids) < 2:
            return
        scores = unit_rows(self.old(some.ids, some.texts)) @ unit_rows(some.old).T
        right = int((np.diag(scores) >= scores.max(axis=1) - _SAME).sum())
        if 2 * right < len(some.ids):
            raise BadInput(
                f"of {len(some.ids)} texts {right} are nearest to their own stored vector: this is "
                "not the model that filled the store, or not its text",
                where=self.old.name,
                step="give that model as --embed-old, or leave it out",
            )

    def _check_enough(self) -> None:
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

    def _tell(self, progress: Progress | None, count: int) -> None:
        self._done += count
        if progress is not None:
            progress("embedding", self._done, self._total)
