"""What a change, such as the join or the death of a member, costs a group in each of two designs.

The designs are two groups of one run. The members of `old` agree through ZooKeeper; the members of
`new` have a coordinator. The costs are the requests that the change caused, and the time until the
group was stable again. The run's tables have these costs, and a formula predicts some of them.

In most tests each group has two members, and a third joins at JOIN_US, so that one partition of
each group changes its owner. The rows for this are in `tests/support/builders/two_designs.py`.

A member of `old` needs one or more attempts to own its share of the partitions:

1. It reads which members the group has: its view.
2. It computes from this view which partitions are its own: its plan.
3. It claims these partitions. If one of them still has another owner, this is a conflict and the
   attempt fails. A member whose attempts fail too often gives up.
"""

import re
from pathlib import Path

import pytest

from pipeline.report.two_designs.costs import Cost, costs_of
from pipeline.report.two_designs.measured import (
    MEASURED,
    NOTIFICATIONS,
    READS,
    REQUESTS,
    WRITES,
    reads_of_death,
    reads_of_join,
)
from pipeline.report.two_designs.sides import sides_of
from tests.support.builders.two_designs import (
    JOIN_US,
    S,
    attempt,
    crash_of,
    two_design_facts,
    two_design_tables,
)

MEASUREMENT = Path(__file__).parents[4] / "docs" / "kafka" / "MEASURED_ZOOKEEPER.md"


def both_costs(**tables: list[dict[str, object]]) -> tuple[Cost, Cost]:
    """Return the cost of the first change (the join) for `old`, and for `new`.

    `tables` replace some of the run's tables.
    """
    runs = [(two_design_facts(), two_design_tables(**tables))]
    old, new = sides_of(runs, run_titles=["a"])
    # A side has a cost for each change of its group, in the order of time.
    return costs_of(old)[0], costs_of(new)[0]


def test_requests_and_notifications_of_a_change_are_those_of_its_window() -> None:
    """The window of a change lasts until the next change. Only requests of the join count.

    Session pings, heartbeats, commits and earlier requests do not count. A count is None if the
    design has nothing of this kind. For example, `old` has no coordinator, so it sends no requests
    to one.
    """
    old, new = both_costs()

    counts = old.counts
    # The run's tables have these numbers of each kind in the window of the join.
    assert (counts.notifications, counts.reads, counts.writes) == (2, 54, 18)
    assert (counts.plans, counts.views, counts.failed, counts.members_gave_up) == (3, 1, 0, 0)
    assert counts.requests is None
    assert new.counts.requests == 9
    assert (new.counts.reads, new.counts.notifications, new.counts.plans) == (None, None, 1)
    # These are the reads and writes of `old`, and the requests of `new` to its coordinator.
    assert (old.all_requests, new.all_requests) == (54 + 18, 9)


def test_request_in_the_tenth_of_a_second_of_the_change_counts() -> None:
    """The table has one row for the requests of each tenth of a second.

    Here the join comes 40 ms after the beginning of a tenth. So the row of this tenth begins before
    the join. It must count nevertheless, because a newcomer sends its first requests immediately.
    """
    facts = two_design_facts()
    facts.manifest.config["groups"]["old"]["late_members"] = [{"at": "5040ms", "members": 1}]
    side_of_old, _ = sides_of([(facts, two_design_tables())], run_titles=["a"])

    assert costs_of(side_of_old)[0].counts.reads == 54


def test_time_without_an_owner_counts_until_the_group_is_stable() -> None:
    """The time without an owner is a sum over partitions; here one partition changes its owner.

    - `old`: a member releases the partition 10 ms after the join. The group settles (has its last
      successful attempt) 120 ms after the join. So the partition has no owner for 110 ms.
    - `new`: the member releases the partition 1 s after the join, and the rebalance ends 2 ms
      later. So the partition has no owner for 2 ms.
    """
    old, new = both_costs()

    assert old.settled_after_us == 120_000
    assert old.unowned_us == old.longest_unowned_us == 120_000 - 10_000
    assert new.settled_after_us == S + 2_000
    assert new.unowned_us == 2_000
    # `partitions_given_up` counts partitions that a member released.
    assert (old.partitions_given_up, new.partitions_given_up) == (1, 1)


def test_attempts_that_fail_are_counted_with_their_conflicts_and_views() -> None:
    """Two attempts fail, with different views of the group.

    The third attempt has no view, no plan and no outcome, so it does not count at all.
    """
    # The arguments are the member's number, the attempt's begin, and the members in its view.
    attempts = [
        attempt(0, JOIN_US, (0, 1), outcome="conflict", conflicts=4),
        attempt(1, JOIN_US, (0, 1, 2), outcome="exception", gave_up="starting"),
        attempt(2, JOIN_US, (0, 1, 2), view=None, plan=None, outcome=None, ended_us=None),
    ]
    old, _ = both_costs(zookeeper_attempts=attempts)

    counts = old.counts
    assert (counts.plans, counts.views, counts.failed) == (2, 2, 2)
    assert (counts.conflicts, counts.members_gave_up) == (4, 1)


def test_change_without_a_later_attempt_never_settles() -> None:
    """A group settles with its last successful attempt, and here no attempt follows the join.

    So the time without an owner counts until the next change.
    """
    tables = {"zookeeper_attempts": [], "faults": [crash_of("consumer-old-1", JOIN_US + S)]}
    old, _ = both_costs(**tables)

    assert old.settled_after_us is None
    # The partition has no owner from 10 to 210 ms after the join. All of this time counts, because
    # the next change (the crash) comes 1 s after the join.
    assert old.unowned_us == 200_000


def _numbers_of_table(text: str) -> list[dict[str, int]]:
    """Return for each row of a Markdown table the number with which each cell begins.

    A row `| 8 | 234 (230 to 240) |` below the headings `| C | reads |` becomes
    `{"C": 8, "reads": 234}`. Cells that begin with no number are left out.
    """
    lines = [line for line in text.splitlines() if line.startswith("|")]
    headings = [cell.strip() for cell in lines[0].strip("|").split("|")]
    rows = []
    # The first two lines of a table are its headings and the rule below them.
    for line in lines[2:]:
        numbers = [re.match(r"\s*(\d+)", cell) for cell in line.strip("|").split("|")]
        row = zip(headings, numbers, strict=True)
        rows.append({name: int(number[1]) for name, number in row if number})
    return rows


@pytest.mark.parametrize(("kind", "section"), [("join", "1"), ("death", "2")])
def test_measured_points_equal_the_figures_of_the_docs(kind: str, section: str) -> None:
    """The points of the chart are the medians in docs/kafka/MEASURED_ZOOKEEPER.md.

    For `new` a point is the sum of four columns, the requests that a change causes. The page also
    has columns of commits and heartbeats, which members send without any change.
    """
    page = MEASUREMENT.read_text(encoding="utf-8")
    text = page.split(f"\n## {section}. ")[1].split("\n## ")[0]
    # The section has a table for `old`, and after the line "New:" a table for `new`.
    old, new = text.split("\nNew:\n")
    # The type checker accepts only these two literals as keys, not `kind`, which is any string.
    points = MEASURED["join" if kind == "join" else "death"]
    for cells in _numbers_of_table(old):
        members = cells["C"]
        assert points[NOTIFICATIONS][members] == cells["notifications"]
        assert points[READS][members] == cells["reads"]
        assert points[WRITES][members] == cells["writes"]
    caused_by_change = ("JoinGroup", "SyncGroup", "OffsetFetch", "FindCoordinator")
    for cells in _numbers_of_table(new):
        requests = sum(cells[api] for api in caused_by_change)
        assert points[REQUESTS][cells["C"]] == requests


@pytest.mark.parametrize(("members", "reads"), [(8, 234), (32, 1506)])
def test_formula_of_a_join_equals_the_measurement_without_a_conflict(
    members: int, reads: int
) -> None:
    """The number of reads is C(C + T + 3B + 9) + P + 1 + T.

    C is the number of members, T of topics, B of brokers, P of partitions. For 8 members this is
    8 * (8 + 1 + 3 + 9) + 64 + 1 + 1 = 234.
    """
    assert reads_of_join(members, topics=1, brokers=1, partitions=64) == reads


@pytest.mark.parametrize(("members", "reads"), [(2, 78), (4, 112), (8, 204), (32, 1428)])
def test_formula_of_a_death_equals_the_measurement(members: int, reads: int) -> None:
    """The number of reads is (C - 1)(C - 1 + T + 3B + 9) + P: C - 1 living members make an attempt.

    For a group of 8 members this is 7 * (7 + 1 + 3 + 9) + 64 = 204.
    """
    assert reads_of_death(members, topics=1, brokers=1, partitions=64) == reads
