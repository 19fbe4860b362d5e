"""What a migration of so many items will take, from rates measured on the user's store and model.

A trial reads some rows that the store has, embeds them with the new model, and throws away what
comes. Nothing is written to the store. So what writing takes is not known, and is said not to be.
Each rate is measured several times in a row, after one that nobody counts: a mean, and the interval
in which it lies with 95 % confidence.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from crossfade.backfill.plan import Plan
from crossfade.embedders import BaseEmbedder, embed_parts_checked
from crossfade.errors import BadInput
from crossfade.migration.start import bytes_per_row
from crossfade.stores import Id, Store
from crossfade.stores.rows import matrix, unusable
from crossfade.stores.sampling import draw_ids
from crossfade.upgrade import Upgrade

BATCHES, ROWS = 8, 256
NOT_MEASURED = "writing to the store, for a trial writes nothing"


@dataclass(frozen=True)
class Measured:
    """Something per item, measured a few times: the mean, and where it lies with 95 % confidence.

    >>> Measured.of([1.0, 2.0, 3.0])
    Measured(mean=2.0, low=0.0, high=4.484...)
    """

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Measured:
        """Of two values or more."""
        from scipy.stats import t

        mean = statistics.fmean(values)
        error = statistics.stdev(values) / math.sqrt(len(values))
        gap = float(t.ppf(0.975, len(values) - 1)) * error
        return cls(mean, max(0.0, mean - gap), mean + gap)

    def times(self, items: int) -> Measured:
        """Of so many items."""
        return Measured(self.mean * items, self.low * items, self.high * items)

    def plus(self, other: Measured) -> Measured:
        """Of two things one after the other, each as far off as it can be."""
        return Measured(self.mean + other.mean, self.low + other.low, self.high + other.high)


@dataclass(frozen=True)
class Trial:
    """What was measured, per item: seconds, tokens, money and requests."""

    store: str
    embedder: str
    rows: int
    reading: Measured
    """Seconds to read the old vector of one of many rows in a row, and lift it by F."""
    fetching: Measured
    """Seconds to read one of some rows by their ids, with its text."""
    embedding: Measured
    tokens: Measured | None
    money: Measured | None
    items_per_request: int | None
    spent: float
    """What the trial itself has cost."""
    bytes_per_item: int

    @property
    def items_per_second(self) -> float:
        """Of filling rows, but for writing them."""
        return 1.0 / max(self.fetching.mean + self.embedding.mean, 1e-12)

    @property
    def cost_per_1k(self) -> float | None:
        return None if self.money is None else 1000 * self.money.mean

    def estimate(self, items: int, shares: dict[str, float]) -> dict[str, Any]:
        """An invoice for a gallery of so many items: of `forward`, and of filling each share."""

        def backfill(share: float) -> dict[str, Any]:
            count = math.floor(share * items)
            requests = self.items_per_request
            return {
                "items": count,
                "seconds": asdict(self.fetching.plus(self.embedding).times(count)),
                "requests": None if requests is None else -(-count // requests),
                "tokens": None if self.tokens is None else asdict(self.tokens.times(count)),
                "cost": None if self.money is None else asdict(self.money.times(count)),
            }

        return {
            "items": items,
            "store": self.store,
            "embedder": self.embedder,
            "engine": "local",
            "trial": {
                "rows": self.rows,
                "batches": BATCHES,
                "spent": self.spent,
                "seconds_per_item": {
                    "reading": asdict(self.reading),
                    "fetching": asdict(self.fetching),
                    "embedding": asdict(self.embedding),
                },
            },
            "forward": {"items": items, "seconds": asdict(self.reading.times(items))},
            "backfill": {name: backfill(share) for name, share in shares.items()},
            "storage_bytes": items * self.bytes_per_item,
            "not_measured": [NOT_MEASURED],
        }


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
    seed: int = 0,
) -> Trial:
    """Read and embed some rows of a store, by chance, and measure what that takes.

    `source` is the column of texts, where the embedder needs them.
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
    ids = draw_ids(store, (batches + 1) * rows, seed)
    if len(ids) < 2 * (batches + 1):
        raise BadInput(
            f"has {len(ids)} rows, too few to try anything out",
            where=store.name,
            step="name the store that is to be migrated",
        )
    parts = [part.tolist() for part in np.array_split(np.array(ids, object), batches + 1)]
    # Large batches as `forward` has them, but as many as there are to be.
    size = max(1, min(4 * rows, found.rows // (batches + 1)))
    made = _Made(store, upgrade, embedder, source)
    for part in parts:
        made.embed(part)
    # The first is as slow as it is for reasons that pass: connections, models that are loaded.
    return Trial(
        store=store.name,
        embedder=embedder.name,
        rows=sum(made.counts),
        reading=Measured.of(_reading(store, upgrade, batches + 1, size)[1:]),
        fetching=Measured.of(made.fetching[1:]),
        embedding=Measured.of(made.embedding[1:]),
        tokens=Measured.of(made.tokens[1:]) if made.tokens else None,
        money=Measured.of(made.money[1:]) if any(made.money) else None,
        items_per_request=embedder.items_per_request,
        spent=embedder.spent,
        bytes_per_item=bytes_per_row(upgrade),
    )


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
