"""CMC-Top1, mAP and nDCG@10 of all queries against all items, beside the ways people do it today.

python -m benchmarks evaluate                  # 10k × 10k × 256: every way, in turns
python -m benchmarks evaluate --large          # 50k × 50k × 512, against the product alone
python -m benchmarks evaluate --plot FILE.png  # cost against gallery size, 10k to 1M
python -m benchmarks evaluate --cuda           # 50k × 50k × 1024 on a GPU

`--busy` lets a neighbour burn a core meanwhile; `--no-avx512` hides those instructions from numpy,
BLAS and numba. Each way runs in a process of its own. Memory is its peak above what is resident
once vectors are loaded and libraries imported and warm.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.machine import machine

CHUNK = 1024
METRICS = ("cmc@1", "mAP", "ndcg@10")


def made(rows: int, dim: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors around class centres, hard enough that ranks are spread out."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=rows)
    x = rng.standard_normal((classes, dim), dtype=np.float32)[labels]
    x += 3 * rng.standard_normal((rows, dim), dtype=np.float32)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return x, labels


def crossfade(q: np.ndarray, g: np.ndarray, mine: np.ndarray, theirs: np.ndarray) -> list[float]:
    """The counting of a large table, numba's, whatever the size of the warm-up."""
    from crossfade.retrieval import compiled_counting

    return counted(compiled_counting.count_below, q, g, mine, theirs)


def without_numba(
    q: np.ndarray, g: np.ndarray, mine: np.ndarray, theirs: np.ndarray
) -> list[float]:
    from crossfade.retrieval import counting

    return counted(counting.count_below, q, g, mine, theirs)


def sorted_rows(q: np.ndarray, g: np.ndarray, mine: np.ndarray, theirs: np.ndarray) -> list[float]:
    """What the kernel did before: every row of scores sorted, relevant ones looked up."""

    def count(scores: np.ndarray, asked: np.ndarray, bounds: np.ndarray, below: np.ndarray) -> None:
        scores.sort(axis=1)
        ends = bounds.tolist()
        for row, begin in enumerate(ends[:-1]):
            here = slice(begin, ends[row + 1])
            below[here] = scores[row].searchsorted(asked[here])

    return counted(count, q, g, mine, theirs)


def counted(
    count: object, q: np.ndarray, g: np.ndarray, mine: np.ndarray, theirs: np.ndarray
) -> list[float]:
    from crossfade.retrieval import SameClass, measure, numpy_engine

    numpy_engine.counter = lambda _: count  # type: ignore[assignment]
    relevance = SameClass(mine, theirs, np.arange(len(q)))
    return list(measure(q, g, relevance, METRICS).means().values())


def product(q: np.ndarray, g: np.ndarray, mine: np.ndarray, theirs: np.ndarray) -> list[float]:
    """The limit: nothing but the scores, into one buffer."""
    rows = max(1, min(CHUNK, (96 << 20) // (4 * len(g))))
    out = np.empty((rows, len(g)), np.float32)
    for first in range(0, len(q), rows):
        part = q[first : first + rows]
        np.matmul(part, g.T, out=out[: len(part)])
    return [float("nan")] * len(METRICS)


def from_order(found: np.ndarray) -> list[np.ndarray]:
    """The metrics of some queries; `found` (queries, items) says what is relevant, in order."""
    places = np.arange(1, found.shape[1] + 1)
    relevant = found.sum(axis=1)
    precision = np.cumsum(found, axis=1) / places
    gains = 1 / np.log2(places[:10] + 1)
    best = np.cumsum(gains)[np.minimum(relevant, 10) - 1]
    return [
        found[:, 0],
        (precision * found).sum(axis=1) / relevant,
        (found[:, :10] * gains).sum(axis=1) / best,
    ]


def argsort(q: np.ndarray, g: np.ndarray, mine: np.ndarray, theirs: np.ndarray) -> list[float]:
    """What most evaluation scripts do, in chunks."""
    values = []
    # A chunk takes some thirty bytes a score.
    step = max(1, min(CHUNK, 100_000_000 // len(g)))
    for first in range(0, len(q), step):
        scores = q[first : first + step] @ g.T
        rows = np.arange(len(scores))
        scores[rows, first + rows] = -np.inf
        order = np.argsort(-scores, axis=1)[:, :-1]
        values.append(from_order(theirs[order] == mine[first : first + step, None]))
    return [100 * float(np.concatenate(x).mean()) for x in zip(*values, strict=True)]


def faiss_flat(q: np.ndarray, g: np.ndarray, mine: np.ndarray, theirs: np.ndarray) -> list[float]:
    """FAISS's exact index asked for everything: mAP needs all places, and it returns no fewer."""
    import faiss

    index = faiss.IndexFlatIP(g.shape[1])
    index.add(g)
    values = []
    step = max(1, min(CHUNK, 100_000_000 // len(g)))
    for first in range(0, len(q), step):
        _, order = index.search(q[first : first + step], len(g))
        own = np.arange(first, first + len(order))[:, None]
        order = order[order != own].reshape(len(order), -1)
        values.append(from_order(theirs[order] == mine[first : first + step, None]))
    return [100 * float(np.concatenate(x).mean()) for x in zip(*values, strict=True)]


def metric_learning(
    q: np.ndarray, g: np.ndarray, mine: np.ndarray, theirs: np.ndarray
) -> list[float]:
    """pytorch-metric-learning's AccuracyCalculator, which has no nDCG."""
    import torch
    from pytorch_metric_learning.utils.accuracy_calculator import AccuracyCalculator

    asked = ("precision_at_1", "mean_average_precision")
    calculator = AccuracyCalculator(include=asked, k=len(g) - 1, device=torch.device("cpu"))
    found = calculator.get_accuracy(
        torch.from_numpy(q),
        torch.from_numpy(mine),
        torch.from_numpy(g),
        torch.from_numpy(theirs),
        ref_includes_query=True,
    )
    return [*(100 * float(found[name]) for name in asked), float("nan")]


WAYS = {
    "crossfade": crossfade,
    "crossfade, no numba": without_numba,
    "crossfade, rows sorted": sorted_rows,
    "bare product": product,
    "numpy argsort": argsort,
    "faiss": faiss_flat,
    "pytorch-metric-learning": metric_learning,
}
SLOW = ("numpy argsort", "faiss", "pytorch-metric-learning")


def status(field: str) -> int:
    """Bytes, from /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


def work(way: str, queries: int, gallery: int, dim: int, classes: int) -> None:
    """In the child: one warm-up on few rows, then the measured run; a JSON line on stdout."""
    x, labels = made(gallery, dim, classes)
    q, mine = (x, labels) if queries == gallery else (x[:queries].copy(), labels[:queries])
    WAYS[way](x[:500], x[:500], labels[:500], labels[:500])
    Path("/proc/self/clear_refs").write_text("5")  # The peak starts again from here.
    before, cpu, begin = status("VmRSS"), time.process_time(), time.perf_counter()
    means = WAYS[way](q, x, mine, labels)
    print(
        json.dumps(
            {
                "seconds": time.perf_counter() - begin,
                "cpu": time.process_time() - cpu,
                "memory": status("VmHWM") - before,
                "means": means,
            }
        )
    )


def run(way: str, *size: int) -> dict[str, float]:
    arguments = [sys.executable, "-m", "benchmarks", "evaluate", "--work", way, *map(str, size)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def compare(ways: list[str], repeats: dict[str, int], *size: int) -> dict[str, dict[str, float]]:
    """Medians over turns; a slow peer takes fewer of them."""
    turns: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for turn in range(max(repeats.values())):
        for way in ways:
            if turn < repeats[way]:
                turns[way].append(run(way, *size))
    return {
        way: {
            **{k: statistics.median(t[k] for t in found) for k in ("seconds", "cpu", "memory")},
            "means": found[0]["means"],
            "repeats": len(found),
        }
        for way, found in turns.items()
    }


def table(found: dict[str, dict[str, float]]) -> str:
    bare = found["bare product"]
    lines = ["| way | CPU s | of bare | wall s | of bare | peak MB | " + " / ".join(METRICS)]
    lines[0] += " | turns |"
    lines.append("|---" * 8 + "|")
    for way, r in found.items():
        means = " / ".join("–" if m != m else f"{m:.3f}" for m in r["means"])
        lines.append(
            f"| {way} | {r['cpu']:.2f} | {r['cpu'] / bare['cpu']:.2f} | {r['seconds']:.2f} | "
            f"{r['seconds'] / bare['seconds']:.2f} | {r['memory'] / 1e6:.0f} | {means} | "
            f"{r['repeats']} |"
        )
    return "\n".join(lines)


@contextlib.contextmanager
def neighbour(busy: bool) -> Iterator[None]:
    """Another process that burns a core, as on a machine one shares."""
    if not busy:
        yield
        return
    program = "import numpy as np; x = np.ones((1500, 1500), 'f4')\nwhile True: x @ x"
    burning = subprocess.Popen(
        [sys.executable, "-c", program], env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    try:
        yield
    finally:
        burning.kill()
        burning.wait()


def hide_avx512() -> None:
    """From the processes that are started from here on."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    found = [f for f in __cpu_dispatch__ if "AVX512" in f and __cpu_features__.get(f)]
    os.environ["NPY_DISABLE_CPU_FEATURES"] = " ".join(found)
    os.environ["OPENBLAS_CORETYPE"] = os.environ["NUMBA_CPU_NAME"] = "haswell"


def plot(path: Path) -> None:
    """1,000 queries of 256 dimensions against galleries of growing size."""
    from matplotlib.figure import Figure

    sizes = [10_000, 30_000, 100_000, 300_000, 1_000_000]
    repeats = {"crossfade": 3, "bare product": 3, "numpy argsort": 1}
    found = {}
    for size in sizes:
        # Beyond this an argsort of all scores takes more memory than the machine has.
        ways = [way for way in repeats if way != "numpy argsort" or size <= 100_000]
        found[size] = compare(ways, {w: repeats[w] for w in ways}, 1000, size, 256, 100)
        print(f"\n{size:,} items\n\n{table(found[size])}", flush=True)
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    time_panel, memory_panel = figure.subplots(1, 2)
    for way, colour in zip(repeats, ("#2a7f62", "#8a93a3", "#b3392f"), strict=True):
        at = [size for size in sizes if way in found[size]]
        time_panel.loglog(at, [found[s][way]["seconds"] for s in at], "o-", c=colour)
        memory = [max(found[s][way]["memory"] / 1e6, 1) for s in at]
        memory_panel.loglog(at, memory, "o-", c=colour, label=way)
    time_panel.set(xlabel="gallery", ylabel="seconds for 1,000 queries")
    memory_panel.set(xlabel="gallery", ylabel="peak MB above the vectors")
    memory_panel.legend(frameon=False)
    figure.savefig(path, dpi=130)


def cuda(repeats: int = 5) -> None:
    import torch

    from crossfade.retrieval import SameClass, measure

    rows, dim = 50_000, 1024
    x, labels = made(rows, dim, 1000)
    relevance = SameClass.among(labels)
    on_device = torch.from_numpy(x).cuda()

    def bare() -> None:
        for first in range(0, rows, 2048):
            on_device[first : first + 2048] @ on_device.T
        torch.cuda.synchronize()

    def ours() -> dict[str, float]:
        return measure(x, x, relevance, METRICS, device="cuda").means()

    bare(), ours()
    ratios = []
    for _ in range(repeats):
        begin = time.perf_counter()
        bare()
        middle = time.perf_counter()
        means = ours()
        ratios.append((time.perf_counter() - middle, middle - begin))
    mine, limit = (statistics.median(x) for x in zip(*ratios, strict=True))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {rows} × {rows} × {dim}")
    print(f"crossfade {mine:.3f} s, bare product {limit:.3f} s, ratio {mine / limit:.2f}, {means}")
    few = slice(10_000)
    small = SameClass.among(labels[few])
    pair = [measure(x[few], x[few], small, METRICS, device=d) for d in ("cpu", "cuda")]
    print("first 10k on CPU and GPU:", *(m.means() for m in pair))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks evaluate", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--busy", action="store_true", help="beside a process that burns a core")
    parser.add_argument("--no-avx512", action="store_true")
    parser.add_argument(
        "--size",
        nargs=4,
        type=int,
        default=(10_000, 10_000, 256, 100),
        metavar="N",
        help="queries, items, dimensions and classes",
    )
    parser.add_argument("--work", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.work:
        work(args.work[0], *map(int, args.work[1:]))
        return
    print(machine(), "\n")
    if args.no_avx512:
        hide_avx512()
    with neighbour(args.busy):
        if args.cuda:
            cuda()
        elif args.plot:
            plot(args.plot)
        elif args.large:
            ways = {"crossfade": 1, "crossfade, rows sorted": 1, "bare product": 1}
            print(table(compare(list(ways), ways, 50_000, 50_000, 512, 1000)))
        else:
            repeats = dict.fromkeys(WAYS, args.repeats) | dict.fromkeys(SLOW, 1)
            print(table(compare(list(WAYS), repeats, *args.size)))
