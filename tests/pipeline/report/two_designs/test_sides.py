"""Sides: the compared groups of runs, one per design, and the changes in each of them.

The two designs are a group on ZooKeeper (`old`) and a group with a coordinator (`new`). A side is
one group of one run. A change is a join, a death or another fault. By default both groups have two
members, and a third joins both at JOIN_US. `crash_of` kills a member, by default at DEATH_US. The
run ends at END_US.
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

    assert sides_of([(facts, two_design_tables())], ["a"]) == ()


def test_sides_are_named_by_group_then_by_size_then_by_run() -> None:
    """A title has the group's name, and the size or the run only if the name is not enough."""
    run = (two_design_facts(), two_design_tables())
    larger = two_design_facts()
    # With the late member each of these groups has ten.
    larger.manifest.config["groups"]["old"]["members"] = 9
    larger.manifest.config["groups"]["new"]["members"] = 9

    assert [side.title for side in sides_of([run], ["a"])] == ["old", "new"]
    sized = sides_of([run, (larger, two_design_tables())], ["a", "b"])
    assert [side.title for side in sized] == ["old of 3", "new of 3", "old of 10", "new of 10"]
    alike = sides_of([run, run], ["a", "b"])
    assert [side.title for side in alike] == ["old (a)", "new (a)", "old (b)", "new (b)"]
    assert [side.design for side in alike[:2]] == ["zookeeper", "coordinator"]


def test_changes_are_joins_and_faults_that_hit_the_groups_members_or_a_broker() -> None:
    """A change lasts until the next one begins; a member that dies still counts in its death.

    The crash of broker-0 is a change of both groups, the crash of a member only of its own group.
    """
    faults = [
        crash_of("consumer-old-1", healed_us=DEATH_US + 10 * S),
        crash_of("consumer-new-1", DEATH_US + S),
        crash_of("broker-0", DEATH_US + 2 * S),
    ]
    tables = two_design_tables(faults=faults)
    old, new = sides_of([(two_design_facts(), tables)], ["a"])

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


@pytest.mark.parametrize(("duration", "expected_us"), [("500ms", 500_000), ("2m", 120 * S)])
def test_late_members_join_at_their_time_after_the_steady_state(
    duration: str, expected_us: int
) -> None:
    """The steady state begins at 10 s; a join of two members is a change of the kind `other`."""
    facts = two_design_facts()
    facts.manifest.config["groups"]["old"]["late_members"] = [{"at": duration, "members": 2}]
    side, _ = sides_of([(facts, two_design_tables())], ["a"])

    (change,) = side.changes
    assert change.at_us == 10 * S + expected_us
    assert (change.kind, change.label, change.members) == ("other", "2 members join", 4)
