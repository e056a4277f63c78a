"""Two sections of a run's report: the list of checks, and the violations with their evidence.

A check judges whether the run kept one of Kafka's promises, such as "a commit that was acknowledged
is not lost" (`durable_commits`). Each breach of the promise is a finding. The evidence of a finding
is the rows of the trace that prove it. The page prints each of these rows with a link to a chart
(a lane) that shows what happened at the time of the row.
"""

import re

import pytest
from msgspec.structs import replace

from pipeline.report.charts.chart import Paragraph, Section
from pipeline.report.facts import SettingFact
from pipeline.report.sections.checks import checks_section
from pipeline.report.sections.violations import MAX_STEPS, lane_of, violations_section
from protocol.trace import TraceKind, TraceRow
from results_schema.results import CheckOutcome, CheckReport, Finding, Verdict
from tests.support.builders.report_inputs import report_input, run_facts
from tests.support.builders.rows import Rows

PASSED = CheckReport(check="fencing", outcome=CheckOutcome.PASS, seen={"appends_acknowledged": 3})
COMMIT = Rows().add(
    11.25, "consumer-0", TraceKind.OFFSETS_COMMITTED, partition="orders-1", offset=92
)
"""A row of the trace, for the evidence of findings."""


def _violated(*findings: Finding, total: int | None = None) -> CheckReport:
    """Return the report of a check whose promise was broken.

    A run keeps only some of many findings. Then `total` is the number of all findings.
    """
    return CheckReport(
        check="durable_commits",
        outcome=CheckOutcome.VIOLATED,
        findings=findings,
        findings_total=len(findings) if total is None else total,
    )


def _finding(*evidence: TraceRow) -> Finding:
    """Return a violation of `durable_commits` at 20 s with these rows as evidence."""
    return Finding(
        check="durable_commits",
        summary="offset 92 was <lost>",
        time_us=20_000_000,
        evidence=evidence,
    )


def _html(section: Section | None) -> str:
    """Return the paragraphs of a section as HTML."""
    assert section is not None
    return "".join(part.html for part in section.parts if isinstance(part, Paragraph))


def test_checks_list_the_broken_promise_first_with_the_number_judged() -> None:
    """The number of judged events tells a reader how much a pass proves."""
    html = _html(
        checks_section(report_input(run_facts(checks=(PASSED, _violated(_finding(COMMIT))))))
    )
    assert html.index("Durable commits") < html.index("Fencing")
    assert "Judged: 3 appends acknowledged." in html
    assert '<a href="#violations-durable_commits">1 finding</a>' in html


def test_checks_are_omitted_for_a_run_that_never_judged() -> None:
    """A killed run has no results, and an empty list would suggest that no promise was broken."""
    assert checks_section(report_input(run_facts(checks=()))) is None


def test_violations_are_omitted_if_there_are_none() -> None:
    """The page of a run that passed has no such section."""
    assert violations_section(report_input(run_facts(checks=(PASSED,)))) is None


def test_evidence_of_a_violation_links_to_the_lanes() -> None:
    """Each row shows time, node and event, and links to its lane; names are escaped."""
    facts = run_facts(checks=(_violated(_finding(COMMIT)),), verdict=Verdict.VIOLATED)
    html = _html(violations_section(report_input(facts)))
    assert "Offset 92 was &lt;lost&gt;." in html
    assert '<a href="#lane-availability" data-from="11.25" data-to="11.25">' in html
    assert "<b>consumer-0</b> <span>offsets committed: orders-1, offset 92</span>" in html


def test_violation_lists_its_cause_above_its_evidence() -> None:
    """The evidence shows what happened; the cause shows why it could happen."""
    fault = Rows().add(9, "driver", TraceKind.FAULT_INJECTED, cause="cut-0")
    finding = replace(_finding(COMMIT), led_to=(fault,))
    html = _html(violations_section(report_input(run_facts(checks=(_violated(finding),)))))
    texts_in_order = ("What led to it:", "fault injected", "What proves it:", "offsets committed")
    positions = [html.index(text) for text in texts_in_order]
    assert positions == sorted(positions)


def test_violation_shortens_member_ids_and_keeps_them_in_the_title() -> None:
    """The UUID in a member id takes much room, and the client's name before it says enough.

    The names of the node and the partition contain `<`, so they are also escaped.
    """
    member = "consumer-readers-3-a516a4af-4afe-4a11-8609-11be2c01a646"
    row = Rows().add(
        1, "<n>", TraceKind.COMMIT_STORED, partition="<i>", member=member, generation=1
    )
    html = _html(violations_section(report_input(run_facts(checks=(_violated(_finding(row)),)))))
    shortened = (
        f'member <span title="{member}">consumer-readers-3-a516a4af\N{HORIZONTAL ELLIPSIS}</span>'
    )
    assert f"<span>commit stored: &lt;i&gt;, {shortened}, generation 1</span>" in html


def test_checks_use_the_words_of_the_terminal() -> None:
    """The terminal prints `pass`; another word on the page, such as `kept`, would confuse."""
    # One check for each outcome; the outcome also serves as the name of the check.
    reports = [CheckReport(check=outcome, outcome=outcome) for outcome in CheckOutcome]
    html = _html(checks_section(report_input(run_facts(checks=tuple(reports)))))
    printed = re.findall(r'<div class="outcome \w+">([^<]*)</div>', html)
    # The list begins with the worst outcome.
    assert printed == ["violated", "inconclusive", "pass", "not tested"]


def test_violation_with_long_evidence_folds_the_rest() -> None:
    """Evidence may have hundreds of rows: the first rows are shown, the other rows are folded."""
    evidence = [COMMIT] * (MAX_STEPS + 5)
    facts = run_facts(checks=(_violated(_finding(*evidence)),))
    html = _html(violations_section(report_input(facts)))
    assert "<details><summary>5 more rows</summary>" in html
    assert len(re.findall("<b>consumer-0</b>", html)) == MAX_STEPS + 5


def test_violations_count_the_findings_that_were_not_kept() -> None:
    """A check had 1,234 findings, and the run kept one of them. The page counts the others."""
    facts = run_facts(checks=(_violated(_finding(COMMIT), total=1_234),))
    html = _html(violations_section(report_input(facts)))
    assert "1,233 more findings of the same kind" in html


def test_violations_name_the_guard_that_was_switched_off() -> None:
    """An experiment can switch off a guard: one of the checks by which Kafka keeps its promises.

    Then a violation is no surprise. Without a note it would look like a violation of unchanged
    Kafka.
    """
    guard = SettingFact(
        section="cluster.guards", name="high_watermark_gate", value="false", default="true"
    )
    facts = run_facts(checks=(_violated(_finding(COMMIT)),), settings=(guard,))
    html = _html(violations_section(report_input(facts)))
    assert "<code>high_watermark_gate</code> was switched off in this run" in html


@pytest.mark.parametrize(
    ("kind", "partition", "lane"),
    [
        ("became_leader", "__consumer_offsets-2", "lane-coordinators"),
        ("append_completed", "__consumer_offsets-2", "lane-coordinators"),
        ("append_completed", "orders-1", "lane-ownership"),
        ("partitions_assigned", None, "lane-ownership"),
        ("generation_started", None, "lane-groups"),
        ("fault_healed", None, "lane-faults"),
        ("offsets_fetched", "orders-1", "lane-availability"),
    ],
)
def test_lane_of_a_row_shows_its_kind(kind: str, partition: str | None, lane: str) -> None:
    """A row of evidence links to the lane that shows events of its kind.

    For an append this depends on the partition: `__consumer_offsets` has another lane than topics
    with data.
    """
    row = Rows().add(1, "n", TraceKind(kind), partition=partition)
    assert lane_of(row) == lane
