"""Inputs of a report on a run with two groups: one on ZooKeeper, one with a coordinator.

Two designs are compared. In the group `old` each member computes its own partitions from what it
reads from ZooKeeper. In the group `new` a coordinator distributes the partitions, in rebalances
that are numbered by the generation. The run is steady from 10 s on; at 15 s (JOIN_US) a member
joins each group, and at 60 s the run ends. A test may add a crash at 35 s (DEATH_US). An attempt is
one try of a member on ZooKeeper to own its share: the member reads a view (a list of members) and
computes from the view its plan (the partitions to own).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.report.facts import RunFacts
from pipeline.report.report_input import Row, RunTables
from tests.support.builders.report_inputs import report_input, run_facts

S = 1_000_000
"""Microseconds of a second."""
STEADY_US, JOIN_US, DEATH_US, END_US = 10 * S, 15 * S, 35 * S, 60 * S
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

    `old` and `new` are the numbers of members of the two groups, with the late member.
    """
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
    """Return a row of `ownership`: a member owns partition `partition` of topic `t`.

    At `to_us` it revokes the partition. If `to_us` is None, it owns the partition until the run
    ends.
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
    """Return a row of `zookeeper_attempts`: an attempt of a member of `old`, which succeeds.

    The member computes its plan after 50 ms, and the attempt ends after 100 ms. `members` are the
    numbers of the members in its view.
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
    """Return tables in which a join moved one partition of each group; `tables` replace some."""
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
            # t-1 was without an owner for 0.2 s.
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
        # This watch fired before the join, so that it does not count for the join.
        {"group": "old", "fired_us": STEADY_US},
    ]
    rows["zookeeper_operations"] = [
        {"group": "old", "effect": "read", "from_us": JOIN_US, "requests": 54},
        {"group": "old", "effect": "write", "from_us": JOIN_US + 100_000, "requests": 18},
        {"group": "old", "effect": "session", "from_us": JOIN_US, "requests": 7},
        # These reads were before the join, so that they do not count for the join.
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
    """Return a row of `faults`: a crash of one member; `healed_us` None: it stays dead."""
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
    # The tables have no public way to list them all; `_read` has their rows by table name.
    return report_input(two_design_facts(), tables=two_design_tables()._read)
