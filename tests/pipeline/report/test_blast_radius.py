"""The report's section "Blast radius", which shows how much of the cluster each fault affected.

If a broker crashes, for example, the section lists the groups that the broker coordinated and the
partitions that it led. For each group, the section counts the members that noticed the fault: those
that marked their coordinator unknown. It also counts the commits that failed after the fault.

The tests write times as multiples of S, a second in microseconds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.report.charts.chart import Paragraph, Section, TextTable
from pipeline.report.sections.blast_radius import MAX_IN_FULL, blast_radius_section
from pipeline.summary.figures import FaultSummary
from tests.support.builders.report_inputs import journal_entry, report_input, run_facts, run_summary
from tests.support.builders.report_rows import (
    GROUP,
    OFFSETS,
    Row,
    S,
    broker_phase,
    client_phase,
    fault_row,
    fault_summary,
    gap,
)


def commits_row(
    error: str, commits: int, consumer: str = "c-0", fault: str | None = "crash-0"
) -> Row:
    """Return a row of the table `commits`, which counts commits of one member by their error.

    `commits_row("DISCONNECTED", 9)` says that 9 commits of c-0 failed because the connection broke,
    after the fault crash-0. The error NONE stands for success. The fault is None for commits that
    ended before the first fault.
    """
    return {
        "fault": fault,
        "group": GROUP,
        "consumer": consumer,
        "coordinator": "broker-2",
        "error": error,
        "commits": commits,
    }


# The tables of a run in which broker-2 crashes at 10 s. Its group has four members.
TABLES: dict[str, list[Row]] = {
    "faults": [fault_row()],
    # The numbers are lengths of phases in microseconds: 4 phases of a broker, 3 of a member. This
    # section does not show them, so most of them are just 1.
    "broker_phases": [broker_phase(7 * S, 1, 1, 1)],
    "client_phases": [
        # Only members that noticed the crash have lengths of phases: c-0, c-1 and c-2.
        client_phase("c-0", 1, 1, 1, noticed_by="DISCONNECTED"),
        # c-1 also had to join again, so it has a new generation.
        client_phase("c-1", 1, 1, 1, noticed_by="NOT_COORDINATOR", generation_after=2, join_us=9),
        client_phase("c-2", 1, 1, 1, noticed_by="DISCONNECTED"),
        client_phase("c-3"),
    ],
    "availability": [
        gap("member", "c-0", gap_us=8 * S),
        gap("member", "c-1", gap_us=9 * S),
        gap("partition", "orders-2", gap_us=7 * S),
    ],
    "commits": [
        commits_row("NONE", 100),
        commits_row("DISCONNECTED", 9),
        commits_row("DISCONNECTED", 4, "c-1"),
        commits_row("COORDINATOR_LOAD_IN_PROGRESS", 1),
        # These commits ended before the crash.
        commits_row("REBALANCE_IN_PROGRESS", 77, fault=None),
    ],
}


def section_of(
    *faults: FaultSummary,
    tables: Mapping[str, Sequence[Row]] = TABLES,
    **facts: Any,  # noqa: ANN401
) -> Section:
    """Return the section for the summary of these faults; `facts` sets facts about the run."""
    section = blast_radius_section(
        report_input(run_facts(**facts), run_summary(faults=faults), tables)
    )
    assert section is not None
    return section


def table_headed(section: Section, heading: str) -> TextTable:
    """Return the table whose first column has this heading."""
    (only_table,) = [
        part
        for part in section.parts
        if isinstance(part, TextTable) and part.headings[0] == heading
    ]
    return only_table


def paragraphs(section: Section) -> str:
    """Return the HTML of all paragraphs of the section."""
    return " ".join(part.html for part in section.parts if isinstance(part, Paragraph))


def test_run_without_faults_has_no_section() -> None:
    """A run without faults has no such section, because no group was affected."""
    assert blast_radius_section(report_input()) is None


def test_group_of_the_fault_is_listed_with_the_notices_of_its_members() -> None:
    """The row counts the members, the members that noticed the fault, and those that rejoined."""
    (row,) = table_headed(section_of(fault_summary(TABLES)), "group").rows
    assert row == (
        GROUP,
        "broker-2 to broker-0",  # the coordinator before and after
        4,  # members
        3,  # members that noticed the fault
        "DISCONNECTED 2, NOT_COORDINATOR 1",  # by what they noticed it
        "3 of 4",  # members that kept their id and generation
        "1 of 4",  # members that joined again
        "9.00 s",  # the longest time of a member without a commit
    )
    # The section about phases has this sentence. The page must not have it a second time.
    assert "noticed by" not in paragraphs(section_of(fault_summary(TABLES)))


def test_group_with_a_member_that_never_recovered_has_no_length() -> None:
    """c-0 had no service for 8 s, and c-1 had no service until the run ended.

    `8.00 s` as the longest time would hide c-1.
    """
    rows = TABLES | {
        "availability": [gap("member", "c-0", gap_us=8 * S), gap("member", "c-1", gap_us=None)]
    }
    (row,) = table_headed(section_of(fault_summary(rows), tables=rows), "group").rows
    assert row[-1] == "never again"


def test_partitions_are_listed_with_their_new_leader_and_their_gap() -> None:
    """An offsets partition shows its loaded records; a data partition shows its gap."""
    rows = table_headed(section_of(fault_summary(TABLES)), "partition").rows
    # The cells: partition, groups, leader before and after, leader epoch, records loaded, gap.
    assert rows == (
        (OFFSETS, GROUP, "broker-2 to broker-0", 1, 265, None),
        ("orders-2", None, None, None, None, "7.00 s"),
    )


def test_errors_of_commits_are_counted_by_kafkas_names_after_the_fault() -> None:
    """A row has an error, the number of commits that met it (9 + 4), and of members (c-0, c-1).

    Acknowledged commits, and commits before the fault, do not count.
    """
    section = section_of(fault_summary(TABLES))
    assert table_headed(section, "commits met").rows == (
        ("DISCONNECTED", 13, 2),
        ("COORDINATOR_LOAD_IN_PROGRESS", 1, 1),
    )
    assert "Commits met DISCONNECTED 13 (2 members)" in paragraphs(section)
    assert "REBALANCE_IN_PROGRESS" not in paragraphs(section)


def test_group_that_commits_nothing_is_reported_as_such() -> None:
    """`No commit met an error` would be true, but would suggest that some commits succeeded."""
    without_commits = TABLES | {"commits": []}
    section = section_of(fault_summary(without_commits), tables=without_commits)
    assert "No member committed" in paragraphs(section)
    without_errors = TABLES | {"commits": [commits_row("NONE", 100)]}
    section = section_of(fault_summary(without_errors), tables=without_errors)
    assert "No commit met an error" in paragraphs(section)


def test_hit_nodes_are_listed_beside_the_planned_target() -> None:
    """A plan may name a target without its node, as in `coordinator-of(readers)`.

    Which node this is turns out when the fault fires. So the page shows the plan's words and the
    nodes that were hit.
    """
    section = section_of(
        fault_summary(TABLES), faults=(journal_entry(nodes=("broker-2", "broker-0")),)
    )
    assert "Hit: broker-2, broker-0. Planned target: coordinator-of(readers)." in paragraphs(
        section
    )


def test_each_of_many_faults_is_a_line() -> None:
    """Tables for each of a hundred faults would be too long: each fault is a line of one table."""
    # One fault more than the section shows with tables of their own.
    names = [f"crash-{n}" for n in range(MAX_IN_FULL + 1)]
    # Each fault gets a copy of every row of TABLES, also of the row about the 77 commits, which had
    # no fault there.
    tables = {
        name: [row | {"fault": fault} for fault in names for row in rows]
        for name, rows in TABLES.items()
    }
    section = section_of(*(fault_summary(tables, fault=name) for name in names), tables=tables)
    (only_part,) = section.parts
    assert isinstance(only_part, TextTable)
    assert [row[0] for row in only_part.rows] == names
    assert only_part.rows[0][-1] == (
        "REBALANCE_IN_PROGRESS 77, DISCONNECTED 13, COORDINATOR_LOAD_IN_PROGRESS 1"
    )
