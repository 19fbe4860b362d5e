"""A real HTTP server on loopback that embeds with a small model and misbehaves when told to."""

from __future__ import annotations

import base64
import json
import threading
import time
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

DIM = 32


def model(texts):
    """Counts of hashed three-letter pieces, each with a sign: fastText before it has learned."""
    vectors = np.zeros((len(texts), DIM), np.float32)
    for row, text in zip(vectors, texts, strict=True):
        padded = f"<{text.lower()}>"
        for start in range(max(1, len(padded) - 2)):
            code = zlib.crc32(padded[start : start + 3].encode())
            row[code % DIM] += 1.0 if code & 1024 else -1.0
        row[0] += 0.5
        row /= np.linalg.norm(row)
    return vectors


class Server:
    """Answers as an endpoint does; `plans` holds what goes wrong with the next requests."""

    def __init__(self, model=model):
        self.model = model
        self.plans: list[Callable | None] = []
        self.requests: list[dict] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.key: str | None = None
        self.usage = True
        self.http: ThreadingHTTPServer | None = None
        self.port = 0
        self.keeps = False
        """Whether connections are kept open for further requests."""
        self.connections: set = set()
        self.under_way = self.most_under_way = 0
        self._lock = threading.Lock()

    def start(self):
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1" if server.keeps else "HTTP/1.0"

            def do_POST(self):
                with server._lock:
                    server.connections.add(self.client_address)
                    server.under_way += 1
                    server.most_under_way = max(server.most_under_way, server.under_way)
                self.left = False
                try:
                    server.answer(self)
                finally:
                    server.leave(self)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self):
        if self.http is not None:
            self.http.shutdown()
            self.http.server_close()
            self.http = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    def answer(self, handler):
        asked = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self._lock:
            self.requests.append(asked)
            self.headers.append(dict(handler.headers))
            self.paths.append(handler.path)
            plan = self.plans.pop(0) if self.plans else None
        if self.key is not None and handler.headers.get("Authorization") != f"Bearer {self.key}":
            got = handler.headers.get("Authorization")
            self.send(handler, {"error": {"message": f"Incorrect API key: {got}"}}, 401)
        elif plan is None:
            self.send(handler, self.embedded(asked))
        else:
            plan(self, handler, asked)

    def embedded(self, asked):
        vectors = self.model(asked["input"])
        form = asked["encoding_format"]
        data = [
            {
                "object": "embedding",
                "index": place,
                "embedding": base64.b64encode(row.tobytes()).decode()
                if form == "base64"
                else row.tolist(),
            }
            for place, row in enumerate(vectors)
        ]
        answer = {"object": "list", "model": asked["model"], "data": data}
        tokens = sum(len(text.split()) for text in asked["input"])
        return answer | ({"usage": {"total_tokens": tokens}} if self.usage else {})

    def leave(self, handler):
        """A request is under way until its answer is: who has that may ask again at once."""
        with self._lock:
            self.under_way -= not handler.left
            handler.left = True

    def send(self, handler, answer, code=200, headers=(), cut=0):
        self.leave(handler)
        body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        handler.send_response(code)
        for name, value in headers:
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[: len(body) - cut])


class Time:
    """A clock that moves when someone sleeps, so that waits are seen and not waited for."""

    def __init__(self):
        self.now = 1000.0
        self.slept: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None

    def clock(self):
        return self.now

    def sleep(self, seconds):
        assert seconds >= 0
        self.slept.append(seconds)
        self.now += seconds
        self.on_sleep()


def fails(code, message="no", headers=(), kind=None):
    """The request is refused with this status."""
    error = {"error": {"message": message, **({"code": kind} if kind else {})}}
    return lambda server, handler, asked: server.send(handler, error, code, headers)


def changed(change):
    """The good answer, after `change` had its way with it."""

    def plan(server, handler, asked):
        answer = server.embedded(asked)
        server.send(handler, change(answer) or answer)

    return plan


def slow(seconds):
    """The answer comes late, when nobody may be listening."""

    def plan(server, handler, asked):
        time.sleep(seconds)
        try:
            server.send(handler, server.embedded(asked))
        except OSError:
            handler.close_connection = True

    return plan
