"""Two properties that no kind of group promises, but that a user may rely on.

- OneOwnerProcesses: at any time only one member processes a partition.
- PositionsNeverGoBack: the committed position of a partition never decreases.

A group may demand a property: the experiment file names the property under `must_hold` of the
group. A breach is then a finding. If the group does not demand the property, the checker only
measures how often the property was broken, and for how long.

The group "old" uses Kafka's old consumer: its members read in ZooKeeper which members there are,
and divide the partitions among themselves. The group "new" has a coordinator. Ids such as ZK-60 are
rules of docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

from collections.abc import Mapping

import pytest

from chaos.checkers.base import Checker
from chaos.checkers.context import CheckContext, GroupExpectation, ZooKeeperGroupExpectation
from chaos.checkers.unpromised import OneOwnerProcesses, PositionsNeverGoBack
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome
from tests.support.builders.rows import OFFSETS_0, Rows

BOTH_PROPERTIES: tuple[str, ...] = (OneOwnerProcesses.name, PositionsNeverGoBack.name)
BOTH_GROUPS_DEMAND: dict[str, tuple[str, ...]] = {"old": BOTH_PROPERTIES, "new": BOTH_PROPERTIES}
"""What each group demands (`must_hold`), if both groups demand both properties."""
C0, C1 = "consumer-old-0", "consumer-old-1"


def context(must_hold: Mapping[str, tuple[str, ...]]) -> CheckContext:
    """Return the context of a run with a group of each kind."""
    return CheckContext(
        groups={"new": GroupExpectation(consumers=(), offsets_partition=OFFSETS_0, commits=True)},
        zookeeper_groups={"old": ZooKeeperGroupExpectation(consumers=(C0, C1))},
        must_hold=dict(must_hold),
        in_virtual_time=True,
    )


def let_two_process(checker: Checker, group: str = "old") -> None:
    """Let C0 and C1 both own orders-0, and process its records, from 2 s to 3 s.

    - 2.5 s: C1 processes the records 10 and 11.
    - 2.7 s: C0 processes the records 10 and 11, too.
    - 2.8 s: C0 processes the records 12 and 13.
    """
    rows = Rows(checker.observe)
    orders_0: dict[str, object] = {"partitions": ["orders-0"]}
    rows.add(1, C0, TraceKind.PARTITIONS_ASSIGNED, group=group, detail=orders_0)
    rows.add(2, C1, TraceKind.PARTITIONS_ASSIGNED, group=group, detail=orders_0)
    for time_s, node, first in ((2.5, C1, 10), (2.7, C0, 10), (2.8, C0, 12)):
        rows.add(
            time_s,
            node,
            TraceKind.RECORDS_CONSUMED,
            group=group,
            partition="orders-0",
            offset=first,
            detail={"count": 2, "last": first + 1},
        )
    rows.add(3, C0, TraceKind.PARTITIONS_LOST, group=group, detail=orders_0)
    rows.add(3.5, C1, TraceKind.PARTITIONS_REVOKED, group=group, detail=orders_0)


def commit_20_then_9(
    checker: Checker, *, in_kafka: bool, group: str = "old", member: str = "m"
) -> None:
    """Commit offset 20 at 2 s and offset 9 at 3 s, in Kafka or in ZooKeeper.

    ZooKeeper numbers its writes, and the number is called zxid. To keep the rows simple, the write
    at 2 s has the zxid 2, and the write at 3 s has the zxid 3. In Kafka the commits are at the same
    times.
    """
    rows = Rows(checker.observe)
    session: dict[str, object] = {"session": "0x1", "op": "createSession"}
    rows.add(1, "zookeeper-1", TraceKind.ZOOKEEPER_TXN_APPLIED, offset=1, detail=session)
    state: dict[str, object] = {"session": "0x1", "state": "SyncConnected"}
    rows.add(1, C0, TraceKind.ZOOKEEPER_CLIENT_STATE, offset=1, detail=state)
    for time_s, offset in ((2, 20), (3, 9)):
        if in_kafka:
            rows.add(
                time_s,
                "broker-0",
                TraceKind.COMMIT_STORED,
                group=group,
                member=member,
                partition="orders-0",
                offset=offset,
            )
            continue
        # Both servers write a row about the same commit, and the checker must count it once.
        for server in ("zookeeper-1", "zookeeper-2"):
            rows.add(
                time_s,
                server,
                TraceKind.ZOOKEEPER_TXN_APPLIED,
                offset=time_s,  # in this row the column has the zxid
                detail={
                    "session": "0x1",
                    "op": "create" if time_s == 2 else "setData",
                    "path": f"/consumers/{group}/offsets/orders/0",
                    "data": str(offset),
                    "ephemeral": False,
                },
            )


@pytest.mark.parametrize("group", ["old", "new"])
def test_concurrent_processors_of_a_partition_are_a_finding_where_it_is_asked(group: str) -> None:
    """The check judges groups on ZooKeeper ("old") and with a coordinator ("new") alike."""
    checker = OneOwnerProcesses(context(BOTH_GROUPS_DEMAND))
    let_two_process(checker, group)

    report = checker.finish()
    assert report.outcome is CheckOutcome.VIOLATED
    (finding,) = report.findings
    assert finding.summary == (
        f"{group}, orders-0: {C0} and {C1} both processed it while both owned it"
    )
    # The evidence has two rows of each member: its assignment, and a row of processed records.
    assert len(finding.evidence) == 2 * 2


def test_concurrent_processors_of_a_partition_are_measured_where_it_is_not_asked() -> None:
    """From 2 s to 3 s two members process orders-0: C1 two records, and C0 four.

    The note adds up the times of all partitions. The unit of this sum is the partition-second
    (partition-s): one second of one partition.
    """
    checker = OneOwnerProcesses(context({}))
    let_two_process(checker)

    report = checker.finish()
    assert report.outcome is CheckOutcome.NOTHING_SEEN
    assert report.measured == {
        "partition_time_with_two_processing_ms": 1_000,
        "longest_with_two_processing_ms": 1_000,
        "records_processed_while_two_did": 6,
    }
    assert report.note == (
        "two members processed a partition for 1.000 partition-s, 1.000 s at most; no group asks "
        "for it"
    )


def test_second_owner_that_does_not_process_is_no_finding() -> None:
    """From 2 s on, both members own orders-0. But C0 processes nothing.

    For example, C0 may be paused.
    """
    checker = OneOwnerProcesses(context(BOTH_GROUPS_DEMAND))
    rows = Rows(checker.observe)
    orders_0: dict[str, object] = {"partitions": ["orders-0"]}
    rows.add(1, C0, TraceKind.PARTITIONS_ASSIGNED, group="old", detail=orders_0)
    rows.add(2, C1, TraceKind.PARTITIONS_ASSIGNED, group="old", detail=orders_0)
    rows.add(
        3,
        C1,
        TraceKind.RECORDS_CONSUMED,
        group="old",
        partition="orders-0",
        offset=4,
        detail={"count": 1, "last": 4},
    )
    rows.add(4, C0, TraceKind.PARTITIONS_LOST, group="old", detail=orders_0)

    report = checker.finish()
    assert report.outcome is CheckOutcome.PASS
    assert report.measured["partition_time_with_two_processing_ms"] == 0


@pytest.mark.parametrize("in_kafka", [True, False])
def test_committed_position_that_decreases_is_a_finding_where_it_is_asked(in_kafka: bool) -> None:
    """ZK-60, ZK-63: a commit has no owner and no generation, so the last writer wins."""
    checker = PositionsNeverGoBack(context(BOTH_GROUPS_DEMAND))
    commit_20_then_9(checker, in_kafka=in_kafka)

    report = checker.finish()
    assert report.outcome is CheckOutcome.VIOLATED
    # A commit in Kafka has a member id, here "m". A write in ZooKeeper has the session of C0.
    store, writer = ("Kafka", "m") if in_kafka else ("ZooKeeper", C0)
    assert [finding.summary for finding in report.findings] == [
        f"old, orders-0: {writer} set the offset in {store} back from 20 to 9"
    ]


def test_committed_position_that_decreases_is_measured_where_it_is_not_asked() -> None:
    """The position of "old" decreases once, but only the group "new" demands the property."""
    checker = PositionsNeverGoBack(context({"new": BOTH_PROPERTIES}))
    commit_20_then_9(checker, in_kafka=False)

    report = checker.finish()
    assert report.outcome is CheckOutcome.PASS
    assert report.measured == {"positions_that_went_back": 1, "records_set_back": 20 - 9}


def test_administrator_may_lower_the_position_of_a_group_with_a_coordinator() -> None:
    """In the group "new" only an administrator commits without a member id, and may lower offsets.

    In the group "old" consumers commit without a member id, too. So the checker cannot tell a
    consumer of this group from an administrator, and judges every commit.
    """
    for group, expected_findings in (("new", 0), ("old", 1)):
        checker = PositionsNeverGoBack(context(BOTH_GROUPS_DEMAND))
        commit_20_then_9(checker, in_kafka=True, group=group, member="")
        assert len(checker.finish().findings) == expected_findings
