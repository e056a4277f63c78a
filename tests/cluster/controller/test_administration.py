"""Elections and reassignments that an administrator asks the controller for.

The preferred leader of a partition is the first of its replicas. With the request ElectLeaders an
administrator asks the controller to elect the preferred leader. With AlterPartitionReassignments an
administrator changes the order of the replicas, and so the preferred leader.

`lab` passes requests to a controller, without brokers and network. At first broker i is the
preferred leader of orders-i, and leads it. `lab.reassign(P0, (2, 0, 1))` makes broker 2 the
preferred leader of orders-0; `lab.records()` returns the records of the metadata log.

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
    """Request an election for one partition, and return its error."""
    (result,) = lab.elect_leaders(name).replica_election_results
    return result.partition_result[0].error_code


def test_election_makes_the_first_replica_lead_in_a_new_epoch() -> None:
    """The former leader stays in the ISR, because it has every record."""
    lab = running_lab()
    lab.reassign(P0, (2, 0, 1))  # changes the preferred leader, not the leader
    assert elect(lab, P0) is ErrorCode.NONE
    partition = lab.partition(P0)
    assert (partition.leader, partition.leader_epoch) == (2, 1)
    assert sorted(partition.isr) == [0, 1, 2]
    event = lab.events(TraceKind.LEADER_ELECTED)[-1]
    assert (event.partition, event.peer) == ("orders-0", "broker-2")
    assert event.detail == {"isr": [0, 1, 2], "reason": "preferred leader requested"}


def test_election_is_not_needed_if_the_preferred_leader_leads() -> None:
    """Clients regard ELECTION_NOT_NEEDED as a success, because the preferred leader leads."""
    lab = running_lab()
    records_before = lab.records()
    assert elect(lab, P0) is ErrorCode.ELECTION_NOT_NEEDED
    assert lab.records() == records_before


@pytest.mark.parametrize("unknown", [UNKNOWN, TopicPartition("no such topic", 0)])
def test_election_for_an_unknown_partition_fails_alone(unknown: TopicPartition) -> None:
    """The request names two partitions. The existing partition gets its new leader."""
    lab = running_lab()
    lab.reassign(P0, (1, 0, 2))
    response = lab.elect_leaders(unknown, P0)
    errors = [
        partition.error_code
        for topic_result in response.replica_election_results
        for partition in topic_result.partition_result
    ]
    assert errors == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


def test_election_of_a_replica_outside_the_isr_is_refused() -> None:
    """Records that only members of the ISR have would be lost."""
    lab = running_lab()
    lab.reassign(P0, (2, 0, 1))
    lab.alter_partition(P0, (0, 1), by=0)  # the leader, 0, removes broker 2 from the ISR
    records_before = lab.records()
    assert elect(lab, P0) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert lab.records() == records_before


def test_response_about_all_partitions_lists_only_those_with_an_election() -> None:
    """A request without partitions means all partitions of the cluster.

    In this case the response leaves out the partitions that need no election.
    """
    lab = running_lab()
    lab.reassign(P0, (1, 0, 2))
    (result,) = lab.elect_leaders().replica_election_results
    assert [(p.partition_id, p.error_code) for p in result.partition_result] == [
        (0, ErrorCode.NONE)
    ]
    assert lab.partition(P0).leader == 1


def test_unclean_election_is_refused_as_a_whole() -> None:
    """The answer has one error for the whole request, and no results for partitions.

    DEVIATION: in Kafka an administrator can request such an election, which may lose data.
    """
    lab = running_lab()
    unclean, no_such_type = 1, 7
    response = lab.elect_leaders(P0, election_type=unclean)
    assert response.error_code is ErrorCode.UNSUPPORTED_VERSION
    response = lab.elect_leaders(P0, election_type=no_such_type)
    assert response.error_code is ErrorCode.INVALID_REQUEST


def test_reassignment_to_another_order_applies_at_once_and_moves_no_leader() -> None:
    """Only the preferred leader changes. An election must follow to make it the leader."""
    lab = running_lab()
    partition_before = lab.partition(P0)
    assert lab.reassign(P0, (2, 1, 0)).error_code is ErrorCode.NONE
    partition = lab.partition(P0)
    assert partition.replicas == (2, 1, 0)
    assert (partition.leader, partition.leader_epoch) == (0, 0)
    assert partition.isr == partition_before.isr
    assert partition.partition_epoch == partition_before.partition_epoch + 1
    assert lab.partition(P1).partition_epoch == 0  # another partition does not change


def test_repeated_reassignment_succeeds_and_writes_nothing() -> None:
    """An administrator repeats the request if the answer was lost."""
    lab = running_lab()
    records_before = lab.records()
    assert lab.reassign(P0, (0, 1, 2)).error_code is ErrorCode.NONE
    assert lab.records() == records_before


@pytest.mark.parametrize(
    ("replicas", "error"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((0, 1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((0, 1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),  # there is no broker 9
        # DEVIATION: Kafka can also move replicas. This controller only changes their order.
        ((0, 1), ErrorCode.UNSUPPORTED_VERSION),
        # None asks to cancel the reassignment in progress, and there is none.
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
    """The order is in the metadata log, and the restarted controller reads it there."""
    lab = running_lab()
    lab.reassign(P0, (1, 2, 0))
    assert ControllerLab(cluster_of(topic()), lab.storage).partition(P0).replicas == (1, 2, 0)
