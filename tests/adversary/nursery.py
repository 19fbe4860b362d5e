"""Where the processes come from: forked off one that has imported everything and used nothing.

So a kill meets the migration at work and not Python at its imports. It is asked over a socket for a
process, answers with its number, and later with how it ended. When whoever started it is gone, all
its processes go.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

_IMPORTED = (
    "crossfade.backfill.gallery",
    "chromadb.api.fastapi",
    "crossfade.stores.chroma.store",
    "crossfade.stores.lance.store",
    "crossfade.stores.milvus.store",
    "crossfade.stores.parquet.store",
    "crossfade.stores.postgres.store",
    "crossfade.stores.qdrant.store",
    "crossfade.stores.qdrant_edge.store",
    "lance.dataset",
    "lance.file",
    "milvus_lite.adapter.grpc.server",
    "numba",
    "portalocker",
    "psycopg",
    "pyarrow.parquet",
    "pymilvus",
    "qdrant_client",
    "qdrant_edge",
    "tests.adversary.application",
    "tests.adversary.searching",
    "tests.adversary.steps",
)


class Child:
    """A process of the nursery."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._answers = line.makefile("rb")
        self.pid = int(self._answers.readline())
        self.status: int | None = None

    def wait(self, seconds: float | None = None) -> int | None:
        """Its exit status once it has ended, −9 if it was killed; None if that takes too long."""
        if self.status is None and select.select([self._line], [], [], seconds)[0]:
            self.status = int(self._answers.readline())
            self._answers.close()
            self._line.close()
        return self.status

    def kill(self) -> None:
        # It may have come to its end in this very moment.
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Nursery:
    """Makes processes that call `function` of a module of this package."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.adversary.nursery", str(path)],
            stdin=subprocess.PIPE,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )

    def start(self, module: str, function: str, *arguments: Any) -> Child:
        line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        while True:
            try:
                line.connect(str(self._path))
                break
            except (FileNotFoundError, ConnectionRefusedError):
                if self._server.poll() is not None:
                    raise RuntimeError("the nursery ended before it began") from None
                with suppress(subprocess.TimeoutExpired):
                    self._server.wait(0.02)
        line.sendall(json.dumps([module, function, arguments]).encode() + b"\n")
        return Child(line)

    def close(self) -> None:
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait()


def serve(path: str) -> None:
    """Fork whenever asked, until whoever started this process closes its end."""
    # Lance starts its threads when it is used, and nobody uses it before the fork.
    warnings.filterwarnings("ignore", message="lance is not fork-safe")
    for name in _IMPORTED:
        # A store that was renamed is imported when it is used.
        with suppress(ImportError):
            import_module(name)
    # What is never looked at again is never copied by those who are forked.
    gc.collect()
    gc.freeze()
    ended, woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(woken)
    lines: dict[int, socket.socket] = {}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen(16)
        while True:
            ready, _, _ = select.select([0, ended, listener], [], [])
            if 0 in ready:
                for pid in lines:
                    os.kill(pid, signal.SIGKILL)
                return
            if ended in ready:
                os.read(ended, 4096)
                _bury(lines)
            if listener in ready:
                line = listener.accept()[0]
                pid = _fork(line, listener)
                lines[pid] = line
                line.sendall(f"{pid}\n".encode())


def _bury(lines: dict[int, socket.socket]) -> None:
    """Tell of every process that has ended since."""
    while lines:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with lines.pop(pid) as line, suppress(OSError):
            line.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())


def _fork(line: socket.socket, listener: socket.socket) -> int:
    with line.makefile("rb") as asked:
        module, function, arguments = json.loads(asked.readline())
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        listener.close()
        line.close()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        getattr(import_module(f"tests.adversary.{module}"), function)(*arguments)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # Not through what the server itself has to do at its end.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    serve(sys.argv[1])
