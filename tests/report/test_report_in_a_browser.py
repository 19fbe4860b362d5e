"""The report as people see it: a file, opened from a disk."""

from __future__ import annotations

import pytest
from tests.browser import LOOKS, browser, fits, opened, violations
from tests.report.conftest import HOSTILE

from crossfade import Plan, write_report


@pytest.fixture(scope="module")
def chromium():
    with browser() as one:
        yield one


@pytest.fixture(scope="module")
def pages(labelled, lookups, tmp_path_factory):
    """The reports of both kinds of users, with what they are made of."""
    out = {}
    for name, folder in (("labelled", labelled), ("lookups", lookups)):
        target = tmp_path_factory.mktemp("report") / "report.html"
        write_report([folder], target)
        out[name] = folder, target.as_uri()
    return out


@pytest.fixture(params=["labelled", "lookups"])
def page(request, pages):
    return pages[request.param]


@pytest.mark.parametrize(
    ("name", "size", "scheme"),
    [*(("labelled", *look) for look in LOOKS), ("lookups", *LOOKS[1])],
)
def test_it_asks_for_nothing_complains_of_nothing_and_is_accessible(
    chromium, pages, name, size, scheme
):
    _, url = pages[name]
    with opened(chromium, url, size, scheme) as seen:
        for hidden in seen.page.locator("summary").all():
            hidden.click()
        assert violations(seen.page) == []
        assert fits(seen.page)
        assert seen.requests == [url]
        assert seen.complaints == []
        assert seen.page.locator("svg.chart:visible").count() >= 1
        # The check itself can see what is wrong.
        seen.page.evaluate("document.body.append(document.createElement('button'))")
        assert any("button-name" in one for one in violations(seen.page))


def test_the_pointer_shows_the_numbers_of_the_curve(chromium, page):
    folder, url = page
    made = Plan.load(folder / "plan").record
    metric = next(iter(made.quality))
    with opened(chromium, url) as seen:
        chart = seen.page.locator("svg.chart:visible").first
        assert not chart.locator(".cursor").is_visible()
        box = chart.bounding_box()
        chart.hover(position={"x": box["width"] / 2, "y": box["height"] / 2})
        said = chart.locator(".cursor text").text_content()
    share = float(said.split("%")[0]) / 100
    assert 0.4 < share < 0.6
    assert said.startswith(f"{share:.0%}: {made.quality_at(share, metric):.1f} [")


def test_it_reads_without_a_script_and_prints_in_black(chromium, page):
    _, url = page
    with opened(chromium, url, scheme="dark", java_script_enabled=False) as seen:
        assert "The answer" in seen.text()
        assert seen.page.locator("svg.chart:visible").count() >= 1
        seen.page.emulate_media(media="print", color_scheme="dark")
        printed = seen.page.pdf()
    assert printed.startswith(b"%PDF")


def test_a_name_that_wants_to_be_a_script_is_shown(chromium, labelled, tmp_path):
    target = tmp_path / "report.html"
    write_report([labelled], target)
    with opened(chromium, target.as_uri()) as seen:
        assert HOSTILE in seen.text("h1")
        assert seen.page.title() != "taken"
        assert seen.page.locator("script").count() == 1
