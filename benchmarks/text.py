"""Unlabelled text with judgements: each way of asking along the filling of a gallery, nDCG@10.

    python -m benchmarks text --data FOLDER [--seeds 3] [--pairs unjudged] [--weights chosen]
                              [--recipe fast] [--way both]

Pairs are a random quarter of the documents (or of those that no judgement names), B and F are
closed forms (`--recipe fast`: what `fit` makes by default, an mlp F), rows are filled in random
order, and the whole collection is the gallery. Ranked as the searcher ranks: the first twenty of
each side, scored by `crossfade.search.joined` with a sample of a thousand rows. Nothing is tuned
here. `blend` asks the old vectors, whatever is filled. `one column` is a blend of both models on
rows that are not lifted, where filled ones hold 0.7 of the new vector and 0.3 of the old: of a
query's two parts the new one counts from 0.3 up to 0.7 as the gallery is filled. `rank fusion` has
no maps: reciprocal ranks of the first hundred of an old index of all rows and of a new one of those
that are filled. `--weights chosen` is as a plan would have it: SciFact's weights are chosen on the
queries of its training split, CACM's on each half of the queries for the other.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from benchmarks.machine import machine
from crossfade import Upgrade
from crossfade.asking import DEFAULT, Both, Weights, blended
from crossfade.backfill.weights import Ruler
from crossfade.journal.space import SharedColumn, space_of
from crossfade.retrieval import from_qrels
from crossfade.search.asking import Question, Rows, Scores, joined
from crossfade.search.calibration import Sample

SHARES = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
UPGRADES = (("wordllama", "minilm"), ("minilm", "mpnet"), ("wordllama", "mpnet"))
COLLECTIONS = {"scifact": "qrels_test", "cacm": "qrels"}
DEPTH, TOP = 20, 10
FUSED, RANK = 100, 60
WAYS = ("new", "both", "both, crowds left alone", "blend", "one column", "rank fusion")
RECIPES: dict[str, dict[str, Any]] = {"closed_form": {"solver": "closed_form"}, "fast": {}}
Array = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Judged:
    """A collection as two models see it, with the queries that have judgements."""

    old: Array
    new: Array
    old_queries: Array
    new_queries: Array
    relevant: list[dict[int, int]]

    @classmethod
    def load(cls, folder: Path, name: str, models: tuple[str, str], part: str = "") -> Judged:
        tensors = load_file(folder / f"{name}-text.safetensors")
        qrels = tensors[part or COLLECTIONS[name]]
        asked = np.unique(qrels[qrels[:, 2] > 0, 0])
        place = {int(query): i for i, query in enumerate(asked)}
        relevant: list[dict[int, int]] = [{} for _ in asked]
        for query, document, grade in qrels.tolist():
            if grade > 0:
                relevant[place[query]][document] = grade
        old, new = (tensors[f"{m}_docs"].astype(np.float32) for m in models)
        old_q, new_q = (tensors[f"{m}_queries"][asked].astype(np.float32) for m in models)
        return cls(unit(old), unit(new), unit(old_q), unit(new_q), relevant)

    def ndcg(self, ranked: list[list[int]]) -> float:
        """The mean over queries, in percent."""
        return float(np.mean([self.ndcg_of(i, found) for i, found in enumerate(ranked)]))

    def ndcg_of(self, query: int, found: list[int]) -> float:
        """Of one query, in percent."""
        discounts = 1 / np.log2(np.arange(2, TOP + 2))
        grades = self.relevant[query]
        gains = np.array([grades.get(key, 0) for key in found[:TOP]], float)
        ideal = np.sort(list(grades.values()))[::-1][:TOP]
        return 100 * float(gains @ discounts[: len(gains)]) / float(ideal @ discounts[: len(ideal)])

    def weights(self, upgrade: Upgrade, among: NDArray[np.int64], seed: int) -> Weights:
        """What a plan made on these queries would have each voice count."""
        listed = [(i, d, g) for i in among for d, g in self.relevant[i].items()]
        relevance = from_qrels(listed, len(self.old_queries), len(self.old))
        both = Both(
            upgrade.as_stored(self.old_queries),
            upgrade.backward(self.new_queries),
            upgrade.as_stored(self.old),
            upgrade.forward(self.old),
        )
        ruler = Ruler(relevance, ["ndcg@10"], seed, among)
        return ruler.of_both(both, upgrade.backward(self.new))

    @property
    def unjudged(self) -> NDArray[np.int64]:
        named = {document for grades in self.relevant for document in grades}
        return np.array([i for i in range(len(self.old)) if i not in named])


def unit(x: Array) -> Array:
    return np.asarray(x / np.linalg.norm(x, axis=1, keepdims=True), np.float32)


def best(scores: Array, count: int) -> list[list[int]]:
    """The first of each row, by score."""
    first = np.argpartition(-scores, count, axis=1)[:, :count]
    order = np.argsort(-np.take_along_axis(scores, first, 1), axis=1, kind="stable")
    return np.take_along_axis(first, order, 1).tolist()


def fused(first: list[int], other: list[int]) -> list[int]:
    """Two lists by the sum of their reciprocal ranks, as databases join them."""
    scores: dict[int, float] = {}
    for found in (first, other):
        for rank, key in enumerate(found, 1):
            scores[key] = scores.get(key, 0) + 1 / (RANK + rank)
    return sorted(scores, key=lambda key: -scores[key])


def uncrowded(question: Question, found: Scores, of: Sample) -> NDArray[np.float64]:
    """As `joined` with the default weights, but what B says of a row is the same in a crowd."""
    by_old = of.scale("old", question.old, "cosine").standardize(found.old)
    by_backward = of.scale("old", question.backward, "cosine").standardize(found.backward)
    out = 0.7 * by_old + 0.3 * by_backward
    if of.knows_filled:
        by_new = of.scale("filled", question.shared, "cosine").standardize(found.shared)
        out = np.where(found.filled, 0.5 * by_old + 0.5 * by_new, out)
    return np.asarray(out)


def paths(
    held: Judged,
    seed: int,
    pairs_of: str,
    others: Judged | None = None,
    choose: bool = False,
    recipe: str = "closed_form",
) -> dict[str, list[float]]:
    """The quality of each way at each share; `others` are queries to choose weights by."""
    rng = np.random.default_rng(seed)
    rows = len(held.old)
    among = held.unjudged if pairs_of == "unjudged" else np.arange(rows)
    pairs = rng.choice(among, rows // 4, replace=False)
    upgrade = Upgrade(**RECIPES[recipe], seed=seed).fit(held.old[pairs], held.new[pairs])
    weights = [DEFAULT] * len(held.relevant)
    if choose and others is not None:
        told = np.arange(len(others.relevant))
        weights = [others.weights(upgrade, told, seed)] * len(held.relevant)
    elif choose:
        halves = np.array_split(rng.permutation(len(held.relevant)), 2)
        for mine, theirs in (halves, halves[::-1]):
            found = held.weights(upgrade, theirs, seed)
            for i in mine.tolist():
                weights[i] = found
    lifted = SharedColumn.of(upgrade, space_of(upgrade)).lift(held.old)
    backward = upgrade.query_for_old(held.new_queries)
    sample, order = rng.choice(rows, min(1000, rows), replace=False), rng.permutation(rows)
    by_old = best(held.old_queries @ held.old.T, DEPTH)
    by_backward = best(unit(backward) @ held.old.T, DEPTH)
    by_many = best(held.old_queries @ held.old.T, FUSED)
    # In the shared space, where old vectors stand padded.
    placed, placed_queries = (upgrade.in_shared_space(x) for x in (held.old, held.old_queries))
    mapped, mapped_queries = (upgrade.backward(x) for x in (held.new, held.new_queries))
    mixture = blended(mapped, placed, 0.7)
    out: dict[str, list[float]] = {way: [] for way in WAYS}
    for share in SHARES:
        filled = np.zeros(rows, bool)
        filled[order[: round(share * rows)]] = True
        stored = np.where(filled[:, None], held.new, lifted)
        of = Sample(held.old[sample], lifted[sample], held.new[sample[filled[sample]]])
        by_new = best(held.new_queries @ stored.T, DEPTH)
        # Before anything is lifted both queries go to the old vectors.
        second = by_new if share else by_backward
        out["new"].append(held.ndcg(second))
        ranked, alone, mixed = [], [], []
        for i, (first, other) in enumerate(zip(by_old, second, strict=True)):
            some = np.array(list(dict.fromkeys([*first, *other])))
            question = Question(held.old_queries[i], held.new_queries[i], backward[i])
            done = filled[some]
            rows_found = Rows(held.old[some], stored[some], ~done & (share > 0), done)
            found = Scores.of(question, rows_found, "cosine")
            scores = joined(question, found, of, "cosine", weights[i])
            ranked.append(some[np.argsort(-scores, kind="stable")].tolist())
            scores = uncrowded(question, found, of)
            alone.append(some[np.argsort(-scores, kind="stable")].tolist())
            one = blended(backward[i], held.old_queries[i], 0.3)
            mixed.append(best((held.old @ one)[None], TOP)[0])
        out["both"].append(held.ndcg(ranked))
        out["both, crowds left alone"].append(held.ndcg(alone))
        out["blend"].append(held.ndcg(mixed))
        column = np.where(filled[:, None], mixture, placed)
        asked = blended(mapped_queries, placed_queries, 0.3 + 0.4 * share)
        out["one column"].append(held.ndcg(best(asked @ column.T, TOP)))
        there = np.flatnonzero(filled)
        many = [[]] * len(by_many)
        if len(there):
            many = best(held.new_queries @ held.new[there].T, min(FUSED, len(there) - 1))
        both = zip(by_many, many, strict=True)
        out["rank fusion"].append(held.ndcg([fused(old, there[new].tolist()) for old, new in both]))
    return out


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks text", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--weights", choices=["default", "chosen"], default="default")
    parser.add_argument("--pairs", choices=["any", "unjudged"], default="any")
    parser.add_argument("--recipe", choices=list(RECIPES), default="closed_form")
    parser.add_argument("--way", choices=WAYS, action="append", help="these alone; by default all")
    chosen = parser.parse_args(arguments)
    print(machine(), "\n")
    heads = [f"{share:.0%}" for share in SHARES]
    print("| collection, upgrade | old/old | new/new | asking | " + " | ".join(heads) + " |")
    print("|---" * (4 + len(SHARES)) + "|")
    for name in COLLECTIONS:
        for models in UPGRADES:
            held = Judged.load(chosen.data, name, models)
            old = held.ndcg(best(held.old_queries @ held.old.T, TOP))
            new = held.ndcg(best(held.new_queries @ held.new.T, TOP))
            others = None
            if name == "scifact":
                others = Judged.load(chosen.data, name, models, "qrels_train")
            how = (chosen.pairs, others, chosen.weights == "chosen", chosen.recipe)
            found = [paths(held, seed, *how) for seed in range(chosen.seeds)]
            for way in chosen.way or WAYS:
                values = np.array([one[way] for one in found])
                cells = [
                    f"{m:.1f} ± {s:.1f}"
                    for m, s in zip(values.mean(axis=0), values.std(axis=0), strict=True)
                ]
                title = f"{name} {models[0]} → {models[1]}"
                print(
                    f"| {title} | {old:.1f} | {new:.1f} | {way} | " + " | ".join(cells) + " |",
                    flush=True,
                )
