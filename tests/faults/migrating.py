"""What the processes do that the tests kill: one step of a migration each.

Processes are forked off a server that has imported everything and started nothing, so that a kill
meets the migration at work and not Python at its imports.
"""

from __future__ import annotations

import multiprocessing
import time
import warnings
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np

from crossfade.embedders import Endpoint, EndpointSettings, VectorFile
from crossfade.errors import BadInput
from crossfade.migration import Migration

SMALL_BATCH = 15
# Lance starts its threads when it is used, and nobody uses it before the fork.
warnings.filterwarnings("ignore", message="lance is not fork-safe")
_spawning = multiprocessing.get_context("forkserver")
_spawning.set_forkserver_preload(
    [
        "tests.faults.migrating",
        "lance",
        "psycopg",
        "pyarrow.parquet",
        "crossfade.stores.postgres.store",
    ]
)


def step(name: str, place: str, upgrade: str, plan: str, vectors: str) -> None:
    """Do one step to its end, whatever was done of it before."""
    migration = Migration(place, upgrade)
    if name == "start":
        try:
            migration.start(source="body", force=True)
        except BadInput as error:
            # Killed after the journal was written: it is under way, and `forward` makes it whole.
            if "under way" not in str(error):
                raise
    elif name == "forward":
        migration.forward(size=SMALL_BATCH)
    elif name == "backfill":
        wanted = {"plan": Path(plan), "share": 0.6, "labels": "kind", "batch": SMALL_BATCH}
        migration.backfill(VectorFile(vectors), **wanted)
    elif name == "finish":
        migration.finish(force=True)
    elif name == "rollback":
        migration.rollback()
    migration.close()


def spend(place: str, upgrade: str, plan: str, url: str, cap: float) -> None:
    """Backfill from an endpoint until the cap."""
    settings = EndpointSettings(
        model="fine",
        first_wait=0.01,
        batch_size=SMALL_BATCH,
        cost_per_million_tokens=1e6,
        max_spend=cap,
    )
    migration = Migration(place, upgrade)
    wanted = {"plan": Path(plan), "share": 1.0, "labels": "kind"}
    migration.backfill(Endpoint(url, settings), **wanted)
    migration.close()


def spending(*arguments: object) -> BaseProcess:
    """A process that does `spend`."""
    process = _spawning.Process(target=spend, args=arguments)
    process.start()
    return process


def run(*arguments: str, kill_after: float | None = None) -> bool:
    """Run a step in a process of its own; True if it came to its end before it was killed."""
    process = _spawning.Process(target=step, args=arguments)
    process.start()
    process.join(kill_after)
    if process.exitcode is None:
        # It may have ended meanwhile: then the step is done again, as after a kill at its end.
        process.kill()
        process.join()
        return False
    if process.exitcode != 0:
        raise AssertionError(f"{arguments[0]} ended with {process.exitcode}")
    return True


def with_kills(
    seconds: dict[str, float], arguments: tuple[str, ...], seed: int, look: object = None
) -> int:
    """Every step again and again, killed at random moments, until it is done; gives the kills.

    `seconds` is what each step takes when nobody disturbs it: a kill comes anywhere in that time.
    """
    rng = np.random.default_rng(seed)
    kills = 0
    for name, whole in seconds.items():
        patience = whole
        while not run(name, *arguments, kill_after=float(rng.uniform(0.1 * whole, patience))):
            kills += 1
            # On a machine that has become slower every step has to come to its end as well.
            patience *= 1.1
            if look is not None:
                look()
    return kills


def quiet(steps: list[str], arguments: tuple[str, ...]) -> dict[str, float]:
    """Every step once, undisturbed; gives the seconds of each."""
    seconds = {}
    for name in steps:
        begin = time.monotonic()
        assert run(name, *arguments)
        seconds[name] = time.monotonic() - begin
    return seconds
