"""A real S3 protocol on this machine, and a proxy before it that fails now and then."""

from __future__ import annotations

import http.client
import io
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.engines.conftest import upgrade_folder  # noqa: F401  (the same for both)

from crossfade import remote

BUCKET = "gallery"
KEY_ID, SECRET = "AKIACROSSFADETEST", "sekrit/of+the-tests=="
SETTINGS = {
    "AWS_ACCESS_KEY_ID": KEY_ID,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Flaky(ThreadingHTTPServer):
    """Passes requests on, and fails one in `each`: before it was passed on, after, or midway; of
    `listings` alone, all midway."""

    daemon_threads = True

    def __init__(self, upstream: str, each: int, *, listings: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.upstream, self.each = upstream.removeprefix("http://"), each
        self.listings = listings
        self.count, self.failed = 0, {"refused": 0, "lost": 0, "cut": 0}
        self.turn = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def next_failure(self, path: str) -> str | None:
        with self.turn:
            if self.listings:
                self.count += "list-type=" in path
                if "list-type=" not in path or self.count % self.each:
                    return None
                self.failed["cut"] += 1
                return "cut"
            self.count += 1
            if self.count % self.each:
                return None
            kind = list(self.failed)[self.count // self.each % 3]
            self.failed[kind] += 1
            return kind

    def handle_error(self, request, client_address) -> None:
        """A client that hangs up is none of our business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body are two packets, and the second would wait for the first to be confirmed.
    disable_nagle_algorithm = True
    server: Flaky

    def _pass(self) -> None:
        failure = self.server.next_failure(self.path)
        body = self._body()
        if failure == "refused":
            self._answer(503, [], b"<Error><Code>SlowDown</Code></Error>")
            return
        upstream = http.client.HTTPConnection(self.server.upstream, timeout=30)
        headers = {k: v for k, v in self.headers.items() if k.lower() != "transfer-encoding"}
        upstream.request(self.command, self.path, body or None, headers)
        found = upstream.getresponse()
        data = found.read()
        upstream.close()
        if failure == "lost":
            # It was done, and nobody is told.
            self._answer(500, [], b"<Error><Code>InternalError</Code></Error>")
            return
        self._answer(found.status, found.getheaders(), data, cut=failure == "cut")

    def _body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            out = io.BytesIO()
            while size := int(self.rfile.readline().split(b";")[0], 16):
                out.write(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return out.getvalue()
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _answer(self, status: int, headers: list, data: bytes, cut: bool = False) -> None:
        self.send_response_only(status)
        dropped = ("transfer-encoding", "connection")
        names = {name.lower() for name, _ in headers}
        for name, value in headers:
            if name.lower() not in dropped:
                self.send_header(name, value)
        if "content-length" not in names:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data[: len(data) // 2] if cut else data)
        if cut:
            self.wfile.flush()
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass

    def log_message(self, *_) -> None:
        """Nothing is said."""


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    from moto.server import ThreadedMotoServer
    from werkzeug.serving import WSGIRequestHandler

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    WSGIRequestHandler.disable_nagle_algorithm = True
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    url = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
    client(url).create_bucket(Bucket=BUCKET)
    yield url
    server.stop()


def client(url: str):
    import boto3

    return boto3.client(
        "s3",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id=KEY_ID,
        aws_secret_access_key=SECRET,
    )


@pytest.fixture
def s3(moto, monkeypatch, tmp_path) -> Iterator[str]:
    """An address of this test's own."""
    yield from _at(moto, monkeypatch, tmp_path.name)


@pytest.fixture
def flaky(moto, monkeypatch, tmp_path) -> Iterator[tuple[str, Flaky]]:
    """The same through a proxy that fails one request in twenty."""
    proxy = Flaky(moto, each=20)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    for address in _at(proxy.url, monkeypatch, tmp_path.name):
        yield address, proxy
    proxy.shutdown()
    proxy.server_close()


@pytest.fixture
def cutting(moto, monkeypatch, tmp_path) -> Iterator[tuple[str, Flaky]]:
    """The same through a proxy that breaks off one listing in three: clients do not repeat it."""
    proxy = Flaky(moto, each=3, listings=True)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    for address in _at(proxy.url, monkeypatch, tmp_path.name):
        yield address, proxy
    proxy.shutdown()
    proxy.server_close()


def _at(url: str, monkeypatch, name: str) -> Iterator[str]:
    for key, value in {**SETTINGS, "AWS_ENDPOINT_URL": url, "AWS_ENDPOINT": url}.items():
        monkeypatch.setenv(key, value)
    remote.filesystem.cache_clear()
    yield f"s3://{BUCKET}/{name}"
    remote.filesystem.cache_clear()
