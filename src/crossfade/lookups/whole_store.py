"""Lookups on a whole store: every row of it a distractor, streamed once.

A store holds old vectors of all rows and new ones of none. So the cases whose gallery is old or
F(old), all that happens before anything is backfilled, are measured on all rows; new/new and what
comes of backfilling on the held rows, which both models have embedded. Ranks of one are no ranks of
the other, and the two stay apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossfade.asking import Both
from crossfade.cases import CASES, case_vectors
from crossfade.compatibility.cautions import no_old_queries, strange_rows, weak_grounds
from crossfade.compatibility.held import Held
from crossfade.compatibility.table import (
    RESAMPLES,
    Compatibility,
    asked_vectors,
    check_today,
    sides,
)
from crossfade.compatibility.verdicts import ASKED, judge
from crossfade.distance import Distance
from crossfade.errors import BadInput
from crossfade.retrieval import Measured, Metric
from crossfade.retrieval.ranking import Ranked, comparable
from crossfade.stores import Store
from crossfade.stores.rows import id_list, matrix, unusable
from crossfade.upgrade import Upgrade

STORED = ("old", "F(old)")
"""What can be had of every row."""
Float = NDArray[np.float32]
_SCORE_BYTES = 64 << 20
_MOST, _FEWEST = 10_000, 256
# In lengths of query and item: what float32 products of the same vectors differ by from one batch
# to another. Ties are the wanted item's loss, as everywhere.
ROUND_OFF = 1e-6
_MANY_SEEN = 0.1


def evaluate_on_store(
    upgrade: Upgrade,
    held: Held,
    store: Store,
    sample: Compatibility,
    *,
    today: float | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Compatibility:
    """The cases of `sample` (what `evaluate` found on `held`) that a store of old vectors has.

    Metrics, distance and required cases are those of `sample`, which the result keeps. `held` comes
    from `read_held`: its lookups name the rows they want by id. A wanted row that has gone or
    changed since is left out, and said so. `today` is the level of today's search on this store,
    where the old model has embedded no queries: new ones are judged against it. Without it, that of
    `sample`.
    """
    today = sample.today if today is None else today
    meant = tuple(sample.waits) if today is not None else sample.decisive
    check_today(held, meant or sample.decisive, today)
    wanted = Wanted.of(upgrade, held, store)
    names = [name for name in sample.metrics if Metric.named(name).kind != "agreement"]
    if not names:
        raise BadInput(
            "agreement is with the new model's neighbours, which a store of old vectors lacks",
            step="name another metric, or leave --store out",
        )
    queries = sides(upgrade, held.query_old, held.query_new)
    cases = [c for c in CASES if c.split("/")[0] in queries and c.split("/")[1] in STORED]
    both = None
    if held.query_old is not None:
        # The held rows are a sample of the store: scores are brought to scale by them.
        like = upgrade.as_stored(held.gallery_old)
        both = Both(queries["old"], queries["B(new)"], like, distance=sample.distance, seed=seed)
        cases += [case for case in ASKED if case.endswith("/old")]
    bars = {
        case: _scores(case, queries, wanted.gallery, sample.distance, both, own=True)
        for case in cases
    }
    ahead = {case: np.zeros(held.queries, np.int64) for case in cases}
    total, rows = store.describe().rows, 0
    for ids, old in stream_rows(store, held.queries):
        gallery = _stored(upgrade, old)
        own = wanted.places(ids)
        for case in cases:
            scores, slack = _scores(case, queries, gallery, sample.distance, both)
            bar, bar_slack = bars[case]
            passed = scores >= (bar - ROUND_OFF * np.maximum(bar_slack, slack))[:, None]
            asking = np.flatnonzero(own >= 0)
            passed[asking, own[asking]] = False
            ahead[case] += passed.sum(axis=1)
        rows += len(ids)
        if progress is not None:
            progress(min(rows, total), total)
    counts = wanted.there.astype(np.int64)
    measured = {}
    for case in cases:
        ranked = Ranked(0, counts, ahead[case][wanted.there] + 1, None)
        measured[case] = Measured({name: Metric.named(name)(ranked) for name in names})
    decisive = tuple(name for name in meant if name in names)
    ci95, verdicts, better = judge(measured, decisive, resamples, seed, today)
    first = next(iter(measured.values()))
    return replace(
        sample,
        data={
            "name": held.name,
            "store": store.name,
            "queries": held.queries,
            "gallery": rows,
            "evaluated_queries": first.queries,
            "queries_with_nothing_relevant": first.skipped,
            "relevance": held.source,
            "leave_one_out": False,
        },
        metrics=tuple(names),
        decisive=decisive,
        cases=measured,
        ci95=ci95,
        verdicts=verdicts,
        definition={},
        per_class={},
        warnings=[
            *strange_rows(upgrade, held),
            *no_old_queries(held, today),
            *_cautions(upgrade, store, sample.distance, rows, wanted),
            *weak_grounds(measured, decisive, verdicts, better, today),
        ],
        sample=sample,
        today=today,
        waits={},
    )


@dataclass(frozen=True, eq=False)
class Wanted:
    """The rows that lookups want, as they are in the store now."""

    ids: list[Any]
    there: NDArray[np.bool_]
    """Lookups whose row is there and has the vector it had."""
    gallery: dict[str, Float]
    """The row of each lookup; of a row that is gone what it was."""

    @classmethod
    def of(cls, upgrade: Upgrade, held: Held, store: Store) -> Wanted:
        if held.source != "lookups" or held.gallery_ids is None or held.relevance is None:
            raise BadInput(
                "has no lookups, whose rows could be found in a store",
                where=held.name,
                step="make it with crossfade pairs STORE, or leave --store out",
            )
        found = store.describe()
        if found.dim != upgrade.old_dim_:
            raise BadInput(
                f"{found.vector!r} has {found.dim} dimensions, and the upgrade's old model "
                f"{upgrade.old_dim_}",
                where=store.name,
                step="name the column of old vectors with --store-vector",
            )
        items = held.relevance.block(0, held.queries).items
        ids = held.gallery_ids[items].tolist()
        now: dict[Any, Float] = {}
        some = list(dict.fromkeys(ids))
        for first in range(0, len(some), _MOST):
            read = store.read(some[first : first + _MOST], [store.vector])
            now |= zip(id_list(read[store.id]), matrix(read[store.vector]), strict=True)
        old = held.gallery_old[items]
        there = np.array(
            [key in now and _same(now[key], was) for key, was in zip(ids, old, strict=True)]
        )
        if not there.any():
            raise BadInput(
                f"has none of the {len(ids):,} rows that lookups want, as they were",
                where=store.name,
                step=f"name the store that {held.name} was made of, or make the pairs again",
            )
        return cls(ids, there, _stored(upgrade, old))

    def places(self, ids: list[Any]) -> NDArray[np.int64]:
        """Where each lookup's row is among these, or −1."""
        at = {key: place for place, key in enumerate(ids)}
        return np.array([at.get(key, -1) for key in self.ids], np.int64)


def _same(now: Float, was: Float) -> bool:
    """Whether a vector is the one it was; a store may give it to the last bit but one."""
    return float(np.abs(now - was).max()) <= ROUND_OFF * float(np.abs(was).max())


def _stored(upgrade: Upgrade, old: Float) -> dict[str, Float]:
    return {"old": upgrade.as_stored(old), "F(old)": upgrade.forward(old)}


def stream_rows(store: Store, queries: int) -> Iterator[tuple[list[Any], Float]]:
    """Ids and usable old vectors, as many at a time as leave the scores in bounded memory."""
    size = max(_FEWEST, min(_MOST, _SCORE_BYTES // (4 * max(1, queries))))
    for rows in store.stream([store.vector], size=size):
        old = matrix(rows[store.vector])
        good = np.flatnonzero(~unusable(rows[store.vector], old))
        if len(good):
            ids = id_list(rows[store.id])
            yield [ids[row] for row in good.tolist()], old[good]


def _scores(
    case: str,
    queries: dict[str, Float],
    gallery: dict[str, Float],
    distance: Distance,
    both: Both | None,
    *,
    own: bool = False,
) -> tuple[Float, Float]:
    """Scores of all queries and rows, or of each query and its `own` row; and what of them is
    round-off: the longest that a product of each query can be."""
    if case == "both/old" and both is not None:
        q, g = both.as_old().queries, both.rows_old(gallery["old"])
    else:
        vectors = (
            asked_vectors(case, queries, gallery, distance)[0]
            if case in ASKED
            else case_vectors(case, queries, gallery)
        )
        q, g = comparable(*vectors, distance)
    scores = np.einsum("ij,ij->i", q, g) if own else q @ g.T
    lengths = np.linalg.norm(q, axis=1)
    longest = np.linalg.norm(g, axis=1)
    return scores, np.asarray(lengths * (longest if own else longest.max()), np.float32)


def _cautions(
    upgrade: Upgrade, store: Store, distance: Distance, rows: int, wanted: Wanted
) -> list[str]:
    out = []
    lost = int((~wanted.there).sum())
    if lost:
        out.append(f"{lost:,} lookups are left out: their rows have gone or changed since")
    if store.distance != distance:
        out.append(
            f"the store compares by {store.distance}, and this was measured by {distance}: use "
            f"--distance {store.distance}"
        )
    seen = min(1.0, upgrade.config_.fit["rows"] / max(1, rows))
    if seen > _MANY_SEEN:
        out.append(
            f"up to {seen:.0%} of the rows were fitted on: as distractors they may flatter F(old), "
            "compare with the held rows"
        )
    return out
