"""The old model is gone: what raises B(new)/old, nDCG@10 of new queries on an untouched old index.

    python -m benchmarks gone --data FOLDER [--seeds 3]

Pairs are documents that no judgement names, so that no map has seen a relevant one, and the whole
collection is the gallery. Each line changes one thing of the first: which documents are pairs, how
many, whether logged queries are learned from too (as vectors that were stored while there was an
old model; CACM's on each half of its queries for the other), and what B is.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2

from benchmarks.machine import machine
from benchmarks.text import COLLECTIONS, TOP, UPGRADES, Judged, best, unit
from crossfade import Upgrade
from crossfade.lookups.covering import farthest_first

Index = NDArray[np.int64]
Chooser = Callable[[Judged, int, np.random.Generator], Index]


def at_random(held: Judged, count: int, rng: np.random.Generator) -> Index:
    return rng.choice(held.unjudged, min(count, len(held.unjudged)), replace=False)


def covering(held: Judged, count: int, rng: np.random.Generator) -> Index:
    """Of each of `count` clusters of old vectors the document next to its mean, then at random."""
    among = held.unjudged
    centres, labels = kmeans2(held.old[among], count, iter=5, minit="points", seed=rng)
    far = np.linalg.norm(held.old[among] - centres[labels], axis=1)
    order = np.lexsort((far, labels))
    first = order[np.unique(labels[order], return_index=True)[1]]
    rest = np.setdiff1d(np.arange(len(among)), first)
    more = rng.choice(rest, max(0, count - len(first)), replace=False)
    return among[np.concatenate([first, more])[:count]]


def farthest(held: Judged, count: int, rng: np.random.Generator) -> Index:
    """Each the one that is farthest from all before it."""
    among = rng.permutation(held.unjudged)
    return among[farthest_first(held.old[among], min(count, len(among)))]


@dataclass(frozen=True)
class Line:
    """One way to fit."""

    title: str
    share: float = 0.25
    choose: Chooser = at_random
    log: bool = False
    fit: tuple[tuple[str, Any], ...] = (("solver", "closed_form"),)


LINES = (
    Line("a random quarter, closed form"),
    Line("a random half", share=0.5),
    Line("all documents that are not judged", share=1.0),
    Line("a quarter that covers: one of each cluster", choose=covering),
    Line("a quarter that covers: farthest first", choose=farthest),
    Line("and logged queries", log=True),
    Line("refined without labels", fit=()),
    Line("affine B", fit=(("solver", "closed_form"), ("backward_map", "affine"))),
    Line("all of them, logged queries, refined", share=1.0, log=True, fit=()),
)


def scores(held: Judged, logged: Judged, line: Line, seed: int) -> NDArray[np.float64]:
    """nDCG@10 of each query."""
    rng = np.random.default_rng(seed)
    pairs = line.choose(held, round(line.share * len(held.old)), rng)
    old, new = held.old[pairs], held.new[pairs]
    queries = len(held.relevant)
    parts: list[tuple[Index, Index]] = [(np.arange(queries), np.arange(len(logged.relevant)))]
    if line.log and logged is held:
        first, second = np.array_split(rng.permutation(queries), 2)
        parts = [(first, second), (second, first)]
    out = np.zeros(queries)
    for asked, log in parts:
        sides = old, new
        if line.log:
            sides = (
                np.concatenate([old, logged.old_queries[log]]),
                np.concatenate([new, logged.new_queries[log]]),
            )
        upgrade = Upgrade(seed=seed, **dict(line.fit)).fit(*sides)
        backward = unit(upgrade.query_for_old(held.new_queries[asked]))
        ranked = best(backward @ held.old.T, TOP)
        for i, found in zip(asked.tolist(), ranked, strict=True):
            out[i] = held.ndcg_of(i, found)
    return out


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks gone", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args(arguments)
    print(machine(), "\n")
    settings = []
    for name in COLLECTIONS:
        for models in UPGRADES:
            held = Judged.load(chosen.data, name, models)
            apart = name == "scifact"
            logged = Judged.load(chosen.data, name, models, "qrels_train") if apart else held
            settings.append((f"{name} {models[0]} → {models[1]}", held, logged))
    print("| pairs and B | " + " | ".join(title for title, _, _ in settings) + " | mean |")
    print("|---" * (len(settings) + 2) + "|")
    today = [held.ndcg(best(held.old_queries @ held.old.T, TOP)) for _, held, _ in settings]
    print("| old/old | " + " | ".join(f"{x:.1f}" for x in today) + f" | {np.mean(today):.1f} |")
    for line in LINES:
        cells, means = [], []
        for _, held, logged in settings:
            found = [float(scores(held, logged, line, seed).mean()) for seed in range(chosen.seeds)]
            means.append(np.mean(found))
            cells.append(f"{np.mean(found):.1f} ± {np.std(found):.1f}")
        print(f"| {line.title} | " + " | ".join(cells) + f" | {np.mean(means):.1f} |", flush=True)
