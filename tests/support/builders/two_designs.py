"""Inputs of a report that compares two designs of group coordination, in a run with two groups.

The group `old` has no coordinator. Each of its members makes attempts, which have three steps: the
member reads from ZooKeeper which members there are (its view), computes which partitions it shall
own (its plan), and tries to own these partitions. In the group `new` a coordinator gives the
partitions to the members in rebalances.

The run is steady from 10 s on. At 15 s a member joins each group, and at 60 s the run ends. A test
may add the crash of a member at 35 s (DEATH_US).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.report.facts import RunFacts
from pipeline.report.report_input import Row, RunTables
from tests.support.builders.report_inputs import report_input, run_facts

S = 1_000_000
"""One second in microseconds."""
STEADY_US, JOIN_US, DEATH_US, END_US = 10 * S, 15 * S, 35 * S, 60 * S
# The tables that the comparison of the two designs reads.
TABLES = (
    "runs",
    "faults",
    "ownership",
    "ownership_overlaps",
    "felt_partitions",
    "zookeeper_attempts",
    "zookeeper_watches",
    "zookeeper_operations",
    "coordinator_requests",
    "rebalances",
    "offset_rewinds",
    "commits",
)


def two_design_facts(
    *,
    old: int = 3,
    new: int = 3,
    **changes: Any,  # noqa: ANN401 - any field of the structs in it
) -> RunFacts:
    """Return the facts of a run in which the last member of each group joins late.

    `old` and `new` are the numbers of members that the two groups have after this join.
    """
    # Times in an experiment count from the steady state, which begins at 10 s. So "5s" is JOIN_US.
    group = {"topics": ["t"], "late_members": [{"at": "5s", "members": 1}]}
    config = {
        "cluster": {"brokers": 1},
        "topics": {"t": {"partitions": 6}},
        "groups": {
            "old": group | {"members": old - 1, "coordination": "zookeeper"},
            "new": group | {"members": new - 1},
        },
    }
    return run_facts(config=config, **changes)


def owned(group: str, member: int, partition: int, from_us: int, to_us: int | None) -> Row:
    """Return a row of `ownership`: a member owns a partition of topic `t` until it revokes it.

    If `to_us` is None, the member owns the partition until the run ends.
    """
    return {
        "group": group,
        "consumer": f"consumer-{group}-{member}",
        "partition": f"t-{partition}",
        "generation": 1 if from_us < JOIN_US else 2,
        "from_us": from_us,
        "to_us": to_us,
        "ended_by": "run end" if to_us is None else "revoked",
    }


def attempt(member: int, started_us: int, members: Sequence[int], **changes: Any) -> Row:  # noqa: ANN401 - columns
    """Return a row of `zookeeper_attempts`: a successful attempt of a member of `old`.

    The view has the members with the numbers `members`. 50 ms after the start of the attempt, the
    member has read its view and computed its plan. After 100 ms the attempt has succeeded.
    """
    row: Row = {
        "group": "old",
        "consumer": f"consumer-old-{member}",
        "attempt": 0,
        "started_us": started_us,
        "view_us": started_us + 50_000,
        "view": [f"old_{number}" for number in members],
        "plan": ["t-0", "t-1"],
        "conflicts": 0,
        "ended_us": started_us + 100_000,
        "outcome": "done",
        "gave_up": None,
    }
    return row | changes


def two_design_tables(**tables: Sequence[Row]) -> RunTables:
    """Return the tables of a run in which each group gave partition t-1 to its new member.

    `tables` replace some of the tables.
    """
    rows: dict[str, Sequence[Row]] = dict.fromkeys(TABLES, ())
    rows["runs"] = [{"steady_us": STEADY_US, "end_us": END_US}]
    rows["ownership"] = [
        *(owned(group, 0, 0, 5 * S, None) for group in ("old", "new")),
        owned("old", 1, 1, 5 * S, JOIN_US + 10_000),
        owned("old", 2, 1, JOIN_US + 210_000, None),
        owned("new", 1, 1, 5 * S, JOIN_US + S),
        owned("new", 2, 1, JOIN_US + S + 2_000, None),
    ]
    rows["felt_partitions"] = [
        {
            "group": group,
            "partition": f"t-{number}",
            # t-0 always had an owner, and t-1 had none for 0.2 s.
            "unowned_us": number * 200_000,
            "waited_us": 0,
        }
        for group in ("old", "new")
        for number in range(2)
    ]
    rows["zookeeper_attempts"] = [
        attempt(member, JOIN_US + 20_000, (0, 1, 2)) for member in range(3)
    ]
    rows["zookeeper_watches"] = [
        {"group": "old", "fired_us": JOIN_US + 5_000},
        {"group": "old", "fired_us": JOIN_US + 6_000},
        # This watch fired before the join. So it must not be counted for the join.
        {"group": "old", "fired_us": STEADY_US},
    ]
    rows["zookeeper_operations"] = [
        {"group": "old", "effect": "read", "from_us": JOIN_US, "requests": 54},
        {"group": "old", "effect": "write", "from_us": JOIN_US + 100_000, "requests": 18},
        {"group": "old", "effect": "session", "from_us": JOIN_US, "requests": 7},
        # These reads were sent before the join. So they must not be counted for the join.
        {"group": "old", "effect": "read", "from_us": STEADY_US, "requests": 99},
    ]
    rows["coordinator_requests"] = [
        {"group": "new", "api": api, "from_us": JOIN_US + S, "requests": 3}
        for api in ("JoinGroup", "SyncGroup", "OffsetFetch", "Heartbeat", "OffsetCommit")
    ]
    rows["rebalances"] = [
        {
            "group": "new",
            "started_us": JOIN_US + 1_000,
            "stable_us": JOIN_US + S + 2_000,
            "new_generation": 2,
        }
    ]
    all_rows = {
        name: tuple(dict(row) for row in table_rows) for name, table_rows in (rows | tables).items()
    }
    return RunTables(Path("nowhere"), all_rows)


def crash_of(member: str, injected_us: int = DEATH_US, healed_us: int | None = None) -> Row:
    """Return a row of `faults`: one member crashes, and at `healed_us` it is started again.

    If `healed_us` is None, the member stays down.
    """
    return {
        "kind": "crash",
        "node": member,
        "nodes": [member],
        "from_nodes": [],
        "to_nodes": [],
        "injected_us": injected_us,
        "healed_us": healed_us,
    }


def two_design_input() -> Any:  # noqa: ANN401 - see report_input
    """Return the input of the report on a run with both groups."""
    # RunTables has no public way to get all its tables. Its field `_read` maps their names to their
    # rows.
    return report_input(two_design_facts(), tables=two_design_tables()._read)
