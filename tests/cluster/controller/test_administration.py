"""Elections and reassignments that an administrator asks the controller for.

The requests are ElectLeaders and AlterPartitionReassignments.

- The preferred leader of a partition is the first of its replicas. With an election an
  administrator here asks the controller to make the preferred leader the leader.
- The ISR of a partition is the set of its in-sync replicas.
- The leader epoch is the number of a partition's leadership. The partition epoch counts all changes
  of the partition.
- `lab` passes requests to a controller, without brokers and network. Its topic `orders` has three
  partitions; broker i is the preferred leader of orders-i.
- `lab.reassign(P0, (2, 0, 1))` changes the order of the replicas.
- `lab.records()` returns the records of the metadata log.

Source: Kafka's ReplicationControlManagerTest.
"""

import pytest

from protocol.errors import ErrorCode
from protocol.ids import TopicPartition
from protocol.trace import TraceKind
from tests.support.harness.controllers import ControllerLab, cluster_of, topic

P0 = TopicPartition("orders", 0)
P1 = TopicPartition("orders", 1)
UNKNOWN = TopicPartition("orders", 9)


def running_lab() -> ControllerLab:
    """Return a controller with three live brokers; orders-0 has the replicas 0, 1, 2."""
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1, 2)
    return lab


def elect(lab: ControllerLab, name: TopicPartition) -> ErrorCode:
    """Return the error of an election for one partition."""
    (result,) = lab.elect_leaders(name).replica_election_results
    return result.partition_result[0].error_code


def test_election_makes_the_first_replica_lead_in_a_new_epoch() -> None:
    """The ISR does not change: the former leader becomes a follower that has every record."""
    lab = running_lab()
    lab.reassign(P0, (2, 0, 1))  # changes the preferred leader, not the leader
    assert elect(lab, P0) is ErrorCode.NONE
    after = lab.partition(P0)
    assert (after.leader, after.leader_epoch, sorted(after.isr)) == (2, 1, [0, 1, 2])
    event = lab.events(TraceKind.LEADER_ELECTED)[-1]
    assert (event.partition, event.peer) == ("orders-0", "broker-2")
    assert event.detail == {"isr": [0, 1, 2], "reason": "preferred leader requested"}


def test_election_of_the_present_leader_is_not_needed_and_changes_nothing() -> None:
    """For clients ELECTION_NOT_NEEDED is a success, because the preferred replica leads already."""
    lab = running_lab()
    records_before = lab.records()
    assert elect(lab, P0) is ErrorCode.ELECTION_NOT_NEEDED
    assert lab.records() == records_before


@pytest.mark.parametrize("name", [UNKNOWN, TopicPartition("no such topic", 0)])
def test_election_of_an_unknown_partition_fails_alone(name: TopicPartition) -> None:
    """The other partition of the request gets its new leader."""
    lab = running_lab()
    lab.reassign(P0, (1, 0, 2))
    response = lab.elect_leaders(name, P0)
    errors = [p.error_code for r in response.replica_election_results for p in r.partition_result]
    assert errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


def test_election_of_a_replica_outside_the_isr_is_refused() -> None:
    """A leader from outside of the ISR would lose records that only members of the ISR have."""
    lab = running_lab()
    lab.reassign(P0, (2, 0, 1))
    lab.alter_partition(P0, (0, 1), by=0)  # the leader, 0, removes broker 2 from the ISR
    records_before = lab.records()
    assert elect(lab, P0) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert lab.records() == records_before


def test_election_of_every_partition_leaves_out_those_that_need_none() -> None:
    """A request without partitions (null) means every partition of the cluster.

    The response names only partitions with an election or an error.
    """
    lab = running_lab()
    lab.reassign(P0, (1, 0, 2))
    (result,) = lab.elect_leaders().replica_election_results
    assert [(p.partition_id, p.error_code) for p in result.partition_result] == [
        (0, ErrorCode.NONE)
    ]
    assert lab.partition(P0).leader == 1


def test_unclean_election_is_refused_as_a_whole() -> None:
    """DEVIATION: in Kafka an administrator can request such an election, which may lose data."""
    lab = running_lab()
    unclean, no_such_type = 1, 7
    response = lab.elect_leaders(P0, election_type=unclean)
    assert response.error_code is ErrorCode.UNSUPPORTED_VERSION
    response = lab.elect_leaders(P0, election_type=no_such_type)
    assert response.error_code is ErrorCode.INVALID_REQUEST


def test_reassignment_to_another_order_applies_at_once_and_moves_no_leader() -> None:
    """Only the preferred leader changes. The leader, its epoch and the ISR wait for an election."""
    lab = running_lab()
    before = lab.partition(P0)
    assert lab.reassign(P0, (2, 1, 0)).error_code is ErrorCode.NONE
    after = lab.partition(P0)
    assert after.replicas == (2, 1, 0)
    assert (after.leader, after.leader_epoch, after.isr) == (0, 0, before.isr)
    assert after.partition_epoch == before.partition_epoch + 1
    assert lab.partition(P1).partition_epoch == 0


def test_reassignment_to_the_order_in_force_writes_nothing() -> None:
    """An administrator that has not got the answer repeats the request, and gets NONE (success)."""
    lab = running_lab()
    records_before = lab.records()
    assert lab.reassign(P0, (0, 1, 2)).error_code is ErrorCode.NONE
    assert lab.records() == records_before


@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((0, 1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((0, 1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        # DEVIATION: Kafka can also move replicas. This controller only changes their order.
        ((0, 1), ErrorCode.UNSUPPORTED_VERSION),
        # None (null) cancels a reassignment in progress, and none is in progress.
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_refused_reassignment_changes_nothing(
    replicas: tuple[int, ...] | None, error: ErrorCode
) -> None:
    """A refusal writes no record. A reassignment of an unknown partition is refused, too."""
    lab = running_lab()
    records_before = lab.records()
    answer = lab.reassign(P0, replicas)
    assert answer.error_code is error
    assert answer.error_message
    assert lab.records() == records_before
    assert lab.reassign(UNKNOWN, (0, 1, 2)).error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_reassigned_order_survives_a_restart_of_the_controller() -> None:
    """The order of the replicas is a record of the metadata log."""
    lab = running_lab()
    lab.reassign(P0, (1, 2, 0))
    assert ControllerLab(cluster_of(topic()), lab.storage).partition(P0).replicas == (1, 2, 0)
