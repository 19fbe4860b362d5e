"""How the harness's long-lived processes are spoken to: one line asks, one line answers.

A socket in a folder, for whoever asks may be killed at any moment and must leave nothing behind.
"""

from __future__ import annotations

import json
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

Handle = Callable[[str, dict[str, Any]], Any]
_PATIENCE = 60.0


def ask(path: Path, what: str, /, patience: float = _PATIENCE, **told: Any) -> Any:
    """Ask the process behind `path`; None if it has no answer in time."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(patience)
        line.connect(str(path))
        line.sendall(json.dumps([what, told]).encode() + b"\n")
        try:
            with line.makefile("rb") as answers:
                answer = answers.readline()
        except TimeoutError:
            return None
    if not answer:
        raise RuntimeError(f"{path.name} went away when asked to {what}")
    return json.loads(answer)


def answer(path: Path, handle: Handle, idle: Callable[[], float]) -> None:
    """Answer until asked to end; in between `idle` is called, and gives the seconds to its next."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(16)
        pause = 0.0
        while True:
            ready, _, _ = select.select([listener], [], [], pause)
            if not ready:
                pause = idle()
                continue
            # Asked all the time it does its own work nevertheless.
            pause = min(pause, 0.02)
            with listener.accept()[0] as line, suppress(OSError):
                with line.makefile("rb") as asked:
                    question = asked.readline()
                if not question:
                    continue
                what, told = json.loads(question)
                line.sendall(json.dumps("ended" if what == "end" else handle(what, told)).encode())
                line.sendall(b"\n")
                if what == "end":
                    return


def wait_for(path: Path, alive: Callable[[], bool]) -> None:
    """Until the process behind `path` listens."""
    while alive():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            try:
                line.connect(str(path))
                return
            except (FileNotFoundError, ConnectionRefusedError):
                time.sleep(0.02)
    raise RuntimeError(f"{path.name} ended before it began")
