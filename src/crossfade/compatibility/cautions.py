"""What a reader must know before believing a compatibility table."""

from __future__ import annotations

from collections.abc import Sequence

from crossfade.compatibility.held import Held
from crossfade.compatibility.verdicts import BASELINE, FEW_QUERIES, Difference, Verdict
from crossfade.retrieval import Measured, Metric
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


def no_old_queries(held: Held) -> list[str]:
    """Today's search cannot be compared with where its model is gone."""
    if held.query_old is not None:
        return []
    return [
        "the old model has embedded no queries: old/old cannot be measured, and nothing is judged "
        "against it"
    ]


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
) -> list[str]:
    """A new model that is no better (the paper's limitation), and too few queries to tell."""
    if not decisive:
        return []
    out = []
    queries = cases[BASELINE].queries
    level = {m: d.difference for m, d in better.items() if d.verdict != "compatible"}
    if level:
        clearly = "" if min(level.values()) <= 0 else "clearly "
        numbers = ", ".join(
            f"{m} {cases['new/new'].mean(m):.1f} against {cases[BASELINE].mean(m):.1f}"
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
