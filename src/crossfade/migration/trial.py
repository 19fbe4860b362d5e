"""What a migration of so many items will take, from rates measured on the user's store and model.

A trial reads some rows that the store has, embeds them with the new model, and throws away what
comes. Nothing is written unless that is asked for: then a migration is carried out on copies of a
part of the store (`rehearsal`). Otherwise what writing takes is not known, and is said not to be.
Each rate is measured several times in a row, after one that nobody counts but for what a first time
takes: so an estimate is something fixed, and a rate with the interval in which it lies with 95 %
confidence for every item.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from crossfade.backfill.plan import Plan
from crossfade.embedders import BaseEmbedder, embed_parts_checked
from crossfade.engines import Engine
from crossfade.errors import BadInput
from crossfade.journal.columns import HASH_LENGTH, LIFTED, columns
from crossfade.journal.journal import load_journal
from crossfade.journal.space import SharedColumn, space_of
from crossfade.migration.batch import Batch
from crossfade.migration.measured import Measured
from crossfade.migration.rehearsal import Rehearsed, rehearse
from crossfade.migration.start import bytes_per_row
from crossfade.stores import Id, Store
from crossfade.stores.contract import Copyable
from crossfade.stores.rows import matrix, unusable
from crossfade.stores.sampling import draw_ids
from crossfade.upgrade import Upgrade

BATCHES, ROWS = 8, 256
# With an engine each is as many rows as `backfill` hands out at a time, so that all have work.
ENGINE_BATCHES, ENGINE_ROWS = 4, 16
# A trial on copies takes so many rows for each that is embedded in a batch.
_COPIED = 16
MEASURED, BUT_WRITING, RECKONED = "measured", "measured, but for writing", "reckoned"
LIFTED_HERE, AT_LEAST = "measured, but for the workers", "measured, at least"
NOT_MEASURED = (
    "writing to the store, for a trial writes nothing unless it is told to: --trial-writes"
)
NO_COPY = "forward as a whole and what the store grows by, for it cannot be copied in part"
STEPS = ("the index, where the store has one of ours", "verify", "finish")
LONGER = (
    "building an index, and writing into one, takes longer for a row the more rows there are, and "
    "much longer where the index no longer fits in memory: both may take several times as long"
)
T = TypeVar("T")


@dataclass(frozen=True)
class Trial:
    """What was measured, per item: seconds, tokens, money and requests."""

    store: str
    embedder: str
    rows: int
    reading: Measured | None
    """Seconds to read the old vector of one of many rows in a row, and lift it by F; None where
    `forward` itself was tried with all that it does."""
    fetching: Measured
    """Seconds to read one of some rows by their ids, with its text."""
    embedding: Measured
    writing: Measured | None
    """Seconds to lift one of many rows and write all that is known of it; None if nothing was
    written."""
    tokens: Measured | None
    money: Measured | None
    items_per_request: int | None
    spent: float
    """What the trial itself has cost."""
    bytes_per_item: int
    """Reckoned from the columns that are added."""
    batches: int = BATCHES
    engine: str = "local"
    start_up: float = 0.0
    """Seconds until the engine's workers have done something for the first time."""
    first_reading: float = 0.0
    """Seconds that the first rows have taken more than those that followed."""
    first_embedding: float = 0.0
    rehearsed: dict[str, Rehearsed] | None = None
    """The steps of a migration, where it was carried out on copies of a part of the store."""

    @property
    def items_per_second(self) -> float:
        """Of filling rows; but for writing them, if that was not tried."""
        return 1.0 / max(self._filling.mean, 1e-12)

    @property
    def _filling(self) -> Measured:
        """Seconds of a row in `backfill`."""
        made = self.fetching.plus(self.embedding)
        return made if self.writing is None else made.plus(self.writing)

    @property
    def cost_per_1k(self) -> float | None:
        return None if self.money is None else 1000 * self.money.mean

    def estimate(self, items: int, shares: dict[str, float]) -> dict[str, Any]:
        """An invoice for a gallery of so many items: of each step, and of filling each share."""
        forward = self._forward(items)
        rest = {name: self._step(name, items) for name in ("index", "verify", "finish")}
        filled = self._filled(items, 1.0)
        storage = [one["bytes"] for one in (forward, rest["index"], filled) if one is not None]
        return {
            "items": items,
            "store": self.store,
            "embedder": self.embedder,
            "engine": self.engine,
            "trial": {
                "rows": self.rows,
                "batches": self.batches,
                "spent": self.spent,
                "start_up_seconds": self.start_up,
                "seconds_per_item": {
                    "reading": _told(self.reading),
                    "fetching": asdict(self.fetching),
                    "embedding": asdict(self.embedding),
                    "writing": _told(self.writing),
                },
            },
            "forward": forward,
            "index": rest["index"],
            "backfill": {name: self._filled(items, share) for name, share in shares.items()},
            "verify": rest["verify"],
            "finish": rest["finish"],
            "storage_bytes": round(sum(one["mean"] for one in storage if one is not None)),
            "storage_from": forward["bytes_from"],
            "not_measured": self._not_measured(),
            "notes": [] if rest["index"] is None else [LONGER],
        }

    def _forward(self, items: int) -> dict[str, Any]:
        size = float(self.bytes_per_item)
        reckoned = Measured(size, size, size).times(items)
        if self.rehearsed is not None:
            found = self.rehearsed["forward"]
            grown = found.grown(items)
            return _line(
                items,
                found.seconds,
                self.start_up + found.fixed,
                grown=grown or reckoned,
                bytes_by=RECKONED if grown is None else MEASURED,
            )
        lifting = self.reading if self.writing is None else self.writing
        return _line(
            items,
            lifting or Measured(0.0, 0.0, 0.0),
            self.start_up + self.first_reading,
            grown=reckoned,
            by=BUT_WRITING if self.writing is None else self._by_rows,
            bytes_by=RECKONED,
        )

    @property
    def _by_rows(self) -> str:
        """How writing was measured on a store that cannot be copied."""
        return MEASURED if self.engine == "local" else LIFTED_HERE

    @property
    def _by_index(self) -> str:
        """How what has to do with an index was measured: on a small one, which is a quick one."""
        return AT_LEAST if "index" in (self.rehearsed or {}) else MEASURED

    def _filled(self, items: int, share: float) -> dict[str, Any]:
        count = math.floor(share * items)
        requests, written = self.items_per_request, (self.rehearsed or {}).get("writing")
        return _line(
            count,
            self._filling,
            self.start_up + self.first_embedding,
            grown=None if written is None else written.grown(count),
            by=BUT_WRITING if self.writing is None else self._by_index,
        ) | {
            "requests": None if requests is None else -(-count // requests),
            "tokens": None if self.tokens is None else asdict(self.tokens.times(count)),
            "cost": None if self.money is None else asdict(self.money.times(count)),
        }

    def _step(self, name: str, items: int) -> dict[str, Any] | None:
        found = (self.rehearsed or {}).get(name)
        if found is None:
            return None
        by = self._by_index if name == "index" else MEASURED
        return _line(items, found.seconds, found.fixed, grown=found.grown(items), by=by)

    def _not_measured(self) -> list[str]:
        if self.rehearsed is not None:
            return []
        return [NOT_MEASURED, *STEPS] if self.writing is None else [NO_COPY, *STEPS]


def _line(
    items: int,
    rate: Measured,
    fixed: float,
    *,
    grown: Measured | None,
    by: str = MEASURED,
    bytes_by: str = MEASURED,
) -> dict[str, Any]:
    """A line of the invoice: what a step takes of so many items, and where that is known from."""
    return {
        "items": items,
        "seconds": asdict(rate.times(items).later(fixed)),
        "fixed_seconds": fixed,
        "requests": None,
        "tokens": None,
        "cost": None,
        "from": by,
        "bytes": _told(grown),
        "bytes_from": None if grown is None else bytes_by,
    }


def _told(measured: Measured | None) -> dict[str, float] | None:
    return None if measured is None else asdict(measured)


def with_estimate(plan: Plan, trial: Trial, items: int) -> Plan:
    """The plan, with what carrying it out on so many items will take: to its stop, and in full."""
    told = trial.estimate(items, {"stop": plan.record.stop, "full": 1.0})
    return replace(plan, record=plan.record.model_copy(update={"estimate": told}))


def try_out(
    store: Store,
    upgrade: Upgrade,
    embedder: BaseEmbedder,
    *,
    source: str | None = None,
    batches: int = BATCHES,
    rows: int = ROWS,
    write: bool = False,
    engine: Engine | None = None,
    seed: int = 0,
) -> Trial:
    """Read and embed some rows of a store, by chance, and measure what that takes.

    `source` is the column of texts, where the embedder needs them. With `write`, a migration is
    carried out on copies of a part of the store; where it cannot be copied, the columns of one are
    added to it, written for some rows, and dropped again. With an `engine` its workers lift, and
    `embedder` is one of its own (`Engine.embedder`).
    """
    found = store.describe()
    if found.dim != upgrade.old_dim_:
        raise BadInput(
            f"{found.vector!r} has {found.dim} dimensions, and the upgrade's old model "
            f"{upgrade.old_dim_}",
            where=store.name,
            step="name the store that is to be migrated",
        )
    if embedder.needs_source and source is None:
        raise BadInput(
            f"{embedder.name} needs the items' text",
            where=store.name,
            step="name its column with --source",
        )
    if source is not None and source not in found.columns:
        raise BadInput(
            f"has no column {source!r}",
            where=store.name,
            step=f"name the text column with --source: it has {', '.join(found.columns)}",
        )
    if write:
        _refuse_migrating(store)
    parts = _parts(store, batches, rows, seed, apart=engine is not None)
    made = _Made(store, upgrade, embedder, source)
    start_up = 0.0 if engine is None else _start_up(engine)
    for part in parts:
        made.embed(part)
    rehearsed = None
    if write and isinstance(store, Copyable):
        copied = min(_COPIED * rows, found.rows)
        rehearsed = rehearse(store, upgrade, source=source, rows=copied, engine=engine)
    # Large batches as `forward` has them, but as many as there are to be.
    size = max(1, min(4 * rows, found.rows // (batches + 1)))
    read, first_reading, writing = None, 0.0, None
    if rehearsed is not None:
        writing = rehearsed["writing"].seconds
    else:
        read, first_reading = (
            _after_first(_reading(store, upgrade, batches + 1, size), size)
            if engine is None
            else _reading_apart(store, upgrade, engine, batches, size)
        )
        if write:
            writing = Measured.of(_writing(store, upgrade, source, batches + 1, size)[1:])
    # The first is as slow as it is for reasons that pass: connections, models that are loaded.
    embedding, first_embedding = _after_first(made.embedding, made.counts[0])
    return Trial(
        store=store.name,
        embedder=embedder.name,
        rows=sum(made.counts),
        batches=len(parts) - 1,
        reading=read,
        fetching=Measured.of(made.fetching[1:]),
        embedding=embedding,
        writing=writing,
        tokens=Measured.of(made.tokens[1:]) if made.tokens else None,
        money=Measured.of(made.money[1:]) if any(made.money) else None,
        items_per_request=embedder.items_per_request,
        spent=embedder.spent,
        bytes_per_item=bytes_per_row(upgrade),
        engine="local" if engine is None else engine.name,
        start_up=start_up,
        first_reading=first_reading,
        first_embedding=first_embedding,
        rehearsed=rehearsed,
    )


def _parts(store: Store, batches: int, rows: int, seed: int, *, apart: bool) -> list[list[Id]]:
    """Ids of rows by chance, for the batch that does not count and for those that do.

    With an engine, `apart`, the first is small, and all others larger and fewer.
    """
    each = ENGINE_ROWS * rows if apart else rows
    batches = min(batches, ENGINE_BATCHES) if apart else batches
    ids = draw_ids(store, rows + batches * each, seed)
    if len(ids) < 2 * (batches + 1):
        raise BadInput(
            f"has {len(ids)} rows, too few to try anything out",
            where=store.name,
            step="name the store that is to be migrated",
        )
    first = min(rows, len(ids) // (batches + 1))
    rest = np.array_split(np.array(ids[first:], object), batches)
    return [ids[:first], *(part.tolist() for part in rest)]


def _after_first(rates: list[float], rows: int) -> tuple[Measured, float]:
    """What a row takes of all batches but the first, and what the first has taken more."""
    rate = Measured.of(rates[1:])
    return rate, max(0.0, (rates[0] - rate.mean) * rows)


def _start_up(engine: Engine) -> float:
    """Seconds until there are workers: what a first tiny job takes more than another."""
    took = []
    for _ in range(2):
        begin = time.perf_counter()
        deque(engine.in_order(_same, [0]), maxlen=0)
        took.append(time.perf_counter() - begin)
    return max(0.0, took[0] - took[1])


def _same(item: T) -> T:
    return item


@dataclass(frozen=True, eq=False)
class _Lift:
    """What workers make of a batch: F of its old vectors, which they send back."""

    upgrade: Upgrade
    vector: str

    def __call__(self, rows: pa.RecordBatch) -> NDArray[np.float32]:
        old = matrix(rows[self.vector])
        good = ~unusable(rows[self.vector], old)
        lifted: NDArray[np.float32] = self.upgrade.forward(old[good]) if good.any() else old[:0]
        return lifted


def _reading_apart(
    store: Store, upgrade: Upgrade, engine: Engine, batches: int, rows: int
) -> tuple[Measured, float]:
    """Seconds of a row that is read here and lifted by workers, and until they take the first.

    From then on they have work all the time; a run is one value, for batches come back in bursts.
    """
    work = _Lift(upgrade, store.vector)
    rates, waits = [], []
    for wanted in (1, *([batches] * ENGINE_BATCHES)):
        asked: list[float] = []

        def shown(wanted: int = wanted, asked: list[float] = asked) -> Iterator[pa.RecordBatch]:
            asked.append(time.perf_counter())
            yield from islice(store.stream([store.vector], size=rows), wanted)

        begin = time.perf_counter()
        count = sum(len(batch) for batch, _ in engine.in_order(work, shown()))
        rates.append((time.perf_counter() - asked[0]) / max(1, count))
        waits.append(asked[0] - begin)
    return Measured.of(rates[1:]), waits[0]


def _reading(store: Store, upgrade: Upgrade, batches: int, rows: int) -> list[float]:
    """Seconds of a row, of each of some batches that are read as `forward` reads them."""
    out: list[float] = []
    stream = store.stream([store.vector], size=rows)
    while len(out) < batches:
        begin = time.perf_counter()
        batch = next(stream, None)
        if batch is None:
            break
        old = matrix(batch[store.vector])
        good = ~unusable(batch[store.vector], old)
        if good.any():
            upgrade.forward(old[good])
        out.append((time.perf_counter() - begin) / len(batch))
    return out


def _refuse_migrating(store: Store) -> None:
    journal = load_journal(store)
    if store.describe().added or not (journal is None or journal.over):
        raise BadInput(
            "is being migrated",
            where=store.name,
            step="leave --trial-writes away: `crossfade migrate status` knows its rates",
        )


def _writing(
    store: Store, upgrade: Upgrade, source: str | None, batches: int, rows: int
) -> list[float]:
    """Seconds of a row, of each of some batches that are read, lifted and written."""
    added = columns(upgrade.shared_dim_)
    out: list[float] = []
    column, ours = SharedColumn.of(upgrade, space_of(upgrade)), upgrade.hash_[:HASH_LENGTH]
    with store.lock():
        try:
            store.add_columns(added)
            stream = store.stream(Batch.columns(store, source), size=rows)
            while len(out) < batches:
                begin = time.perf_counter()
                read = next(stream, None)
                if read is None:
                    break
                batch = Batch.of(store, read, source)
                good = batch.take(~batch.unusable)
                if len(good):
                    store.write(good.written(column.lift(good.old), LIFTED, ours, late=False))
                out.append((time.perf_counter() - begin) / len(batch))
        finally:
            store.drop_columns([one.name for one in added])
    return out


class _Made:
    """Rows that were fetched and embedded, and what each batch has taken of an item."""

    def __init__(
        self, store: Store, upgrade: Upgrade, embedder: BaseEmbedder, source: str | None
    ) -> None:
        self.store, self.upgrade, self.embedder, self.source = store, upgrade, embedder, source
        self.counts: list[int] = []
        self.fetching: list[float] = []
        self.embedding: list[float] = []
        self.tokens: list[float] = []
        self.money: list[float] = []

    def embed(self, ids: list[Id]) -> None:
        store, embedder = self.store, self.embedder
        begin = time.perf_counter()
        columns = [store.vector, *([] if self.source is None else [self.source])]
        batch = store.read(ids, columns)
        self.fetching.append((time.perf_counter() - begin) / max(1, len(batch)))
        keys = batch[store.id].to_pylist()
        texts = None
        if embedder.needs_source and self.source is not None:
            given = zip(keys, batch[self.source].to_pylist(), strict=True)
            good = [(k, text) for k, text in given if isinstance(text, str) and text.strip()]
            keys, texts = [k for k, _ in good], [text for _, text in good]
        elif embedder.prepared:
            keys = [k for k, has in zip(keys, embedder.has(keys), strict=True) if has]
        if not keys:
            raise BadInput(
                f"{embedder.name} can embed none of {len(ids)} rows by chance",
                where=store.name,
                step="name the column of texts with --source",
            )
        before, paid = embedder.tokens, embedder.spent
        begin = time.perf_counter()
        # What comes is thrown away; only how long it takes counts.
        deque(embed_parts_checked(embedder, keys, texts, self.upgrade.new_dim_), maxlen=0)
        self.embedding.append((time.perf_counter() - begin) / len(keys))
        if before is not None and embedder.tokens is not None:
            self.tokens.append((embedder.tokens - before) / len(keys))
        self.money.append((embedder.spent - paid) / len(keys))
        self.counts.append(len(keys))
