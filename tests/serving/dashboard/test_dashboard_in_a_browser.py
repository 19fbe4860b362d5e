"""The page as on-call people see it, while a real migration goes on."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import numpy as np
from playwright.sync_api import expect
from tests.browser import LOOKS, PHONE, fits, opened, violations
from tests.serving.dashboard.conftest import ROWS, served, watching

from crossfade.journal import open_migrating
from crossfade.serving.dashboard import Watch
from crossfade.stores import open_store

# A busy machine: no statement is about how long it takes.
PATIENCE = 60_000


def shows(page, selector, text):
    expect(page.locator(selector)).to_contain_text(text, timeout=PATIENCE)


def rows_of(page) -> dict[str, int]:
    names = page.locator("#rows .key.state .name").all_inner_texts()
    counts = page.locator("#rows .key.state strong").all_inner_texts()
    return {name: int(n.replace(",", "")) for name, n in zip(names, counts, strict=True)}


def test_it_moves_from_stage_to_stage_without_a_reload(
    chromium, place, migration, plan_folder, embed, queries
):
    with (
        watching(place, "--port", 0, "--plan", plan_folder) as watch,
        opened(chromium, watch.address) as seen,
    ):
        page = seen.page
        page.evaluate("window.opened = 'once'")
        shows(page, "#headline", "No migration was started")
        shows(page, "#next", "crossfade migrate start")

        migration.start(source="body", plan=plan_folder, force=True)
        shows(page, "#headline", "Started: new queries work")
        shows(page, "#next", "crossfade migrate forward")
        shows(page, "#quality", "you are here: 0.0%")
        assert rows_of(page) == {"old": ROWS, "lifted": 0, "filled": 0}

        migration.forward()
        shows(page, "#headline", "Every row is lifted")
        assert rows_of(page) == {"old": 0, "lifted": ROWS, "filled": 0}

        migration.backfill(embed, plan=plan_folder, share=0.3)
        shows(page, "#quality svg.wide", "you are here: 30.0%")
        assert rows_of(page) == {"old": 0, "lifted": ROWS - 90, "filled": 90}
        found = migration.status()
        now = found.quality["now"]["mAP"]
        shows(page, "#quality svg.wide", f"you are here: 30.0%, {now:.1f}")

        migration.backfill(embed, share=1.0)
        shows(page, "#headline", "The planned share is filled")
        shows(page, ".steps [aria-current=step]", "verify")

        verified = migration.verify(queries=queries)
        assert verified.passed
        shows(page, "#headline", "Verified: ready to finish")
        measured = verified.quality["measured"]
        shows(page, "#measured", f"{measured['new']['mAP']:.1f}")
        shows(page, "#measured", f"{measured['queries']} queries through the store")

        migration.finish()
        shows(page, "#headline", "Finished")
        expect(page.locator(".steps .done")).to_have_count(5)
        expect(page.locator("#copy")).to_be_hidden()
        assert page.evaluate("window.opened") == "once"
        assert seen.complaints == []
        outside = [url for url in seen.requests if not url.startswith((watch.address, "data:"))]
        assert outside == []


LIVE = {
    "requests": 12_345,
    "errors": 3,
    "in_flight": 7,
    "latency_ms": {"p50": 1.25, "p95": 3.5, "p99": 9.0},
    "upstream": {"new": "ok", "old": "down"},
    "shadow": {
        "asked": 120,
        "share": 0.01,
        "way": "new",
        "agreement": 0.914,
        "score_change": -0.02,
        "latency_ms": 2.0,
    },
    "spent": {"tokens_new": 9_876, "tokens_old": 0},
}


def test_rows_are_seen_to_move_while_a_step_runs(chromium, place, under_way, embed):
    """The model waits for the page: a batch is embedded when the one before it was seen."""
    go_on = threading.Semaphore(0)

    def patient(texts):
        go_on.acquire()
        return embed(texts)

    filling = threading.Thread(
        target=under_way.backfill, args=(patient,), kwargs={"share": 0.8, "batch": 20}
    )
    with served(Watch(open_migrating(place))) as address, opened(chromium, address) as seen:
        shows(seen.page, "#headline", "Some rows are filled")
        before = rows_of(seen.page)["filled"]
        filling.start()
        try:
            shows(seen.page, "#events", "backfill to 80%")
            for filled in (before + 20, before + 40):
                go_on.release()
                shows(seen.page, "#rows .filled strong", str(filled))
            shows(seen.page, "#headline", "Rows are being filled")
            shows(seen.page, "#rows", "rows a second, now")
            shows(seen.page, "#rows", "time left at that rate")
        finally:
            go_on.release(1000)
            filling.join()
        shows(seen.page, "#headline", "Some rows are filled")
        shows(seen.page, "#rows .filled strong", "240")
        assert seen.complaints == []


def test_it_is_accessible_and_fits_on_a_phone_and_in_the_dark(chromium, place, under_way):
    with served(Watch(open_store(place), live=lambda: LIVE)) as address:
        for size, scheme in LOOKS:
            with opened(chromium, address, size, scheme) as seen:
                shows(seen.page, "#headline", "Some rows are filled")
                for hidden in seen.page.locator("summary").all():
                    hidden.click()
                assert violations(seen.page) == []
                assert fits(seen.page)
                assert seen.complaints == []


def test_what_a_gateway_counts_is_shown_and_what_nobody_counts_is_not(chromium, place, under_way):
    counted = {}
    with (
        served(Watch(open_store(place), live=lambda: counted)) as address,
        opened(chromium, address) as seen,
    ):
        shows(seen.page, "#headline", "Some rows are filled")
        for panel in ("live", "shadow", "cost", "measured"):
            expect(seen.page.locator(f"#{panel}")).to_be_hidden()
        counted.update(LIVE)
        shows(seen.page, "#live", "12,345")
        told = seen.text("#live")
        for words in ("3 (0.02%)", "9.0 ms", "does not answer"):
            assert words in told
        assert "91.4%" in seen.text("#shadow")
        assert "9,876" in seen.text("#cost")
        assert "old model" not in seen.text("#cost")


def test_it_comes_back_after_the_server_was_restarted(chromium, place, migration):
    with watching(place, "--port", 0) as first, opened(chromium, first.address) as seen:
        shows(seen.page, "#headline", "No migration was started")
        seen.page.evaluate("window.opened = 'once'")
        first.process.terminate()
        assert first.process.wait() == 0
        shows(seen.page, "#link", "no connection")
        migration.start(force=True)
        port = first.address.rstrip("/").rpartition(":")[2]
        with watching(place, "--port", port):
            shows(seen.page, "#headline", "Started")
            shows(seen.page, "#link", "live")
            assert seen.page.evaluate("window.opened") == "once"


def test_the_next_command_is_copied_with_the_keyboard_alone(chromium, place):
    with (
        served(Watch(open_store(place))) as address,
        opened(chromium, address, permissions=["clipboard-read", "clipboard-write"]) as seen,
    ):
        page = seen.page
        shows(page, "#next", "crossfade migrate start")
        for _ in range(5):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == "copy":
                break
        width = page.evaluate("getComputedStyle(document.activeElement).outlineWidth")
        assert width == "3px"
        page.keyboard.press("Enter")
        shows(page, "#copy", "Copied")
        assert page.evaluate("navigator.clipboard.readText()") == page.locator("#next").inner_text()


def test_what_was_opened_and_focused_stays_so_while_rows_move(chromium, place, under_way, embed):
    with served(Watch(open_store(place))) as address, opened(chromium, address) as seen:
        page = seen.page
        summary = page.locator("#quality summary").first
        summary.click()
        summary.focus()
        under_way.backfill(embed, share=0.7)
        shows(page, "#quality svg.wide >> nth=0", "you are here: 70.0%")
        assert page.locator("#quality details").first.get_attribute("open") is not None
        assert page.evaluate("document.activeElement.localName") == "summary"


def test_names_are_shown_as_text(chromium, place, hostile):
    from crossfade import Migration

    folder, names = hostile
    migration = Migration(place, folder)
    migration.start(force=True)
    migration.close()
    with (
        served(Watch(open_store(place))) as address,
        opened(chromium, address, PHONE) as seen,
    ):
        shows(seen.page, "#models", f"{names['old_model']} → {names['new_model']}")
        assert seen.page.locator("img").count() == 0
        assert seen.page.locator("script").count() == 1
        assert fits(seen.page)
        assert seen.complaints == []


def test_a_store_that_fails_is_said_to_and_seen_again(chromium, place, under_way, tmp_path):
    with served(Watch(open_store(place))) as address, opened(chromium, address) as seen:
        shows(seen.page, "#headline", "Some rows are filled")
        table = Path(place)
        aside = tmp_path / "aside"
        shutil.move(table, aside)
        shows(seen.page, "#error", "The store could not be asked")
        # What was known is still there to be read.
        assert rows_of(seen.page)["filled"] == 120
        shutil.move(aside, table)
        expect(seen.page.locator("#error")).to_be_hidden(timeout=PATIENCE)
        assert seen.complaints == []


def test_a_plan_that_is_gone_takes_its_curve_with_it_alone(chromium, place, under_way, tmp_path):
    journal = under_way.journal
    kept = Path(journal.backfill.plan_folder)
    aside = kept.with_name("aside")
    kept.rename(aside)
    try:
        with served(Watch(open_store(place))) as address, opened(chromium, address) as seen:
            shows(seen.page, "#headline", "Some rows are filled")
            expect(seen.page.locator("#quality")).to_be_hidden()
            assert np.sum(list(rows_of(seen.page).values())) == ROWS
    finally:
        aside.rename(kept)
