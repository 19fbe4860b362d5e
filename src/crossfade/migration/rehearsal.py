"""A migration carried out on copies of a part of a store, to see what each step takes of a row.

What a step takes is a fixed part and a part for every row. Two copies tell them apart: what a large
one takes more than a small one is of the rows that it has more. Each such pair gives one value, and
some pairs a mean and its spread. Before them a small one is migrated that nobody compares: it takes
what the first time takes, with connections, workers and libraries that are there from then on, as
it is for a command.

The steps are those of a migration, in their order, each as it runs there; but filled rows are
written with vectors that are there already, for a model is asked elsewhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from crossfade.engines import Engine
from crossfade.errors import BadInput
from crossfade.journal.columns import HASH_LENGTH, LIFTED, VECTOR
from crossfade.journal.journal import Journal
from crossfade.journal.space import SharedColumn
from crossfade.migration.batch import Batch
from crossfade.migration.finish import finish
from crossfade.migration.forward import lift_all
from crossfade.migration.measured import Measured
from crossfade.migration.preparation import BATCH
from crossfade.migration.proof import keep_proof
from crossfade.migration.start import begin, look_ahead
from crossfade.migration.verify import verify
from crossfade.stores import Store
from crossfade.stores.contract import Copyable, Scratch
from crossfade.upgrade import Upgrade

# Enough for a spread; fewer where workers have to come for each. How much larger the large one is.
PAIRS, ENGINE_PAIRS, TIMES = 4, 3, 8
# Rows that fill some pages of any store.
_TELLING = 200
T = TypeVar("T")


@dataclass(frozen=True)
class Rehearsed:
    """What a step takes: seconds the first time and whatever the rows, seconds and bytes of a row.

    Bytes are what the store has grown by, and below 0 where it has shrunk; None of so few rows that
    the pages they lie in tell nothing.
    """

    fixed: float
    seconds: Measured
    bytes: Measured | None

    def grown(self, items: int) -> Measured | None:
        """What the store grows by with so many items."""
        return None if self.bytes is None else self.bytes.times(items)


@dataclass(frozen=True)
class _Taken:
    """What a step has taken of one copy."""

    rows: int
    seconds: float
    bytes: int
    turns: int = 0
    """Batches that were counted, each of as many rows as the small copy has."""
    late: float = 0.0
    """Of the seconds, those after the first of them."""


def rehearse(
    store: Copyable,
    upgrade: Upgrade,
    *,
    source: str | None = None,
    rows: int,
    engine: Engine | None = None,
) -> dict[str, Rehearsed] | None:
    """What `forward`, `index`, `writing`, `verify` and `finish` take, by copies of so many rows.

    `index` is left out where a store has none of ours. With an `engine` it is `forward` that its
    workers do. None where the store cannot be copied.
    """
    small = max(1, rows // TIMES)

    def run(count: int) -> dict[str, _Taken] | None:
        with store.scratch(count) as scratch:
            return None if scratch is None else _migrate(scratch, upgrade, source, engine, small)

    first = run(small)
    if first is None:
        return None
    pairs = []
    for _ in range(PAIRS if engine is None else ENGINE_PAIRS):
        few, many = run(small), run(rows)
        if few is None or many is None:
            return None
        pairs.append((few, many))
    return {
        step: _rehearsed(taken, [(few[step], many[step]) for few, many in pairs])
        for step, taken in first.items()
        # An index that no copy has got is none of ours.
        if any(many[step].seconds for _, many in pairs)
    }


def _rehearsed(first: _Taken, pairs: list[tuple[_Taken, _Taken]]) -> Rehearsed:
    more = [many.rows - few.rows for few, many in pairs]
    if min(more) < 1:
        raise BadInput("its rows go while it is tried out", step="try again when it is calmer")
    # Workers take longer to come than to lift so few rows: what they do is seen once they have.
    took = [
        many.late - few.late if many.turns > 1 else many.seconds - few.seconds
        for few, many in pairs
    ]
    seconds = [one / rows for one, rows in zip(took, more, strict=True)]
    grown = [(many.bytes - few.bytes) / rows for (few, many), rows in zip(pairs, more, strict=True)]
    rate = Measured.of(seconds)
    fixed = max(0.0, first.seconds - rate.mean * first.rows)
    told = Measured.of(grown, least=-math.inf) if min(more) >= _TELLING else None
    return Rehearsed(fixed, rate, told)


def _migrate(
    scratch: Scratch, upgrade: Upgrade, source: str | None, engine: Engine | None, small: int
) -> dict[str, _Taken]:
    """From `start` to `finish`."""
    store, out = scratch.store, dict[str, _Taken]()
    rows, turns = store.describe().rows, list[float]()

    def step(name: str, act: Callable[[], T]) -> T:
        turns.clear()
        size, begun = scratch.size(), time.perf_counter()
        found = act()
        end = time.perf_counter()
        late = end - turns[0] if turns else 0.0
        out[name] = _Taken(rows, end - begun, scratch.size() - size, len(turns), late)
        return found

    def forward(journal: Journal) -> Journal:
        if engine is None:
            return lift_all(store, upgrade, journal, index=False)[0]
        return lift_all(
            store,
            upgrade,
            journal,
            index=False,
            engine=engine,
            size=small,
            progress=lambda done, total: turns.append(time.perf_counter()),
        )[0]

    with store.lock():
        seen = look_ahead(store, upgrade, source=source, evaluation=None, plan=None, force=True)
        started = begin(store, upgrade, Path("trial"), seen, source)
        journal = step("forward", lambda: forward(started))
        step("index", lambda: store.build_index(VECTOR))
        if out["index"].bytes <= 0 and VECTOR not in store.describe().indexed:
            out["index"] = _Taken(rows, 0.0, 0)
        column = SharedColumn.of(upgrade, journal.space)
        step("writing", lambda: _write(store, upgrade, column, source))
        version = store.version()
        found = step("verify", lambda: verify(store, upgrade, journal))
        proven = keep_proof(store, journal, version, found)
        step("finish", lambda: finish(store, upgrade, proven, force=True))
    return out


def _write(store: Store, upgrade: Upgrade, column: SharedColumn, source: str | None) -> None:
    """Write rows anew, as many at a time as `backfill` does, and see to the index as it does."""
    ours = upgrade.hash_[:HASH_LENGTH]
    for rows in store.stream(Batch.columns(store, source), size=BATCH):
        batch = Batch.of(store, rows, source)
        good = batch.take(~batch.unusable)
        if len(good):
            store.write(good.written(column.lift(good.old), LIFTED, ours, late=False))
    store.build_index(VECTOR)
