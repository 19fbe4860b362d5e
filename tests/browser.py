"""Debian's Chromium, driven by Playwright; and what every page of ours must be."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE, DESKTOP = {"width": 390, "height": 844}, {"width": 1280, "height": 900}
LOOKS = [(size, scheme) for size in (PHONE, DESKTOP) for scheme in ("light", "dark")]


@contextmanager
def browser() -> Iterator[Browser]:
    """One browser, for the tests of one module."""
    with sync_playwright() as playwright:
        program = shutil.which("chromium") or "/usr/bin/chromium"
        opened = playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))
        try:
            yield opened
        finally:
            opened.close()


@dataclass
class Seen:
    """A page, what it has asked for, and what it has complained of."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def text(self, selector: str = "body") -> str:
        return self.page.locator(selector).inner_text()


@contextmanager
def opened(browser: Browser, url: str, size=DESKTOP, scheme="light", **options) -> Iterator[Seen]:
    """A page in a window of its own."""
    context = browser.new_context(viewport=size, color_scheme=scheme, **options)
    page = context.new_page()
    seen = Seen(page)
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on(
        "console",
        lambda said: seen.complaints.append(said.text) if said.type in ("error", "warning") else "",
    )
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    try:
        page.goto(url)
        yield seen
    finally:
        context.close()


def violations(page: Page) -> list[str]:
    """What axe-core finds wrong with a page."""
    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']}: {node['html'][:200]} {node.get('failureSummary', '')}"
        for one in found
        for node in one["nodes"]
    ]


def fits(page: Page) -> bool:
    """Whether nothing is wider than the window."""
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")
