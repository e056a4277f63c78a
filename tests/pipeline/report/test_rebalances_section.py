"""The section of a report about rebalances: why each rebalance began, and how long it took.

The section has two parts:

- A table with a row for each rebalance. The rows come from the table `rebalances` of the analysis.
  `rebalance` makes such a row. By default the rebalance begins at 55 s, because the session of c-0
  expires, 45 s after the fault crash-0 (at 10 s).
- Sentences, such as "After crash-0: 1 rebalance". They come from the summary of the run, which
  counts the rebalances after each fault by their reason. `rebalances_of` makes such a count.

Times are microseconds, and S is one second.
"""

from collections.abc import Sequence

from pipeline.report.charts.chart import Chart, Paragraph, Section, TextTable
from pipeline.report.sections.rebalances import MAX_LISTED, MAX_ONE_BY_ONE, rebalances_section
from pipeline.summary.figures import FaultSummary
from tests.support.builders.report_inputs import report_input, run_summary
from tests.support.builders.report_rows import (
    GROUP,
    Row,
    S,
    fault_summary,
    rebalance,
    rebalances_of,
)


def section_of(rows: Sequence[Row], *faults: FaultSummary) -> Section:
    """Return the section of a run with these rows of rebalances and these faults."""
    summary = run_summary(faults=faults)
    section = rebalances_section(report_input(summary=summary, tables={"rebalances": rows}))
    assert section is not None
    return section


def text(section: Section) -> str:
    """Return all paragraphs of the section; a plain space separates a number from its unit."""
    paragraphs = " ".join(part.html for part in section.parts if isinstance(part, Paragraph))
    return paragraphs.replace("\N{NO-BREAK SPACE}", " ")


def table(section: Section) -> TextTable:
    """Return the only table of the section."""
    (shown,) = [part for part in section.parts if isinstance(part, TextTable)]
    return shown


def test_run_without_groups_and_faults_has_no_section() -> None:
    """Without groups and faults there is no rebalance to show, nor the absence of one."""
    assert rebalances_section(report_input()) is None


def test_failover_without_a_rebalance_is_reported() -> None:
    """A failover without a rebalance is the good outcome, which many readers do not expect.

    The run's only rebalance is before the fault: the start of the group.
    """
    start = rebalance(fault=None, reason="join", removed=[], started_us=1 * S)
    section = section_of([start], fault_summary(members=12))
    assert "No rebalance after a fault" in text(section)
    _, after_which_fault, *_ = table(section).rows[0]
    assert after_which_fault == "start of the group"


def test_rebalance_has_its_reason_and_that_of_the_client() -> None:
    """The client's own reason is often the only hint at a cause."""
    # c-0 is removed, because its session expires, and joins again.
    row = rebalance(
        reason="join", client_reason="need to re-join with the given member-id", added=["c-0"]
    )
    cells = table(section_of([row], fault_summary(members=12, rebalances=(rebalances_of(),)))).rows[
        0
    ]
    # The cells after the time: fault, group, reason, coordinator, generations, removed members,
    # added members, time of joining, time until the group was stable.
    assert cells[1:] == (
        "crash-0",
        GROUP,
        'join of c-0, "need to re-join with the given member-id"',
        "broker-0 in leader epoch 1",
        "1 to 2",
        "c-0 (session expiry)",
        "c-0",
        "1.00 s",
        "1.00 s",
    )
    # The link shows the lane from `started_us` (55 s) to `stable_us` (900 us after 56 s).
    assert 'href="#lane-rebalances" data-from="55.0" data-to="56.0009"' in str(cells[0])


def test_rebalance_without_a_result_has_no_length() -> None:
    """One rebalance could not store its assignment; the run's end cut the other short.

    A length of 0 would be wrong in both cases.
    """
    not_stored = rebalance(length_us=None, stable_us=None, store_error="REQUEST_TIMED_OUT")
    cut_short = rebalance(length_us=None, stable_us=None, join_us=None, new_generation=None)
    fault = fault_summary(rebalances=(rebalances_of(count=2),))
    cells_of_not_stored, cells_of_cut_short = table(section_of([not_stored, cut_short], fault)).rows
    generations, join_time, time_until_stable = 5, -2, -1  # indexes of cells
    assert cells_of_not_stored[time_until_stable] == "not stored (REQUEST_TIMED_OUT)"
    assert cells_of_cut_short[join_time] is None
    assert cells_of_cut_short[time_until_stable] == "never"
    assert cells_of_cut_short[generations] == "1 to none"


def test_faults_with_and_without_rebalances_are_listed_separately() -> None:
    """If a run has several faults, the section shows which of them caused a rebalance."""
    faults = (
        fault_summary(fault="crash-0", members=12, rebalances=(rebalances_of(),)),
        fault_summary(fault="crash-1", members=12),
    )
    paragraphs = text(section_of([rebalance()], *faults))
    assert "After crash-0: 1 rebalance" in paragraphs
    assert "After crash-1: no rebalance" in paragraphs
    assert f"1 rebalance: session expiry of c-0 ({GROUP}); 45.00 s after the fault" in paragraphs


def test_many_rebalances_are_summed_up_and_folded() -> None:
    """More than MAX_ONE_BY_ONE (12) similar rebalances share one sentence.

    A chart shows how long they took, and the reader has to unfold the table.
    """
    rows = [rebalance(started_us=(55 + index) * S) for index in range(MAX_ONE_BY_ONE + 1)]
    many = rebalances_of(count=len(rows), last_us=67 * S)
    section = section_of(rows, fault_summary(members=12, rebalances=(many,)))
    assert "13 rebalances: session expiry of c-0" in text(section)
    assert table(section).folded == "All 13 rebalances"
    (chart,) = [part for part in section.parts if isinstance(part, Chart)]
    assert chart.id == "rebalance-lengths"


def test_table_of_rebalances_is_bounded() -> None:
    """A storm of rebalances must not make the page slow; the omitted ones are counted."""
    rows = [rebalance(started_us=index * S) for index in range(MAX_LISTED + 5)]
    shown = table(section_of(rows, fault_summary(rebalances=(rebalances_of(count=len(rows)),))))
    assert len(shown.rows) == MAX_LISTED
    assert "5 more stand in the table rebalances" in shown.caption
