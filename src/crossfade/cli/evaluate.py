"""`crossfade evaluate`: the compatibility table of an upgrade on held-out pairs."""

from __future__ import annotations

from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from crossfade.cli.held import Named, open_held, open_zero_shot, read_vectors
from crossfade.cli.output import (
    PlainConsole,
    check_written,
    note,
    waiting,
    write_json,
    write_text,
)
from crossfade.cli.tables import matrix_table, verdict_table
from crossfade.compatibility import Chain, Compatibility, Held, evaluate_chain
from crossfade.compatibility import evaluate as judge
from crossfade.compatibility.table import RESAMPLES
from crossfade.compatibility.verdicts import AT_FIRST, REQUIRED
from crossfade.compatibility.write import facts, finite, latex, markdown, record, unjudged
from crossfade.errors import BadInput, NotCompatible
from crossfade.journal import open_migrating
from crossfade.lookups import evaluate_on_store
from crossfade.upgrade import Upgrade

DATA, WHAT, OUT = "Data", "What to measure", "Output"


class DistanceName(StrEnum):
    cosine = "cosine"
    dot = "dot"
    euclidean = "euclidean"


def _source(text: str, panel: str = DATA) -> Any:
    return typer.Option(help=f"{text}: FILE or FILE:NAME.", rich_help_panel=panel)


def evaluate(
    upgrade: Annotated[Path, typer.Argument(help="The folder written by `crossfade fit`.")],
    pairs: Annotated[
        Path | None,
        typer.Argument(help="One file with old, new and perhaps labels or qrels, held out of fit."),
    ] = None,
    old: Annotated[str | None, _source("The old vectors")] = None,
    new: Annotated[str | None, _source("The new vectors")] = None,
    labels: Annotated[str | None, _source("The labels")] = None,
    qrels: Annotated[str | None, _source("Judgements (query, item[, grade])")] = None,
    queries: Annotated[
        Path | None,
        typer.Option(
            help="Queries that are not gallery rows: one file with old and new.",
            rich_help_panel=DATA,
        ),
    ] = None,
    query_old: Annotated[str | None, _source("The old vectors of the queries")] = None,
    query_new: Annotated[str | None, _source("The new vectors of the queries")] = None,
    query_labels: Annotated[str | None, _source("The labels of the queries")] = None,
    ids: Annotated[str | None, _source("An id for each row")] = None,
    query_ids: Annotated[str | None, _source("An id for each query")] = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="The store that PAIRS was sampled from: its lookups are judged with every row of "
            "it as a distractor.",
            rich_help_panel=DATA,
        ),
    ] = None,
    store_id: Annotated[
        str | None, typer.Option(help="Its column of ids.", rich_help_panel=DATA)
    ] = None,
    store_vector: Annotated[
        str | None, typer.Option(help="Its column of old vectors.", rich_help_panel=DATA)
    ] = None,
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="Leave labels unread.", rich_help_panel=DATA)
    ] = False,
    drop_bad_rows: Annotated[
        bool, typer.Option("--drop-bad-rows", help="Leave bad rows out.", rich_help_panel=DATA)
    ] = False,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="mAP, or cmc, recall, precision, ndcg, mrr, agreement with @k; may be repeated.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    require: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with 1 if this case is not compatible, or not judged for want of labels and "
            "qrels; both/old and blend/old are both models' queries on the untouched index; may be "
            "repeated; 'none' for no case. "
            f"By default {' and '.join(REQUIRED)}.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    distance: Annotated[
        DistanceName, typer.Option(help="How vectors are compared.", rich_help_panel=WHAT)
    ] = DistanceName.cosine,
    zero_shot: Annotated[
        str | None, _source("New vectors of another task, to see what B does to them", WHAT)
    ] = None,
    zero_shot_labels: Annotated[str | None, _source("Their labels", WHAT)] = None,
    then: Annotated[
        list[str] | None,
        typer.Option(
            help="A further upgrade and its new model's vectors of the same rows, "
            "UPGRADE=FILE[:NAME]; may be repeated, oldest first.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    per_class: Annotated[
        bool,
        typer.Option("--per-class", help="Every class in the JSON.", rich_help_panel=WHAT),
    ] = False,
    definition_sample: Annotated[
        int | None,
        typer.Option(
            min=1, help="Check Definition 3.1 on so many random pairs.", rich_help_panel=WHAT
        ),
    ] = None,
    no_definition: Annotated[
        bool,
        typer.Option("--no-definition", help="Leave Definition 3.1 out.", rich_help_panel=WHAT),
    ] = False,
    resamples: Annotated[
        int, typer.Option(help="Of the bootstrap.", rich_help_panel=WHAT)
    ] = RESAMPLES,
    seed: Annotated[int, typer.Option(min=0, rich_help_panel=WHAT)] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.", rich_help_panel=WHAT)] = "cpu",
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json", metavar="FILE", help="All of it; '-' is stdout.", rich_help_panel=OUT
        ),
    ] = None,
    markdown_file: Annotated[
        str | None,
        typer.Option(
            "--markdown", metavar="FILE", help="The table; '-' is stdout.", rich_help_panel=OUT
        ),
    ] = None,
    latex_file: Annotated[
        str | None,
        typer.Option(
            "--latex", metavar="FILE", help="The table; '-' is stdout.", rich_help_panel=OUT
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="PNG", help="The table as bars.", rich_help_panel=OUT),
    ] = None,
) -> None:
    """Measure every case of an upgrade on held-out pairs, with intervals and verdicts.

    Of a file of `crossfade pairs`, on the rows and lookups that it holds out of the fit.
    """
    check_written(json_file, markdown_file, latex_file, plot)
    if store is None and (store_id is not None or store_vector is not None):
        raise BadInput("--store-id and --store-vector without a store", step="add --store STORE")
    fitted = Upgrade.load(upgrade)
    held = open_held(
        Named(pairs, old, new, labels, ids),
        Named(queries, query_old, query_new, query_labels, query_ids),
        qrels,
        use_labels=not no_labels,
        drop=drop_bad_rows,
    )
    other = None
    if zero_shot is not None:
        other = open_zero_shot(zero_shot, zero_shot_labels)
    elif zero_shot_labels is not None:
        raise BadInput("--zero-shot-labels without vectors", step="add --zero-shot FILE")
    chain = None if not then else _chain(fitted, then, held, metric, distance, device)
    with waiting(str(pairs or old)) as advance:
        found = judge(
            fitted,
            held,
            metrics=metric,
            required=REQUIRED if require is None else [c for c in require if c != "none"],
            distance=distance.value,
            device=_device(device),
            resamples=resamples,
            seed=seed,
            definition=not no_definition,
            definition_sample=definition_sample,
            zero_shot=other,
            per_class=per_class,
            progress=lambda _, done, total: advance(done, total),
        )
    if store is not None:
        place = open_migrating(store, id=store_id, vector=store_vector)
        with closing(place) as asked, waiting(asked.name) as advance:
            found = evaluate_on_store(
                fitted, held, asked, found, resamples=resamples, seed=seed, progress=advance
            )
    _write(found, chain, json_file, markdown_file, latex_file, plot)
    if found.failed and not found.judged:
        raise NotCompatible(
            f"{' and '.join(found.failed)} not judged: {unjudged(found)}",
            where=upgrade,
            step=(
                "make the pairs with --embed-old; "
                if found.data["relevance"] == "lookups"
                else "give labels, qrels, or lookups (crossfade pairs, or --queries and --qrels, "
                "one item to a query); "
            )
            + "--require none shows the numbers alone",
        )
    if found.failed:
        raise NotCompatible(
            f"{' and '.join(found.failed)}: below old/old with 95 % confidence",
            where=upgrade,
            step=_instead(found),
        )


def _instead(found: Compatibility) -> str:
    """What to do where the required cases fail."""
    if found.asking in ("both", "blend"):
        case = AT_FIRST[found.asking]
        return (
            f"ask with both models' queries while both are there ({found.asking}; as a verdict: "
            f"--require {case}), and fill before new queries are alone"
        )
    return "do not serve these queries; ask as today, backfill, or refit"


def _device(name: str) -> str:
    if name == "cpu":
        return name
    from importlib.util import find_spec

    if find_spec("torch") is None:
        if name == "auto":
            return "cpu"
        from crossfade.errors import MissingExtra

        raise MissingExtra("torch", extra="train", need=f"the device {name!r}")
    from crossfade.solvers.device import pick_device

    return str(pick_device(name))


def _chain(
    first: Upgrade,
    then: list[str],
    held: Held,
    metrics: list[str] | None,
    distance: DistanceName,
    device: str,
) -> Chain:
    if held.relevance is None or held.own is None:
        raise BadInput(
            "a sequence of models is measured on labelled rows that query each other",
            step="leave --then out, or give labels and no separate queries",
        )
    upgrades, vectors = [first], [held.gallery_old, held.gallery_new]
    for text in then:
        folder, equals, place = text.partition("=")
        if not equals or not folder or not place:
            raise BadInput(f"--then {text!r} is not UPGRADE=FILE", step="e.g. --then v3=v3.npy")
        upgrades.append(Upgrade.load(folder))
        vectors.append(read_vectors(place))
        if len(vectors[-1]) != held.gallery:
            raise BadInput(
                f"has {len(vectors[-1])} rows for {held.gallery} of the pairs", where=place
            )
    return evaluate_chain(
        upgrades,
        vectors,
        held.relevance,
        metrics or ("cmc@1", "mAP"),
        distance=distance.value,
        device=_device(device),
    )


def _write(
    found: Compatibility,
    chain: Chain | None,
    json_file: str | None,
    markdown_file: str | None,
    latex_file: str | None,
    plot: Path | None,
) -> None:
    everything = record(found)
    if chain is not None:
        everything["chain"] = chain.record()
    quiet = write_json(finite(everything), json_file)
    if markdown_file is not None:
        quiet |= write_text(markdown(found), markdown_file)
    if latex_file is not None:
        quiet |= write_text(latex(found), latex_file)
    if plot is not None:
        from crossfade.compatibility.picture import save_picture

        save_picture(found, plot)
    for text in found.warnings:
        note(f"warning: {text}")
    for text in [] if found.sample is None else found.sample.warnings:
        if text not in found.warnings:
            note(f"warning: on the held rows: {text}")
    if quiet:
        return
    console = PlainConsole()
    console.print(verdict_table(found))
    if found.sample is not None:
        console.print(facts(found)[0], soft_wrap=True)
        console.print("on the rows held out of the fit, not on the store:")
        found = found.sample
        console.print(verdict_table(found))
    if chain is not None:
        for name in chain.matrices:
            console.print(matrix_table(chain, name))
    for fact in facts(found):
        console.print(fact, soft_wrap=True)
