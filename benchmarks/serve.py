"""The gateway under load: what it adds to an upstream that answers at once, and LiteLLM's proxy.

python -m benchmarks serve
python -m benchmarks serve --litellm VENV       # a virtual environment with litellm[proxy]

Upstream, client and gateway are processes of their own, on loopback; both gateways check a key. The
client counts every request that it sends, and an answer if it is a 200 of the expected size.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks.machine import machine
from crossfade import Upgrade

MODEL = "new"
# Both gateways want a key of their clients, made for the run: LiteLLM's does not start without.
KEY = "CROSSFADE_BENCHMARK_KEY"
ROUNDS = 3
# Whoever starts takes some time; whoever takes longer has failed.
PATIENCE = 180.0


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks serve", description=__doc__)
    parser.add_argument("--dim", type=int, default=1024, help="of both models")
    parser.add_argument("--requests", type=int, default=5000, help="of each turn")
    parser.add_argument("--seconds", type=float, default=60.0, help="with many in flight")
    parser.add_argument("--in-flight", type=int, default=1000)
    parser.add_argument("--memory", type=int, default=100_000, help="requests to watch memory over")
    parser.add_argument("--litellm", type=Path, help="a virtual environment that has its proxy")
    args = parser.parse_args(arguments)
    os.environ[KEY] = f"sk-{secrets.token_hex(32)}"
    print(machine())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        fit(args.dim, folder / "upgrade")
        upstream = stack.enter_context(started([*ours(), "upstream", str(args.dim)], answers_tcp))
        served = {"the upstream alone": Target(upstream, MODEL)}
        gateway = stack.enter_context(crossfade_serve(folder / "upgrade", upstream.port))
        served["crossfade, plain"] = Target(gateway, MODEL)
        served["crossfade, B"] = Target(gateway, f"{MODEL}@old")
        if args.litellm is not None:
            proxy = stack.enter_context(litellm_proxy(args.litellm, folder, upstream.port))
            served["LiteLLM's proxy"] = Target(proxy, MODEL)
        compare(served, args.requests)
        crowd(served["crossfade, B"], args.in_flight, args.seconds)
        remember(served["crossfade, B"], args.memory)


class Process:
    """Something that was started here and listens on a port."""

    def __init__(self, popen: subprocess.Popen[bytes], port: int) -> None:
        self.popen, self.port = popen, port
        self._seen = psutil.Process(popen.pid)

    def cpu(self) -> float:
        """Seconds of processor time, of all its children too."""
        all_of_them = [self._seen, *self._seen.children(recursive=True)]
        times = [one.cpu_times() for one in all_of_them]
        return sum(one.user + one.system for one in times)

    def memory(self) -> float:
        """MB it has now."""
        return float(self._seen.memory_info().rss / 2**20)


class Target:
    """A model's name at a server."""

    def __init__(self, process: Process, model: str) -> None:
        self.process, self.model = process, model

    def load(self, **wanted: Any) -> dict[str, Any]:
        """Send requests from another process, and say what became of them."""
        asked = json.dumps({"port": self.process.port, "model": self.model} | wanted)
        limit = 600 + wanted.get("seconds", 0)
        done = subprocess.run(
            [*ours(), "load", asked], capture_output=True, check=True, timeout=limit
        )
        return dict(json.loads(done.stdout))


def compare(served: dict[str, Target], requests: int) -> None:
    """In turns, so that noise is shared."""
    found: dict[str, list[dict[str, float]]] = {name: [] for name in served}
    for name, target in served.items():
        count = requests // 10 if "LiteLLM" in name else requests
        target.load(count=max(count // 5, 50), together=16)
    for _ in range(ROUNDS):
        for name, target in served.items():
            # A slower one is measured as well by fewer.
            count = requests // 10 if "LiteLLM" in name else requests
            one = target.load(count=max(count // 5, 50), together=1)
            before = target.process.cpu()
            many = target.load(count=count, together=32)
            cpu = (target.process.cpu() - before) / count
            assert one["good"] == one["sent"] and many["good"] == many["sent"], (name, one, many)
            found[name].append({"cpu": cpu, "p50": one["p50"], "p99": one["p99"], **_rate(many)})
    print(
        f"\n{requests} requests of one text a turn (LiteLLM: a tenth), 32 at a time for processor "
        f"time and rate, one after another for latency; median of {ROUNDS} turns\n"
    )
    print("| | processor ms a request | p50 ms | p99 ms | p50 added | p99 added | requests/s |")
    print("|---|---|---|---|---|---|---|")
    middle = {
        name: {key: statistics.median(one[key] for one in turns) for key in turns[0]}
        for name, turns in found.items()
    }
    bare = middle["the upstream alone"]
    for name, one in middle.items():
        added = [f"{(one[p] - bare[p]) * 1000:.2f}" if one is not bare else "" for p in _LATE]
        print(
            f"| {name} | {one['cpu'] * 1000:.3f} | {one['p50'] * 1000:.2f} | "
            f"{one['p99'] * 1000:.2f} | {added[0]} | {added[1]} | {one['rate']:.0f} |"
        )
    mine = middle["crossfade, B"]["cpu"]
    print(f"\nB on every request: {mine * 1000:.3f} ms of processor time; the limit is 0.6")
    if "LiteLLM's proxy" in middle:
        ratio = middle["LiteLLM's proxy"]["cpu"] / mine
        print(f"LiteLLM's proxy takes {ratio:.1f} times that; at least 5 is asked for")


_LATE = ("p50", "p99")


def _rate(many: dict[str, Any]) -> dict[str, float]:
    return {"rate": many["good"] / many["seconds"]}


def crowd(target: Target, together: int, seconds: float) -> None:
    told = target.load(seconds=seconds, together=together)
    print(
        f"\n{together} in flight for {seconds:g} s: {told['sent']} sent, {told['good']} answered, "
        f"{told['sent'] - told['good']} lost; p50 {told['p50'] * 1000:.0f} ms, "
        f"p99 {told['p99'] * 1000:.0f} ms"
    )
    assert told["sent"] == told["good"], told


def remember(target: Target, requests: int) -> None:
    fifth = max(requests // 5, 1)
    seen = []
    for _ in range(5):
        told = target.load(count=fifth, together=32)
        assert told["good"] == fifth, told
        seen.append(target.process.memory())
    shown = ", ".join(f"{mb:.1f}" for mb in seen)
    print(f"memory after every {fifth} of {requests} requests: {shown} MB")


def fit(dim: int, folder: Path) -> None:
    rng = np.random.default_rng(0)
    new = rng.normal(size=(2 * dim, dim)).astype(np.float32)
    old = new @ np.linalg.qr(rng.normal(size=(dim, dim)))[0].astype(np.float32)
    old += 0.1 * rng.normal(size=old.shape).astype(np.float32)
    Upgrade(solver="closed_form", forward_map="affine").fit(old, new).save(folder)


def ours() -> list[str]:
    return [sys.executable, "-m", "benchmarks.serve"]


@contextmanager
def started(
    command: list[str], answers: Callable[[int], bool], **options: Any
) -> Iterator[Process]:
    """A process that is given a free port as its last argument, until it answers there."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    popen = subprocess.Popen([*command, str(port)], stdout=subprocess.DEVNULL, **options)
    try:
        end = time.monotonic() + PATIENCE
        while not answers(port):
            if popen.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"did not start: {' '.join(command)}")
            time.sleep(0.1)
        yield Process(popen, port)
    finally:
        popen.terminate()
        try:
            popen.wait(10)
        except subprocess.TimeoutExpired:
            popen.kill()
            popen.wait()


def answers_tcp(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False


@contextmanager
def crossfade_serve(upgrade: Path, upstream: int) -> Iterator[Process]:
    command = [sys.executable, "-m", "crossfade", "serve", str(upgrade), "--model", MODEL]
    command += ["--upstream", f"http://127.0.0.1:{upstream}/v1", "--client-keys-env", KEY, "--port"]
    with started(command, answers_tcp) as process:
        yield process


@contextmanager
def litellm_proxy(venv: Path, folder: Path, upstream: int) -> Iterator[Process]:
    config = {
        "model_list": [
            {
                "model_name": MODEL,
                "litellm_params": {
                    "model": f"openai/{MODEL}",
                    "api_base": f"http://127.0.0.1:{upstream}/v1",
                    "api_key": "none",
                },
            }
        ],
        "litellm_settings": {"telemetry": False, "num_retries": 0},
    }
    path = folder / "litellm.json"
    path.write_text(json.dumps(config))
    command = [str(venv / "bin" / "litellm"), "--config", str(path), "--host", "127.0.0.1"]
    environment = os.environ | {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_LOG": "ERROR",
        "LITELLM_MASTER_KEY": os.environ[KEY],
    }
    environment.pop("PYTHONPATH", None)
    with started(
        [*command, "--num_workers", "1", "--port"],
        answers_tcp,
        env=environment,
        stderr=subprocess.DEVNULL,
    ) as process:
        yield process


class Answering(asyncio.Protocol):
    """An upstream that does nothing but answer, with a vector it has made beforehand."""

    def __init__(self, answers: dict[bool, bytes]) -> None:
        self.answers, self.held = answers, b""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.held += data
        while (end := self.held.find(b"\r\n\r\n")) >= 0:
            size = _length(self.held[:end])
            if len(self.held) < end + 4 + size:
                return
            body, self.held = self.held[end + 4 : end + 4 + size], self.held[end + 4 + size :]
            self.transport.write(self.answers[b'"base64"' in body])


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line[15:])
    return 0


def _answers(dim: int) -> dict[bool, bytes]:
    vector = np.random.default_rng(1).normal(size=dim).astype("<f4")
    vector /= np.linalg.norm(vector)
    forms: dict[bool, Any] = {
        True: base64.b64encode(vector.tobytes()).decode(),
        False: vector.tolist(),
    }
    answers = {}
    for packed, embedding in forms.items():
        data = [{"object": "embedding", "index": 0, "embedding": embedding}]
        usage = {"prompt_tokens": 4, "total_tokens": 4}
        body = json.dumps({"object": "list", "data": data, "model": MODEL, "usage": usage}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        answers[packed] = head.encode() + b"\r\n\r\n" + body
    return answers


async def answer_at_once(dim: int, port: int) -> None:
    answers = _answers(dim)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Answering(answers), "127.0.0.1", port, backlog=2048)
    async with server:
        await server.serve_forever()


class Asking(asyncio.Protocol):
    """A connection that sends the next request when the last one is answered."""

    def __init__(self, load: Load) -> None:
        self.load, self.held, self.begun = load, b"", 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.ask()

    def ask(self) -> None:
        if not self.load.more():
            self.transport.close()
            return
        self.load.sent += 1
        self.begun = time.perf_counter()
        self.transport.write(self.load.request)

    def data_received(self, data: bytes) -> None:
        self.held += data
        end = self.held.find(b"\r\n\r\n")
        if end < 0:
            return
        size = _length(self.held[:end])
        if len(self.held) < end + 4 + size:
            return
        if self.held.startswith(b"HTTP/1.1 200") and size >= self.load.least:
            self.load.took.append(time.perf_counter() - self.begun)
        self.held = b""
        self.ask()

    def connection_lost(self, _: Exception | None) -> None:
        self.load.left.release()


class Load:
    """So many requests, or for so long, with so many in flight."""

    def __init__(
        self, port: int, model: str, together: int, count: int = 0, seconds: float = 0.0
    ) -> None:
        asked = {"model": model, "input": "how to read a file", "encoding_format": "base64"}
        body = json.dumps(asked).encode()
        head = (
            "POST /v1/embeddings HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {os.environ[KEY]}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.request = head.encode() + body
        self.port, self.together, self.count, self.seconds = port, together, count, seconds
        self.least = 500
        self.sent = 0
        self.took: list[float] = []
        self.left = asyncio.Semaphore(0)

    def more(self) -> bool:
        return self.sent < self.count or time.perf_counter() < self.end

    async def run(self) -> dict[str, float]:
        loop = asyncio.get_running_loop()
        begin = time.perf_counter()
        self.end = begin + self.seconds
        for _ in range(self.together):
            await loop.create_connection(lambda: Asking(self), "127.0.0.1", self.port)
        for _ in range(self.together):
            await self.left.acquire()
        seconds = time.perf_counter() - begin
        p50, p99 = np.percentile(self.took, [50, 99]).tolist()
        good = len(self.took)
        return {"sent": self.sent, "good": good, "seconds": seconds, "p50": p50, "p99": p99}


if __name__ == "__main__":
    import uvloop

    if sys.argv[1] == "upstream":
        uvloop.run(answer_at_once(int(sys.argv[2]), int(sys.argv[3])))
    else:
        print(json.dumps(uvloop.run(Load(**json.loads(sys.argv[2])).run())))
