"""One worker against several on one pgvector table, where the model is the limit.

The endpoint is a process of its own: it answers every request after a fixed time, whatever else it
is asked meanwhile, and tells how many items it was asked for, from when to when. A worker has a few
requests under way at a time, so that it waits most of the time. Each is a process that runs
`crossfade migrate backfill … --join`; each run has a table of its own.

python -m benchmarks workers [--rows 20000] [--workers 1 2 4]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import machine
from benchmarks.stores import Postgres
from crossfade import Upgrade
from crossfade.migration import Migration

OLD, NEW = 384, 256


def serve(latency: float, told: Connection) -> None:
    """Answer until the process is ended."""
    from aiohttp import web

    vectors = np.random.default_rng(0).normal(size=(64, NEW)).astype(np.float32)
    rows = [row.tolist() for row in vectors]
    seen: dict[str, Any] = {}

    async def answer(request: web.Request) -> web.Response:
        texts = json.loads(await request.read())["input"]
        seen.setdefault("first", time.monotonic())
        seen["items"] = seen.get("items", 0) + len(texts)
        await asyncio.sleep(latency)
        seen["last"] = time.monotonic()
        data = [{"index": n, "embedding": rows[n]} for n in range(len(texts))]
        return web.json_response({"data": data, "usage": {"total_tokens": 8 * len(texts)}})

    async def tell(_: web.Request) -> web.Response:
        found = dict(seen)
        seen.clear()
        return web.json_response(found)

    async def run() -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/embeddings", answer)
        app.router.add_get("/seen", tell)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        told.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


def rate(address: str, upgrade: Path, url: str, workers: int, args: argparse.Namespace) -> float:
    """Items in a second, from the first request to the last answer."""
    migration = Migration(address, upgrade)
    migration.start(source="body", force=True)
    migration.forward()
    command = [sys.executable, "-m", "crossfade", "migrate", "backfill", address]
    command += ["--embed", f"{url}/v1", "--model", "m", "--share", "1", "--join", "--full-speed"]
    command += ["--concurrency", str(args.concurrency), "--batch", str(args.batch)]
    running = [
        subprocess.Popen([*command, "--worker", f"worker {n}"], stdout=subprocess.DEVNULL)
        for n in range(workers)
    ]
    if any(one.wait() for one in running):
        raise SystemExit("a worker has failed")
    with urllib.request.urlopen(f"{url}/seen") as response:  # noqa: S310  (our own server)
        seen = json.loads(response.read())
    filled = migration.status().filled
    migration.close()
    if filled != args.rows or seen["items"] != args.rows:
        raise SystemExit(f"{filled:,} rows are filled, and {seen['items']:,} were embedded")
    return float(seen["items"] / (seen["last"] - seen["first"]))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks workers", description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--workers", nargs="*", type=int, default=[1, 2, 4])
    parser.add_argument("--latency", type=float, default=0.25, help="Seconds of every answer.")
    parser.add_argument("--concurrency", type=int, default=2, help="Requests of one worker.")
    parser.add_argument("--batch", type=int, default=512, help="Rows of one stretch.")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args(arguments)
    rng = np.random.default_rng(0)
    new = rng.normal(size=(args.rows, NEW)).astype(np.float32) + 1
    old = np.tile(new, 2)[:, :OLD] + 0.1 * rng.normal(size=(args.rows, OLD)).astype(np.float32)
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe()
    server = spawning.Process(target=serve, args=(args.latency, there), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{here.recv()}"
    print(machine())
    print(
        f"{args.rows:,} rows, answers of 64 items after {args.latency * 1e3:.0f} ms, "
        f"{args.concurrency} requests of each worker at a time, in turns, medians of "
        f"{args.repeats}\n"
    )
    found: dict[int, list[float]] = {workers: [] for workers in args.workers}
    with tempfile.TemporaryDirectory() as folder:
        upgrade = Path(folder) / "upgrade"
        Upgrade(solver="closed_form").fit(old[:4096], new[:4096]).save(upgrade)
        store = Postgres(Path(folder))
        try:
            for _ in range(args.repeats):
                for workers in args.workers:
                    address = store.fresh(old)
                    found[workers].append(rate(address, upgrade, url, workers, args))
        finally:
            store.close()
            server.terminate()
            server.join()
    print("| workers | items / s | times one worker |")
    print("|---|---|---|")
    for workers, rates in found.items():
        pairs = zip(rates, found[args.workers[0]], strict=True)
        ratio = statistics.median(mine / one for mine, one in pairs)
        print(f"| {workers} | {statistics.median(rates):,.0f} | {ratio:.2f} |")


if __name__ == "__main__":
    main(sys.argv[1:])
