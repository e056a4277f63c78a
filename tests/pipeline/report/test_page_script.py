"""The script of a report's page, in a headless Chromium: zooming, selections, dialogs.

The page shows a run as several charts, called lanes, which have a common time axis. A reader who
zooms one lane zooms all lanes. The tests move the mouse, press keys or touch the screen. Then they
ask the script which part of the run is shown. The script's functions belong to the object
`window.coordlab` of the page; its function `range` returns the begin and the end of the shown part,
in seconds. A test also fails if the page reported an error (`seen.problems`).
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import altair as alt
import pytest
from playwright.sync_api import Browser, Page

from pipeline.report.build import report_html, write_report
from pipeline.report.charts.chart import (
    Chart,
    Paragraph,
    Pick,
    Section,
    TextTable,
    time_params,
    time_x,
)
from pipeline.report.report_input import ReportInput
from tests.support.builders.report_inputs import journal_entry, report_input, run_facts, small_chart
from tests.support.harness.browser import DESKTOP, PHONE, Screen, draw_all, shown_range, visit
from tests.support.harness.golden import Golden

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WHOLE = (0.0, 60.0)
"""The range of the time axis, in seconds, that shows the whole run."""
MEMBERS = tuple(f"member-{number}" for number in range(30))
"""Members of a lane, from which the reader selects one."""


def _lane_of_one_member(name: str) -> Chart:
    """Return a chart that shows the bar of one member, which the reader selects from MEMBERS."""
    # The ends of the shown range. The page sets these parameters in all charts.
    from_s, to_s = time_params()
    spec = (
        alt.Chart(alt.NamedData("bars"))
        .transform_filter("datum.who == who")
        .mark_bar(clip=True)
        .encode(x=time_x("a"), x2="b", y=alt.Y("who:N", title=None))
        .properties(width="container", height=alt.Step(18))
        .add_params(from_s, to_s, alt.param(name="who", value=MEMBERS[0]))
    )
    bars = tuple({"who": member, "a": 1.0, "b": 9.0} for member in MEMBERS)
    picks = (Pick(param="who", label="Member", options=MEMBERS),)
    return small_chart(id=name, spec=spec, data={"bars": bars}, picks=picks)


def _section_of_three_lanes(_run: ReportInput) -> Section:
    """Return three lanes above a tall text, so that the page can scroll."""
    tall = Paragraph(html="<p>text</p>" * 60)
    lanes = (small_chart(), _lane_of_one_member("lane-one"), _lane_of_one_member("lane-other"))
    return Section(id="lanes", title="Lanes", parts=(*lanes, tall))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the page of a run of 60 s with one fault, from 11.25 s to 36.25 s; return its path."""
    run = report_input(run_facts(faults=(journal_entry(),)))
    html = report_html(run, (_section_of_three_lanes,))
    return write_report(html, tmp_path_factory.mktemp("p") / "p.html")


@pytest.fixture
def page(browser: Browser, file: Path) -> Iterator[Page]:
    """Open the page on a desktop and draw every chart; after the test, check for page errors."""
    with visit(browser, file) as seen:
        draw_all(seen.page)
        seen.page.locator("#lane-small").scroll_into_view_if_needed()
        yield seen.page
        assert seen.problems == []


def _right_edge_and_middle(page: Page) -> tuple[float, float]:
    """Return the x of the small lane's right edge and the y of its middle, in screen pixels."""
    box = page.locator("#lane-small .plot").bounding_box()
    assert box is not None
    return box["x"] + box["width"], box["y"] + box["height"] / 2


def test_drag_in_a_lane_zooms_to_the_selected_range(page: Page) -> None:
    """A drag over a part of the lane shows this part. The back button restores the whole range."""
    right, y = _right_edge_and_middle(page)
    page.mouse.move(right - 300, y)
    page.mouse.down()
    page.mouse.move(right - 200, y)
    page.mouse.move(right - 100, y)
    page.mouse.up()
    from_s, to_s = shown_range(page)
    # The drag was in the right half of the lane, which shows the last 30 s of the run. It ended 100
    # pixels before the right edge, which is well before the run's end at 60 s.
    assert 30 < from_s < to_s < 59

    page.go_back()
    page.wait_for_function("window.coordlab.range()[0] === 0")
    assert shown_range(page) == WHOLE


def test_escape_cancels_a_selection(page: Page) -> None:
    """A reader who began a drag by mistake presses Escape before releasing the mouse button."""
    right, y = _right_edge_and_middle(page)
    page.mouse.move(right - 300, y)
    page.mouse.down()
    page.mouse.move(right - 100, y)
    page.keyboard.press("Escape")
    page.mouse.up()
    assert shown_range(page) == WHOLE


def test_wheel_alone_scrolls_and_zooms_only_with_a_key(page: Page) -> None:
    """A reader who scrolls through the page must not zoom a lane by accident."""
    right, y = _right_edge_and_middle(page)
    page.mouse.move(right - 200, y)
    page.keyboard.down("Control")
    # Turning the wheel while Control is pressed zooms.
    page.mouse.wheel(0, -300)
    page.wait_for_function("window.coordlab.range()[1] < 60")
    page.keyboard.up("Control")

    # The wheel alone scrolls the page, and leaves the range as it is.
    zoomed_range = shown_range(page)
    scroll_before = page.evaluate("scrollY")
    page.mouse.wheel(0, 40)
    page.wait_for_function(f"scrollY > {scroll_before}")
    assert shown_range(page) == zoomed_range


def test_two_fingers_zoom_the_lanes_and_not_the_page(browser: Browser, file: Path) -> None:
    """A phone has neither wheel nor keyboard, so its reader zooms with two fingers."""
    with visit(browser, file, screen=PHONE) as seen:
        page = seen.page
        draw_all(page)
        page.locator("#lane-small .plot").scroll_into_view_if_needed()
        right, y = _right_edge_and_middle(page)
        middle = right - 110
        devtools = page.context.new_cdp_session(page)

        def touch(event: str, *fingers_x: float) -> None:
            """Send a touch event of the fingers that are on the screen, at these x."""
            points = [{"x": x, "y": y, "id": finger} for finger, x in enumerate(fingers_x)]
            devtools.send("Input.dispatchTouchEvent", {"type": event, "touchPoints": points})

        # Two fingers touch the lane and move apart, from 40 to 120 pixels.
        touch("touchStart", middle - 20, middle + 20)
        for half in (30, 40, 50, 60):
            touch("touchMove", middle - half, middle + half)
        touch("touchEnd")
        # The lane showed 60 s before. The fingers are three times as far apart as at the beginning,
        # so the lane should show a third of this, 20 s. The test accepts anything below 40 s.
        page.wait_for_function("window.coordlab.range()[1] - window.coordlab.range()[0] < 40")
        assert page.evaluate("visualViewport.scale") == 1  # the browser itself has not zoomed
        assert seen.problems == []


def test_selected_member_is_shared_by_the_charts_of_a_section(page: Page) -> None:
    """A reader selects a member once, and not again in each lane."""
    page.locator("#lane-one input[type=search]").fill("member-17")
    for lane in ("lane-one", "lane-other"):
        page.wait_for_function(
            "lane => document.querySelector(`#${lane} .picture svg`).textContent"
            ".includes('member-17')",
            arg=lane,
        )


def test_overview_shows_an_accident_in_its_own_colour_with_a_legend(
    browser: Browser, tmp_path: Path, golden: Golden
) -> None:
    """The overview at the top of the page has a flag for each fault and for each accident.

    An accident is a disturbance that is not in the experiment's plan, such as a machine that
    stalls. With a flag of the same colour, it would look like a fault of the plan.
    """
    accident = journal_entry(
        fault_id="machine-0", fault="machine_disturbed", target="10.0.0.3", nodes=("broker-1",)
    )
    run = report_input(run_facts(faults=(journal_entry(), accident)))
    path = write_report(report_html(run, (_section_of_three_lanes,)), tmp_path / "p.html")
    with visit(browser, path) as seen:
        draw_all(seen.page)
        flags = seen.page.locator(".overview .fault")
        legend = seen.page.locator(".overview-legend span")
        flag_texts = [
            f"{flag.get_attribute('class')}: {flag.get_attribute('title')}" for flag in flags.all()
        ]
        golden.check("words/overview.txt", "\n".join([*flag_texts, *legend.all_inner_texts(), ""]))
        flag_colours, legend_colours = (
            elements.evaluate_all("all => all.map(e => getComputedStyle(e).backgroundImage)")
            for elements in (flags, legend.locator("i"))
        )
        # Two flags, each with the colour of its entry in the legend.
        assert len(set(flag_colours)) == 2
        assert legend_colours == flag_colours
        assert seen.problems == []


def test_overview_without_accidents_has_no_legend(page: Page) -> None:
    """Without accidents, all flags of the overview mean the same: a fault of the plan."""
    assert page.locator(".overview .fault").count() == 1
    assert page.locator(".overview-legend").count() == 0


def test_keys_dialog_opens_and_keeps_the_range(page: Page) -> None:
    """The key `?` opens a dialog that lists all keys. While it is open, `+` does not zoom."""
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()
    page.keyboard.press("+")
    page.keyboard.press("Escape")
    assert not page.locator("#keys").is_visible()
    assert shown_range(page) == WHOLE


def test_invalid_chart_is_reported_in_its_place_and_the_others_are_drawn(
    browser: Browser, tmp_path: Path
) -> None:
    """One chart that cannot be drawn must not stop the other charts of the page."""
    html = report_html(report_input(), (_section_of_three_lanes,))
    # Give lane-one the specification 7, which Vega refuses. The chart's JSON {...} becomes
    # {"spec":7,"data":{},"x":{...}}. The first replacement writes the new beginning, and the second
    # replacement adds the brace at the end.
    broken = html.replace('id="lane-one-data">{', 'id="lane-one-data">{"spec":7,"data":{},"x":{', 1)
    assert broken != html
    broken = broken.replace(
        '</script>\n<script type="application/json" id="lane-other-data">',
        '}</script>\n<script type="application/json" id="lane-other-data">',
        1,
    )
    with visit(browser, write_report(broken, tmp_path / "broken.html")) as seen:
        draw_all(seen.page)
        states = seen.page.locator("figure.chart").evaluate_all(
            "all => all.map(each => each.dataset.state)"
        )
        assert states == ["drawn", "failed", "drawn"]
        assert "could not be drawn" in seen.page.locator("#lane-one .picture").inner_text()


def test_chart_without_the_time_axis_has_no_time_bar(browser: Browser, tmp_path: Path) -> None:
    """The runs of a comparison have no common clock, so its charts have no time axis."""

    def section_of_figures(_run: ReportInput) -> Section:
        spec = alt.Chart(alt.NamedData("bars")).mark_bar().encode(x="a:Q", y="who:N")
        chart = replace(small_chart(), spec=spec.properties(width="container"), on_time_axis=False)
        return Section(id="figures", title="Figures", parts=(chart,))

    html = report_html(report_input(), (section_of_figures,))
    with visit(browser, write_report(html, tmp_path / "p.html")) as seen:
        draw_all(seen.page)
        assert seen.page.locator(".timebar").count() == 0
        assert seen.problems == []


WIDE_TABLE = TextTable(
    headings=("change", "group", *(f"figure number {column}" for column in range(9))),
    rows=tuple(("1 member joins", group, *range(9)) for group in ("old", "new", "alone")),
    blocks=(2, 1),
)
"""A table of eleven columns with two blocks: the rows `old` and `new`, and the row `alone`."""


@pytest.mark.parametrize(("screen", "is_phone"), [(PHONE, True), (DESKTOP, False)])
def test_rows_of_a_block_are_beside_each_other_on_a_phone(
    browser: Browser, tmp_path: Path, screen: Screen, is_phone: bool
) -> None:
    """Eleven columns do not fit on a phone: the reader would scroll, and lose sight of the names.

    So a phone shows the two rows of the first block as two columns under one name. The headings of
    the table become the names of the lines. The third row is a block of its own.
    """

    def section_of_costs(_run: ReportInput) -> Section:
        return Section(id="costs", title="Costs", parts=(WIDE_TABLE,))

    html = report_html(report_input(), (section_of_costs,))
    with visit(browser, write_report(html, tmp_path / "p.html"), screen=screen) as seen:
        fits = seen.page.locator("#costs .scroll").evaluate("e => e.scrollWidth <= e.clientWidth")
        if is_phone:
            assert fits
        # Two cells are beside each other if they have the same distance from the top.
        top_of_old, top_of_new, top_of_alone = seen.page.locator("#costs tbody tr").evaluate_all(
            "rows => rows.map(row => row.cells[3].getBoundingClientRect().top)"
        )
        assert (top_of_old == top_of_new) is is_phone
        assert top_of_new < top_of_alone
        # A phone shows one name for each block, and a desktop shows one name for each row.
        names = seen.page.locator("#costs tbody th:visible")
        assert names.count() == (2 if is_phone else 3)
        # On a phone, the style sheet prints a cell's heading before the cell.
        heading = seen.page.locator("#costs td[data-heading]").nth(1)
        heading_shown = heading.evaluate("e => getComputedStyle(e, '::before').content")
        assert heading_shown == ('"figure number 0"' if is_phone else "none")
        assert seen.problems == []
