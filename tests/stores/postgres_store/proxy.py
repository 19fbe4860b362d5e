"""Between a client and its PostgreSQL: loses an answer when it is told to."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from urllib.parse import parse_qs, quote, urlsplit


class Proxy:
    """Passes everything on, but for the answer to the `lose`-th COMMIT: there it hangs up.

    The server has that COMMIT `late` seconds after the client was left alone.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        folder = parse_qs(parts.query)["host"][0]
        self.server = f"{folder}/.s.PGSQL.5432"
        self.commits, self.lose, self.late = 0, -1, 0.0
        self._listening = socket.create_server(("127.0.0.1", 0))
        port = self._listening.getsockname()[1]
        user = quote(parts.username or "postgres")
        self.url = (
            f"postgresql://{user}@127.0.0.1:{port}{parts.path}?sslmode=disable&gssencmode=disable"
        )
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listening.close()

    def answer(self, data: bytes) -> bytes:
        """What the client is given of what the server says."""
        return data

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self.server)
                for one, other, watched in ((client, server, True), (server, client, False)):
                    threading.Thread(
                        target=self._pass, args=(one, other, watched), daemon=True
                    ).start()

    def _pass(self, one: socket.socket, other: socket.socket, watched: bool) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(1 << 16):
                if watched and b"COMMIT\0" in data:
                    self.commits += 1
                    if self.commits == self.lose:
                        one.shutdown(socket.SHUT_RDWR)
                        time.sleep(self.late)
                other.sendall(data if watched else self.answer(data))
        for end in (one, other):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        one.close()


class Pooler(Proxy):
    """As poolers do, it tells clients a number of its own for the server's process."""

    _KEY = re.compile(rb"K\x00\x00\x00\x0c(....)", re.DOTALL)

    def answer(self, data: bytes) -> bytes:
        return self._KEY.sub(lambda found: found[0][:5] + b"\x00\x00\x00\x07", data)
