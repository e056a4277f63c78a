"""Reports of whole runs in a headless Chromium: does a reader see and reach everything?

The fixture `reports` plays these runs, and writes their reports:

- "three" and "interrupted": the coordinator of three members is killed
- "overlap": partitions have two owners
- "violated": commits are lost, because one of Kafka's safety rules is switched off
- "thousand": the group has 1,000 members

A report shows a run as several charts, called lanes, such as the owners of partitions over time.
All lanes have the same time axis: a reader who zooms one of them zooms all.

Any test fails if a page logs to the console, requests anything but itself, or cannot draw a chart.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.contrast import contrasts
from tests.support.harness.browser import (
    DESKTOP,
    PHONE,
    Scheme,
    Screen,
    chart_states,
    draw_all,
    scrolls_sideways,
    set_range,
    shown_range,
    visit,
)
from tests.support.worlds.report_runs import RECIPES
from tests.support.worlds.reports import Reports

pytestmark = [
    pytest.mark.browser,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(300),  # the first test makes the runs and their reports
]

LARGEST_BYTES = 10_000_000
"""Bound for the size of every report, even of the report with a thousand members."""
# The lanes and the sections that every report must have.
LANES = {
    "lane-faults",
    "lane-coordinators",
    "lane-groups",
    "lane-ownership",
    "lane-availability",
    "lane-rebalances",
}
SECTIONS = {
    "headline",
    "phases",
    "timeline",
    "messages",
    "checks",
    "blast-radius",
    "rebalances",
    "configuration",
    "replay",
}
MESSAGE_LANES = {
    "three": "lane-messages-crash-0",
    "overlap": "lane-messages-cut-0",
    "violated": "lane-messages-cut-0",
    "interrupted": "lane-messages-crash-0",
    "thousand": "lane-messages-crash-0",
}
"""For each run, the lane with the messages around its fault."""
FIGURES = "#headline .figures > li"
"""Selector of the four main figures of a report, which are in its head."""
TEXT = ", ".join(
    (
        "h1, h2, h3, p, th, td, caption, summary, dt, dd, a, button, label",
        ".verdict, .figures span, .kicker, .muted",
        "figcaption *, .role-axis-label text, .role-axis-title text, .role-legend text",
    )
)
"""Selector of all elements with text, in the page and in its charts."""
RUNS = pytest.mark.parametrize("run", list(RECIPES))
"""A decorator with which a test is done for each of the five runs."""


class Shelf:
    """Holds the reports of the runs. `with shelf.opened("three") as page:` opens one of them."""

    def __init__(self, browser: Browser, reports: Reports) -> None:
        self._browser = browser
        self.reports = reports

    @contextmanager
    def opened(
        self, run: str, *, screen: Screen = DESKTOP, scheme: Scheme = "light", fragment: str = ""
    ) -> Iterator[Page]:
        """Open a report for the `with` block.

        At the end of the block, the test fails if the page logged to the console, or requested
        anything but itself.
        """
        with visit(
            self._browser,
            self.reports.pages[run],
            screen=screen,
            scheme=scheme,
            fragment=fragment,
        ) as opened:
            yield opened.page
            assert opened.problems == []


@pytest.fixture(scope="module")
def shelf(reports: Reports, browser: Browser) -> Shelf:
    """Return the shelf with the reports of all runs.

    The parameter `reports` must stand before `browser`, because pytest makes the fixtures in this
    order. The browser keeps an event loop running, and no run can be played while it runs.
    """
    return Shelf(browser, reports)


@RUNS
def test_report_opens_offline_and_draws_every_lane(shelf: Shelf, run: str) -> None:
    """Each report has all its lanes and sections. Its verdict is visible without scrolling."""
    assert shelf.reports.pages[run].stat().st_size < LARGEST_BYTES
    with shelf.opened(run) as page:
        for part in ("h1", ".verdict", FIGURES):
            _check_on_screen(page, part)
        expect(page.locator(FIGURES)).to_have_count(4)
        draw_all(page)  # otherwise a chart is only drawn when a reader scrolls to it

        states = chart_states(page)
        assert set(states.values()) == {"drawn"}
        assert set(states) >= LANES | {MESSAGE_LANES[run]}
        empty_charts = page.locator("figure.chart:not(:has(svg g.mark-group))")
        assert [figure.get_attribute("id") for figure in empty_charts.all()] == []
        sections = page.locator("main section[id]").evaluate_all("all => all.map(e => e.id)")
        assert set(sections) >= SECTIONS
        assert ("violations" in sections) == (run == "violated")
        assert scrolls_sideways(page) == []


@pytest.mark.parametrize("run", ["violated", "interrupted", "thousand"])
def test_report_fits_a_phone(shelf: Shelf, run: str) -> None:
    """On a phone, the verdict and the four figures are visible without scrolling.

    Nothing is wider than the screen.
    """
    with shelf.opened(run, screen=PHONE) as page:
        for part in ("h1", ".verdict", FIGURES):
            _check_on_screen(page, part)
        draw_all(page)
        assert scrolls_sideways(page) == []


def _check_on_screen(page: Page, selector: str) -> None:
    """Require that every found element is wholly visible without scrolling."""
    for element in page.locator(selector).all():
        expect(element).to_be_in_viewport(ratio=1)


def test_keyboard_alone_moves_the_time_axis(shelf: Shelf) -> None:
    """The keys + and - zoom, the arrows move, [ and ] go to the faults, and 0 shows the whole run.

    `shown_range` returns the start and the end of the visible part of the axis, in seconds.
    """
    with shelf.opened("three") as page:
        whole_run = shown_range(page)
        assert whole_run[0] == 0

        page.keyboard.press("+")
        zoomed = shown_range(page)
        assert _length(zoomed) == pytest.approx(_length(whole_run) / 2)

        page.keyboard.press("ArrowRight")
        moved = shown_range(page)
        assert moved[0] > zoomed[0]
        assert _length(moved) == pytest.approx(_length(zoomed))

        page.keyboard.press("ArrowLeft")
        assert shown_range(page) == pytest.approx(zoomed)

        page.keyboard.press("-")
        assert _length(shown_range(page)) > _length(zoomed)

        page.keyboard.press("]")
        at_fault = shown_range(page)
        fault_us = shelf.reports.facts["three"].faults[0].injected_at_us
        assert fault_us is not None
        assert at_fault[0] < fault_us / 1e6 < at_fault[1]
        assert _length(at_fault) < _length(whole_run)

        page.keyboard.press("0")
        assert shown_range(page) == whole_run


def test_tab_reaches_the_controls_and_every_lane(shelf: Shelf) -> None:
    """Tab follows the order of the page, shows a ring around each element, and is never trapped."""
    # The script returns a name for the element that has the focus, and the style of the ring around
    # this element. The name is the id of a lane, a label or a text. When Tab has passed the last
    # element, the body of the page has the focus, and the script returns nulls.
    focus_script = """() => {
        const element = document.activeElement;
        if (element === document.body) return [null, null];
        const lane = element.closest('figure')?.id;
        const name = lane ?? element.getAttribute('aria-label') ?? element.textContent;
        return [name, getComputedStyle(element).outlineStyle];
    }"""
    with shelf.opened("violated") as page:
        draw_all(page)
        reached: list[str] = []
        for _ in range(600):  # far more than the controls and links of the page
            page.keyboard.press("Tab")
            name, ring = page.evaluate(focus_script)
            if name is None:
                break
            assert ring != "none", f"nothing shows that {name} has the focus"
            reached.append(name)
        else:
            pytest.fail("Tab never came to the end of the page")

        assert "Whole run" in reached
        lanes = [name for name in dict.fromkeys(reached) if name.startswith("lane-")]
        assert set(lanes) >= LANES
        assert lanes == page.locator("figure.lane").evaluate_all("all => all.map(e => e.id)")


def test_escape_removes_the_mark(shelf: Shelf) -> None:
    """A click on a link marks its span of time over the lanes, until Escape removes the mark."""
    with shelf.opened("violated") as page:
        link = page.locator("#violations a[data-from]").first
        lane = (link.get_attribute("href") or "").removeprefix("#")
        link.click()
        mark = page.locator(f"#{lane} .mark")
        expect(mark).to_be_visible()
        page.keyboard.press("Escape")
        expect(mark).to_be_hidden()


def test_evidence_of_a_violation_links_into_the_lanes(shelf: Shelf) -> None:
    """Each row of evidence is a link, which moves the axis to the row's time and shows its lane."""
    with shelf.opened("violated") as page:
        links = page.locator("#violations a[data-from]")
        assert links.count() > 3
        targets = links.evaluate_all("all => all.map(e => e.hash.slice(1))")
        ids_of_page = page.locator("[id]").evaluate_all("all => all.map(e => e.id)")
        assert set(targets) <= set(ids_of_page)
        # Take the first link to a lane. A link to #time only moves the axis.
        index, lane = next(
            (index, target) for index, target in enumerate(targets) if target != "time"
        )
        link = links.nth(index)
        from_s = float(link.get_attribute("data-from") or "")

        link.click()

        expect(page.locator(f"#{lane}")).to_be_in_viewport()
        shown = shown_range(page)
        assert shown[0] < from_s < shown[1]
        # The axis shows less than 30 s around the row, and not the whole run.
        assert _length(shown) < 30
        # The button "back" of the browser shows the whole run again.
        page.go_back()
        page.wait_for_function("window.coordlab.range()[0] === 0")


def test_address_restores_the_same_view(shelf: Shelf) -> None:
    """The part of the address behind # names the lane and the range of time.

    So people can send each other a link to what they see.
    """
    with shelf.opened("overlap", fragment="lane-ownership?t=60-95") as page:
        assert shown_range(page) == (60, 95)
        expect(page.locator("#lane-ownership .picture svg")).to_be_in_viewport()


def test_time_axis_is_one_for_all_lanes(shelf: Shelf) -> None:
    """All lanes show the same range of time, also after a zoom.

    So events at the same horizontal position in two lanes happened at the same time.
    """
    with shelf.opened("overlap") as page:
        draw_all(page)
        set_range(page, 62, 68)
        draw_all(page)

        # A lane has several axes. Its time axis is the axis whose labels all end with " s".
        labels_of_time_axes = page.locator("figure.lane").evaluate_all(
            """lanes => lanes.map(lane => {
                const axes = [...lane.querySelectorAll('.role-axis-label')];
                const labels_of_axes = axes.map(axis =>
                    [...axis.querySelectorAll('text')].map(t => t.textContent).filter(t => t));
                const time_axis = labels_of_axes.find(labels =>
                    labels.length > 1 && labels.every(label => / s$/.test(label)));
                return [lane.id, time_axis ?? []];
            })"""
        )
        seconds_of_lane = {
            lane: [float(label.removesuffix(" s")) for label in labels]
            for lane, labels in labels_of_time_axes
        }
        assert set(seconds_of_lane) >= LANES
        for lane, seconds in seconds_of_lane.items():
            assert seconds, f"{lane} has no time axis"
            assert 62 <= min(seconds) < max(seconds) <= 68, lane
        assert len({tuple(seconds) for seconds in seconds_of_lane.values()}) == 1


def test_selection_changes_the_chart_of_many_members(shelf: Shelf) -> None:
    """At first the charts show sums over the 1,000 members. A reader can select a member."""
    with shelf.opened("thousand") as page:
        draw_all(page)
        chart = page.locator("figure.chart:has(.picks select)").first
        select = chart.locator("select").first
        assert select.locator("option").count() > 1
        drawing = chart.locator(".picture svg").inner_html()

        select.select_option(index=select.locator("option").count() - 1)

        page.wait_for_function(
            "([id, old]) => document.querySelector(`#${id} .picture svg`).innerHTML !== old",
            arg=[chart.get_attribute("id"), drawing],
        )


def _length(span: tuple[float, float]) -> float:
    """Return the length of a span of time, which has a begin and an end."""
    return span[1] - span[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(shelf: Shelf, scheme: Scheme) -> None:
    """In light and dark mode, words and labels of charts have the contrast that WCAG demands."""
    with shelf.opened("violated", scheme=scheme) as page:
        draw_all(page)
        styles = contrasts(page, TEXT)
        assert len(styles) > 10
        assert [style for style in styles if style.ratio < style.needed] == []


def test_dark_mode_follows_the_system_and_the_button(shelf: Shelf) -> None:
    """The page follows the system's setting until the reader uses the button."""
    with shelf.opened("three") as page:
        light = _background(page)
        page.locator("#theme").click()
        after_click = _background(page)
    with shelf.opened("three", scheme="dark") as page:
        dark = _background(page)

    assert dark != light
    assert after_click == dark
    # Red, green and blue are at most 255 each. A sum below 200 is a dark colour.
    assert sum(dark) < 200


def _background(page: Page) -> tuple[int, ...]:
    """Return red, green and blue of the page's background, from 0 to 255."""
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    return tuple(map(int, re.findall(r"\d+", colour)[:3]))


def test_print_is_on_white_without_fixed_elements(shelf: Shelf) -> None:
    """Printed pages are white even in dark mode.

    An element with a fixed position would be printed on every page, so there is none.
    """
    with shelf.opened("overlap", scheme="dark") as page:
        draw_all(page)
        page.emulate_media(media="print", color_scheme="dark")

        fixed_elements = page.evaluate(
            """() => [...document.querySelectorAll('body *')]
                .filter(element => element.getClientRects().length)
                .filter(element =>
                    ['sticky', 'fixed'].includes(getComputedStyle(element).position))
                .map(element => element.id)"""
        )
        assert fixed_elements == []
        assert min(_background(page)) > 240  # red, green and blue of white are 255 each
        for figure in page.locator("figure.chart").all():
            expect(figure).to_be_visible()


def test_words_are_visible_without_javascript(shelf: Shelf, browser: Browser) -> None:
    """A mail program runs no script, so the verdict, the phases and the evidence are plain text."""
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(shelf.reports.pages["violated"].resolve().as_uri())
        expect(page.locator("noscript .notice")).to_be_visible()
        # The verdict, a part of the finding, and the command that plays the run again.
        for words in ("VIOLATED", "missing from the log of epoch 1", "python -m coordlab run"):
            expect(page.get_by_text(words).first).to_be_visible()
    finally:
        context.close()


def test_report_names_both_owners_of_partition_0_and_the_times(shelf: Shelf) -> None:
    """The experiment split_brain_ownership asks which members own a partition, and when."""
    with shelf.opened("overlap") as page:
        # The row of the table `ownership_overlaps` about partition 0 of the topic.
        (overlap,) = shelf.reports.owned_twice("overlap", "orders-0")
        from_s, to_s = overlap["from_us"] / 1e6, overlap["to_us"] / 1e6
        facts = (
            str(overlap["first_consumer"]).removeprefix("consumer-orders-"),
            str(overlap["second_consumer"]).removeprefix("consumer-orders-"),
            f"{from_s:.3f} s to {to_s:.3f} s",
        )

        # Some line of the page about the partition has all of these facts.
        text = page.locator("main").inner_text().replace("\N{NO-BREAK SPACE}", " ")
        lines = [line for line in text.splitlines() if "orders-0" in line.split()]
        assert any(all(fact in line for fact in facts) for line in lines), (facts, lines)
