"""Items embedded by an HTTP endpoint in a second, against one urllib request after the other.

The endpoint is a process of its own that answers every request after a fixed time, whatever else
it is asked meanwhile, with vectors that it made beforehand: what is measured is the client.

python -m benchmarks endpoint
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
import urllib.request
from collections.abc import Callable
from multiprocessing.connection import Connection

import numpy as np

from benchmarks.machine import machine
from crossfade.embedders import Endpoint, EndpointSettings

ITEMS, DIM = 64, 256


def serve(latency: float, told: Connection) -> None:
    """Answer until the process is ended."""
    from aiohttp import web

    vectors = np.random.default_rng(0).normal(size=(ITEMS, DIM)).astype(np.float32)
    made = [{"index": n, "embedding": row.tolist()} for n, row in enumerate(vectors)]
    body = json.dumps({"data": made, "usage": {"total_tokens": 8 * ITEMS}}).encode()

    async def answer(request: web.Request) -> web.Response:
        await request.read()
        await asyncio.sleep(latency)
        return web.Response(body=body, content_type="application/json")

    async def run() -> None:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/embeddings", answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        told.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


def one_after_the_other(url: str, texts: list[str]) -> np.ndarray:
    """The peer: a connection for every request, and the next when the last is answered."""
    found = []
    for first in range(0, len(texts), ITEMS):
        asked = {"model": "m", "input": texts[first : first + ITEMS], "encoding_format": "float"}
        request = urllib.request.Request(  # noqa: S310  (the benchmark's own server)
            f"{url}/embeddings",
            data=json.dumps(asked).encode(),
            headers={"Content-Type": "application/json"},
            method="POST",
        )
        with urllib.request.urlopen(request) as response:  # noqa: S310
            data = json.loads(response.read())["data"]
        rows = sorted(data, key=lambda item: item["index"])
        found.append(np.array([item["embedding"] for item in rows], np.float32))
    return np.concatenate(found)


def timed(work: Callable[[], np.ndarray]) -> tuple[float, float, np.ndarray]:
    """Seconds on the wall, and of this process's processors."""
    begin, used = time.perf_counter(), time.process_time()
    found = work()
    return time.perf_counter() - begin, time.process_time() - used, found


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks endpoint", description=__doc__)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.05, help="Seconds of every answer.")
    parser.add_argument(
        "--concurrency", nargs="*", type=int, default=[1, 4, 8, 16, 0], help="0 is found out."
    )
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args(arguments)
    texts = [f"text number {n} is one of many that are embedded" for n in range(args.requests * 64)]
    spawning = multiprocessing.get_context("spawn")
    here, there = spawning.Pipe()
    server = spawning.Process(target=serve, args=(args.latency, there), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{here.recv()}/v1"
    print(machine())
    print(
        f"{args.requests} requests of {ITEMS} items × {DIM} as JSON, {args.latency * 1e3:.0f} ms "
        f"each, in turns, medians of {args.repeats}\n"
    )
    print(
        "| requests at a time | items / s | one after the other | ratio | CPU ms / request, both |"
    )
    print("|---|---|---|---|---|")
    try:
        for concurrency in args.concurrency:
            settings = EndpointSettings(
                model="m", batch_size=ITEMS, concurrency=concurrency or None
            )
            runs = []
            for _ in range(args.repeats):
                endpoint = Endpoint(url, settings)
                ours = timed(lambda asked=endpoint: asked.embed(range(len(texts)), texts))
                endpoint.close()
                peer = timed(lambda: one_after_the_other(url, texts))
                assert np.array_equal(ours[2], peer[2])
                runs.append((*ours[:2], *peer[:2]))
            wall, used, other, others = (
                statistics.median(column) for column in zip(*runs, strict=True)
            )
            ratio = statistics.median(run[2] / run[0] for run in runs)
            cpu = f"{used / args.requests * 1e3:.1f} / {others / args.requests * 1e3:.1f}"
            rates = f"{len(texts) / wall:,.0f} | {len(texts) / other:,.0f}"
            print(f"| {concurrency or 'found out'} | {rates} | {ratio:.2f} | {cpu} |", flush=True)
    finally:
        server.terminate()
        server.join()
