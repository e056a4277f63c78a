"""AlterPartition: the controller accepts a leader's proposal of another ISR, or refuses it.

- The ISR of a partition is the set of its in-sync replicas.
- The leader epoch is the number of a partition's leadership. The partition epoch counts all changes
  of the partition.
- The broker epoch is the number of a broker's registration. An incarnation is one life of a broker.
- A fenced broker counts as dead.
- `lab` passes requests to a controller, without brokers and network.
- `by` is the broker that makes the proposal.
- A test names an epoch only if it is not the present one; leader and partition epochs begin at 0.
- `lab.records()` returns the records of the metadata log.

Source: Kafka ReplicationControlManagerTest.testAlterPartition...; docs/kafka, BEHAVIOUR 6.1.
"""

import pytest

from protocol.errors import ErrorCode
from protocol.ids import TopicPartition
from protocol.messages.controller import AlterPartitionRequest, AlterPartitionResponse
from protocol.trace import TraceKind
from tests.support.harness.controllers import ControllerLab, cluster_of, topic

P0 = TopicPartition("orders", 0)


@pytest.fixture
def lab() -> ControllerLab:
    """Return a controller with three live brokers. Broker 0 leads orders-0; the ISR is 0, 1, 2."""
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1, 2)
    return lab


def test_shrink_by_the_leader_is_accepted_with_a_new_partition_epoch(lab: ControllerLab) -> None:
    """A change of the ISR is no election, so only the partition epoch grows.

    A new leader epoch would make all followers begin their fetches anew, for each follower that
    lags.
    """
    answer = lab.alter_partition(P0, (0, 2), by=0)
    assert answer.error_code is ErrorCode.NONE
    assert (answer.leader_id, answer.leader_epoch) == (0, 0)
    assert (answer.isr, answer.partition_epoch) == ((0, 2), 1)
    assert lab.partition(P0).isr == (0, 2)
    (event,) = lab.events(TraceKind.ISR_CHANGED)
    assert event.detail == {"isr": [0, 2], "partition_epoch": 1}


def test_proposal_of_the_present_isr_is_accepted_without_a_record(lab: ControllerLab) -> None:
    """A leader repeats a proposal whose answer was lost."""
    records_before = lab.records()
    answer = lab.alter_partition(P0, (0, 1, 2), by=0)
    assert answer.error_code is ErrorCode.NONE
    assert answer.partition_epoch == 0
    assert lab.records() == records_before


@pytest.mark.parametrize(
    ("new_isr", "by", "leader_epoch", "partition_epoch", "error"),
    [
        # The controller's epochs are 0. A newer one must come from a newer controller.
        ((0, 2), 0, 1, 0, ErrorCode.NOT_CONTROLLER),
        ((0, 2), 0, 0, 1, ErrorCode.NOT_CONTROLLER),
        # Broker 1 makes the proposal, but does not lead.
        ((1, 2), 1, 0, 0, ErrorCode.INVALID_REQUEST),
        # The ISR lacks the leader, has a broker twice, has a broker without a replica, or is empty.
        ((1, 2), 0, 0, 0, ErrorCode.INVALID_REQUEST),
        ((0, 0, 1), 0, 0, 0, ErrorCode.INVALID_REQUEST),
        ((0, 7), 0, 0, 0, ErrorCode.INVALID_REQUEST),
        ((), 0, 0, 0, ErrorCode.INVALID_REQUEST),
    ],
)
def test_impossible_proposal_is_refused_and_changes_nothing(
    lab: ControllerLab,
    new_isr: tuple[int, ...],
    by: int,
    leader_epoch: int,
    partition_epoch: int,
    error: ErrorCode,
) -> None:
    """The controller refuses proposals that no correct leader makes, and writes no record."""
    records_before = lab.records()
    answer = lab.alter_partition(
        P0, new_isr, by=by, leader_epoch=leader_epoch, partition_epoch=partition_epoch
    )
    assert answer.error_code is error
    assert lab.records() == records_before


def test_proposal_of_an_older_leader_epoch_is_fenced(lab: ControllerLab) -> None:
    """A former leader that returns after an election must not change the ISR."""
    # Broker 0 is silent for 10 s, longer than its session of 9 s.
    for _ in range(5):
        lab.advance_ms(2_000)
        lab.heartbeat(1)
        lab.heartbeat(2)
    assert lab.partition(P0).leader == 1
    answer = lab.alter_partition(P0, (0,), by=0, leader_epoch=0, partition_epoch=0)
    assert answer.error_code is ErrorCode.FENCED_LEADER_EPOCH


def test_proposal_with_an_older_partition_epoch_is_out_of_date(lab: ControllerLab) -> None:
    """The proposal would change an ISR that is no longer the present one."""
    lab.alter_partition(P0, (0, 2), by=0)
    answer = lab.alter_partition(P0, (0,), by=0, partition_epoch=0)
    assert answer.error_code is ErrorCode.INVALID_UPDATE_VERSION


def test_fenced_replica_is_ineligible(lab: ControllerLab) -> None:
    """A dead broker must not join an ISR, because each acknowledgement would wait for it."""
    # Broker 2 is silent for 10 s, longer than its session of 9 s.
    for _ in range(5):
        lab.advance_ms(2_000)
        lab.heartbeat(0)
        lab.heartbeat(1)
    assert lab.partition(P0).isr == (0, 1)
    answer = lab.alter_partition(P0, (0, 1, 2), by=0)
    assert answer.error_code is ErrorCode.INELIGIBLE_REPLICA


def test_replica_of_a_former_incarnation_is_ineligible(lab: ControllerLab) -> None:
    """A leader may have counted Fetches of a follower's incarnation that has ended (KIP-903).

    So a proposal has the broker epoch of each member. Here the epoch of broker 2 is a former one.
    """
    lab.alter_partition(P0, (0, 1), by=0)
    stale = {2: lab.broker_epochs[2] - 1}  # the epoch of a former registration
    answer = lab.alter_partition(P0, (0, 1, 2), by=0, broker_epochs=stale)
    assert answer.error_code is ErrorCode.INELIGIBLE_REPLICA
    answer = lab.alter_partition(P0, (0, 1, 2), by=0, broker_epochs=dict(lab.broker_epochs))
    assert answer.error_code is ErrorCode.NONE


def test_unknown_partition_is_refused(lab: ControllerLab) -> None:
    """The topic may have been deleted while the proposal was on its way."""
    answer = lab.alter_partition(TopicPartition("orders", 9), (0,), by=0)
    assert answer.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_stale_broker_epoch_refuses_the_whole_request(lab: ControllerLab) -> None:
    """A request whose broker epoch is not the present one comes from another incarnation.

    Broker 0 has registered with a much lower epoch than 999.
    """
    response = lab.replies[
        lab.send(AlterPartitionRequest(broker_id=0, broker_epoch=999, topics=()))
    ]
    assert isinstance(response, AlterPartitionResponse)
    assert response.error_code is ErrorCode.STALE_BROKER_EPOCH
