"""Reports in a headless Chromium: of three members and a thousand, violated and interrupted.

Each report is of a run in virtual time (a simulated clock). A test fails if a page logs to the
console, requests anything but itself, or cannot draw a chart. A lane is one row of the timeline,
such as the owners of partitions; all lanes have one time axis. A range is the visible part of that
axis, in seconds.

The runs:

- "three" and "interrupted": the coordinator of three members is killed
- "overlap": partitions have two owners
- "violated": commits are lost because a guard (a safety rule) is off
- "thousand": the group has 1,000 members
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
    Visit,
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
"""Bound for the size of every report, even of that with a thousand members."""
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
# For each run, the lane with the messages around its fault.
DIAGRAMS = {
    "three": "lane-messages-crash-0",
    "overlap": "lane-messages-cut-0",
    "violated": "lane-messages-cut-0",
    "interrupted": "lane-messages-crash-0",
    "thousand": "lane-messages-crash-0",
}
FIGURES = "#headline .figures > li"
"""The main figures of a report, which are in its head."""
TEXT = ", ".join(
    (
        "h1, h2, h3, p, th, td, caption, summary, dt, dd, a, button, label",
        ".verdict, .figures span, .kicker, .muted",
        "figcaption *, .role-axis-label text, .role-axis-title text, .role-legend text",
    )
)
"""Selector of all elements with text, in the page and in its charts."""
RUNS = pytest.mark.parametrize("run", list(RECIPES))


class Shelf:
    """Opens the reports of the session's runs; an error in an opened report fails the test."""

    def __init__(self, browser: Browser, reports: Reports) -> None:
        self._browser = browser
        self.reports = reports

    @contextmanager
    def opened(
        self, run: str, *, screen: Screen = DESKTOP, scheme: Scheme = "light", fragment: str = ""
    ) -> Iterator[Page]:
        """Open a report for the `with` block; require at its end that the page logged no error."""
        with visit(
            self._browser,
            self.reports.pages[run],
            screen=screen,
            scheme=scheme,
            fragment=fragment,
        ) as opened:
            yield opened.page
            _check_clean(opened)


def _check_clean(opened: Visit) -> None:
    """Require that the page neither logged to the console nor requested anything but itself."""
    assert opened.problems == []


@pytest.fixture(scope="module")
def shelf(reports: Reports, browser: Browser) -> Shelf:
    """Return the shelf. `reports` come first: no run can be played beside the browser's loop."""
    return Shelf(browser, reports)


@RUNS
def test_report_opens_offline_and_draws_every_lane(shelf: Shelf, run: str) -> None:
    """The file of every kind of run is complete; its verdict is visible without scrolling."""
    assert shelf.reports.pages[run].stat().st_size < LARGEST_BYTES
    with shelf.opened(run) as page:
        for part in ("h1", ".verdict", FIGURES):
            _check_on_screen(page, part)
        expect(page.locator(FIGURES)).to_have_count(4)
        draw_all(page)

        states = chart_states(page)
        assert set(states.values()) == {"drawn"}
        assert set(states) >= LANES | {DIAGRAMS[run]}
        empty = page.locator("figure.chart:not(:has(svg g.mark-group))")
        assert [figure.get_attribute("id") for figure in empty.all()] == []
        sections = page.locator("main section[id]").evaluate_all("all => all.map(each => each.id)")
        assert set(sections) >= SECTIONS
        assert ("violations" in sections) == (run == "violated")
        assert scrolls_sideways(page) == []


@pytest.mark.parametrize("run", ["violated", "interrupted", "thousand"])
def test_report_fits_a_phone(shelf: Shelf, run: str) -> None:
    """The first screen has the verdict and the four figures; nothing is wider than the screen."""
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
    """Keys: arrows, plus and minus, 0 for the whole run, brackets for the faults."""
    with shelf.opened("three") as page:
        whole = shown_range(page)
        fault_us = shelf.reports.facts["three"].faults[0].injected_at_us
        assert fault_us is not None

        page.keyboard.press("+")
        closer = shown_range(page)
        page.keyboard.press("ArrowRight")
        later = shown_range(page)
        page.keyboard.press("ArrowLeft")
        back = shown_range(page)
        page.keyboard.press("-")
        wide = shown_range(page)
        page.keyboard.press("]")
        at_fault = shown_range(page)
        page.keyboard.press("0")

        assert whole[0] == 0
        assert _length(closer) == pytest.approx(_length(whole) / 2)
        assert later[0] > closer[0]
        assert _length(later) == pytest.approx(_length(closer))
        assert back == pytest.approx(closer)
        assert _length(wide) > _length(closer)
        assert at_fault[0] < fault_us / 1e6 < at_fault[1]
        assert _length(at_fault) < _length(whole)
        assert shown_range(page) == whole


def test_tab_reaches_the_controls_and_every_lane(shelf: Shelf) -> None:
    """Tab follows the order of the page, shows a ring around each element, and is never trapped."""
    with shelf.opened("violated") as page:
        draw_all(page)
        reached: list[str] = []
        for _ in range(600):  # far more than the controls and links of the page
            page.keyboard.press("Tab")
            where, ring = page.evaluate(
                "() => { const at = document.activeElement;"
                " if (at === document.body) return [null, null];"
                " return [at.closest('figure')?.id ?? at.getAttribute('aria-label')"
                " ?? at.textContent, getComputedStyle(at).outlineStyle] }"
            )
            if where is None:
                break  # behind the last element
            assert ring != "none", f"nothing shows that {where} has the focus"
            reached.append(where)
        else:
            pytest.fail("Tab never came to the end of the page")

        assert "Whole run" in reached
        lanes = [where for where in dict.fromkeys(reached) if where.startswith("lane-")]
        assert set(lanes) >= LANES
        assert lanes == page.locator("figure.lane").evaluate_all("all => all.map(each => each.id)")


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
        targets = links.evaluate_all("all => all.map(each => each.hash.slice(1))")
        known = page.locator("[id]").evaluate_all("all => all.map(each => each.id)")
        assert set(targets) <= set(known)
        # The first link to a lane; a link to #time only moves the axis.
        chosen = next(index for index, target in enumerate(targets) if target != "time")
        link = links.nth(chosen)
        from_s = float(link.get_attribute("data-from") or "")

        link.click()

        expect(page.locator(f"#{targets[chosen]}")).to_be_in_viewport()
        shown = shown_range(page)
        assert shown[0] < from_s < shown[1]
        assert _length(shown) < 30  # seconds: the surroundings of the row, not the whole run
        page.go_back()
        page.wait_for_function("window.coordlab.range()[0] === 0")


def test_address_restores_the_same_view(shelf: Shelf) -> None:
    """The part of the address behind # names lane and span, so that people can share a view."""
    with shelf.opened("overlap", fragment="lane-ownership?t=60-95") as page:
        assert shown_range(page) == (60, 95)
        expect(page.locator("#lane-ownership .picture svg")).to_be_in_viewport()


def test_time_axis_is_one_for_all_lanes(shelf: Shelf) -> None:
    """What is at the same horizontal position in two lanes happened at the same time."""
    with shelf.opened("overlap") as page:
        draw_all(page)
        set_range(page, 62, 68)
        draw_all(page)

        # Each lane with the labels of its time axis: of the axes with more than one label, that of
        # which all labels end with " s".
        axes = {
            lane: [float(label.removesuffix(" s")) for label in labels]
            for lane, labels in page.locator("figure.lane").evaluate_all(
                "all => all.map(lane => [lane.id,"
                " [...lane.querySelectorAll('.role-axis-label')].map(g =>"
                " [...g.querySelectorAll('text')].map(t => t.textContent).filter(t => t))"
                ".find(texts => texts.length > 1 && texts.every(t => / s$/.test(t))) ?? []])"
            )
        }
        assert set(axes) >= LANES
        for lane, labels in axes.items():
            assert labels, f"{lane} has no time axis"
            assert 62 <= min(labels) < max(labels) <= 68, lane
        assert len({tuple(labels) for labels in axes.values()}) == 1


def test_selection_changes_the_chart_of_many_members(shelf: Shelf) -> None:
    """The charts show 1,000 members as sums at first; a reader can select any of them."""
    with shelf.opened("thousand") as page:
        draw_all(page)
        chart = page.locator("figure.chart:has(.picks select)").first
        select = chart.locator("select").first
        assert select.locator("option").count() > 1
        before = chart.locator(".picture svg").inner_html()  # the drawing of the first option

        select.select_option(index=select.locator("option").count() - 1)

        page.wait_for_function(
            "([id, before]) => document.querySelector(`#${id} .picture svg`).innerHTML !== before",
            arg=[chart.get_attribute("id"), before],
        )


def _length(span: tuple[float, float]) -> float:
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
    ground = "getComputedStyle(document.body).backgroundColor"
    with shelf.opened("three") as page:
        light = page.evaluate(ground)
        page.locator("#theme").click()
        chosen = page.evaluate(ground)
    with shelf.opened("three", scheme="dark") as page:
        dark = page.evaluate(ground)

    assert dark != light
    assert chosen == dark
    # Red, green and blue have up to 255 each: below 200 in sum is dark.
    assert sum(map(int, re.findall(r"\d+", dark)[:3])) < 200


def test_print_is_on_white_without_fixed_elements(shelf: Shelf) -> None:
    """A fixed element would be printed on every page; even in dark mode paper stays white."""
    with shelf.opened("overlap", scheme="dark") as page:
        draw_all(page)
        page.emulate_media(media="print", color_scheme="dark")

        stuck = page.evaluate(
            "() => [...document.querySelectorAll('body *')].filter(each =>"
            " each.getClientRects().length &&"
            " ['sticky', 'fixed'].includes(getComputedStyle(each).position)).map(each => each.id)"
        )
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert stuck == []
        # Red, green and blue of white are 255 each.
        assert min(map(int, re.findall(r"\d+", ground)[:3])) > 240
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
        (owned_twice,) = shelf.reports.owned_twice("overlap", "orders-0")
        text = page.locator("main").inner_text()

        lines = [line.replace("\N{NO-BREAK SPACE}", " ") for line in text.splitlines()]
        sentences = [line for line in lines if "orders-0" in line.split()]
        wanted = (
            str(owned_twice["first_consumer"]).removeprefix("consumer-orders-"),
            str(owned_twice["second_consumer"]).removeprefix("consumer-orders-"),
            f"{owned_twice['from_us'] / 1e6:.3f} s to {owned_twice['to_us'] / 1e6:.3f} s",
        )
        assert any(all(word in line for word in wanted) for line in sentences), (wanted, sentences)
