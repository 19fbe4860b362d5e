"""Speed, memory and quality, each against a named peer or limit: `python -m benchmarks NAME`."""

from __future__ import annotations

import importlib
import sys

NAMES = (
    "quality",
    "solvers",
    "apply",
    "query",
    "evaluate",
    "gpu",
    "curve",
    "backfill",
    "order",
    "large_gallery",
    "migrate",
    "steps",
    "late",
    "text",
    "gone",
    "asking",
    "filters",
    "serve",
    "endpoint",
    "workers",
    "scale",
)


def main() -> None:
    if len(sys.argv) < 2 or sys.argv[1] not in NAMES:
        raise SystemExit(f"usage: python -m benchmarks {{{'|'.join(NAMES)}}} [options]")
    importlib.import_module(f"benchmarks.{sys.argv[1]}").main(sys.argv[2:])


if __name__ == "__main__":
    main()
