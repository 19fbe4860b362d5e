"""What a reader must know before believing a compatibility table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crossfade.compatibility.held import Float, Held
from crossfade.compatibility.verdicts import BASELINE, FEW_QUERIES, Difference, Verdict
from crossfade.pairs.matching import match, stretches
from crossfade.retrieval import Measured, Metric
from crossfade.retrieval.ranking import unit_rows
from crossfade.solvers.doubts import FEWEST
from crossfade.spaces import fit_dim
from crossfade.upgrade import Upgrade


def seen_rows(upgrade: Upgrade, held: Held) -> list[str]:
    """Rows the fit has seen flatter it."""
    known = upgrade.seen(held.query_new)
    if not known.overlap:
        return []
    return [
        f"{known.share:.0%} of the queries were among the pairs the upgrade was fitted on: these "
        "numbers flatter it, measure on held-out pairs"
    ]


def strange_rows(upgrade: Upgrade, held: Held) -> list[str]:
    """Rows whose two sides are of different items, or of other models than were fitted on.

    Of fewer rows than a fit wants nothing can be told.
    """
    out = _strange(upgrade, "", held.gallery_old, held.gallery_new)
    if held.query_old is not None and held.query_old is not held.gallery_old:
        out += _strange(upgrade, " of the queries", held.query_old, held.query_new)
    return out


def _strange(upgrade: Upgrade, whose: str, old: Float, new: Float) -> list[str]:
    if len(old) < FEWEST:
        return []
    looked_at = stretches(len(old))
    rows = np.concatenate([np.arange(part.start, part.stop) for part in looked_at])
    old, new = old[rows], new[rows]
    seen = match(old, new, looked_at)
    if seen.belongs is False:
        return [
            f"row i of 'old' does not belong to row i of 'new'{whose} ({seen.how}): these numbers "
            "say nothing, give the same items in the same order to both models"
        ]
    if not agree_under(upgrade, old, new):
        return [
            f"under the upgrade's maps the rows{whose} agree no better than shuffled ones: they "
            "are of other models than it was fitted on, and these numbers say nothing of it"
        ]
    return []


def agree_under(upgrade: Upgrade, old: Float, new: Float) -> bool:
    """Whether B(new) is nearer to its own old vector than to others', beyond chance.

    Measured in deviations of the similarity of a row and another's. A map that knows nothing of
    these models has none, but for one over the root of the dimensions, and shuffled rows have none
    but for one over the root of the rows.

    >>> rng = np.random.default_rng(0)
    >>> new = rng.normal(size=(300, 16)).astype("f4")
    >>> old = new[:, :8] + 0.3 * rng.normal(size=(300, 8)).astype("f4")
    >>> upgrade = Upgrade(solver="closed_form").fit(old[:150], new[:150])
    >>> agree_under(upgrade, old[150:], new[150:]), agree_under(upgrade, old[:149:-1], new[150:])
    (True, False)
    """
    asked = unit_rows(fit_dim(upgrade.backward(new), old.shape[1]))
    there = unit_rows(fit_dim(upgrade.in_shared_space(old), old.shape[1]))
    similar = (asked - asked.mean(axis=0)) @ (there - there.mean(axis=0)).T
    own = np.diag(similar)
    others = similar[~np.eye(len(own), dtype=bool)]
    lead = (own.mean() - others.mean()) / max(float(others.std()), 1e-12)
    return bool(lead > 2 / np.sqrt(old.shape[1]) + 3 / np.sqrt(len(own)))


def no_old_queries(held: Held, today: float | None = None, gallery: str = "") -> list[str]:
    """Today's search cannot be compared with where its model is gone.

    `gallery` says what was searched where that is less than the index whose level `today` is.
    """
    if held.query_old is not None:
        return []
    said = "the old model has embedded no queries: old/old cannot be measured, and "
    if today is None:
        return [f"{said}nothing is judged against it"]
    out = [f"{said}verdicts are against the {today:g} that was given, taken as exact"]
    if gallery:
        out.append(
            f"that level has to be of a gallery like this one: what is searched are {gallery}, and "
            "among more rows less is found (--store judges on the whole index)"
        )
    return out


def beyond_gallery(names: Sequence[str], held: Held) -> list[str]:
    """A k larger than the gallery makes every item one of the first."""
    items = held.gallery - (held.own is not None)
    return [
        f"{name} looks at more items than the gallery has ({held.gallery})"
        for name in names
        if Metric.named(name).k > items
    ]


def weak_grounds(
    cases: dict[str, Measured],
    decisive: Sequence[str],
    verdicts: dict[str, Verdict],
    better: dict[str, Difference],
    today: float | None = None,
) -> list[str]:
    """A new model that is no better (the paper's limitation), and too few queries to tell."""
    if not decisive:
        return []
    out = []
    queries = next(iter(cases.values())).queries
    level = {m: d.difference for m, d in better.items() if d.verdict != "compatible"}
    if level:
        clearly = "" if min(level.values()) <= 0 else "clearly "
        numbers = ", ".join(
            f"{m} {cases['new/new'].mean(m):.1f} against {_today(cases, m, today):.1f}"
            for m in level
        )
        out.append(
            f"the new model is not {clearly}better than the old one on this data ({numbers}): "
            "there is little for an upgrade to gain"
        )
    if queries < FEW_QUERIES:
        out.append(
            f"only {queries} queries: too few for these verdicts, use at least {FEW_QUERIES}"
        )
    for case, verdict in verdicts.items():
        for metric, found in verdict.metrics.items():
            needed = found.queries_needed(queries)
            if found.verdict == "inconclusive" and needed is not None and needed > queries:
                out.append(
                    f"{case} is inconclusive in {metric}: {found.difference:+.2f} points on "
                    f"{queries} queries; about {needed:,} would tell"
                )
    return out


def _today(cases: dict[str, Measured], metric: str, known: float | None) -> float:
    return cases[BASELINE].mean(metric) if known is None else known
