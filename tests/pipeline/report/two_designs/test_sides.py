"""Sides: the groups that a report compares, and the changes of their members.

A report compares two designs of a consumer group: in each run, the group `old` works on ZooKeeper,
and the group `new` has a coordinator. Each group of each run is a side of the comparison. The
report compares the changes of the groups, such as "1 member joins": their costs, and how long they
last.

By default each group has two members, and at JOIN_US a third member joins each group. `crash_of`
kills a member, by default at DEATH_US. The run ends at END_US.
"""

import pytest

from pipeline.report.two_designs.sides import sides_of
from tests.support.builders.report_inputs import run_facts
from tests.support.builders.two_designs import (
    DEATH_US,
    END_US,
    JOIN_US,
    S,
    crash_of,
    two_design_facts,
    two_design_tables,
)


def test_runs_without_a_group_on_zookeeper_have_no_sides() -> None:
    """Without a group on ZooKeeper there is nothing to compare."""
    facts = run_facts(config={"groups": {"readers": {"members": 3, "topics": ["t"]}}})

    assert sides_of([(facts, two_design_tables())], run_titles=["a"]) == ()


def test_sides_are_named_by_group_then_by_size_then_by_run() -> None:
    """A title has the group's name, and the size or the run only if the name is not enough."""
    run = (two_design_facts(old=3, new=3), two_design_tables())
    larger_run = (two_design_facts(old=10, new=10), two_design_tables())

    one_run = sides_of([run], run_titles=["a"])
    assert [side.title for side in one_run] == ["old", "new"]
    two_sizes = sides_of([run, larger_run], run_titles=["a", "b"])
    assert [side.title for side in two_sizes] == ["old of 3", "new of 3", "old of 10", "new of 10"]
    same_size = sides_of([run, run], run_titles=["a", "b"])
    assert [side.title for side in same_size] == ["old (a)", "new (a)", "old (b)", "new (b)"]
    assert [side.design for side in same_size[:2]] == ["zookeeper", "coordinator"]


def test_changes_are_joins_and_faults_that_hit_the_groups_members_or_a_broker() -> None:
    """A change lasts until the next change of the same group begins.

    The crash of broker-0 is a change of both groups. The crash of a member is a change of the
    member's own group only. The number of members at a death includes the member that dies.
    """
    faults = [
        crash_of("consumer-old-1", healed_us=DEATH_US + 10 * S),
        crash_of("consumer-new-1", DEATH_US + S),
        crash_of("broker-0", DEATH_US + 2 * S),
    ]
    tables = two_design_tables(faults=faults)
    old, new = sides_of([(two_design_facts(), tables)], run_titles=["a"])

    assert [(change.kind, change.label, change.members) for change in old.changes] == [
        ("join", "1 member joins", 3),
        ("death", "1 member dies", 3),
        ("other", "crash of broker-0", 2),
        ("return", "the member is back", 3),
    ]
    assert [(change.at_us, change.until_us) for change in old.changes] == [
        (JOIN_US, DEATH_US),
        (DEATH_US, DEATH_US + 2 * S),
        (DEATH_US + 2 * S, DEATH_US + 10 * S),
        (DEATH_US + 10 * S, END_US),
    ]
    assert [change.label for change in new.changes] == [
        "1 member joins",
        "1 member dies",
        "crash of broker-0",
    ]


@pytest.mark.parametrize(("at", "at_us"), [("500ms", 500_000), ("2m", 120 * S)])
def test_late_members_join_at_their_time_after_the_steady_state(at: str, at_us: int) -> None:
    """The time of late members counts from the steady state, which begins at 10 s.

    The join of a single member is a change of the kind `join`; the join of two is an `other`.
    """
    facts = two_design_facts()
    facts.manifest.config["groups"]["old"]["late_members"] = [{"at": at, "members": 2}]
    side_of_old, _ = sides_of([(facts, two_design_tables())], run_titles=["a"])

    (change,) = side_of_old.changes
    assert change.at_us == 10 * S + at_us
    assert (change.kind, change.label, change.members) == ("other", "2 members join", 4)
