"""`python -m crossfade` is `crossfade`: it can be stopped while it is still importing."""

from __future__ import annotations

import os
import signal
from typing import Any


def main() -> None:
    """The entry point of the command."""
    heard = [
        one for one in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(one) != signal.SIG_IGN
    ]
    for one in heard:
        signal.signal(one, _end)
    from crossfade.cli import main as run

    try:
        run()
    finally:
        # Nothing is left to stop.
        for one in heard:
            signal.signal(one, signal.SIG_DFL)


def _end(number: int, _: Any) -> None:
    os.write(2, "stopped: not done → run the same command again\n".encode())
    os._exit(128 + number)


if __name__ == "__main__":
    main()
