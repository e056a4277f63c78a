"""The controller's log and its readers, the creation of topics, restarts, and preferred leaders.

The plan of a cluster says which brokers and topics the cluster shall have. `cluster_of(topic())` is
a plan with three brokers and the topic `orders` of three partitions; `cluster_of()` has no topic.

A test builds a `ControllerLab` for a plan. The lab passes requests to the controller, without
brokers and network. It has a clock of its own, and keeps the replies. `lab.start_brokers` registers
brokers and sends their first heartbeats. 9 s after its last heartbeat a broker is fenced: it counts
as dead.

The controller writes every decision into the metadata log. `lab.records()` returns the records of
this log, and `lab.image` is the state after all its records.

BEHAVIOUR 6.2 is a section of docs/kafka/BEHAVIOUR.md.
"""

import pytest

from cluster.controller.metadata_image import MetadataImage
from protocol.config import BrokerConfig, TopicConfig
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import RequestId, TopicPartition
from protocol.messages.group import HeartbeatRequest
from protocol.messages.log import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.records.batch import Record
from protocol.records.metadata import ProducerIdsRecord, TopicRecord, decode_metadata_record
from protocol.trace import TraceKind
from tests.support.harness.controllers import ControllerLab, cluster_of, topic

P0 = TopicPartition("orders", 0)


def answer_of(lab: ControllerLab, request_id: RequestId) -> PartitionData | None:
    """Return the answer to a Fetch of the metadata log, or None if it is not answered yet."""
    response = lab.replies.get(request_id)
    if response is None:
        return None
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0]


def test_topics_are_created_when_the_last_broker_of_the_plan_is_unfenced() -> None:
    """A new partition begins with all its replicas in the ISR, so all brokers must be alive."""
    lab = ControllerLab(cluster_of(topic(partitions=4)))
    lab.start_brokers(0, 1)
    assert lab.image.topics == {}
    lab.start_brokers(2)
    partitions = lab.image.topics["orders"]
    assert [p.replicas for p in partitions] == [(0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 1, 2)]
    assert all(p.isr == p.replicas for p in partitions)
    assert all(p.leader == p.replicas[0] for p in partitions)
    assert all((p.leader_epoch, p.partition_epoch) == (0, 0) for p in partitions)
    assert len(lab.events(TraceKind.LEADER_ELECTED)) == 4


def test_topics_of_the_plan_have_their_settings_and_assignments() -> None:
    """Settings and assignments are in the metadata log, and brokers learn them from this log."""
    planned = topic(
        partitions=1,
        config=TopicConfig(min_insync_replicas=2, unclean_leader_election_enable=True),
        assignments=((2, 0),),
    )
    lab = ControllerLab(cluster_of(planned))
    lab.start_brokers(0, 1, 2)
    assert lab.partition(P0).replicas == (2, 0)
    assert lab.image.topic_config("orders") == planned.config


def test_topics_are_created_once() -> None:
    """The topics are not created again when all brokers are fenced, and then come back."""
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1, 2)
    lab.advance_ms(9_000)  # all brokers are fenced
    for broker_id in range(3):
        lab.register(broker_id, incarnation_id=1)
        lab.heartbeat(broker_id)
    assert sum(isinstance(record, TopicRecord) for record in lab.records()) == 1


def test_fetch_below_the_log_end_is_answered_at_once() -> None:
    """A starting broker reads the log from the beginning, and must not wait for a new record."""
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1, 2)
    data = answer_of(lab, lab.fetch(0))
    assert data is not None
    assert sum(batch.record_count for batch in data.records) == len(lab.records())
    assert data.high_watermark == lab.log.log_end_offset


def test_fetch_at_the_log_end_waits_for_the_next_record() -> None:
    """The controller answers the waiting Fetch as soon as it writes a record."""
    lab = ControllerLab(cluster_of())
    request_id = lab.fetch(0)
    assert answer_of(lab, request_id) is None
    lab.register(0)
    data = answer_of(lab, request_id)
    assert data is not None
    assert len(data.records) == 1
    # The controller has also cancelled the timer that would have ended the wait.
    assert not any(key.startswith("fetch-") for key in lab.timers)


def test_fetch_at_the_log_end_is_answered_without_records_after_max_wait() -> None:
    """The request has a max_wait_ms of 500. If no record comes, the answer comes after 500 ms."""
    lab = ControllerLab(cluster_of())
    request_id = lab.fetch(0, max_wait_ms=500)
    lab.advance_ms(499)
    assert answer_of(lab, request_id) is None
    lab.advance_ms(1)
    data = answer_of(lab, request_id)
    assert data is not None
    assert (data.error_code, data.records) == (ErrorCode.NONE, ())


def test_fetch_beyond_the_log_end_is_out_of_range() -> None:
    """A broker whose log is longer than the controller's must get an error, and not wait."""
    lab = ControllerLab(cluster_of())
    data = answer_of(lab, lab.fetch(5, max_wait_ms=0))  # the log is empty
    assert data is not None
    assert data.error_code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_fetch_of_another_partition_than_the_metadata_log_is_refused() -> None:
    """The metadata log is the only partition of a controller."""
    lab = ControllerLab(cluster_of())
    position = FetchPartition(partition=0, fetch_offset=0)
    request = FetchRequest(
        max_wait_ms=0, topics=(FetchTopic(topic="orders", partitions=(position,)),)
    )
    data = answer_of(lab, lab.send(request))
    assert data is not None
    assert data.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_request_that_only_a_broker_can_serve_raises_an_exception() -> None:
    """No node sends a request about a group to a controller. Such a request shows a bug of ours."""
    lab = ControllerLab(cluster_of())
    with pytest.raises(SimulationError, match="HeartbeatRequest"):
        lab.send(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))


def test_image_equals_a_replay_of_the_log() -> None:
    """The image must follow from the log alone.

    Brokers and a restarted controller have only the log, and must get the same image from it.
    """
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1, 2)
    lab.alter_partition(P0, (0, 1), by=0)
    lab.advance_ms(9_000)  # all brokers are fenced, which writes more records
    replayed = MetadataImage()
    for record in lab.records():
        replayed.replay(record)
    assert replayed.brokers == lab.image.brokers
    assert replayed.topics == lab.image.topics
    assert replayed.end_offset == lab.image.end_offset == lab.log.log_end_offset


def test_restarted_controller_continues_its_log_and_gives_each_broker_a_new_session() -> None:
    """Each broker has 9 s from the restart of the controller on to send its next heartbeat.

    While the controller was down, brokers could not send heartbeats, and must not be fenced for it.
    """
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1, 2)
    restarted = ControllerLab(cluster_of(topic()), lab.storage)
    assert restarted.image.topics == lab.image.topics
    restarted.advance_ms(8_999)
    assert not any(broker.fenced for broker in restarted.image.brokers.values())
    restarted.advance_ms(1)
    assert all(broker.fenced for broker in restarted.image.brokers.values())


def test_preferred_leaders_are_elected_at_the_next_check_if_enabled() -> None:
    """At a regular check the first replica of each partition becomes its leader again.

    The interval is leader.imbalance.check.interval.seconds, here 20 s (BEHAVIOUR 6.2).
    """
    config = BrokerConfig(leader_imbalance_check_interval_seconds=20)
    lab = ControllerLab(cluster_of(topic(), config=config))
    lab.start_brokers(0, 1, 2)
    # Broker 0 sends no heartbeat for 10 s, and is fenced after 9 s.
    for _ in range(5):
        lab.advance_ms(2_000)
        lab.heartbeat(1)
        lab.heartbeat(2)
    assert lab.partition(P0).leader == 1

    lab.register(0, incarnation_id=1)
    lab.heartbeat(0)
    lab.alter_partition(P0, (1, 2, 0), by=1)  # broker 0 may lead again, because it is in the ISR

    # After another 10 s the check is due, because the cluster started 20 s ago.
    for _ in range(5):
        lab.advance_ms(2_000)
        for broker_id in range(3):
            lab.heartbeat(broker_id)

    assert lab.partition(P0).leader == 0
    assert lab.partition(P0).leader_epoch == 2  # each of the two elections has increased it
    event = lab.events(TraceKind.LEADER_ELECTED)[-1]
    assert event.detail == {"isr": [1, 2, 0], "reason": "preferred leader"}


def test_metadata_record_without_a_value_is_no_record() -> None:
    """A record without a value is a tombstone, and the metadata log has no tombstones."""
    with pytest.raises(ValueError, match="value"):
        decode_metadata_record(Record(key=None, value=None))


def test_replay_of_a_change_to_an_unknown_partition_raises_an_exception() -> None:
    """The test replays a record that changes an ISR. The image has no partition yet."""
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1, 2)
    lab.alter_partition(P0, (0, 1), by=0)
    isr_change = lab.records()[-1]
    with pytest.raises(SimulationError, match="does not exist"):
        MetadataImage().replay(isr_change)


@pytest.mark.parametrize("next_producer_id", [1000, 0])
def test_replay_of_producer_ids_that_were_assigned_before_raises_an_exception(
    next_producer_id: int,
) -> None:
    """A broker gets producer ids in blocks. The record of a block has the first id after the block.

    Here the first record has 1000, so the ids below 1000 are taken. The record of the next block
    must have a number above 1000. With a lower number, ids would be assigned twice. With the same
    number, the block would be empty.
    """
    image = MetadataImage()
    image.replay(ProducerIdsRecord(broker_id=0, broker_epoch=1, next_producer_id=1000))
    with pytest.raises(SimulationError, match="a next producer id above 1000, got"):
        image.replay(
            ProducerIdsRecord(broker_id=0, broker_epoch=1, next_producer_id=next_producer_id)
        )
