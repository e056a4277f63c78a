"""Report sections about the two designs: a group on ZooKeeper, and a group with a coordinator.

Before Kafka had group coordinators, the members of a group met in ZooKeeper. Each member computed
for itself which partitions it owned. In the runs of these tests the group `old` works in this way,
and the group `new` has a coordinator. Each group has two members, and a third member joins. In this
join, `old` sends 54 reads and 18 writes to ZooKeeper, and `new` sends 9 requests to its
coordinator.

After such a change of the group, each member on ZooKeeper makes an attempt: it reads which members
there are (its view) and computes a plan, which assigns the partitions to them. If members have
different views, their plans conflict, and they try again.
"""

from pathlib import Path

from pipeline.report.charts.chart import Chart, Section, TextTable
from pipeline.report.report_input import RunTables
from pipeline.report.two_designs.answers import ComparedFigure
from pipeline.report.two_designs.section import designs_section, two_designs_sections
from tests.support.builders.report_inputs import report_input, run_facts
from tests.support.builders.two_designs import (
    JOIN_US,
    attempt,
    two_design_facts,
    two_design_input,
    two_design_tables,
)


def sections(**tables: list[dict[str, object]]) -> dict[str, Section]:
    """Return the sections of one run by their ids; `tables` replaces some of the run's tables."""
    runs = [(two_design_facts(), two_design_tables(**tables))]
    built = two_designs_sections(runs, titles=["a"])
    return {section.id: section for section in built}


def charts_of(section: Section) -> dict[str, Chart]:
    """Return the charts of a section, by their ids."""
    return {part.id: part for part in section.parts if isinstance(part, Chart)}


def test_chart_of_what_partitions_felt_precedes_tables_of_changed_and_of_alike_figures() -> None:
    """A figure counts as changed if its values in the two designs differ by a factor of 2 or more.

    A row of a table has the figure's name, its value in `old`, its value in `new`, and the factor.
    The chart above the tables shows what the partitions felt: for how long each of them had no
    owner, no processing, or two owners.
    """
    two_owners = {"partition": "t-0", "length_us": 5_000_000, "records_both": 3}
    overlaps = [{**two_owners, "group": "old"}, {**two_owners, "group": "new"}]
    by_id = sections(ownership_overlaps=overlaps)

    assert list(by_id) == ["designs", "design-costs", "design-plans"]
    felt, changed, alike = by_id["designs"].parts
    assert isinstance(felt, Chart)
    assert isinstance(changed, TextTable)
    assert isinstance(alike, TextTable)
    assert changed.caption == "What the coordinator changed, in a group of 3"
    # 72 = 54 reads and 18 writes on ZooKeeper, against 9 requests to the coordinator.
    assert ("requests that a join caused", "72", "9", "÷ 8.0") in changed.rows
    assert ("plans computed in a join", "3", "1", "÷ 3.0") in changed.rows
    assert alike.caption == "What it did not change, in a group of 3 (less than a factor of 2)"
    assert ("partitions given up in a join", "1", "1", "× 1.0") in alike.rows
    assert ("records processed by two owners", "3", "3", "× 1.0") in alike.rows


def test_figure_that_is_zero_in_both_designs_is_omitted() -> None:
    """A row with two zeros would compare nothing, but a zero beside another number is a change.

    Neither group had a refused commit, so no row is about refused commits.
    """
    _, changed, *_ = sections()["designs"].parts
    assert isinstance(changed, TextTable)
    assert all("refused" not in str(row[0]) for row in changed.rows)
    assert ComparedFigure(name="a", zookeeper=0, coordinator=1).is_changed
    # 3 is not twice as much as 2.
    assert not ComparedFigure(name="a", zookeeper=3, coordinator=2).is_changed
    assert ComparedFigure(name="a", zookeeper=4, coordinator=2).is_changed


def test_figures_are_of_the_largest_size_that_both_designs_have() -> None:
    """A median over groups of several sizes would hide that the costs grow with the size."""
    # Both designs have a group of 3 and a group of 5 members. The groups of 9 and of 7 members have
    # no counterpart.
    members_of_old_and_new = ((3, 3), (5, 5), (9, 7))
    runs = [
        (two_design_facts(run=f"run-{old}", old=old, new=new), two_design_tables())
        for old, new in members_of_old_and_new
    ]
    titles = [f"run-{old}" for old, _ in members_of_old_and_new]
    designs = two_designs_sections(runs, titles)[0]
    captions = [part.caption for part in designs.parts if isinstance(part, TextTable)]
    assert captions[0] == "What the coordinator changed, in a group of 5"


def test_growth_chart_shows_counts_of_this_run_and_curves_of_the_formula() -> None:
    """The chart shows how the number of requests of a join grows with the size of the group.

    - Points are counts of this run. They have the mark `here`.
    - Curves are what a formula predicts for the reads. Their names have the mark `law name`.
    """
    growth = charts_of(sections()["design-costs"])["designs-growth"]
    rows = growth.data["growth"]
    points = {
        (row["series"], row["members"], row["count"]) for row in rows if row["mark"] == "here"
    }
    assert points == {
        ("ZooKeeper reads", 3, 54),
        ("ZooKeeper writes", 3, 18),
        ("notifications", 3, 2),
        ("coordinator requests", 3, 9),
    }
    curves = {row["text"] for row in rows if row["mark"] == "law name"}
    # One curve is for the cluster on which Kafka 1.1.1 was measured, the other for the cluster of
    # this run.
    assert curves == {"law: 1 broker, 64 partitions", "law: 1 broker, 6 partitions"}
    # A reader can pick a kind of change. This run has only one kind.
    assert growth.picks[0].options == ("one member joins",)


def test_costs_of_one_change_are_one_block_if_both_groups_have_one_size() -> None:
    """The table of costs has a row for each change of each group. Here the change is the join.

    A phone shows the two rows of a block beside each other, so that a reader compares them. In the
    first run both groups have 3 members. In the second run they have 9 and 7 members and cannot be
    compared, so each row is a block of its own.
    """
    runs = [
        (two_design_facts(run=f"run-{old}", old=old, new=new), two_design_tables())
        for old, new in ((3, 3), (9, 7))
    ]
    built = two_designs_sections(runs, titles=["a", "b"])
    (section,) = (section for section in built if section.id == "design-costs")
    (table,) = (part for part in section.parts if isinstance(part, TextTable))
    groups_by_block = [[row[1] for row in block] for block in table.bodies]
    assert groups_by_block == [
        ["old of 3 on ZooKeeper", "new of 3 with a coordinator"],
        ["old of 9 on ZooKeeper"],
        ["new of 7 with a coordinator"],
    ]


def test_lanes_show_each_view_and_the_members_that_gave_up() -> None:
    """A disc is a computed plan; the number in it counts the members in the view of the plan.

    Discs with the same view have the same colour.
    """
    # attempt(member, time, members in its view): old-1 has seen the third member, but old-0 has
    # not. So their plans conflict.
    attempts = [
        attempt(0, JOIN_US, (0, 1)),
        attempt(1, JOIN_US, (0, 1, 2), outcome="conflict", conflicts=1, gave_up="running"),
        attempt(2, JOIN_US, (0, 1, 2)),
    ]
    charts = charts_of(sections(zookeeper_attempts=attempts)["design-plans"])
    rows = charts["designs-plans-zookeeper"].data["plans-zookeeper"]

    discs = [row for row in rows if row["mark"] == "disc"]
    assert [row["text"] for row in discs] == ["2", "3", "3"]
    fill_of_old_0, fill_of_old_1, fill_of_old_2 = (row["fill"] for row in discs)
    assert fill_of_old_1 == fill_of_old_2
    assert fill_of_old_0 != fill_of_old_1
    (cross,) = (row for row in rows if row["mark"] == "cross")
    assert cross["says"] == "consumer-old-1 gave up (running)"
    rows_of_new = charts["designs-plans-coordinator"].data["plans-coordinator"]
    (assigned,) = (row for row in rows_of_new if row["mark"] == "disc")
    assert assigned["says"] == "consumer-new-2: its assignment of generation 2"
    # Both charts show the same span of time, so that a reader can compare them.
    spans = {(row["from"], row["to"]) for row in (*rows, *rows_of_new) if row["mark"] == "span"}
    assert len(spans) == 1


def test_large_group_shows_members_with_trouble_first() -> None:
    """24 of 40 members have a lane: first those with a conflict or failure, then others by number.

    The lanes are drawn in the order of the members' numbers, so the last lane is about old-39,
    which had a conflict.
    """
    all_members = range(40)
    attempts = [attempt(member, JOIN_US, all_members) for member in all_members]
    attempts[39] = attempt(39, JOIN_US, all_members, outcome="conflict", conflicts=1)
    chart = charts_of(sections(zookeeper_attempts=attempts)["design-plans"])
    rows = chart["designs-plans-zookeeper"].data["plans-zookeeper"]

    names = [row["text"] for row in rows if row["mark"] == "name"]
    assert len(names) == 24
    assert names[0] == "old-0"
    assert names[-1] == "old-39"


def test_report_of_one_run_has_all_charts_of_the_designs_in_one_section() -> None:
    """The page that compares runs has three sections for these charts; the report of a run has one.

    The report of a run without a group on ZooKeeper has no such section.
    """
    section = designs_section(two_design_input())
    assert section is not None
    assert {part.id for part in section.parts if isinstance(part, Chart)} == {
        "designs-felt",
        "designs-growth",
        "designs-plans-zookeeper",
        "designs-plans-coordinator",
    }
    assert designs_section(report_input()) is None


def test_tables_of_a_run_without_a_group_on_zookeeper_are_not_read() -> None:
    """A run may have no tables, because it was not analysed.

    Here the directory of the tables does not exist, so that reading a table would fail the test.
    """
    facts = run_facts(config={"groups": {"readers": {"members": 1}}})
    assert two_designs_sections([(facts, RunTables(Path("nowhere")))], titles=["a"]) == []
