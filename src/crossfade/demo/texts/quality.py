"""How well lookups are answered, as the people who search see it: through the store, as it is."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crossfade.compatibility.bootstrap import interval, resampled_means
from crossfade.demo.texts.data import Lookups, Texts
from crossfade.search import Searcher
from crossfade.stores import Hit, Store, open_store
from crossfade.upgrade import Upgrade

Way = Literal["old", "new", "both"]
WAYS: tuple[Way, ...] = ("old", "new", "both")
K = 10
MRR, RECALL = f"mrr@{K}", f"recall@{K}"
METRICS = (MRR, RECALL)


@dataclass(frozen=True, eq=False)
class Quality:
    """Of one way of asking: the place of each wanted document among the first ten, 0 if it is
    not there."""

    places: NDArray[np.int64]

    @classmethod
    def of(cls, hits: list[list[Hit]], wanted: list[str]) -> Quality:
        """
        >>> hits = [[Hit("a", 0.9, {}), Hit("b", 0.8, {})], [Hit("c", 0.7, {})]]
        >>> Quality.of(hits, ["b", "d"]).means()
        {'mrr@10': 25.0, 'recall@10': 50.0}
        """
        places = np.zeros(len(wanted), np.int64)
        for i, (found, one) in enumerate(zip(hits, wanted, strict=True)):
            ids = [hit.id for hit in found[:K]]
            places[i] = ids.index(one) + 1 if one in ids else 0
        return cls(places)

    def values(self, metric: str) -> NDArray[np.float64]:
        """Of each lookup, in percent."""
        there = self.places > 0
        each = np.ones(len(there)) if metric == RECALL else 1 / np.maximum(self.places, 1)
        return np.asarray(np.where(there, 100 * each, 0.0), np.float64)

    def means(self) -> dict[str, float]:
        return {metric: float(self.values(metric).mean()) for metric in METRICS}

    def against(self, other: Quality, metric: str = MRR) -> tuple[float, tuple[float, float]]:
        """The difference in points, and its 95 % interval over the same lookups."""
        gaps = self.values(metric) - other.values(metric)
        return float(gaps.mean()), interval(resampled_means(gaps[:, None], 2000, 0)[:, 0])


@dataclass(frozen=True, eq=False)
class Stage:
    """A moment of the migration, and how each way of asking does; at first there is one."""

    name: str
    filled: float
    quality: dict[Way, Quality]


def today(store: Store, texts: Texts) -> Quality:
    """The search as it runs before anything is done: the old model on its own vectors."""
    asked = texts.asked
    hits = [store.search(query, column=store.vector, k=K) for query in asked.vectors.old]
    return Quality.of(hits, wanted_ids(texts, asked))


def ask(
    address: str, upgrade: Upgrade, texts: Texts, report: Callable[[int, int], None]
) -> dict[Way, Quality]:
    """All lookups in every way, by an application that has just connected."""
    asked, found = texts.asked, {}
    wanted = wanted_ids(texts, asked)
    searcher = Searcher(address, upgrade)
    try:
        for done, way in enumerate(WAYS):
            hits = searcher.search_many(
                None if way == "old" else asked.vectors.new,
                K,
                old=None if way == "new" else asked.vectors.old,
                ask=way,
            )
            found[way] = Quality.of(hits, wanted)
            report(done + 1, len(WAYS))
    finally:
        searcher.store.close()
    return found


def wanted_ids(texts: Texts, lookups: Lookups) -> list[str]:
    return [texts.ids[row] for row in lookups.wanted]


class Application:
    """Somebody else who searches all the while, with both models' queries, from `start` on."""

    # Between two searches: an application that is used, not one that is flooded.
    PAUSE_SECONDS = 0.02

    def __init__(self, address: str, upgrade: Upgrade, texts: Texts) -> None:
        self.answered = 0
        self.failures: list[str] = []
        self._asked = texts.asked.vectors
        self._searcher = Searcher(open_store(address), upgrade)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._search, daemon=True)

    def __enter__(self) -> Application:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._searcher.store.close()

    def _search(self) -> None:
        row = 0
        while not self._over.wait(self.PAUSE_SECONDS):
            old, new = self._asked.old[row], self._asked.new[row]
            try:
                if len(self._searcher.search(new, K, old=old)) == K:
                    self.answered += 1
                else:
                    self.failures.append("fewer hits than asked for")
            except Exception as error:
                # Whatever it is: to the one who searches it is a search without an answer.
                self.failures.append(f"{type(error).__name__}: {error}")
            row = (row + 1) % len(self._asked)
