"""`crossfade migrate status`: rows by state, quality by the plan, and the next command."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from crossfade.cli.migrate.options import (
    AsJson,
    IdColumn,
    StoreAddress,
    VectorColumn,
    opened,
)
from crossfade.cli.output import PlainConsole, check_written, write_json
from crossfade.migration.status import OWN_VECTORS, Status


def status(
    store: StoreAddress, id: IdColumn = None, vector: VectorColumn = None, json_file: AsJson = None
) -> None:
    """Rows by state, rates, the quality reached by the plan's curve, and the next command."""
    check_written(json_file)
    with opened(store, None, id, vector) as migration:
        found = migration.status()
    if not write_json(found.record(), json_file):
        show_status(found)


def show_status(found: Status) -> None:
    """The counts as a table, then what comes next."""
    console = PlainConsole()
    table = Table(title=f"{found.store}: {found.stage}", title_justify="left")
    for name in ("state", "rows", "share"):
        table.add_column(name, justify="left" if name == "state" else "right")
    for state in ("old", "lifted", "filled"):
        count = getattr(found, state)
        table.add_row(state, f"{count:,}", f"{count / max(found.rows, 1):.1%}")
    console.print(table)
    console.print(OWN_VECTORS[found.own_vectors])
    if found.late:
        console.print(f"{found.late:,} rows came or changed and are not lifted yet")
    if found.unusable:
        console.print(f"{found.unusable:,} rows have no usable old vector")
    if found.target is not None:
        wanted = f"filled {found.share:.1%}, and the plan wants {found.target:.1%}"
        if found.promises is not None:
            wanted += f" ({found.promises.recommendation})"
        console.print(wanted, highlight=False, markup=False)
    if found.asking is not None and not found.over:
        later = [f"{way} from {first:.0%} on" for first, way in found.asked if first > found.share]
        ways = ", ".join([f"ask: {found.asking}", *later])
        console.print(f"{ways}, by the plan", highlight=False)
    if found.promises is not None and not found.over:
        for line in [*found.promises.of_the_way(), *found.promises.of_the_end()]:
            console.print(f"by the plan, {line}", highlight=False, markup=False)
    if found.counted_before:
        console.print("rows by state are those of the moment at which `finish` began")
    for step, rate in found.rate.items():
        console.print(f"{step}: {rate:,.0f} rows/s", highlight=False)
    if found.seconds_left is not None:
        console.print(f"about {found.seconds_left:,.0f} s left", highlight=False)
    if found.workers:
        console.print(workers_table(found))
    if found.quality is not None:
        quality = Table(title="quality by the plan's curve, in percent", title_justify="left")
        names = {"old": "old/old", "now": "now", "at_stop": "at the stop", "new": "new/new"}
        quality.add_column("metric")
        for name in names.values():
            quality.add_column(name, justify="right")
        for metric in found.quality["now"]:
            known = [found.quality[key].get(metric) for key in names]
            quality.add_row(metric, *("?" if value is None else f"{value:.1f}" for value in known))
        console.print(quality)
    for event in found.events[-3:]:
        console.print(f"{event['at']}  {event['what']}", highlight=False, markup=False)
    console.print(f"next: {found.next}", highlight=False, markup=False, soft_wrap=True)


def workers_table(found: Status) -> Table:
    """Who fills the store together: how much, how fast, and when it was last heard of."""
    table = Table(title="workers", title_justify="left")
    for name in ("name", "rows", "rows/s", "last heard of", "state"):
        table.add_column(name, justify="left" if name in ("name", "state") else "right")
    for one in found.workers:
        rate, idle = f"{one.rate:,.0f}", f"{one.idle:,.0f} s ago"
        table.add_row(Text(one.name), f"{one.rows:,}", rate, idle, one.state)
    return table
