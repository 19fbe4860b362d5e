"""The compatibility of an upgrade: all cases measured, compared with old/old, and judged."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from crossfade.asking import Asking, Both, blended
from crossfade.cases import CASES, case_vectors
from crossfade.compatibility.cautions import (
    beyond_gallery,
    no_old_queries,
    seen_rows,
    strange_rows,
    weak_grounds,
)
from crossfade.compatibility.definition import Share, check_definition, sample_definition
from crossfade.compatibility.held import Float, Held
from crossfade.compatibility.verdicts import (
    ASKED,
    AT_FIRST,
    BASELINE,
    CROSS_MODEL,
    JUDGED,
    REQUIRED,
    Verdict,
    Wait,
    deciding,
    judge,
)
from crossfade.compatibility.write import facts, finite, latex, markdown, record, rows
from crossfade.compatibility.zero_shot import ZeroShot
from crossfade.distance import Distance
from crossfade.errors import BadInput, NotCompatible
from crossfade.retrieval import (
    Measured,
    Metric,
    Relevance,
    SameClass,
    measure,
    neighbours,
)
from crossfade.retrieval.metrics import Values
from crossfade.solvers.device import name_device
from crossfade.spaces import fit_dim, normalized
from crossfade.upgrade import Upgrade
from crossfade.upgrade.description import measure_stability
from crossfade.upgrade.notebook import render_table

# By where relevance comes from: what is measured, and what of it decides a verdict.
DEFAULTS = {
    "labels": (("cmc@1", "cmc@5", "mAP"), ("cmc@1", "mAP")),
    "qrels": (("ndcg@10", "recall@10", "mrr@10"), ("ndcg@10",)),
    "lookups": (("ndcg@10", "recall@10", "mrr@10"), ("ndcg@10",)),
    "neighbours": (("agreement@1", "agreement@10"), ()),
}
RESAMPLES = 2000
UNJUDGED = "agreement with the new model's own neighbours favours new queries by construction"
NO_BASELINE = "old/old cannot be measured without the old model's vectors of the queries"
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, eq=False)
class Compatibility:
    """What was found; percentages and points of percent throughout."""

    data: dict[str, Any]
    distance: Distance
    metrics: tuple[str, ...]
    decisive: tuple[str, ...]
    required: tuple[str, ...]
    cases: dict[str, Measured]
    ci95: dict[str, dict[str, tuple[float, float]]]
    verdicts: dict[str, Verdict]
    definition: dict[str, dict[str, Share]]
    stability: dict[str, Any]
    zero_shot: ZeroShot | None
    per_class: dict[str, dict[Any, dict[str, float]]]
    upgrade: dict[str, Any]
    warnings: list[str] = field(default_factory=list)
    sample: Compatibility | None = None
    """Where this was measured on a whole store: the same on held-out rows, and new/new with it."""
    today: float | None = None
    """The level of today's search that verdicts are against, where old/old was not measured."""
    waits: dict[str, Wait] = field(default_factory=dict)
    """By metric what new queries lack until all is filled, where the old model is gone."""

    @property
    def against(self) -> str:
        """What verdicts compare with."""
        return BASELINE if self.today is None else f"today's {self.today:g}"

    @property
    def judged(self) -> bool:
        """Whether there was anything to judge by: labels, qrels or lookups."""
        return bool(self.decisive)

    @property
    def why_unjudged(self) -> str:
        """Why there was nothing to judge by; empty where there was."""
        if self.judged:
            return ""
        return UNJUDGED if self.data["relevance"] == "neighbours" else NO_BASELINE

    @property
    def failed(self) -> tuple[str, ...]:
        """Required cases that are not compatible, or that nothing could judge."""
        bad = ("not compatible", "not judged")
        return tuple(c for c in self.required if self.verdicts[c].word in bad)

    def check(self, where: object = None) -> None:
        """Raise `NotCompatible` where a required case has failed, with what to do instead."""
        if not self.failed:
            return
        cases = " and ".join(self.failed)
        if not self.judged:
            raise NotCompatible(
                f"{cases} not judged: {self.why_unjudged}",
                where=where,
                step=(
                    "make the pairs with --embed-old, or give today's level with --today; "
                    if self.data["relevance"] == "lookups"
                    else "give labels, qrels, or lookups (crossfade pairs, or --queries and "
                    "--qrels, one item to a query); "
                )
                + "--require none shows the numbers alone",
            )
        if self.today is not None:
            step = (
                "new queries are all there is: fill before they are served (crossfade plan --today "
                "says from which share on), or fit with more pairs and with logged queries"
            )
        elif self.asking in ("both", "blend"):
            step = (
                f"ask with both models' queries while both are there ({self.asking}; as a verdict: "
                f"--require {AT_FIRST[self.asking]}), and fill before new queries are alone"
            )
        else:
            step = "do not serve these queries; ask as today, backfill, or refit"
        raise NotCompatible(
            f"{cases}: below {self.against} with 95 % confidence", where=where, step=step
        )

    @property
    def asking(self) -> Asking | None:
        """How to ask the untouched gallery: with the new model alone where that is compatible,
        else with both, as two queries or as one, where that is not below today; else as today.
        Two come before one, for they gain with every item that is filled. Where the old model is
        gone there is the new one alone.

        None where there is nothing to judge by.
        """
        if not self.judged:
            return None
        if self.today is not None:
            return "new"
        if self.verdicts[AT_FIRST["new"]].word == "compatible":
            return "new"
        ways: list[Asking] = ["both", "blend"]
        fair = [way for way in ways if self.verdicts[AT_FIRST[way]].word != "not compatible"]
        return fair[0] if fair else "old"

    def means(self) -> dict[str, dict[str, float]]:
        return {case: found.means() for case, found in self.cases.items()}

    def record(self) -> dict[str, Any]:
        """Everything, as `crossfade evaluate --json` writes it."""
        found: dict[str, Any] = finite(record(self))
        return found

    def facts(self) -> list[str]:
        """What is to be said beside the table, a line each."""
        return facts(self)

    def markdown(self) -> str:
        """The table and the facts beside it."""
        return markdown(self)

    def _repr_html_(self) -> str:
        title = f"{self.data['name']}: in percent, with 95 % intervals over queries"
        cells = [[case, *means, verdict] for case, means, verdict in rows(self)]
        heads = ["Query/Gallery", *self.metrics, f"against {self.against}"]
        return render_table(title, heads, cells)

    def latex(self) -> str:
        """The table in the form of the paper's."""
        return latex(self)


def sides(upgrade: Upgrade, old: Float | None, new: Float) -> dict[str, Float]:
    """The four kinds of vectors that cases are made of; old is not cut and not padded.

    Without old vectors the two that are made of new ones.
    """
    read = upgrade.forward_.reads, upgrade.backward_.reads
    if old is None:
        read[1].check_shape(new, read[0])
        made = {"new": normalized(new, read[1].normalization, "new")}
        return made | {"B(new)": upgrade.backward(new)}
    for side, x, other in ((read[0], old, read[1]), (read[1], new, read[0])):
        side.check_shape(x, other)
    return {
        "old": upgrade.as_stored(old),
        "new": normalized(new, read[1].normalization, "new"),
        "F(old)": upgrade.forward(old),
        "B(new)": upgrade.backward(new),
    }


def check_today(held: Held, decisive: Sequence[str], today: float | None) -> None:
    """Raise unless the level stands for what is not measured, in the one metric that decides."""
    if today is None:
        return
    if not 0 <= today <= 100:
        raise BadInput(f"today's level is {today:g}", step="give it in percent")
    if held.query_old is not None:
        raise BadInput(
            "today's level is measured on these queries, and one was given",
            step="leave it out, or give queries of the new model alone",
        )
    if len(decisive) != 1:
        raise BadInput(
            f"today's level is given for one metric, and {len(decisive) or 'none'} decide"
            f"{'' if decisive else 's'}",
            step="name one with --metric, other than agreement",
        )


def asked_vectors(
    case: str,
    queries: dict[str, Float],
    gallery: dict[str, Float],
    distance: Distance,
    seed: int = 0,
) -> tuple[tuple[Float, Float], Distance]:
    """Queries and gallery of a case that asks both models, and the distance they are ranked by."""
    if case == "blend/old":
        on_old = fit_dim(queries["B(new)"], queries["old"].shape[1])
        return (blended(on_old, queries["old"]), gallery["old"]), distance
    both = Both(queries["old"], queries["B(new)"], gallery["old"], distance=distance, seed=seed)
    asked = both.as_old() if case == "both/old" else both.as_filled(gallery["B(new)"])
    return (asked.queries, asked.items), "dot"


def evaluate(
    upgrade: Upgrade,
    held: Held,
    *,
    metrics: Sequence[str] | None = None,
    required: Sequence[str] = REQUIRED,
    today: float | None = None,
    distance: Distance = "cosine",
    device: str = "cpu",
    resamples: int = RESAMPLES,
    seed: int = 0,
    definition: bool = True,
    definition_sample: int | None = None,
    zero_shot: tuple[Float, Relevance] | None = None,
    per_class: bool = False,
    progress: Progress | None = None,
) -> Compatibility:
    """Measure all eight cases on rows the upgrade was not fitted on, and judge them; and both
    models on the query, as two (`both`) and as one (`blend`).

    `metrics` decide the verdicts; without them, those of the paper do (labels) or ndcg@10 (qrels).
    Agreement with the new model's own neighbours decides nothing: with neither labels nor qrels the
    cases are not judged. `required` cases are those `Compatibility.failed` looks at.
    Where the old model has embedded no queries, `today` (in percent, of the one metric that
    decides) stands in for old/old; without it nothing is judged.
    `definition_sample` checks Definition 3.1 on that many pairs of each kind in place of all.

    >>> import numpy as np
    >>> from crossfade.pairs import Pairs
    >>> rng = np.random.default_rng(0)
    >>> labels = np.arange(200) % 4
    >>> new = np.eye(4)[labels] + 0.2 * rng.normal(size=(200, 4))
    >>> old = -new[:, :3] + 0.2 * rng.normal(size=(200, 3))
    >>> upgrade = Upgrade(solver="closed_form").fit(old[:100], new[:100], labels[:100])
    >>> held = Held.of(Pairs.from_arrays(old[100:], new[100:], labels[100:]))
    >>> evaluate(upgrade, held, resamples=200).verdicts["new/old"].word
    'not compatible'
    """
    for case in required:
        if case not in JUDGED:
            raise BadInput(
                f"{case!r} is not a cross-model case", step=f"use one of {', '.join(JUDGED)}"
            )
    if resamples < 100:
        raise BadInput(f"{resamples} resamples are too few", step="use at least 100")
    if metrics is not None and not metrics:
        raise BadInput("no metric was named", step="name one, e.g. mAP")
    names, decisive = DEFAULTS[held.source] if metrics is None else (tuple(metrics),) * 2
    names = tuple(dict.fromkeys(Metric.named(name).name for name in names))
    decisive = deciding(tuple(dict.fromkeys(Metric.named(name).name for name in decisive)))
    check_today(held, decisive, today)
    lacking = decisive if held.query_old is None else ()
    if held.query_old is None and today is None:
        decisive = ()
    device = name_device(device)
    gallery = sides(upgrade, held.gallery_old, held.gallery_new)
    same_rows = held.query_old is held.gallery_old
    queries = gallery if same_rows else sides(upgrade, held.query_old, held.query_new)
    groups = _relevances(held, names, queries["new"], gallery["new"], distance)
    notes = strange_rows(upgrade, held) + seen_rows(upgrade, held)
    searched = "" if held.gallery_ids is None else f"{held.gallery:,} rows sampled of a store"
    notes += beyond_gallery(names, held) + no_old_queries(held, today, searched)
    cases = {}
    for case in (c for c in CASES if c.split("/")[0] in queries):
        report = None if progress is None else _named(progress, case)
        found = _measure(case_vectors(case, queries, gallery), groups, distance, device, report)
        cases[case] = Measured({name: found[name] for name in names})
    for case in ASKED if held.query_old is not None else ():
        report = None if progress is None else _named(progress, case)
        asked, how = asked_vectors(case, queries, gallery, distance, seed)
        found = _measure(asked, groups, how, device, report)
        cases[case] = Measured({name: found[name] for name in names})
    first = next(iter(cases.values()))
    if not first.queries:
        raise BadInput(
            "no query has a relevant item",
            where=held.name,
            step="give labels or qrels that relate queries to gallery items",
        )
    ci95, verdicts, better = judge(cases, decisive, resamples, seed, today)
    notes += weak_grounds(cases, decisive, verdicts, better, today)
    shares = {}
    if definition and isinstance(held.relevance, SameClass):
        shares = _definition(queries, gallery, held.relevance, distance, definition_sample, seed)
    return Compatibility(
        data={
            "name": held.name,
            "queries": held.queries,
            "gallery": held.gallery,
            "evaluated_queries": first.queries,
            "queries_with_nothing_relevant": first.skipped,
            "relevance": held.source,
            "leave_one_out": held.own is not None,
        },
        distance=distance,
        metrics=names,
        decisive=decisive,
        required=tuple(required),
        cases=cases,
        ci95=ci95,
        verdicts=verdicts,
        definition=shares,
        stability=measure_stability(upgrade.backward_.map),
        zero_shot=None
        if zero_shot is None
        else ZeroShot.of(upgrade, *zero_shot, distance, resamples, seed),
        per_class={c: m.by_class(held.query_classes) for c, m in cases.items()}
        if per_class and held.query_classes is not None
        else {},
        upgrade={
            "hash": upgrade.hash_,
            "old": upgrade.config_.old.model,
            "new": upgrade.config_.new.model,
        },
        warnings=notes,
        today=today,
        waits={name: Wait.of(cases, name, resamples, seed) for name in lacking},
    )


Groups = list[tuple[Relevance, list[str]]]


def _relevances(
    held: Held, names: Sequence[str], query: Float, gallery: Float, distance: Distance
) -> Groups:
    """Metrics by the relevance they need: agreement has the new model's own neighbours."""
    agreement = [name for name in names if Metric.named(name).kind == "agreement"]
    judged = [name for name in names if name not in agreement]
    if judged and held.relevance is None:
        raise BadInput(
            f"{judged[0]} needs labels or qrels",
            where=held.name,
            step="give them, or use agreement@k",
        )
    groups: Groups = []
    if judged and held.relevance is not None:
        groups.append((held.relevance, judged))
    if agreement:
        k = max(Metric.named(name).k for name in agreement)
        nearest = neighbours(query, gallery, k, own=held.own, distance=distance)
        groups.append((nearest, agreement))
    return groups


def _measure(
    vectors: tuple[Float, Float],
    groups: Groups,
    distance: Distance,
    device: str,
    progress: Callable[[int, int], None] | None,
) -> dict[str, Values]:
    values: dict[str, Values] = {}
    # A k beyond the gallery is noted once for all cases.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for relevance, names in groups:
            values |= measure(
                *vectors, relevance, names, distance=distance, device=device, progress=progress
            ).values
    return values


def _named(progress: Progress, case: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(case, done, total)


def _definition(
    queries: dict[str, Float],
    gallery: dict[str, Float],
    relevance: SameClass,
    distance: Distance,
    sample: int | None,
    seed: int,
) -> dict[str, dict[str, Share]]:
    """Each cross-model case in the place of d(new, old), against d(old, old)."""
    base = queries["old"], gallery["old"]
    out = {}
    for case in CROSS_MODEL:
        pair = case_vectors(case, queries, gallery)
        if sample is None:
            out[case] = check_definition(pair, base, relevance, distance)
        else:
            out[case] = sample_definition(pair, base, relevance, distance, pairs=sample, seed=seed)
    return out
