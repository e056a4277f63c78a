"""Data that may be lost with the last replica in sync, and data that must not be lost.

Kafka may lose acknowledged data in one case. A broker that is alone in the ISR loses power or its
disk. The ISR keeps its last replica, so the controller elects this broker again when it is back,
although its log is gone. Several checkers excuse this loss. The file
tests/corpus/power_loss_of_the_last_replica_in_sync.yaml is an experiment with such a loss.

The tests write the traces (the rows that runs would have recorded) by hand. At the end of a run, in
the stage "verifying", the committed offsets are fetched once more. A checker compares them with the
acknowledged commits. A fetched offset of -1 means that the group has no committed offset.
"""

from dataclasses import replace

import msgspec
import pytest

from chaos.checkers.base import Checker
from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.checkers.durable_commits import DurableCommits
from chaos.checkers.evidence.lost_data import LostData
from chaos.checkers.fencing import Fencing
from chaos.checkers.needless_rebalance import NeedlessRebalance
from chaos.checkers.ownership import Ownership
from chaos.checkers.processing import Processing
from protocol.trace import TraceKind
from results_schema.results import CheckOutcome, CheckReport
from tests.support.builders.rows import OFFSETS_0, Rows

CONTROLLER = "controller-100"
TRANSACTIONS = "__transaction_state-1"
CONTEXT = CheckContext(
    groups={
        "g": GroupExpectation(
            consumers=("consumer-0", "consumer-1"), offsets_partition=OFFSETS_0, commits=True
        )
    }
)


def elected(rows: Rows, time_s: float, leader: str, epoch: int, isr: list[int]) -> None:
    """Let the controller elect `leader` for OFFSETS_0. The ISR is `isr`, as numbers of brokers."""
    rows.add(
        time_s,
        CONTROLLER,
        TraceKind.LEADER_ELECTED,
        partition=OFFSETS_0,
        peer=leader,
        leader_epoch=epoch,
        detail={"isr": isr, "reason": "test"},
    )


def damage(rows: Rows, time_s: float, broker: str, how: str) -> None:
    """Let the broker die in one of three ways.

    - "kill": its process ends, and its disk keeps all data.
    - "empty disk": its process ends, and its disk is emptied.
    - "power loss": its machine loses power, and with it the data that is not on the disk yet.
    """
    disk = {"disk": "empty"} if how == "empty disk" else {}
    rows.add(
        time_s,
        "driver",
        TraceKind.FAULT_INJECTED,
        peer=broker,
        cause="crash-0",
        detail={"nodes": [broker], "members_survive": True, "momentary": False, **disk},
    )
    cause = "power loss" if how == "power loss" else None
    rows.add(time_s, "driver", TraceKind.NODE_KILLED, peer=broker, cause=cause)


def last_replica_lost(
    *, how: str = "power loss", isr: tuple[int, ...] = (0,), left_isr: bool = False
) -> Rows:
    """Return rows in which an acknowledged commit is gone at the end.

    1. broker-0 leads, and acknowledges the commit of offset 7.
    2. broker-0 dies (see `damage`).
    3. broker-0 leads again, with an empty log. `isr` is the ISR at this election.
    4. The group has no committed offset any more.

    With `left_isr`, broker-1 leads between the steps 2 and 3. broker-0 starts, registers, and
    returns to the ISR before it leads.
    """
    rows = Rows()
    elected(rows, 0.1, "broker-0", epoch=0, isr=[0, 1])
    rows.leads(0.2, "broker-0", leader_epoch=0, log_end=0)
    rows.assigned(1, "consumer-0", peer="broker-0")
    rows.appended(2, "broker-0", leader_epoch=0, base_offset=0)
    rows.committed(2.1, "consumer-0", offset=7, peer="broker-0")

    damage(rows, 3, "broker-0", how)
    if left_isr:
        elected(rows, 4, "broker-1", epoch=1, isr=[1])
        rows.leads(4.1, "broker-1", leader_epoch=1, log_end=1)
        rows.add(4.3, CONTROLLER, TraceKind.BROKER_REGISTERED, peer="broker-0")
        elected(rows, 4.5, "broker-1", epoch=2, isr=[1, 0])
    elected(rows, 5, "broker-0", epoch=3, isr=list(isr))
    rows.leads(5.1, "broker-0", leader_epoch=3, log_end=0)

    rows.stage(6, "verifying")
    rows.fetched(6.1, "consumer-0", offset=-1, peer="broker-0", cause="verification")
    return rows


def check(checker: Checker, rows: Rows) -> CheckReport:
    """Let the checker observe the rows in the order of time, and return its report."""
    for row in sorted(rows.rows, key=lambda row: row.time_us):
        checker.observe(row)
    return checker.finish()


@pytest.mark.parametrize("checker", [Fencing, DurableCommits])
@pytest.mark.parametrize("how", ["power loss", "empty disk"])
def test_data_lost_with_the_last_replica_in_sync_is_no_violation(
    checker: type[Checker], how: str
) -> None:
    """No other replica was in sync, so no broker could have kept the data."""
    assert check(checker(CONTEXT), last_replica_lost(how=how)).findings_total == 0


def test_every_node_of_a_fault_with_empty_disks_is_damaged() -> None:
    """A lost machine has two nodes. broker-0 is the second one, and had ended before the fault.

    So broker-0 has no row of its own: neither `peer` of FAULT_INJECTED nor a row NODE_KILLED.
    """
    rows = Rows()
    lost_data = LostData()
    elected(rows, 0.1, "broker-0", epoch=0, isr=[0])
    rows.add(
        1,
        "driver",
        TraceKind.FAULT_INJECTED,
        peer="consumer-0",
        cause="machine_loss-0",
        detail={"nodes": ["consumer-0", "broker-0"], "disk": "empty"},
    )
    elected(rows, 2, "broker-0", epoch=1, isr=[0])
    for row in rows.rows:
        lost_data.observe(row)

    assert [election.leader_epoch for election in lost_data.of(OFFSETS_0)] == [1]


@pytest.mark.parametrize(("registered", "losses"), [(False, [2]), (True, [])])
def test_broker_that_joins_the_isr_after_its_damage_lacks_the_data(
    registered: bool, losses: list[int]
) -> None:
    """The disk of broker-0 is emptied just before the controller takes broker-0 into the ISR.

    The leader, broker-1, proposed this ISR before. If broker-0 has registered again in between
    (`registered`), the proposal is a new one, and broker-0 has fetched the data again.
    """
    rows = Rows()
    lost_data = LostData()
    elected(rows, 0.1, "broker-1", epoch=1, isr=[1])
    damage(rows, 1, "broker-0", "empty disk")
    if registered:
        rows.add(2, CONTROLLER, TraceKind.BROKER_REGISTERED, peer="broker-0")
    elected(rows, 3, "broker-1", epoch=1, isr=[1, 0])
    elected(rows, 4, "broker-0", epoch=2, isr=[0])
    for row in rows.rows:
        lost_data.observe(row)

    assert [election.leader_epoch for election in lost_data.of(OFFSETS_0)] == losses


@pytest.mark.parametrize("checker", [Fencing, DurableCommits])
@pytest.mark.parametrize(
    "rows",
    [
        last_replica_lost(how="kill"),
        last_replica_lost(isr=(0, 1)),
        last_replica_lost(left_isr=True),
    ],
    ids=["killed, but the disk is kept", "another replica in sync", "returned to the ISR"],
)
def test_data_that_a_replica_must_keep_is_found_when_lost(
    checker: type[Checker], rows: Rows
) -> None:
    """In each of these cases broker-0 or another broker must still have the data.

    - After a kill the data is still on the disk.
    - Another replica in sync has all acknowledged data.
    - A broker that left the ISR returns to it only after it has fetched the data again.
    """
    assert check(checker(CONTEXT), rows).findings_total == 1


def test_commits_after_the_loss_must_not_be_lost() -> None:
    """After the loss the group commits offset 9 to the new log. The new log must not be lost."""
    rows = last_replica_lost()
    rows.committed(7, "consumer-0", offset=9, peer="broker-0")
    rows.stage(9, "verifying")
    rows.fetched(9.1, "consumer-0", offset=-1, peer="broker-0", cause="verification")

    report = check(DurableCommits(CONTEXT), rows)

    assert report.findings_total == 1
    assert "offset 9 was acknowledged" in report.findings[0].summary
    # The commit of offset 7 was lost with the old log, which is excused.
    assert report.measured["commits_lost_with_the_last_replica"] == 1


def transaction_over_a_loss(began_s: float, partition: str) -> Rows:
    """Return rows in which a transaction commits offset 9 at 7 s, and the offset is then missing.

    `partition` loses data at 5 s. No row shows when the transaction began. But the member has only
    one transaction at a time, and at `began_s` it ends its previous transaction, with offset 8. So
    the transaction with offset 9 began at `began_s` or later.
    """
    rows = last_replica_lost()
    # In these rows the partition OFFSETS_0 loses data. Let `partition` lose the data instead.
    rows.rows[:] = [
        msgspec.structs.replace(row, partition=partition) if row.partition == OFFSETS_0 else row
        for row in rows.rows
    ]
    rows.committed(began_s, "consumer-0", offset=8, peer="broker-0")
    rows.committed(7, "consumer-0", offset=9, peer="broker-0")
    rows.stage(9, "verifying")
    rows.fetched(9.1, "consumer-0", offset=-1, peer="broker-0", cause="verification")
    return rows


@pytest.mark.parametrize("partition", [TRANSACTIONS, OFFSETS_0])
@pytest.mark.parametrize(("began_s", "findings"), [(4.9, 0), (5.1, 1)])
def test_transaction_that_was_open_at_the_loss_may_be_lost_although_it_ended(
    partition: str, began_s: float, findings: int
) -> None:
    """A log loses data at 5 s, and the end of a transaction is acknowledged at 7 s.

    The offset of the transaction is missing afterwards. If the transaction may have begun before
    5 s, its offset may have been in the lost log. So the missing offset is a finding only if the
    transaction began after 5 s.
    """
    transactional = replace(CONTEXT.groups["g"], transaction_partitions=(TRANSACTIONS,))
    context = replace(CONTEXT, groups={"g": transactional})

    report = check(DurableCommits(context), transaction_over_a_loss(began_s, partition))

    assert report.findings_total == findings


def test_election_that_loses_data_is_remembered() -> None:
    """LostData remembers the row of each election that lost data.

    In these rows only the second election of broker-0, in epoch 3, lost data.
    """
    lost = LostData()
    for row in last_replica_lost().rows:
        lost.observe(row)
    assert [row.leader_epoch for row in lost.of(OFFSETS_0)] == [3]


def test_records_between_a_lost_commit_and_the_latest_may_be_skipped() -> None:
    """The group's only commit is lost, so `auto.offset.reset` decides where the group goes on.

    This setting is "latest" here. So the group goes on at the end of the log, and skips the records
    from 7, the lost commit, to 39.
    """
    rows = last_replica_lost()
    rows.position_reset(7, "consumer-0", offset=40, cause="latest")
    rows.consumed(8, "consumer-0", first=40, last=41)

    report = check(Processing(CONTEXT), rows)

    assert report.findings_total == 0
    assert report.measured["skipped_where_data_was_lost_with_the_last_replica"] == 40 - 7


def test_owner_in_a_lost_group_may_be_overtaken_at_once() -> None:
    """For 0.1 s a partition has two owners. This is no violation if the group's data was lost.

    1. The coordinator has lost the group with its log.
    2. consumer-1 joins, which begins a new group, and gets the partition at 6.2 s.
    3. consumer-0, the old owner, learns only at 6.3 s that it is no member any more.
    """
    rows = last_replica_lost()
    rows.load_started(5.2, "broker-0", leader_epoch=3)
    rows.load_completed(5.3, "broker-0", leader_epoch=3)
    rows.assigned(6.2, "consumer-1", peer="broker-0")
    rows.revoked(6.3, "consumer-0", lost=True)

    assert check(Ownership(CONTEXT), rows).findings_total == 0


@pytest.mark.parametrize("fault_before_load", [False, True])
def test_rebalance_of_a_group_that_lost_its_members_is_needed(*, fault_before_load: bool) -> None:
    """The coordinator has lost the members of the group with its log, so they must join again.

    The rebalance is needed even if another fault is injected between the election and the load of
    the log. `seen` counts this as a failover of a stable group, but there is no finding.
    """
    rows = Rows()
    elected(rows, 0.1, "broker-0", epoch=0, isr=[0])
    rows.load_completed(0.2, "broker-0", leader_epoch=0)
    rows.group_state(1, "broker-0", "CompletingRebalance", "Stable")
    damage(rows, 3, "broker-0", "power loss")
    elected(rows, 5, "broker-0", epoch=1, isr=[0])
    if fault_before_load:
        rows.fault(5.1, "broker-1")
    rows.load_completed(5.2, "broker-0", leader_epoch=1)
    rows.add(6, "broker-0", TraceKind.REBALANCE_STARTED, group="g", generation=0, cause="joined")

    report = check(NeedlessRebalance(CONTEXT), rows)

    assert report.seen["failovers_of_a_stable_group"] == 1
    assert (report.outcome, report.findings_total) == (CheckOutcome.PASS, 0)
