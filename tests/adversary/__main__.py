"""A migration against a hostile world: `python -m tests.adversary STORE`."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

# Matrices this small gain nothing from threads, and several processes share the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def _point(text: str) -> tuple[str, int]:
    step, _, number = text.partition(":")
    return step, int(number)


def main() -> int:
    """1 if a violation was found."""
    from tests.adversary.points import crash_at_points
    from tests.adversary.rounds import kill_at_random
    from tests.adversary.tables import IN_PROCESS, KINDS
    from tests.adversary.world import Harness

    parser = argparse.ArgumentParser(prog="python -m tests.adversary", description=__doc__)
    parser.add_argument("store", choices=KINDS)
    parser.add_argument("--kills", type=int, default=50, help="SIGKILLs at random moments")
    parser.add_argument("--points", action="store_true", help="crash at every durable act instead")
    parser.add_argument("--point", type=_point, help="crash at this durable act alone: finish:3")
    parser.add_argument("--most", type=int, help="crash at so many durable acts, evenly spread")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--rows", type=int, help="200; 100 for Qdrant and milvus-lite; 60 for points"
    )
    parser.add_argument("--pace", type=float, default=0.03, help="seconds between operations")
    parser.add_argument("--json", type=Path, help="where to write everything")
    given = parser.parse_args()
    # Whoever ends this run ends the servers and folders that it has made, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    points = given.points or given.point is not None or given.most is not None
    rows = given.rows or (60 if points else 100 if given.store in IN_PROCESS else 200)
    harness = Harness(given.store, rows, given.seed, given.pace)
    try:
        if points:
            crash_at_points(harness, given.point, given.most)
        else:
            kill_at_random(harness, given.kills)
    finally:
        print(harness.summary.text())
        if given.json is not None:
            text = json.dumps(harness.summary.record(), indent=1)
            given.json.write_text(text + "\n", encoding="utf-8")
        harness.close()
    return 1 if harness.summary.violations else 0


if __name__ == "__main__":
    sys.exit(main())
