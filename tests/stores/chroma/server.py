"""Chroma's own server, as its wheel brings it, on a free port and with a folder of its own."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_PATIENCE = 60.0


class Server:
    """Runs until `stop`; killed as a whole and started again it has the same address."""

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="chroma", dir=folder))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"chroma+http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        command = [Path(sys.executable).with_name("chroma"), "run", "--path", self.folder / "db"]
        command += ["--host", "127.0.0.1", "--port", str(self.port)]
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "ANONYMIZED_TELEMETRY": "False"},
        )
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError("the Chroma server does not start") from None
                time.sleep(0.05)

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def client(self):
        """A client of the application's."""
        import chromadb
        from chromadb.config import Settings

        settings = Settings(anonymized_telemetry=False, chroma_server_ssl_verify=False)
        return chromadb.HttpClient(host="127.0.0.1", port=self.port, settings=settings)
