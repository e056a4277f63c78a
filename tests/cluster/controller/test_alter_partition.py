"""AlterPartition: the controller accepts a leader's proposal of another ISR, or refuses it.

`lab` passes requests to a controller, without brokers and network. For example,
`lab.alter_partition(P0, (0, 2), by=0)` is the proposal of broker 0 to remove broker 1 from the ISR
of orders-0. Such a request has the leader epoch and the partition epoch that the leader knows.
`lab` fills in the present epochs, unless a test gives others. `lab.records()` returns the records
of the metadata log.

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

    A new leader epoch would force all followers to begin their fetches again.
    """
    answer = lab.alter_partition(P0, (0, 2), by=0)
    assert answer.error_code is ErrorCode.NONE
    assert (answer.leader_id, answer.leader_epoch) == (0, 0)
    assert (answer.isr, answer.partition_epoch) == ((0, 2), 1)
    assert lab.partition(P0).isr == (0, 2)
    (event,) = lab.events(TraceKind.ISR_CHANGED)
    assert event.detail == {"isr": [0, 2], "partition_epoch": 1}


def test_proposal_of_the_present_isr_is_accepted_without_a_record(lab: ControllerLab) -> None:
    """A leader repeats its proposal if the answer was lost. Then the ISR has changed already."""
    records_before = lab.records()
    answer = lab.alter_partition(P0, (0, 1, 2), by=0)
    assert answer.error_code is ErrorCode.NONE
    assert answer.partition_epoch == 0
    assert lab.records() == records_before


@pytest.mark.parametrize(
    ("new_isr", "by", "leader_epoch", "partition_epoch", "error"),
    [
        # For this controller both epochs are 0. A leader can have heard of a higher epoch only from
        # a newer controller.
        ((0, 2), 0, 1, 0, ErrorCode.NOT_CONTROLLER),
        ((0, 2), 0, 0, 1, ErrorCode.NOT_CONTROLLER),
        # The proposal comes from broker 1, which does not lead.
        ((1, 2), 1, 0, 0, ErrorCode.INVALID_REQUEST),
        ((1, 2), 0, 0, 0, ErrorCode.INVALID_REQUEST),  # without the leader
        ((0, 0, 1), 0, 0, 0, ErrorCode.INVALID_REQUEST),  # the leader twice
        ((0, 7), 0, 0, 0, ErrorCode.INVALID_REQUEST),  # broker 7 has no replica
        ((), 0, 0, 0, ErrorCode.INVALID_REQUEST),  # no broker at all
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
    # Broker 0 sends no heartbeat for 10 s. It is fenced after 9 s, and broker 1 is elected.
    for _ in range(5):
        lab.advance_ms(2_000)
        lab.heartbeat(1)
        lab.heartbeat(2)
    assert lab.partition(P0).leader == 1
    answer = lab.alter_partition(P0, (0,), by=0, leader_epoch=0, partition_epoch=0)
    assert answer.error_code is ErrorCode.FENCED_LEADER_EPOCH


def test_proposal_with_an_older_partition_epoch_is_out_of_date(lab: ControllerLab) -> None:
    """The leader made the proposal before it knew of the last change of the ISR."""
    lab.alter_partition(P0, (0, 2), by=0)
    answer = lab.alter_partition(P0, (0,), by=0, partition_epoch=0)
    assert answer.error_code is ErrorCode.INVALID_UPDATE_VERSION


def test_fenced_broker_may_not_join_the_isr(lab: ControllerLab) -> None:
    """A dead broker must not join an ISR, because each acknowledgement would wait for it."""
    # Broker 2 sends no heartbeat for 10 s. It is fenced after 9 s, and leaves the ISR.
    for _ in range(5):
        lab.advance_ms(2_000)
        lab.heartbeat(0)
        lab.heartbeat(1)
    assert lab.partition(P0).isr == (0, 1)
    answer = lab.alter_partition(P0, (0, 1, 2), by=0)
    assert answer.error_code is ErrorCode.INELIGIBLE_REPLICA


def test_broker_with_an_older_broker_epoch_may_not_join_the_isr(lab: ControllerLab) -> None:
    """A follower may have caught up, and then lost data when it restarted (KIP-903).

    A broker gets a higher broker epoch when it restarts. So a proposal has the broker epoch of each
    member of the ISR, and the controller compares these with the epochs of the registered brokers.
    """
    lab.alter_partition(P0, (0, 1), by=0)
    before_restart = {2: lab.broker_epochs[2] - 1}
    answer = lab.alter_partition(P0, (0, 1, 2), by=0, broker_epochs=before_restart)
    assert answer.error_code is ErrorCode.INELIGIBLE_REPLICA
    answer = lab.alter_partition(P0, (0, 1, 2), by=0, broker_epochs=dict(lab.broker_epochs))
    assert answer.error_code is ErrorCode.NONE


def test_unknown_partition_is_refused(lab: ControllerLab) -> None:
    """The topic may have been deleted while the proposal was on its way."""
    answer = lab.alter_partition(TopicPartition("orders", 9), (0,), by=0)
    assert answer.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_request_with_another_broker_epoch_is_refused_as_a_whole(lab: ControllerLab) -> None:
    """A request with another broker epoch comes from another process than the registered broker."""
    other_epoch = 999
    assert lab.broker_epochs[0] != other_epoch
    request = AlterPartitionRequest(broker_id=0, broker_epoch=other_epoch, topics=())
    response = lab.replies[lab.send(request)]
    assert isinstance(response, AlterPartitionResponse)
    assert response.error_code is ErrorCode.STALE_BROKER_EPOCH
