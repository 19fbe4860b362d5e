"""The pictures of pages in docs/: the dashboard in the middle of a migration, and a report.

python -m examples.screenshots docs

Everything shown is real: the demo's texts are upgraded, and photographed by Debian's Chromium.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from pathlib import Path

import uvicorn
from playwright.sync_api import Browser, sync_playwright
from starlette.applications import Starlette

from crossfade import Migration, open_store, write_report
from crossfade.demo.texts import embed_new, tell
from crossfade.serving.dashboard import Watch, dashboard_routes

FILLED = 0.6
DESKTOP, PHONE = {"width": 1100, "height": 1180}, {"width": 390, "height": 844}
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking")


def main(folder: Path) -> None:
    folder = folder.resolve()
    with tempfile.TemporaryDirectory() as work, chdir(work), browser() as chromium:
        tell(Path())
        # The demo has upgraded another table; this one is as it was.
        migration = Migration("texts.lance", "upgrade")
        migration.start(source="text", plan=Path("plan"), evaluation=Path("evaluation.json"))
        migration.forward()
        migration.backfill(embed_new, plan="plan", share=FILLED)
        with served(Watch(open_store("texts.lance"))) as address:
            photograph(chromium, address, folder / "dashboard.png", DESKTOP, "light")
            photograph(chromium, address, folder / "dashboard-phone.png", PHONE, "dark")
        migration.close()
        report = write_report(["."], "report.html")
        page = report.path.resolve().as_uri()
        photograph(chromium, page, folder / "report.png", DESKTOP, "light")


@contextmanager
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        program = shutil.which("chromium") or "/usr/bin/chromium"
        opened = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        try:
            yield opened
        finally:
            opened.close()


@contextmanager
def served(watch: Watch) -> Iterator[str]:
    app = Starlette(routes=dashboard_routes(watch))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        watch.close()
        server.should_exit = True
        thread.join()


def photograph(chromium: Browser, url: str, path: Path, size: dict[str, int], scheme: str) -> None:
    """The first screen of a page, once its chart is drawn."""
    context = chromium.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce")
    page = context.new_page()
    page.goto(url)
    page.locator("svg.chart:visible").first.wait_for()
    page.screenshot(path=path)
    context.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
