"""`crossfade evaluate`: the compatibility table of an upgrade on held-out pairs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer

from crossfade.cli.output import (
    PlainConsole,
    check_written,
    note,
    waiting,
    write_json,
    write_text,
)
from crossfade.cli.tables import matrix_table, verdict_table
from crossfade.cli.today import today_option
from crossfade.compatibility import Chain, Compatibility, continue_chain
from crossfade.compatibility import evaluate as judge
from crossfade.compatibility.table import RESAMPLES
from crossfade.compatibility.verdicts import REQUIRED
from crossfade.compatibility.zero_shot import read_task
from crossfade.distance import DISTANCES, check_distance
from crossfade.errors import BadInput
from crossfade.journal import open_migrating
from crossfade.lookups import evaluate_on_store, read_held
from crossfade.upgrade import Upgrade

DATA, WHAT, OUT = "Data", "What to measure", "Output"


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
    today: Annotated[float | None, today_option(WHAT)] = None,
    distance: Annotated[
        str,
        typer.Option(
            help=f"How vectors are compared: {', '.join(DISTANCES)}.", rich_help_panel=WHAT
        ),
    ] = "cosine",
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
    by = check_distance(distance)
    fitted = Upgrade.load(upgrade)
    held = read_held(
        pairs,
        old=old,
        new=new,
        labels=labels,
        ids=ids,
        queries=queries,
        query_old=query_old,
        query_new=query_new,
        query_labels=query_labels,
        query_ids=query_ids,
        qrels=qrels,
        use_labels=not no_labels,
        drop_bad_rows=drop_bad_rows,
    )
    for text in held.notes:
        note(text)
    other = None
    if zero_shot is not None:
        if zero_shot_labels is None:
            raise BadInput("--zero-shot needs labels", step="add --zero-shot-labels FILE")
        other = read_task(zero_shot, zero_shot_labels)
    elif zero_shot_labels is not None:
        raise BadInput("--zero-shot-labels without vectors", step="add --zero-shot FILE")
    chain = None
    if then:
        further = [_further(text) for text in then]
        chain = continue_chain(
            fitted, held, further, metric or ("cmc@1", "mAP"), distance=by, device=device
        )
    with waiting(str(pairs or old)) as advance:
        found = judge(
            fitted,
            held,
            metrics=metric,
            required=REQUIRED if require is None else [c for c in require if c != "none"],
            # It is the level of the whole index, where that is asked.
            today=today if store is None else None,
            distance=by,
            device=device,
            resamples=resamples,
            seed=seed,
            definition=not no_definition,
            definition_sample=definition_sample,
            zero_shot=other,
            per_class=per_class,
            progress=lambda _, done, total: advance(done, total),
        )
    if store is not None:
        address = open_migrating(store, id=store_id, vector=store_vector)
        with closing(address) as asked, waiting(asked.name) as advance:
            found = evaluate_on_store(
                fitted,
                held,
                asked,
                found,
                today=today,
                resamples=resamples,
                seed=seed,
                progress=advance,
            )
    _write(found, chain, json_file, markdown_file, latex_file, plot)
    found.check(upgrade)


def _further(text: str) -> tuple[str, str]:
    """UPGRADE=FILE."""
    folder, equals, source = text.partition("=")
    if not equals or not folder or not source:
        raise BadInput(f"--then {text!r} is not UPGRADE=FILE", step="e.g. --then v3=v3.npy")
    return folder, source


def _write(
    found: Compatibility,
    chain: Chain | None,
    json_file: str | None,
    markdown_file: str | None,
    latex_file: str | None,
    plot: Path | None,
) -> None:
    everything = found.record()
    if chain is not None:
        everything["chain"] = chain.record()
    quiet = write_json(everything, json_file)
    if markdown_file is not None:
        quiet |= write_text(found.markdown(), markdown_file)
    if latex_file is not None:
        quiet |= write_text(found.latex(), latex_file)
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
        # Of a level that was given only the store's own verdicts speak.
        for fact in found.facts()[: 1 if found.today is None else 2]:
            console.print(fact, soft_wrap=True)
        console.print("on the rows held out of the fit, not on the store:")
        found = found.sample
        console.print(verdict_table(found))
    if chain is not None:
        for name in chain.matrices:
            console.print(matrix_table(chain, name))
    for fact in found.facts():
        console.print(fact, soft_wrap=True)
