"""`quickstart`: sample, fit, evaluate, plan, and say what comes of it. The store is only read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from crossfade.asking import Asking
from crossfade.assessment.answer import Answer, Fill, judge
from crossfade.assessment.commands import Carrying
from crossfade.assessment.models import Named
from crossfade.assessment.parts import (
    ANSWER,
    EVALUATION,
    PAIRS,
    PLAN,
    REPORT,
    UPGRADE,
    Inputs,
    Parts,
    differing,
    digest,
    write_record,
)
from crossfade.assessment.promise import (
    Stage,
    ends_alone,
    measured_on_store,
    simulated,
)
from crossfade.backfill.plan import Plan
from crossfade.backfill.planning import plan as make_plan
from crossfade.compatibility import Held, evaluate
from crossfade.compatibility.table import DEFAULTS
from crossfade.compatibility.write import finite, record
from crossfade.errors import BadInput, NotCompatible
from crossfade.journal import load_journal, open_migrating
from crossfade.lookups import evaluate_on_store, read_held, sample_pairs
from crossfade.lookups.models import Model
from crossfade.lookups.sample import HELD_ROWS, LOOKUPS, ROWS
from crossfade.migration import Migration
from crossfade.migration.checks import check_obstacles, refuse_duplicates
from crossfade.migration.start import Outlook
from crossfade.pairs import Pairs
from crossfade.solvers.settings import Solver
from crossfade.stores import Store
from crossfade.stores.address import Url
from crossfade.upgrade import Upgrade

Progress = Callable[[str, int, int], None]
SAMPLING, FITTING, EVALUATING, PLANNING = (
    "1/4 sampling and embedding",
    "2/4 fitting",
    "3/4 evaluating",
    "4/4 planning",
)


def quickstart(
    store: str | Path | Store,
    folder: str | Path,
    *,
    embed: Model | Named,
    embed_old: Model | Named | None = None,
    source: str | None = None,
    title: str | None = None,
    labels: str | None = None,
    rows: int = ROWS,
    held: int = HELD_ROWS,
    lookups: int | None = None,
    id: str | None = None,
    vector: str | None = None,
    cost_per_1k: float | None = None,
    items_per_second: float | None = None,
    today: float | None = None,
    solver: Solver | None = None,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Answer:
    """Is upgrading this store to the model `embed` worth it, and how is it done?

    Writes pairs, upgrade, evaluation, plan, report and answer into `folder`; nothing is written to
    the store. A second call with the same folder goes on where the first was stopped.

    Parameters
    ----------
    store : its address, or an open store.
    embed, embed_old : the new and the old model, as `sample_pairs` takes them. Without the old one
        new queries alone are planned for, and of lookups nothing can be compared with today.
    source : the column of texts; where there is a single one it need not be named.
    labels : a column of classes. Then rows are judged by their class, and no lookups are made
        unless `lookups` says how many.
    rows, held, lookups : how many to sample, as in `sample_pairs`.
    cost_per_1k, items_per_second : of embedding. By default what the sample took.
    today : the level of today's search in percent, where no old model can tell.
    solver : of `Upgrade`; by default "fast" where torch is installed, else "closed_form".
    overwrite : begin anew in a folder that was made of other rows or models.
    progress : called with the step, how much is done, and how much there is.

    Examples
    --------
    >>> import lance, numpy as np, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> rng = np.random.default_rng(0)
    >>> words = [f"w{n}" for n in range(60)]
    >>> texts = [" ".join(rng.choice(words, 12)) for _ in range(300)]
    >>> views = rng.normal(size=(2, 60, 16))
    >>> def model(texts, view=0, share=1.0):
    ...     counts = np.array([[t.split().count(w) for w in words] for t in texts], np.float32)
    ...     return (counts @ views[view])[:, : int(16 * share)].astype(np.float32)
    >>> def old(texts):
    ...     return model(texts, 1, 0.5)
    >>> vectors = pa.array(old(texts).tolist(), pa.list_(pa.float32(), 8))
    >>> table = pa.table({"id": range(300), "body": texts, "vector": vectors})
    >>> _ = lance.write_dataset(table, folder / "items.lance")
    >>> answer = quickstart(folder / "items.lance", folder / "answer", embed=model, embed_old=old,
    ...                     rows=150, held=150, lookups=120, solver="closed_form")
    >>> answer.rows, answer.new_dim, [stage.name for stage in answer.stages][:2]
    (300, 16, ['today', 'started'])
    """
    asked = _Asked(
        source=source,
        title=title,
        labels=labels,
        rows=rows,
        held=held,
        lookups=lookups if lookups is not None else 0 if labels is not None else LOOKUPS,
        id=id,
        vector=vector,
        cost_per_1k=cost_per_1k,
        items_per_second=items_per_second,
        today=today,
        solver=solver or ("fast" if find_spec("torch") is not None else "closed_form"),
        seed=seed,
    )
    if not asked.lookups and labels is None:
        raise BadInput(
            "nothing to judge by: neither lookups nor labels",
            step="leave --lookups out, or name a column of classes with --labels",
        )
    new = Named.of(embed)
    old = None if embed_old is None else Named.of(embed_old)
    with ExitStack() as stack:
        if isinstance(store, str | Path):
            opened = open_migrating(store, id=id, vector=vector)
            stack.callback(opened.close)
        else:
            opened = store
        _check_store(opened)
        run = _Run(
            opened,
            Parts(Path(folder), may_hold=_inside(opened, Path(folder))),
            new,
            old,
            asked,
            progress or (lambda step, done, total: None),
        )
        answer = run.answer(overwrite=overwrite)
    if isinstance(store, str | Path) and "://" in str(store) and Url.of(str(store)).secrets:
        answer.warnings.append(
            "the commands leave the password of the address out: set it where your database looks "
            "for it (PGPASSWORD), or type the address as before"
        )
    write_record(run.parts.path(ANSWER), finite(answer.record()))
    _write_report(run.parts, store)
    return answer


def _write_report(parts: Parts, store: str | Path | Store) -> None:
    """The parts as one page to pass on, and the store they are of where it has an address."""
    from crossfade.report import write_report

    places: list[str | Path] = [parts.path(name) for name in (UPGRADE, EVALUATION, PLAN)]
    if isinstance(store, str | Path):
        places.append(store)
    write_report(places, parts.path(REPORT), overwrite=True)


@dataclass(frozen=True)
class _Asked:
    source: str | None
    title: str | None
    labels: str | None
    rows: int
    held: int
    lookups: int
    id: str | None
    vector: str | None
    cost_per_1k: float | None
    items_per_second: float | None
    today: float | None
    solver: Solver
    seed: int


def _check_store(store: Store) -> None:
    """What `migrate start` would refuse anyway, before a model is paid."""
    known = load_journal(store)
    if known is not None and not known.over:
        raise BadInput(
            f"a migration to {known.new_model or known.upgrade[:12]} is under way ({known.stage})",
            where=store.name,
            step="go on with it: crossfade migrate status",
        )
    check_obstacles(store, "ask")
    refuse_duplicates(store)


def _inside(store: Store, folder: Path) -> tuple[str, ...]:
    """The name of a store that lies in the folder itself."""
    try:
        return Path(store.name).resolve().relative_to(folder.resolve()).parts[:1]
    except (ValueError, OSError):
        return ()


class _Run:
    """The parts, one after another."""

    def __init__(
        self,
        store: Store,
        parts: Parts,
        new: Named,
        old: Named | None,
        asked: _Asked,
        progress: Progress,
    ) -> None:
        self.store, self.parts, self.new, self.old = store, parts, new, old
        self.asked, self.progress = asked, progress
        self.seconds: dict[str, float] = {}
        self.found = store.describe()
        self.warnings: list[str] = []

    def answer(self, *, overwrite: bool) -> Answer:
        """Make what is not there, and read the answer off it."""
        source = self._source()
        sampled = self._sample(source, overwrite=overwrite)
        upgrade = self._fit()
        held = self._held()
        evaluation = self._evaluate(upgrade, held)
        plan, later = self._plan(upgrade, held, sampled)
        at_first = measured_on_store(evaluation, plan.record.asking, plan.record.optimize)
        stages = [*at_first, *later]
        judged = bool(evaluation["judged"])
        refusals, seen = self._outlook(source, plan, judged=judged)
        verdict, reason = judge(stages, refusals)
        stop = 0.0 if plan.record.recommendation == "do not upgrade" else plan.record.stop
        keep_old = not ends_alone(plan)
        known = sampled["rows"] if self.new.embedder.needs_source else 0
        takes = self._takes(sampled)
        total = self.found.rows
        carrying = Carrying(
            store=self.store.name,
            folder=self.parts.folder,
            new=self.new,
            source=source,
            labels=self.asked.labels,
            id=self.asked.id,
            vector=self.asked.vector,
            judged=judged,
            force=verdict is None,
            fills=stop > 0,
            keep_old=keep_old,
        )
        names = (PAIRS, UPGRADE, EVALUATION, PLAN, REPORT, ANSWER)
        return Answer(
            store=self.store.name,
            rows=total,
            old_model=upgrade.config_.old.model,
            new_model=upgrade.config_.new.model,
            old_dim=upgrade.old_dim_,
            new_dim=upgrade.new_dim_,
            upgrade=verdict,
            reason=reason,
            plan=f"{plan.record.recommendation}: {plan.record.reason}",
            asking=plan.record.asking,
            alone_from=plan.record.alone_from if plan.record.knows_today else None,
            keep_old=keep_old,
            stages=stages,
            fill=Fill.of(stop, total, known, *takes),
            everything=Fill.of(1.0, total, known, *takes),
            storage_bytes=None if seen is None else seen.storage_bytes,
            forward_seconds=None if seen is None else seen.forward_seconds,
            spent=float(sampled["spent"]),
            seconds=self.seconds,
            commands=[] if refusals else carrying.commands(),
            files={name: str(self.parts.path(name)) for name in names},
            warnings=list(dict.fromkeys(self.warnings)),
            notes=self.parts.notes,
        )

    def _source(self) -> str | None:
        """The column of texts that was named, or the only one there is."""
        if self.asked.source is not None or not self.new.embedder.needs_source:
            return self.asked.source
        first = next(iter(self.store.stream(list(self.found.columns), size=1)), None)
        schema = pa.schema([]) if first is None else first.schema
        others = (self.store.id, self.asked.title, self.asked.labels)
        texts = [
            name
            for name in self.found.columns
            if name not in others
            and name in schema.names
            and (
                pa.types.is_string(schema.field(name).type)
                or pa.types.is_large_string(schema.field(name).type)
            )
        ]
        if len(texts) != 1:
            some = ", ".join(texts) if texts else f"none; it has {', '.join(self.found.columns)}"
            raise BadInput(
                f"which column holds the texts to embed? Columns of text: {some}",
                where=self.store.name,
                step="name it with --source",
            )
        self.parts.notes.append(f"{self.store.name}: texts are in {texts[0]!r}, the only such one")
        return texts[0]

    def _sample(self, source: str | None, *, overwrite: bool) -> Inputs:
        asked = self.asked
        inputs: Inputs = {
            "store": self.store.name,
            "id": self.store.id,
            "vector": self.store.vector,
            "dimension": self.found.dim,
            "embed": self.new.inputs,
            "embed_old": None if self.old is None else self.old.inputs,
            "source": source,
            "title": asked.title,
            "labels": asked.labels,
            "rows": asked.rows,
            "held": asked.held,
            "lookups": asked.lookups,
            "seed": asked.seed,
        }
        before = self.parts.inputs(PAIRS)
        if before is not None and not overwrite:
            changed = differing(before, json.loads(json.dumps(inputs)))
            if changed:
                # Embedding may cost money: nobody pays twice by a slip.
                raise BadInput(
                    f"was made with another {' and '.join(changed)}",
                    where=self.parts.path(PAIRS),
                    step="name another folder, or --overwrite to embed again",
                )

        def made(path: Path) -> Inputs:
            done = sample_pairs(
                self.store,
                path,
                embed=self.new.embedder,
                embed_old=None if self.old is None else self.old.embedder,
                source=source,
                title=asked.title,
                labels=asked.labels,
                rows=asked.rows,
                held=asked.held,
                lookups=asked.lookups,
                seed=asked.seed,
                overwrite=True,
                progress=lambda _, n, total: self.progress(SAMPLING, n, total),
            )
            return asdict(done)

        found = self._timed(PAIRS, inputs, made)
        # What it says of a missing old model is for those who evaluate and plan by hand.
        self.warnings += [text for text in found["warnings"] if "--embed-old" not in text]
        return found

    def _fit(self) -> Upgrade:
        inputs = {
            "pairs": digest(self.parts.path(PAIRS)),
            "solver": self.asked.solver,
            "seed": self.asked.seed,
        }

        def made(path: Path) -> Inputs:
            fitted = Upgrade(
                solver=self.asked.solver,
                seed=self.asked.seed,
                old_model="" if self.old is None else self.old.model,
                new_model=self.new.model,
            )
            self.progress(FITTING, 0, 1)
            fitted.fit(
                Pairs.open(self.parts.path(PAIRS)),
                report=lambda entry: self.progress(FITTING, entry["epoch"], entry["epochs"]),
            )
            fitted.save(path, overwrite=True)
            self.progress(FITTING, 1, 1)
            return {"hash": fitted.hash_}

        self._timed(UPGRADE, inputs, made)
        upgrade = Upgrade.load(self.parts.path(UPGRADE))
        self.warnings += upgrade.warnings_
        return upgrade

    def _held(self) -> Held:
        held = read_held(self.parts.path(PAIRS))
        if held is None:
            raise BadInput(
                "holds no rows out of the fit",
                where=self.parts.path(PAIRS),
                step="remove it and run again",
            )
        return held

    def _evaluate(self, upgrade: Upgrade, held: Held) -> dict[str, Any]:
        inputs = {
            "upgrade": upgrade.hash_,
            "rows of the store": self.found.rows,
            "distance": self.store.distance,
            "seed": self.asked.seed,
        }

        def made(path: Path) -> Inputs:
            def tell(done: int, total: int) -> None:
                self.progress(EVALUATING, done, total)

            found = evaluate(
                upgrade,
                held,
                distance=self.store.distance,
                seed=self.asked.seed,
                definition=False,
                progress=lambda _, done, total: tell(done, total),
            )
            if held.source == "lookups":
                found = evaluate_on_store(
                    upgrade, held, self.store, found, seed=self.asked.seed, progress=tell
                )
            write_record(path, finite(record(found)))
            return {}

        self._timed(EVALUATION, inputs, made)
        read = json.loads(self.parts.path(EVALUATION).read_text(encoding="utf-8"))
        self.warnings += read["warnings"]
        return dict(read)

    def _plan(self, upgrade: Upgrade, held: Held, sampled: Inputs) -> tuple[Plan, list[Stage]]:
        per_1k, per_second = self._takes(sampled)
        # Of labelled rows the old vectors are all there, but nobody could ask with them.
        ways: list[Asking] | None = ["new"] if self.old is None else None
        inputs = {
            "upgrade": upgrade.hash_,
            "rows of the store": self.found.rows,
            "cost_per_1k": per_1k,
            "items_per_second": per_second,
            "today": self.asked.today,
            "seed": self.asked.seed,
        }

        def made(path: Path) -> Inputs:
            planned = make_plan(
                upgrade,
                held,
                optimize=DEFAULTS[held.source][1],
                ask=ways,
                today=self.asked.today,
                items=self.found.rows,
                cost_per_1k=per_1k,
                items_per_second=per_second,
                seed=self.asked.seed,
                progress=lambda done, total: self.progress(PLANNING, done, total),
            )
            planned.save(path, overwrite=True)
            return {"stages": simulated(planned, self.asked.seed)}

        found = self._timed(PLAN, inputs, made)
        plan = Plan.load(self.parts.path(PLAN), upgrade)
        self.warnings += plan.record.warnings
        return plan, [Stage.read(stage) for stage in found["stages"]]

    def _takes(self, sampled: Inputs) -> tuple[float | None, float | None]:
        """Cost of a thousand items and items in a second: as given, or as the sample has shown."""
        embedded = sampled["rows"] + sampled["held"] + sampled["lookups"]
        per_1k, per_second = self.asked.cost_per_1k, self.asked.items_per_second
        if per_1k is None and sampled["spent"]:
            per_1k = 1000 * sampled["spent"] / embedded
        if per_second is None and self.new.embedder.needs_source:
            per_second = embedded / sampled["seconds"]
        return per_1k, per_second

    def _outlook(
        self, source: str | None, plan: Plan, *, judged: bool
    ) -> tuple[list[str], Outlook | None]:
        """What `migrate start` would refuse, and else what it would begin."""
        migration = Migration(self.store, self.parts.path(UPGRADE))
        try:
            seen = migration.outlook(
                source=source,
                evaluation=self.parts.path(EVALUATION) if judged else None,
                plan=self.parts.path(PLAN),
                # Where nobody knows today's level there is no verdict that could be refused.
                force=not plan.record.knows_today,
            )
        except NotCompatible as refused:
            return [refused.cause], None
        self.warnings += seen.warnings
        return [], seen

    def _timed(self, name: str, inputs: Inputs, made: Callable[[Path], Inputs]) -> Inputs:
        def clocked(path: Path) -> Inputs:
            begin = time.perf_counter()
            found = made(path)
            return found | {"seconds": round(time.perf_counter() - begin, 3)}

        found = self.parts.make(name, inputs, clocked)
        self.seconds[name] = found["seconds"]
        return found
