"""The controller's log and its readers, the creation of topics, restarts, and preferred leaders.

- `lab` passes requests to a controller, without brokers and network. It keeps the time, the timers
  and the replies.
- `cluster_of(topic())` is the plan of a cluster: the brokers and topics that it shall have. Here
  these are three brokers, and the topic `orders` with three partitions. `cluster_of()` has no
  topic.
- `start_brokers` registers brokers and unfences them. A broker is fenced (counts as dead) after 9 s
  without a heartbeat.
- The preferred leader of a partition is the first of its replicas; the ISR is the set of its
  in-sync replicas.
- `lab.image` is the state that follows from the metadata log, whose records are `lab.records()`.

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
    """Return the answer to a Fetch of the metadata log, or None while the Fetch waits."""
    response = lab.replies.get(request_id)
    if response is None:
        return None
    assert isinstance(response, FetchResponse)
    return response.responses[0].partitions[0]


def test_topics_are_created_when_the_last_broker_of_the_plan_is_unfenced() -> None:
    """All replicas of a new partition are in its ISR, so all brokers of the plan must serve."""
    lab = ControllerLab(cluster_of(topic(partitions=4)))
    lab.start_brokers(0, 1)
    assert lab.image.topics == {}
    lab.register(2)
    lab.heartbeat(2)
    partitions = lab.image.topics["orders"]
    assert [p.replicas for p in partitions] == [(0, 1, 2), (1, 2, 0), (2, 0, 1), (0, 1, 2)]
    assert all(p.isr == p.replicas and p.leader == p.replicas[0] for p in partitions)
    assert all((p.leader_epoch, p.partition_epoch) == (0, 0) for p in partitions)
    assert len(lab.events(TraceKind.LEADER_ELECTED)) == 4


def test_topics_of_the_plan_have_their_settings_and_assignments() -> None:
    """Brokers learn a topic's settings, such as min.insync.replicas, from the metadata log."""
    plan = topic(
        partitions=1,
        config=TopicConfig(min_insync_replicas=2, unclean_leader_election_enable=True),
        assignments=((2, 0),),
    )
    lab = ControllerLab(cluster_of(plan))
    lab.start_brokers(0, 1, 2)
    assert lab.partition(P0).replicas == (2, 0)
    assert lab.image.topic_config("orders") == plan.config


def test_topics_are_created_once() -> None:
    """The topics are not created again when the brokers are fenced and then unfenced again."""
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1, 2)
    lab.advance_ms(9_000)  # all sessions end
    for broker_id in range(3):
        lab.register(broker_id, incarnation_id=1)
        lab.heartbeat(broker_id)
    assert sum(isinstance(record, TopicRecord) for record in lab.records()) == 1


def test_fetch_below_the_end_is_answered_at_once() -> None:
    """A starting broker reads the log from its first record, and must not wait for a new one."""
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1, 2)
    data = answer_of(lab, lab.fetch(0))
    assert data is not None
    assert sum(batch.record_count for batch in data.records) == len(lab.records())
    assert data.high_watermark == lab.log.log_end_offset


def test_fetch_at_the_end_waits_for_the_next_record() -> None:
    """A broker must get a record when it is written, and not at its next poll."""
    lab = ControllerLab(cluster_of())
    request_id = lab.fetch(0)
    assert answer_of(lab, request_id) is None
    lab.register(0)
    data = answer_of(lab, request_id)
    assert data is not None
    assert len(data.records) == 1
    # The timer that would have ended the wait is cancelled.
    assert not any(key.startswith("fetch-") for key in lab.timers)


def test_fetch_at_the_end_is_answered_empty_after_max_wait() -> None:
    """If no record comes, the controller answers a Fetch after its max_wait_ms, here 500 ms.

    Without an answer the request of the broker would time out.
    """
    lab = ControllerLab(cluster_of())
    request_id = lab.fetch(0, max_wait_ms=500)
    lab.advance_ms(499)
    assert answer_of(lab, request_id) is None
    lab.advance_ms(1)
    data = answer_of(lab, request_id)
    assert data is not None
    assert (data.error_code, data.records) == (ErrorCode.NONE, ())


def test_fetch_beyond_the_end_is_out_of_range() -> None:
    """A broker whose log is longer than the controller's must get an error, and not wait."""
    lab = ControllerLab(cluster_of())
    data = answer_of(lab, lab.fetch(5, max_wait_ms=0))  # the log is empty
    assert data is not None
    assert data.error_code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_fetch_of_any_other_partition_is_unknown() -> None:
    """A controller has no other partition than the metadata log."""
    lab = ControllerLab(cluster_of())
    position = FetchPartition(partition=0, fetch_offset=0)
    request = FetchRequest(
        max_wait_ms=0, topics=(FetchTopic(topic="orders", partitions=(position,)),)
    )
    data = answer_of(lab, lab.send(request))
    assert data is not None
    assert data.error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_request_for_another_role_is_misuse() -> None:
    """No node sends a request about a group to a controller.

    Such a request shows a bug of ours, so the controller raises an exception.
    """
    lab = ControllerLab(cluster_of())
    with pytest.raises(SimulationError, match="HeartbeatRequest"):
        lab.send(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))


def test_image_equals_a_replay_of_the_log() -> None:
    """The image must follow from the log alone.

    Brokers, and the next life of the controller, know only the log.
    """
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1, 2)
    lab.alter_partition(P0, (0, 1), by=0)
    lab.advance_ms(9_000)  # all sessions end, which writes more records
    replica = MetadataImage()
    for record in lab.records():
        replica.replay(record)
    assert replica.brokers == lab.image.brokers
    assert replica.topics == lab.image.topics
    assert replica.end_offset == lab.image.end_offset == lab.log.log_end_offset


def test_restarted_controller_continues_its_log_and_gives_full_sessions() -> None:
    """A restarted controller has got no heartbeats yet.

    It must not fence brokers for its own absence. So each broker gets a new session of 9 s.
    """
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1, 2)
    again = ControllerLab(cluster_of(topic()), lab.storage)
    assert again.image.topics == lab.image.topics
    again.advance_ms(8_999)
    assert not any(broker.fenced for broker in again.image.brokers.values())
    again.advance_ms(1)
    assert all(broker.fenced for broker in again.image.brokers.values())


def test_preferred_leaders_are_elected_at_the_next_check_if_enabled() -> None:
    """Leaderships return to preferred leaders at a regular check, here every 20 s.

    The setting is leader.imbalance.check.interval.seconds (BEHAVIOUR 6.2).
    """
    config = BrokerConfig(leader_imbalance_check_interval_seconds=20)
    lab = ControllerLab(cluster_of(topic(), config=config))
    lab.start_brokers(0, 1, 2)
    # For 10 s broker 0 is silent, and is fenced.
    for _ in range(5):
        lab.advance_ms(2_000)
        lab.heartbeat(1)
        lab.heartbeat(2)
    assert lab.partition(P0).leader == 1

    lab.register(0, incarnation_id=1)
    lab.heartbeat(0)
    lab.alter_partition(P0, (1, 2, 0), by=1)  # broker 0 may lead again, because it is in the ISR

    # After another 10 s the check is due.
    for _ in range(5):
        lab.advance_ms(2_000)
        for broker_id in range(3):
            lab.heartbeat(broker_id)

    assert lab.partition(P0).leader == 0
    assert lab.partition(P0).leader_epoch == 2  # each of the two elections has increased it
    event = lab.events(TraceKind.LEADER_ELECTED)[-1]
    assert event.detail == {"isr": [1, 2, 0], "reason": "preferred leader"}


def test_metadata_record_without_a_value_is_no_record() -> None:
    """A tombstone (a record without a value) has no meaning in the metadata log."""
    with pytest.raises(ValueError, match="value"):
        decode_metadata_record(Record(key=None, value=None))


def test_change_of_an_unknown_partition_is_misuse() -> None:
    """A replay checks each record against the image so far, which is empty here."""
    lab = ControllerLab(cluster_of(topic()))
    lab.start_brokers(0, 1, 2)
    lab.alter_partition(P0, (0, 1), by=0)
    with pytest.raises(SimulationError, match="does not exist"):
        MetadataImage().replay(lab.records()[-1])  # the record of the new ISR


@pytest.mark.parametrize("next_producer_id", [1000, 0])
def test_assigned_producer_ids_are_not_assigned_again_after_a_replay(next_producer_id: int) -> None:
    """The record of a block of producer ids has the first id after the block.

    A later record whose id is not higher would assign ids a second time. Its replay raises an
    exception.
    """
    image = MetadataImage()
    image.replay(ProducerIdsRecord(broker_id=0, broker_epoch=1, next_producer_id=1000))
    with pytest.raises(SimulationError, match="a next producer id above 1000, got"):
        image.replay(
            ProducerIdsRecord(broker_id=0, broker_epoch=1, next_producer_id=next_producer_id)
        )
