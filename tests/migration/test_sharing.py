"""One searcher, many threads: each gets what it would get alone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from tests.migration.conftest import ROWS, texts_of


def test_a_searcher_in_many_threads_gives_what_it_gives_in_one(world, lifted):
    texts = texts_of(1, seed=5)
    world.app.insert([9000], texts, [ord(texts[0][0])], world.models.old(texts))
    searcher = lifted.searcher(refresh=0.01)
    rng = np.random.default_rng(0)
    new = world.models.new(list(world.texts.values()))
    kinds = [ord(text[0]) for text in world.texts.values()]
    asked = [(int(rng.integers(ROWS)), int(rng.choice([1, 3, 50]))) for _ in range(48)]

    def ask(one: tuple[int, int]) -> list[int]:
        at, k = one
        where = {"kind": kinds[at]} if at % 2 else None
        return [hit.id for hit in searcher.search(new[at], k, where=where)]

    alone = [ask(one) for one in asked]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, asked))
    assert together == alone
