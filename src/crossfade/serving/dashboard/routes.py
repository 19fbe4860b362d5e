"""The page at `/`, what it shows as JSON, and the events it follows."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from crossfade._version import __version__
from crossfade.errors import MissingExtra
from crossfade.report.page import allowed, read_text

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

    from crossfade.serving.dashboard.watch import Watch

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def dashboard_routes(watch: Watch) -> list[BaseRoute]:
    """Routes of a page that shows what `watch` sees."""
    try:
        from starlette.responses import HTMLResponse, Response, StreamingResponse
        from starlette.routing import Route
    except ImportError as error:
        raise MissingExtra("starlette", extra="serve", need="the dashboard") from error

    async def show_page(_: Request) -> Response:
        html, policy = _page()
        return HTMLResponse(html, headers=_HEADERS | {"Content-Security-Policy": policy})

    async def show_state(_: Request) -> Response:
        text = json.dumps(await watch.state(), allow_nan=False)
        return Response(text, media_type="application/json", headers=_HEADERS)

    async def send_events(_: Request) -> Response:
        headers = _HEADERS | {"X-Accel-Buffering": "no"}
        return StreamingResponse(_events(watch), media_type="text/event-stream", headers=headers)

    return [
        Route("/", show_page),
        Route("/dashboard/state", show_state),
        Route("/dashboard/events", send_events),
    ]


async def _events(watch: Watch) -> AsyncIterator[bytes]:
    yield b"retry: 2000\n\n"
    async for name, data in watch.follow():
        yield f"event: {name}\ndata: {data}\n\n".encode()


@cache
def _page() -> tuple[str, str]:
    """The page with its style and script inside it, and the policy that allows these alone."""
    here = files("crossfade.serving.dashboard")
    html, css, js = (
        here.joinpath(name).read_text(encoding="utf-8")
        for name in ("dashboard.html", "dashboard.css", "dashboard.js")
    )
    style, script = read_text("look.css") + css, read_text("chart.js") + js
    policy = (
        "default-src 'none'; img-src data:; connect-src 'self'; base-uri 'none'; "
        f"form-action 'none'; frame-ancestors 'none'; {allowed(script, style)}"
    )
    page = html.replace("/*style*/", style).replace("/*script*/", script)
    return page.replace("{version}", __version__), policy
