"""The dashboard by itself, without a gateway."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from contextlib import closing
from types import FrameType

from crossfade.errors import BadInput, MissingExtra
from crossfade.serving.dashboard.routes import dashboard_routes
from crossfade.serving.dashboard.watch import Watch

_LOOPBACK_NAMES = ["localhost", "127.0.0.1", "[::1]"]


def serve_dashboard(
    watch: Watch,
    *,
    host: str = "127.0.0.1",
    port: int = 8765,
    begun: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve the page until a signal ends it; `begun` is called with its address."""
    try:
        import uvicorn
        from starlette.applications import Starlette
        from starlette.middleware import Middleware
        from starlette.middleware.trustedhost import TrustedHostMiddleware
    except ImportError as error:
        raise MissingExtra("starlette and uvicorn", extra="serve", need="the page") from error
    # On loopback a page of somebody else's that calls itself by another name is not answered.
    names = _LOOPBACK_NAMES if is_loopback(host) else ["*"]
    app = Starlette(
        routes=dashboard_routes(watch),
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=names)],
    )

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            # Pages that follow never end by themselves, and the server waits for what was begun.
            watch.close()
            super().handle_exit(sig, frame)

    with closing(_listening(host, port)) as heard:
        at = heard.getsockname()[1]
        begun(f"http://{f'[{host}]' if ':' in host else host}:{at}/")
        config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5)
        Server(config).run(sockets=[heard])


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens; taken before anything is said about it."""
    try:
        family, _, _, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(place[:2], family=family)
    except OSError as error:
        raise BadInput(
            f"cannot be listened to ({error.strerror or error})",
            where=f"{host}:{port}",
            step="name another --port, or 0 for any that is free",
        ) from None
