"""A gateway as a server: in this thread until it is told to stop, or in one beside it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from crossfade.asking import Asking
from crossfade.embedders.address import address_of
from crossfade.errors import BadInput, MissingExtra
from crossfade.journal.opening import open_migrating
from crossfade.serving.limits import Limits
from crossfade.stores import Store

if TYPE_CHECKING:
    from crossfade.serving.gateway import Gateway, Side
    from crossfade.serving.upstream import Upstream

_LOG = logging.getLogger("crossfade.serving")
PORT = 8080
# Longer than the 60 seconds for which clients and proxies usually keep a connection.
_KEEP_ALIVE = 75
_BACKLOG = 2048


class Server:
    """A gateway that can be started beside other work, or run.

    The arguments are those of `serve`. As a context it runs in a thread of its own; `url` is where.
    """

    def __init__(
        self,
        upgrade: str | Path,
        *,
        upstream: str,
        model: str,
        upstream_old: str | None = None,
        model_old: str | None = None,
        store: Store | str | Path | None = None,
        plan: str | Path | None = None,
        host: str = "127.0.0.1",
        port: int = PORT,
        key_env: str | None = None,
        key_env_old: str | None = None,
        client_keys: Iterable[str] | None = None,
        shadow: float | None = None,
        shadow_ask: Asking = "new",
        dimensions: int | None = None,
        dimensions_old: int | None = None,
        take_tokens: bool = True,
        limits: Limits | None = None,
        allow_insecure: bool = False,
        access_log: bool = False,
    ) -> None:
        _need_extra()
        from crossfade.serving.app import make_app
        from crossfade.serving.counters import Asked, Counters
        from crossfade.serving.gateway import Gateway, Sources
        from crossfade.serving.keys import Keys
        from crossfade.serving.shadow import Shadow, ShadowSettings
        from crossfade.serving.upstream import Upstream

        limits = limits or Limits()
        _check_names(model, upstream_old, model_old)
        if shadow is not None and store is None:
            raise BadInput("a shadow is of searches", step="name the store with --store")
        counters = Counters()
        given: list[tuple[Side, str, str, str | None]] = [("new", upstream, model, key_env)]
        if upstream_old is not None and model_old is not None:
            given.append(("old", upstream_old, model_old, key_env_old))
        upstreams: dict[Side, Upstream] = {}
        for side, base, name, env in given:
            address = address_of(base, env, os.environ, allow_insecure=allow_insecure)
            counters.upstreams[side] = Asked()
            upstreams[side] = Upstream(side, address, name, limits, counters.upstreams[side])
        widths: dict[Side, int] = {}
        if dimensions is not None:
            widths["new"] = dimensions
        if dimensions_old is not None:
            widths["old"] = dimensions_old
        keys = None if client_keys is None else Keys(client_keys)
        with ExitStack() as undo:
            self._socket = _bound(host, port)
            undo.callback(self._socket.close)
            opened = open_migrating(store) if isinstance(store, (str, Path)) else store
            if opened is not None:
                undo.callback(opened.close)
            self.gateway: Gateway = Gateway(
                Sources(Path(upgrade), None if plan is None else Path(plan)),
                upstreams,
                store=opened,
                limits=limits,
                counters=counters,
                shadow=None if shadow is None else Shadow(ShadowSettings(shadow, shadow_ask)),
                dimensions=widths,
                take_tokens=take_tokens,
            )
            undo.pop_all()
        self._app = make_app(self.gateway, keys=keys, access_log=access_log)
        self._open_to_all = keys is None and not _is_loopback(self._socket)
        self.url = _url(self._socket)
        """Where it answers."""
        self._server: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def run(self, ready: Callable[[str], None] | None = None) -> None:
        """Serve until SIGTERM or Ctrl-C, then finish what was begun; SIGHUP loads the upgrade anew.

        `ready` is called with the address once it answers.
        """
        import uvicorn

        from crossfade.serving.heads import TimedHeads

        server = self

        class Signalled(uvicorn.Server):
            @contextmanager
            def capture_signals(self) -> Iterator[None]:
                with _handled(self.handle_exit, server._reload):
                    yield

            async def startup(self, sockets: list[socket.socket] | None = None) -> None:
                await super().startup(sockets)
                server._started(asyncio.get_running_loop())
                if ready is not None:
                    ready(server.url)

            async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
                server.gateway.stopping.set()
                await super().shutdown(sockets)

        self._server = Signalled(
            uvicorn.Config(
                self._app,
                loop="auto",
                http=cast(Any, partial(TimedHeads, limits=self.gateway.limits)),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=int(self.gateway.limits.seconds) + 1,
            )
        )
        self._server.run(sockets=[self._socket])
        _LOG.info("stopped")

    def start(self) -> Self:
        """Serve in a thread beside this one; returns once it answers."""
        answering = threading.Event()
        self._thread = threading.Thread(
            target=self.run, args=(lambda _: answering.set(),), name="crossfade-serve", daemon=True
        )
        self._thread.start()
        while not answering.wait(0.05):
            if not self._thread.is_alive():
                raise BadInput("the gateway did not start", step="see the log")
        return self

    def stop(self) -> None:
        """Finish what was begun, and end."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _started(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        _LOG.info(
            "serving",
            extra={"url": self.url, "models": list(self.gateway.names), "pid": os.getpid()},
        )
        if self._open_to_all:
            _LOG.warning("anyone who reaches this address may use it: there are no client keys")

    def _reload(self) -> None:
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(self.gateway.reload(), self._loop)


def serve(
    upgrade: str | Path,
    *,
    upstream: str,
    model: str,
    ready: Callable[[str], None] | None = None,
    log: bool = False,
    **options: Any,
) -> None:
    """Serve the query side of an upgrade over HTTP, until SIGTERM or Ctrl-C.

    Parameters
    ----------
    upgrade : the folder; loaded anew when it changes, and on SIGHUP.
    upstream, model : where the new model answers in OpenAI's shape, and its name there.
    upstream_old, model_old : the same of the old model, if it is to be asked too.
    store : the address of a store, for `/v1/search` and for `model@store`.
    plan : a plan's folder, for how to ask; by default as the migration was started.
    host, port : loopback and 8080; port 0 takes any that is free.
    key_env, key_env_old : names of the environment variables that hold the upstreams' keys.
    client_keys : keys of which clients must show one, as a bearer.
    shadow, shadow_ask : the share of searches that is also asked another way, and which.
    dimensions, dimensions_old : what the models are asked for, where they can give shorter vectors.
    take_tokens : whether arrays of tokens are passed on.
    limits : `Limits` of time, size and number.
    allow_insecure : send a key over plain http to another machine.
    access_log : a line for every request, not for failures alone.
    ready : called with the address once it answers.
    log : write what happens to stderr, as lines of JSON; for a process that does nothing else.

    >>> serve("nowhere", upstream="http://127.0.0.1:9/v1", model="new", port=0)
    Traceback (most recent call last):
    crossfade.errors.BadUpgrade: nowhere: is not an upgrade folder → ...
    """
    from threadpoolctl import threadpool_limits

    server = Server(upgrade, upstream=upstream, model=model, **options)
    from crossfade.serving.logs import logging_to_stderr

    # A product with one query is too small for threads, which would spin beside it.
    with threadpool_limits(1), few_collections(), logging_to_stderr() if log else nullcontext():
        server.run(ready)


@contextmanager
def few_collections() -> Iterator[None]:
    """Python's collector looks at what was imported never, and at requests less often: they leave
    few cycles behind."""
    usual = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


def _need_extra() -> None:
    for package in ("starlette", "uvicorn", "httptools", "aiohttp", "orjson", "pybase64"):
        try:
            __import__(package)
        except ImportError:
            raise MissingExtra(package, extra="serve", need="the gateway") from None


def _check_names(model: str, upstream_old: str | None, model_old: str | None) -> None:
    if (upstream_old is None) != (model_old is None):
        raise BadInput(
            "the old model needs an upstream and a name", step="give --upstream-old and --model-old"
        )
    for name in (model, model_old):
        if name is not None and (not name or "@" in name):
            raise BadInput(
                f"a model called {name!r}", step="give a name without @, which says what comes back"
            )
    if model == model_old:
        raise BadInput(
            f"both models are called {model!r}", step="give each the name its upstream knows"
        )


def _bound(host: str, port: int) -> socket.socket:
    """A socket that has its port already, so that it is known before anything is started."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (OSError, OverflowError) as error:
        raise BadInput(f"cannot be listened on ({error})", where=f"{host}:{port}") from None
    found = socket.socket(family, kind)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
    except OSError as error:
        found.close()
        raise BadInput(
            f"cannot be listened on ({error.strerror})",
            where=f"{host}:{port}",
            step="name another with --host and --port",
        ) from None
    return found


def _url(bound: socket.socket) -> str:
    host, port = bound.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _is_loopback(bound: socket.socket) -> bool:
    return ip_address(bound.getsockname()[0].partition("%")[0]).is_loopback


@contextmanager
def _handled(end: Callable[[int, Any], None], reload: Callable[[], None]) -> Iterator[None]:
    """Signals reach the main thread alone; elsewhere whoever started the server stops it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = {signal.SIGTERM: end, signal.SIGINT: end}
    if hasattr(signal, "SIGHUP"):
        heard[signal.SIGHUP] = lambda *_: reload()
    before = {one: signal.signal(one, handler) for one, handler in heard.items()}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
