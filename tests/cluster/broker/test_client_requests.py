"""Answers of brokers to requests that only clients send.

`lab` is a cluster of three brokers in virtual time. Broker 0 leads orders-0, the only partition
that the tests use. If broker 0 dies, broker 1 is elected. `lab.client.call(0, request)` returns the
answer of broker 0.
"""

from protocol.api import AnyResponse
from protocol.errors import ErrorCode
from protocol.ids import TopicPartition
from protocol.messages.admin import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from protocol.messages.discovery import MetadataRequest, MetadataResponse
from protocol.messages.log import (
    FetchRequest,
    FetchResponse,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderPartitionResult,
    OffsetForLeaderTopic,
)
from tests.support.builders.client_batches import client_batch
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster

CREATED = "created"
"""A topic that does not exist before a test creates it."""
LOG_END = -1
"""A timestamp of ListOffsets that asks for the end of the log."""


async def offset_at(
    lab: BrokerLab, broker_id: int, timestamp: int, *, leader_epoch: int = -1
) -> ListOffsetsPartitionResponse:
    """Ask ListOffsets for the first record of orders-0 whose timestamp is `timestamp` or later.

    With LOG_END as `timestamp`, ask for the end of the log. `leader_epoch` is the epoch that the
    client has in its metadata; with -1 the broker does not check it.
    """
    answer = await lab.client.call(
        broker_id,
        ListOffsetsRequest(
            topics=(
                ListOffsetsTopic(
                    name=ORDERS,
                    partitions=(
                        ListOffsetsPartition(
                            partition_index=0,
                            timestamp=timestamp,
                            current_leader_epoch=leader_epoch,
                        ),
                    ),
                ),
            )
        ),
    )
    assert isinstance(answer, ListOffsetsResponse)
    return answer.topics[0].partitions[0]


async def end_of_epoch(
    lab: BrokerLab, broker_id: int, *, epoch: int, client_epoch: int = -1
) -> OffsetForLeaderPartitionResult:
    """Ask OffsetForLeaderEpoch for the offset at which the leader epoch `epoch` of orders-0 ends.

    `client_epoch` is the epoch that the client has in its metadata; with -1 the broker does not
    check it.
    """
    answer = await lab.client.call(
        broker_id,
        OffsetForLeaderEpochRequest(
            topics=(
                OffsetForLeaderTopic(
                    topic=ORDERS,
                    partitions=(
                        OffsetForLeaderPartition(
                            partition=0, leader_epoch=epoch, current_leader_epoch=client_epoch
                        ),
                    ),
                ),
            )
        ),
    )
    assert isinstance(answer, OffsetForLeaderEpochResponse)
    return answer.topics[0].partitions[0]


def test_list_offsets_finds_the_first_record_at_or_after_a_time() -> None:
    """The answer has the record's offset and timestamp, or -1 for both if all records are older."""

    async def story(lab: BrokerLab) -> None:
        # The three batches have two records each, and so begin at the offsets 0, 2 and 4.
        for timestamp in (10, 20, 30):
            batch = client_batch("a", "b", timestamp_ms=timestamp)
            assert (await lab.client.produce_batch(0, batch)).error_code is ErrorCode.NONE
        answers = [await offset_at(lab, 0, timestamp) for timestamp in (0, 10, 11, 30, 31)]
        assert [(answer.offset, answer.timestamp) for answer in answers] == [
            (0, 10),
            (0, 10),
            (2, 20),
            (4, 30),
            (-1, -1),
        ]
        assert {answer.error_code for answer in answers} == {ErrorCode.NONE}

    BrokerLab(broker_cluster()).run(story)


def test_client_with_another_leader_epoch_is_fenced_or_gets_unknown_leader_epoch() -> None:
    """A leader refuses an older leader epoch with one error, and a newer leader epoch with another.

    The requests ListOffsets (from version 4 on) and OffsetForLeaderEpoch (from version 2 on) have a
    field for the leader epoch in the client's metadata.
    """

    async def story(lab: BrokerLab) -> None:
        await lab.client.produce(0, b"a")
        await lab.kill(0)
        await lab.until(lambda status: status.partitions[TopicPartition(ORDERS, 0)].leader == 1)
        # Wait until broker 1 knows that it is the leader.
        while (await end_of_epoch(lab, 1, epoch=0)).error_code is not ErrorCode.NONE:
            await lab.seconds(0.1)
        await lab.client.produce(1, b"b")

        # Broker 1 leads in epoch 1. A client in epoch 0 is behind it, a client in epoch 2 ahead.
        for client_epoch, error in (
            (0, ErrorCode.FENCED_LEADER_EPOCH),
            (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (1, ErrorCode.NONE),
        ):
            answer = await offset_at(lab, 1, LOG_END, leader_epoch=client_epoch)
            assert answer.error_code is error
            end = await end_of_epoch(lab, 1, epoch=0, client_epoch=client_epoch)
            assert end.error_code is error

        # Epoch 0 has the record at offset 0, and epoch 1 the record at offset 1. No record has
        # epoch 5.
        ends = [await end_of_epoch(lab, 1, epoch=epoch) for epoch in (0, 1, 5)]
        assert [(end.leader_epoch, end.end_offset) for end in ends] == [(0, 1), (1, 2), (-1, -1)]
        # Broker 2 is a follower.
        assert (await end_of_epoch(lab, 2, epoch=0)).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    BrokerLab(broker_cluster()).run(story)


def test_unknown_fetch_session_is_not_found() -> None:
    """A Fetch that continues a fetch session is refused, because our brokers have no sessions.

    In a fetch session a client does not repeat its list of partitions in each Fetch. A client is
    prepared for the refusal, because Kafka's brokers may forget a session, too. After the refusal
    the client fetches without a session.
    """

    async def story(lab: BrokerLab) -> None:
        # A session epoch above 0 continues the session. Epoch 0 would ask for a new session.
        answer = await lab.client.call(
            0, FetchRequest(max_wait_ms=0, topics=(), session_id=7, session_epoch=3)
        )
        assert isinstance(answer, FetchResponse)
        assert answer.error_code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    BrokerLab(broker_cluster()).run(story)


def test_metadata_request_may_create_the_topic_that_it_asks_for() -> None:
    """A topic is created only if the request has `allow_auto_topic_creation`.

    Even then the answer is UNKNOWN_TOPIC_OR_PARTITION, because the creation has only begun. The
    next request finds the topic.
    """

    async def story(lab: BrokerLab) -> None:
        async def metadata(*, may_create: bool) -> tuple[ErrorCode, int]:
            """Return the topic's error and its number of partitions."""
            answer = await lab.client.call(
                1, MetadataRequest(topics=(CREATED,), allow_auto_topic_creation=may_create)
            )
            assert isinstance(answer, MetadataResponse)
            return answer.topics[0].error_code, len(answer.topics[0].partitions)

        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
        assert await metadata(may_create=False) == unknown
        await lab.seconds(1)
        assert await metadata(may_create=False) == unknown
        assert await metadata(may_create=True) == unknown
        await lab.seconds(1)  # the topic is created
        # By default (num.partitions) a new topic has one partition.
        assert await metadata(may_create=False) == (ErrorCode.NONE, 1)

    BrokerLab(broker_cluster()).run(story)


def test_broker_forwards_a_topic_creation_again_until_the_controller_is_back() -> None:
    """A broker forwards a CreateTopics to the controller.

    While it cannot reach the controller, it repeats the request, for up to 60 s. Here the
    controller is back after 5 s, so the client gets a normal answer.
    """

    async def story(lab: BrokerLab) -> None:
        await lab.runtime.crash(lab.controller)
        answers: list[AnyResponse] = []

        async def ask() -> None:
            request = CreateTopicsRequest(
                topics=(CreatableTopic(name=CREATED, replication_factor=3),)
            )
            # The client waits longer than the 60 s of the broker.
            answers.append(await lab.client.call(2, request, timeout_us=70_000_000))

        lab.client.host.spawn(ask(), name="ask")
        await lab.seconds(5)
        assert answers == []

        await lab.runtime.restart(lab.controller)
        await lab.seconds(5)
        (created,) = answers
        assert isinstance(created, CreateTopicsResponse)
        assert [topic.error_code for topic in created.topics] == [ErrorCode.NONE]

    BrokerLab(broker_cluster()).run(story)


def test_topic_creation_times_out_without_a_controller() -> None:
    """The broker gives up after 60 s, and answers REQUEST_TIMED_OUT for each topic."""

    async def story(lab: BrokerLab) -> None:
        await lab.runtime.crash(lab.controller)
        answer = await lab.client.call(
            2,
            CreateTopicsRequest(topics=(CreatableTopic(name=CREATED),)),
            timeout_us=100_000_000,  # the client waits longer than the 60 s of the broker
        )
        assert isinstance(answer, CreateTopicsResponse)
        assert [topic.error_code for topic in answer.topics] == [ErrorCode.REQUEST_TIMED_OUT]

    BrokerLab(broker_cluster()).run(story)
