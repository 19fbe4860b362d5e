"""A Milvus server for as long as one is needed, in a folder of its own and on free ports."""

from __future__ import annotations

import atexit
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import milvus
from pymilvus import MilvusClient

# How often a server looks whether something has happened. By its defaults a Strong query waits a
# fifth of a second, which tests have no use for.
_QUICK = {
    "proxy.timeTickInterval": 20,
    "queryCoord.checkInterval": 100,
    "queryCoord.distPullInterval": 50,
}


# The server ends with whoever started it, however that ends: a pipe from there is closed then.
_UNTIL_ALONE = """
exec 3<&0
"$0" run standalone 3<&- &
server=$!
(cat <&3 >/dev/null; kill -9 $server) &
wait $server
kill $! 2>/dev/null
"""


class Server:
    """A server that runs until it is stopped; `kill` ends it without a word."""

    def __init__(self, parent: str | Path | None = None, *, quick: bool = False) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="milvus", dir=parent)).resolve()
        (self._folder / "bin").symlink_to(_binaries())
        self._config = milvus.MilvusServerConfig(data_dir=str(self._folder))
        ports = [name for name in self._config.configurable_items if name.endswith("_port")]
        self._config.update(**dict(zip(ports, _free_ports(len(ports)), strict=True)))
        for name, value in _QUICK.items() if quick else ():
            self._config.set(name, value)
        self._config.resolve()
        self.port = int(self._config.get("proxy_port"))
        self._metrics, client, peer = _free_ports(3)
        # The etcd inside has ports of its own, and by default everybody's.
        told = {
            "listen-client-urls": f"http://127.0.0.1:{client}",
            "advertise-client-urls": f"http://127.0.0.1:{client}",
            "listen-peer-urls": f"http://127.0.0.1:{peer}",
            "initial-advertise-peer-urls": f"http://127.0.0.1:{peer}",
            "initial-cluster": f"default=http://127.0.0.1:{peer}",
        }
        lines = [f"{name}: {value}\n" for name, value in told.items()]
        (self._folder / "etcd.yaml").write_text("".join(lines))
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.stop)
        self.start()

    @property
    def url(self) -> str:
        """As an address of a store begins."""
        return f"milvus+http://127.0.0.1:{self.port}"

    @property
    def uri(self) -> str:
        """As pymilvus wants it."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        told = {
            "DEPLOY_MODE": "STANDALONE",
            "ETCD_CONFIG_PATH": str(self._folder / "etcd.yaml"),
            "METRICS_PORT": str(self._metrics),
            "MILVUS_RUN_DIR": str(self._folder / "run"),
            "LD_LIBRARY_PATH": str(self._folder / "bin"),
        }
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", _UNTIL_ALONE, str(self._folder / "bin" / "milvus")],
                cwd=self._folder,
                env=os.environ | told,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        until = time.monotonic() + 120
        while time.monotonic() < until and self._process.poll() is None:
            with suppress(OSError):
                health = f"http://127.0.0.1:{self._metrics}/healthz"
                with urllib.request.urlopen(health, timeout=5) as answer:
                    if b"OK" in answer.read():
                        return
            time.sleep(0.05)
        raise RuntimeError((self._folder / "log").read_text(errors="replace")[-2000:])

    def kill(self) -> None:
        """End the server, and start it again."""
        self._end()
        self.start()

    def drop(self, name: str) -> None:
        """A collection that is no longer needed, with what is beside it."""
        client = MilvusClient(uri=self.uri)
        for one in client.list_collections():
            if one == name or one.endswith(f"_{name}"):
                client.drop_collection(one)
        client.close()

    def stop(self) -> None:
        self._end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait()
            self._process = None


def _free_ports(count: int) -> list[int]:
    """Ports that nobody has at the moment."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(one.getsockname()[1]) for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _binaries() -> Path:
    """The server, unpacked once for this user: that takes longer than to start it."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kept = cache / "crossfade" / f"milvus-{milvus.__version__}"
    if not kept.is_dir():
        kept.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(dir=kept.parent))
        milvus._initialize_data_files(str(fresh))
        with suppress(OSError):
            # Another worker may have been quicker.
            (fresh / "bin").rename(kept)
        shutil.rmtree(fresh, ignore_errors=True)
    return kept
