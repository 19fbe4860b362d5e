"""Partial backfilling: Figure 4, Tables 3 and 4 (M̃ and curves)."""

from __future__ import annotations

import argparse

import numpy as np

from crossfade import Held, Upgrade
from crossfade.backfill import ORDERS, Groups, Items, curves, positions
from crossfade.backfill.curve import Curve
from crossfade.compatibility.table import sides
from crossfade.retrieval import SameClass, measure
from experiments import published
from experiments.fits import METRICS, Run
from experiments.outcome import Outcome
from experiments.published import FASTFILL, FCT, OURS

PAPER = "Figure 4, Tables 3 and 4"
TABLES = {
    "extending-classes": "Table 3 (extending classes)",
    "pretrained": "Table 4 (independently pretrained)",
}
FAR, RANDOM = "far-mse", "random"
POINTS = 21


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--against", choices=list(TABLES), default="extending-classes")


def curve_of(upgrade: Upgrade, held: Held, order: str) -> Curve:
    """From F(old) to B(new), B(new) as queries; `uncertainty` is FastFill's own order."""
    vectors = sides(upgrade, held.gallery_old, held.gallery_new)
    lifted, mapped = vectors["F(old)"], vectors["B(new)"]
    assert isinstance(held.relevance, SameClass)
    labels = held.relevance.gallery_labels
    items = Items(np.arange(held.gallery), held.gallery_old, lifted, labels)
    groups = Groups.of_classes([items], classes=int(labels.max()) + 1)
    # FastFill's order is learned with its map; the others are the package's.
    how = upgrade.order if order == "uncertainty" else ORDERS[order]  # type: ignore[attr-defined]
    places = positions(how(items, groups), items.ids)
    return curves(mapped, lifted, mapped, {order: places}, held.relevance, METRICS, points=POINTS)[
        order
    ]


def run(given: Run, args: argparse.Namespace) -> Outcome:
    against = TABLES[args.against]
    table = published.BACKFILL[against]
    out = Outcome(
        f"backfilling-{args.against}",
        f"Partial backfilling, {args.against.replace('-', ' ')}",
        f"{against} and Figure 4, M̃",
        args.substitution,
        ("Method", "order"),
        METRICS,
    )
    out.facts = given.facts()
    held = given.features.held
    assert isinstance(held.relevance, SameClass)
    for shown, method, order, paper in (
        (FCT, "FCT", RANDOM, table[FCT]),
        (FASTFILL, "FastFill", "uncertainty", table[FASTFILL]),
        (FASTFILL, "FastFill", RANDOM, None),
        (OURS, "Ours", FAR, table[OURS]),
        (OURS, "Ours", RANDOM, None),
        (OURS, "Ours", "near-mse", None),
    ):
        found = [curve_of(given.fit(method, seed), held, order) for seed in given.seeds]
        out.add((shown, order), paper, {m: [c.area(m) for c in found] for m in METRICS})
        out.series[f"{shown}, {order}"] = {
            m: np.mean([c.means(m) for c in found], axis=0).round(3).tolist() for m in METRICS
        }
        reach = {}
        for m in METRICS:
            new = measure(
                given.features.test.new, given.features.test.new, held.relevance, (m,)
            ).mean(m)
            mean = np.mean([c.means(m) for c in found], axis=0)
            there = np.flatnonzero(mean >= new)
            reach[m] = float(found[0].shares[there[0]]) if len(there) else None
            out.facts.setdefault("new/new", {})[m] = new
        out.facts.setdefault("share at which new/new is reached", {})[f"{shown}, {order}"] = reach
    out.series["kind"] = "curves"
    _claims(out)
    return out


def _claims(out: Outcome) -> None:
    ours = (OURS, FAR)
    out.claim("Ours (far from the class mean first) above FCT (random)", [(ours, (FCT, RANDOM))])
    out.claim("Ours above FastFill (uncertainty)", [(ours, (FASTFILL, "uncertainty"))])
    out.claim("far from the class mean first is above a random order", [(ours, (OURS, RANDOM))])
    out.claim(
        "FastFill's uncertainty is above a random order",
        [((FASTFILL, "uncertainty"), (FASTFILL, RANDOM))],
    )
    reach = out.facts["share at which new/new is reached"][f"{OURS}, {FAR}"]
    early = [m for m in METRICS if reach[m] is not None and reach[m] < 0.5]
    word = "holds" if len(early) == len(METRICS) else "holds in part" if early else "does not hold"
    said = ", ".join(
        f"{m}: {'never before the end' if reach[m] is None else f'{reach[m]:.0%}'}" for m in METRICS
    )
    out.judge("with less than 50 % backfilled, the new model's level is reached", word, said, ours)
