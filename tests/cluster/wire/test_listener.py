"""The listener of a broker, which Kafka clients call: its answers, its refusals, and faults.

The requests are bytes on a real socket.

- `ask(18, 0)` sends API 18 (ApiVersions) in version 0, which is the shortest request. The other
  APIs are 0 Produce, 1 Fetch, 3 Metadata, 19 CreateTopics and 32 DescribeConfigs.
- Answers have Kafka's numbers of errors, such as 3 for UNKNOWN_TOPIC_OR_PARTITION.
- A refusal is a connection that the broker closes for a reason. The reason is in the trace (the
  recorded events) and in the status.
- `ListeningCluster` has one broker and a client with the id `raw`. For faults the client is the
  node `client:raw`.
"""

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.protocol.admin import CreateTopicsRequest, CreateTopicsResponse, DescribeConfigsResponse
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.metadata import ApiVersionsResponse, MetadataRequest, MetadataResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from msgspec.structs import replace

from cluster.links.rules import Clog, Cut, LinkRule, Selector, Slow
from protocol.api import Api
from protocol.ids import NodeName, broker_name
from protocol.records.kafka_format import encode_batch
from protocol.wire.listener_versions import OFFERED
from tests.support.builders.client_batches import client_batch
from tests.support.harness.listening_cluster import ListeningCluster

BROKER, RAW = broker_name(0), NodeName("client:raw")


def metadata_request(*topics: str, may_create: bool = False) -> bytes:
    """Return the body of a Metadata request in version 4."""
    request = MetadataRequest(
        version=4,
        topics=[MetadataRequest.MetadataRequestTopic(version=4, name=name) for name in topics],
        allow_auto_topic_creation=may_create,
    )
    return bytes(request.encode(version=4))


def produce_request(topic: str, *values: str, acks: int = -1) -> bytes:
    """Return the body of a Produce request in version 8, with one batch for partition 0."""
    data = ProduceRequest.TopicProduceData
    partition = data.PartitionProduceData(
        version=8, index=0, records=encode_batch(client_batch(*values))
    )
    request = ProduceRequest(
        version=8,
        transactional_id=None,
        acks=acks,
        timeout_ms=10_000,
        topic_data=[data(version=8, name=topic, partition_data=[partition])],
    )
    return bytes(request.encode(version=8))


def fetch_request(topic: str, *, session_epoch: int = 0, session_id: int = 0) -> bytes:
    """Return the body of a Fetch in version 11, from offset 0 of partition 0, of at most 1 byte."""
    partition = FetchRequest.FetchTopic.FetchPartition(
        version=11,
        partition=0,
        current_leader_epoch=-1,
        fetch_offset=0,
        log_start_offset=-1,
        partition_max_bytes=1,
    )
    request = FetchRequest(
        version=11,
        replica_id=-1,
        max_wait_ms=100,
        min_bytes=1,
        max_bytes=1,
        isolation_level=1,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchRequest.FetchTopic(version=11, topic=topic, partitions=[partition])],
        forgotten_topics_data=[],
        rack_id="",
    )
    return bytes(request.encode(version=11))


async def with_topic(cluster: ListeningCluster, topic: str = "t") -> None:
    """Create a topic of one partition, and wait until the partition has a leader."""
    connection = await cluster.connect()
    request = CreateTopicsRequest(
        version=4,
        topics=[
            CreateTopicsRequest.CreatableTopic(
                version=4,
                name=topic,
                num_partitions=1,
                replication_factor=-1,
                assignments=[],
                configs=[],
            )
        ],
        timeout_ms=5_000,
        validate_only=False,
    )
    answer = await connection.ask(19, 4, bytes(request.encode(version=4)))
    assert CreateTopicsResponse.decode(answer, version=4).topics[0].error_code == 0
    while True:
        answer = await connection.ask(3, 4, metadata_request(topic))
        (found,) = MetadataResponse.decode(answer, version=4).topics
        if found.error_code == 0 and found.partitions[0].leader_id >= 0:
            break
    connection.close()


def test_api_versions_lists_the_offered_ones_and_answers_newer_versions_in_v0(
    tmp_path: Path,
) -> None:
    """A client that asks in v99 must learn which version it can use (KIP-511)."""

    async def story(cluster: ListeningCluster) -> None:
        connection = await cluster.connect()
        answer = ApiVersionsResponse.decode(await connection.ask(18, 2), version=2)
        assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [
            (api.value, offered.oldest, offered.newest) for api, offered in OFFERED.items()
        ]
        for version in (3, 99):
            # The broker does not know the body of a newer version, so it does not read it.
            raw = await connection.ask(18, version, b"\x00\x05tags?")
            refused = ApiVersionsResponse.decode(raw, version=0)
            assert refused.error_code == 35  # UNSUPPORTED_VERSION
            assert [(row.api_key, row.max_version) for row in refused.api_keys] == [(18, 2)]

    cluster = ListeningCluster(tmp_path)
    cluster.play(story)
    assert cluster.refusals() == []


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01", "a TLS handshake"),
        (b"GET / HTTP/1.1\r\n\r\n", "an HTTP request"),
        (b"\x7f\xff\xff\xff", "socket.request.max.bytes"),
        (b"\xff\xff\xff\xff", "got a size of -1"),
        (b"\x00\x00\x00\x00", "expected 8 bytes at 0, got 0"),
        # Each of these is a frame: its size (10 bytes), API, version, correlation id, and a client
        # id that is null.
        (b"\x00\x00\x00\x0a\x00\x11\x00\x01\x00\x00\x00\x01\xff\xff", "a SASL handshake"),
        (b"\x00\x00\x00\x0a\x00\x4b\x00\x00\x00\x00\x00\x01\xff\xff", "got API (75)"),
        (b"\x00\x00\x00\x0a\x00\x01\x00\x0c\x00\x00\x00\x01\xff\xff", "v4 to v11, got v12"),
        (b"\x00\x00\x00\x0a\x00\x0c\x00\x03\x00\x00\x00\x01\xff\xff", "expected 2 bytes at 10"),
    ],
    ids=["tls", "http", "2-gib", "negative", "empty", "sasl", "api", "version", "body"],
)
def test_bytes_that_are_no_request_end_only_their_connection(
    tmp_path: Path, data: bytes, reason: str
) -> None:
    """Only the connection with the wrong bytes ends. Another client does not notice.

    The trace has one row about the refusal, and the status counts it.
    """

    async def story(cluster: ListeningCluster) -> None:
        beside, connection = await cluster.connect(), await cluster.connect()
        connection.send(data)
        assert await connection.ended()
        assert await beside.ask(18, 0)
        ((counted, times),) = (await cluster.runtime.status()).refused_clients.items()
        assert reason in counted
        assert times == 1

    cluster = ListeningCluster(tmp_path)
    cluster.play(story)
    (refusal,) = cluster.refusals()
    assert reason in refusal


def test_requests_of_one_connection_are_answered_in_order_and_acks_0_is_not(
    tmp_path: Path,
) -> None:
    """Answers have the order of their requests. A Produce with acks=0 gets no answer.

    The first Fetch waits for 100 ms and finds nothing, because the records are produced after it.
    """

    async def story(cluster: ListeningCluster) -> None:
        await with_topic(cluster)
        connection = await cluster.connect()
        connection.send_request(1, 11, fetch_request("t"), correlation_id=1)
        connection.send_request(0, 8, produce_request("t", "a", acks=0), correlation_id=2)
        connection.send_request(0, 8, produce_request("t", "b"), correlation_id=3)
        connection.send_request(1, 11, fetch_request("t"), correlation_id=4)

        answers = [await connection.answer() for _ in range(3)]
        assert [correlation_id for correlation_id, _ in answers] == [1, 3, 4]

        empty, produced, fetched = (body for _, body in answers)
        assert FetchResponse.decode(empty, version=11).responses[0].partitions[0].records == b""
        (topic,) = ProduceResponse.decode(produced, version=8).responses
        assert topic.partition_responses[0].base_offset == 1
        (topic,) = FetchResponse.decode(fetched, version=11).responses
        # The answer has at least one whole batch, although the limit is one byte.
        stored = replace(client_batch("a"), base_offset=0, partition_leader_epoch=0)
        assert topic.partitions[0].records == encode_batch(stored)
        assert topic.partitions[0].last_stable_offset == 2
        assert topic.partitions[0].high_watermark == 2

    ListeningCluster(tmp_path).play(story)


def test_failed_produce_with_acks_0_ends_the_connection(tmp_path: Path) -> None:
    """With acks=0 no answer can report an error, so the broker closes the connection.

    The client notices the close, and requests new metadata.
    """

    async def story(cluster: ListeningCluster) -> None:
        connection = await cluster.connect()
        connection.send_request(0, 8, produce_request("missing", "a", acks=0))
        assert await connection.ended()

    # Without this setting the broker would create the topic "missing".
    ListeningCluster(tmp_path, auto_create_topics_enable=False).play(story)


def test_damaged_batch_is_refused_and_the_others_are_stored(tmp_path: Path) -> None:
    """A damaged batch gets CORRUPT_MESSAGE (2), and Produce v2 gets UNSUPPORTED_VERSION (35).

    The next valid batch has offset 0, so nothing of the refused ones was stored.
    """

    async def story(cluster: ListeningCluster) -> None:
        await with_topic(cluster)
        connection = await cluster.connect()
        # The last byte belongs to the records, so the CRC (checksum) is wrong now.
        damaged = produce_request("t", "a")[:-1] + b"?"
        (topic,) = ProduceResponse.decode(await connection.ask(0, 8, damaged), version=8).responses
        assert [partition.error_code for partition in topic.partition_responses] == [2]

        # The first 2 bytes are the transactional_id, which version 2 does not have.
        old = produce_request("t", "a")[2:]
        (topic,) = ProduceResponse.decode(await connection.ask(0, 2, old), version=2).responses
        assert [partition.error_code for partition in topic.partition_responses] == [35]

        answer = await connection.ask(0, 8, produce_request("t", "a"))
        (topic,) = ProduceResponse.decode(answer, version=8).responses
        assert topic.partition_responses[0].base_offset == 0

    ListeningCluster(tmp_path).play(story)


def test_fetch_session_is_declined_and_an_unknown_one_is_not_found(tmp_path: Path) -> None:
    """A fetch session lets a client leave out unchanged partitions. The broker may decline it.

    Then the answer has the session id 0 and all partitions. A session that the broker does not know
    gets FETCH_SESSION_ID_NOT_FOUND (70).
    """

    async def story(cluster: ListeningCluster) -> None:
        await with_topic(cluster)
        connection = await cluster.connect()
        for epoch in (0, -1):
            raw = await connection.ask(1, 11, fetch_request("t", session_epoch=epoch))
            answer = FetchResponse.decode(raw, version=11)
            assert (answer.error_code, answer.session_id, len(answer.responses)) == (0, 0, 1)
        raw = await connection.ask(1, 11, fetch_request("t", session_epoch=1, session_id=7))
        assert FetchResponse.decode(raw, version=11).error_code == 70

    ListeningCluster(tmp_path).play(story)


def test_metadata_creates_a_topic_only_if_client_and_broker_allow_it(tmp_path: Path) -> None:
    """Until the topic exists, the answer is UNKNOWN_TOPIC_OR_PARTITION (3).

    A name that is not allowed gets INVALID_TOPIC_EXCEPTION (17).
    """

    async def story(cluster: ListeningCluster) -> None:
        connection = await cluster.connect()

        async def topic(name: str, *, may_create: bool) -> tuple[int, int]:
            raw = await connection.ask(3, 4, metadata_request(name, may_create=may_create))
            (found,) = MetadataResponse.decode(raw, version=4).topics
            return found.error_code, len(found.partitions)

        assert await topic("new", may_create=False) == (3, 0)
        assert await topic("il/legal", may_create=True) == (17, 0)
        # A new topic gets 3 partitions, by the setting num.partitions of `ListeningCluster`.
        while await topic("new", may_create=True) != (0, 3):
            await asyncio.sleep(0.01)

        raw = await connection.ask(3, 4, metadata_request("new"))
        answer = MetadataResponse.decode(raw, version=4)
        (broker,) = answer.brokers
        assert (broker.node_id, f"{broker.host}:{broker.port}") == (0, cluster.bootstrap)
        assert len(answer.cluster_id) == 22  # a UUID in base64

    ListeningCluster(tmp_path).play(story)


def test_describe_configs_names_the_source_of_a_value(tmp_path: Path) -> None:
    """Each value has the number of its source: 4 is the broker's settings, 5 is Kafka's default."""

    async def story(cluster: ListeningCluster) -> None:
        await with_topic(cluster)
        connection = await cluster.connect()
        # The bytes: one resource, of type topic (2), named "t", and null, which means all configs.
        resource = b"\x00\x00\x00\x01\x02\x00\x01t\xff\xff\xff\xff"
        raw = await connection.ask(32, 1, resource + b"\x00")
        (result,) = DescribeConfigsResponse.decode(raw, version=1).results
        configs = {item.name: (item.value, item.config_source) for item in result.configs}
        assert configs["min.insync.replicas"] == ("2", 4)
        # In the broker's settings these two have other names.
        assert configs["max.message.bytes"] == ("5000", 4)
        assert configs["message.timestamp.type"] == ("CreateTime", 5)
        assert configs["cleanup.policy"] == ("delete", 5)

    ListeningCluster(tmp_path, min_insync_replicas=2, message_max_bytes=5000).play(story)


def test_connection_above_max_connections_waits_for_a_free_place(tmp_path: Path) -> None:
    """Here the broker serves one connection. The second one waits until the first is closed."""

    async def story(cluster: ListeningCluster) -> None:
        first, second = await cluster.connect(), await cluster.connect()
        assert await first.ask(18, 0)
        second.send_request(18, 0)
        assert await second.is_silent()
        first.close()
        assert (await second.answer())[0] == 1  # 1 is the correlation id of its request

    ListeningCluster(tmp_path, max_connections=1).play(story)


def test_connections_of_one_address_above_its_limit_are_closed(tmp_path: Path) -> None:
    """max.connections.per.ip is 1 here, so the second connection is closed, and the first stays."""

    async def story(cluster: ListeningCluster) -> None:
        first = await cluster.connect()
        assert await first.ask(18, 0)
        assert await (await cluster.connect()).ended()
        assert await first.ask(18, 0)

    cluster = ListeningCluster(tmp_path, max_connections_per_ip=1)
    cluster.play(story)
    (refusal,) = cluster.refusals()
    assert "max.connections.per.ip" in refusal


def test_idle_connection_and_half_a_frame_end_after_connections_max_idle_ms(
    tmp_path: Path,
) -> None:
    """A client that sends only half of a request must not keep its connection for ever."""

    async def story(cluster: ListeningCluster) -> None:
        half = await cluster.connect()
        half.send(b"\x00\x00\x00\x0a\x00\x12")  # the size of the frame, 10 bytes, and 2 of them
        assert await half.ended()
        assert await (await cluster.connect()).ask(18, 0)

    cluster = ListeningCluster(tmp_path, connections_max_idle_ms=100)
    cluster.play(story)
    assert "idle for connections.max.idle.ms" in cluster.refusals()


def test_hundreds_of_silent_connections_delay_no_client(tmp_path: Path) -> None:
    """A silent connection needs a socket and some memory, but no time of the broker."""

    async def story(cluster: ListeningCluster) -> None:
        silent = [await cluster.connect() for _ in range(300)]
        assert await (await cluster.connect()).ask(18, 0)
        assert await silent[-1].ask(18, 0)
        for connection in silent:
            connection.close()

    cluster = ListeningCluster(tmp_path)
    cluster.play(story)
    assert len(cluster.requests(Api.API_VERSIONS)) == 2  # one request of each client that asked


def test_crash_ends_connections_and_the_next_incarnation_listens_on_the_same_port(
    tmp_path: Path,
) -> None:
    """Clients know a broker by its address, so its next incarnation (life) has the same port."""

    async def story(cluster: ListeningCluster) -> None:
        connection = await cluster.connect()
        assert await connection.ask(18, 0)
        address_before = cluster.bootstrap
        await cluster.runtime.crash(BROKER)
        assert await connection.ended()
        assert cluster.bootstrap == ""

        await cluster.runtime.restart(BROKER)
        assert cluster.bootstrap == address_before
        assert await (await cluster.connect()).ask(18, 0)

    ListeningCluster(tmp_path).play(story)


def test_paused_broker_is_silent_and_answers_after_its_resume(tmp_path: Path) -> None:
    """During the pause the kernel accepts another connection. Then the broker answers on both."""

    async def story(cluster: ListeningCluster) -> None:
        connection = await cluster.connect()
        assert await connection.ask(18, 0)

        await cluster.runtime.pause(BROKER)
        connection.send_request(18, 0, correlation_id=2)
        late = await cluster.connect()
        late.send_request(18, 0, correlation_id=3)
        assert await connection.is_silent()

        await cluster.runtime.resume(BROKER)
        assert (await connection.answer())[0] == 2
        assert (await late.answer())[0] == 3

    ListeningCluster(tmp_path).play(story)


@pytest.mark.parametrize("effect", [Cut(), Clog(), Slow(delay_us=60_000_000)], ids=str)
@pytest.mark.parametrize("from_client", [True, False])
def test_link_rules_hold_frames_of_both_directions_of_a_client(
    tmp_path: Path, effect: Cut | Clog | Slow, *, from_client: bool
) -> None:
    """For link rules a Kafka client is a node whose name has its client id.

    A frame that is delayed by 60 s is still on its way when the test ends. If it is the second
    request, the broker has received only the first. If it is the answer, it has received both.
    """
    ends = ((RAW,), (BROKER,))
    sources, destinations = ends if from_client else ends[::-1]
    rule = LinkRule(
        rule_id="r", selector=Selector(sources=sources, destinations=destinations), effect=effect
    )

    async def story(cluster: ListeningCluster) -> None:
        connection = await cluster.connect()
        assert await connection.ask(18, 0)
        await cluster.runtime.set_link_rules([rule])
        connection.send_request(18, 0, correlation_id=2)
        assert await connection.is_silent()
        await cluster.runtime.set_link_rules([])
        if not isinstance(effect, Slow):
            assert (await connection.answer())[0] == 2

    cluster = ListeningCluster(tmp_path)
    cluster.play(story)
    second_is_on_its_way = from_client and isinstance(effect, Slow)
    received = len(cluster.requests(Api.API_VERSIONS))
    assert received == (1 if second_is_on_its_way else 2)


def test_reset_of_links_ends_only_the_connections_of_the_named_client(tmp_path: Path) -> None:
    """A reset for another client has no effect. A reset for RAW ends its connection."""

    async def story(cluster: ListeningCluster) -> None:
        connection = await cluster.connect()
        assert await connection.ask(18, 0)
        runtime = cluster.runtime
        assert (await runtime.status()).kafka_clients == {RAW: 1}
        assert await runtime.reset_links([NodeName("client:other")], [BROKER]) == 0
        assert await connection.ask(18, 0)
        assert await runtime.reset_links([RAW], [BROKER]) == 1
        assert await connection.ended()
        assert (await runtime.status()).kafka_clients == {}

    ListeningCluster(tmp_path).play(story)


@pytest.mark.slow
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_bytes_leave_the_broker_serving(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """A broker must survive whatever a client sends.

    Each piece is random bytes, or a frame with the header of an API and a random body.
    """
    framed = st.builds(
        lambda api, version, body: (
            (10 + len(body)).to_bytes(4, "big")
            + api.to_bytes(2, "big")
            + version.to_bytes(2, "big")
            + b"\x00\x00\x00\x01\xff\xff"
            + body
        ),
        st.sampled_from([api.value for api in OFFERED]),
        # The newest version that the broker offers of an API is 11.
        st.integers(0, 12),
        st.binary(max_size=200),
    )
    pieces = data.draw(st.lists(st.binary(max_size=100) | framed, min_size=40, max_size=40))

    async def story(cluster: ListeningCluster) -> None:
        for piece in pieces:
            connection = await cluster.connect()
            connection.send(piece)
            connection.close()
        assert await (await cluster.connect()).ask(18, 0)

    ListeningCluster(tmp_path_factory.mktemp("bytes")).play(story)
