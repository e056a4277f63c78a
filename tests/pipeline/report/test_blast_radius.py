"""The blast radius of a fault: groups, partitions, notices of members, outcomes of commits.

The blast radius of a fault is what it affects: the groups and partitions of a broker, or those of a
member. A member notices a fault when it marks its coordinator unknown. S is a second in
microseconds.
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


def commit(error: str, commits: int, consumer: str = "c-0", fault: str | None = "crash-0") -> Row:
    """Return a row of `commits`: the number of a member's commits that ended with `error`.

    The error NONE stands for success. `fault` is None if the commits ended before the first fault.
    """
    return {
        "fault": fault,
        "group": GROUP,
        "consumer": consumer,
        "coordinator": "broker-2",
        "error": error,
        "commits": commits,
    }


# One crash of broker-2 at 10 s, with four members: c-0, c-1 and c-2 noticed it, c-1 rejoined, c-3
# noticed nothing. The last commit has no fault, because it was before the crash. The numbers in
# `broker_phase` and `client_phase` are lengths of phases in microseconds. Their values do not
# matter here: a member with lengths noticed the fault.
TABLES: dict[str, list[Row]] = {
    "faults": [fault_row()],
    "broker_phases": [broker_phase(7 * S, 1, 1, 1)],
    "client_phases": [
        client_phase("c-0", 1, 1, 1, noticed_by="DISCONNECTED"),
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
        commit("NONE", 100),
        commit("DISCONNECTED", 9),
        commit("DISCONNECTED", 4, "c-1"),
        commit("COORDINATOR_LOAD_IN_PROGRESS", 1),
        commit("REBALANCE_IN_PROGRESS", 77, fault=None),
    ],
}


def built(
    *faults: FaultSummary,
    tables: Mapping[str, Sequence[Row]] = TABLES,
    **facts: Any,  # noqa: ANN401
) -> Section:
    """Return the section of a run with these faults."""
    section = blast_radius_section(
        report_input(run_facts(**facts), run_summary(faults=faults), tables)
    )
    assert section is not None
    return section


def table(section: Section, heading: str) -> TextTable:
    """Return the table whose first heading is `heading`."""
    (only_table,) = [
        part
        for part in section.parts
        if isinstance(part, TextTable) and part.headings[0] == heading
    ]
    return only_table


def text(section: Section) -> str:
    """Return all paragraphs."""
    return " ".join(part.html for part in section.parts if isinstance(part, Paragraph))


def test_run_without_faults_has_no_section() -> None:
    """No group was affected."""
    assert blast_radius_section(report_input()) is None


def test_group_of_the_fault_is_listed_with_the_notices_of_its_members() -> None:
    """The row counts the members, those that noticed the fault, and those that rejoined."""
    (row,) = table(built(fault_summary(TABLES)), "group").rows
    # The cells: group, coordinator before and after, members, members that noticed, their reasons,
    # members that kept id and generation, members that joined again, longest time without a commit.
    assert row == (
        GROUP,
        "broker-2 to broker-0",
        4,
        3,
        "DISCONNECTED 2, NOT_COORDINATOR 1",
        "3 of 4",
        "1 of 4",
        "9.00 s",
    )
    # The sentence about notices is in another section, about phases.
    assert "noticed by" not in text(built(fault_summary(TABLES)))


def test_group_with_a_member_that_never_recovered_has_no_length() -> None:
    """A maximum over the recovered members would hide the member that never recovered."""
    rows = TABLES | {
        "availability": [gap("member", "c-0", gap_us=8 * S), gap("member", "c-1", gap_us=None)]
    }
    (row,) = table(built(fault_summary(rows), tables=rows), "group").rows
    assert row[-1] == "never again"


def test_partitions_are_listed_with_their_new_leader_and_their_gap() -> None:
    """Offsets partitions show their loaded records; data partitions, the time without work."""
    rows = table(built(fault_summary(TABLES)), "partition").rows
    # The cells: partition, groups, leader before and after, leader epoch, records loaded, gap.
    assert rows == (
        (OFFSETS, GROUP, "broker-2 to broker-0", 1, 265, None),
        ("orders-2", None, None, None, None, "7.00 s"),
    )


def test_errors_of_commits_are_counted_by_kafkas_names_after_the_fault() -> None:
    """A row has the error, the commits that met it (9 + 4), and their members (c-0 and c-1).

    Acknowledged commits, and commits before the fault, do not count.
    """
    section = built(fault_summary(TABLES))
    assert table(section, "commits met").rows == (
        ("DISCONNECTED", 13, 2),
        ("COORDINATOR_LOAD_IN_PROGRESS", 1, 1),
    )
    assert "Commits met DISCONNECTED 13 (2 members)" in text(section)
    assert "REBALANCE_IN_PROGRESS" not in text(section)


def test_group_that_commits_nothing_is_reported_as_such() -> None:
    """`No commit met an error` would be true, but would suggest that some commits succeeded."""
    without_commits = TABLES | {"commits": []}
    section = built(fault_summary(without_commits), tables=without_commits)
    assert "No member committed" in text(section)
    without_errors = TABLES | {"commits": [commit("NONE", 100)]}
    section = built(fault_summary(without_errors), tables=without_errors)
    assert "No commit met an error" in text(section)


def test_hit_nodes_are_listed_beside_the_planned_target() -> None:
    """`coordinator-of(readers)` is resolved to a node when the fault fires: the page shows both."""
    section = built(fault_summary(TABLES), faults=(journal_entry(nodes=("broker-2", "broker-0")),))
    assert "Hit: broker-2, broker-0. Planned target: coordinator-of(readers)." in text(section)


def test_each_of_many_faults_is_a_line() -> None:
    """Tables for each of a hundred faults would be too long: each fault is a line of one table."""
    # More faults than have tables of their own.
    names = [f"crash-{n}" for n in range(MAX_IN_FULL + 1)]
    # Each fault gets all rows of TABLES, even the commit from before the crash.
    tables = {
        name: [row | {"fault": fault} for fault in names for row in rows]
        for name, rows in TABLES.items()
    }
    section = built(*(fault_summary(tables, fault=name) for name in names), tables=tables)
    (shown,) = section.parts
    assert isinstance(shown, TextTable)
    assert [row[0] for row in shown.rows] == names
    assert shown.rows[0][-1] == (
        "REBALANCE_IN_PROGRESS 77, DISCONNECTED 13, COORDINATOR_LOAD_IN_PROGRESS 1"
    )
