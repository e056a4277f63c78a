"""The listener of a broker, at which real Kafka clients connect: its answers, refusals and faults.

The tests send bytes through a real socket to a cluster with one broker, a `ListeningCluster`. The
client calls itself `raw`. `ask(API_VERSIONS, 0)` sends an ApiVersions request in version 0, and
returns the answer. This is the shortest request, and many tests send it only to see that the broker
still answers.

If a client sends bytes that are no valid request, or breaks a limit, the broker closes the
connection. This is a refusal. Its reason is a row of the trace, and `cluster.refusals()` returns
these reasons.
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

BROKER = broker_name(0)
RAW = NodeName("client:raw")
"""The client of the tests, as faults and link rules name it."""

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
CREATE_TOPICS, DESCRIBE_CONFIGS = 19, 32
"""Kafka's numbers of the APIs that the tests use."""
CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC = 2, 3, 17
UNSUPPORTED_VERSION, FETCH_SESSION_ID_NOT_FOUND = 35, 70
"""Kafka's numbers of the errors that the tests expect."""


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
    """Return the body of a Fetch request in version 11, from offset 0 of partition 0.

    The client wants at most one byte of records, and waits for at most 100 ms.
    """
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
    answer = await connection.ask(CREATE_TOPICS, 4, bytes(request.encode(version=4)))
    assert CreateTopicsResponse.decode(answer, version=4).topics[0].error_code == 0
    has_leader = False
    while not has_leader:
        answer = await connection.ask(METADATA, 4, metadata_request(topic))
        (created,) = MetadataResponse.decode(answer, version=4).topics
        has_leader = created.error_code == 0 and created.partitions[0].leader_id >= 0
    connection.close()


def test_api_versions_lists_the_offered_ones_and_answers_newer_versions_in_v0(
    tmp_path: Path,
) -> None:
    """A client may ask for the API versions in a version that the broker does not know.

    Then the answer has version 0, which every client can read, and names the versions of
    ApiVersions that the broker knows (KIP-511).
    """

    async def story(cluster: ListeningCluster) -> None:
        connection = await cluster.connect()
        answer = ApiVersionsResponse.decode(await connection.ask(API_VERSIONS, 2), version=2)
        assert [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys] == [
            (api.value, offered.oldest, offered.newest) for api, offered in OFFERED.items()
        ]
        for version in (3, 99):  # newer than the newest version of the broker, 2
            # The broker cannot know the body of a newer version, so it does not read the body.
            raw = await connection.ask(API_VERSIONS, version, b"\x00\x05tags?")
            refused = ApiVersionsResponse.decode(raw, version=0)
            assert refused.error_code == UNSUPPORTED_VERSION
            known = [(row.api_key, row.max_version) for row in refused.api_keys]
            assert known == [(API_VERSIONS, 2)]

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
        # Each of the next four is a request without a body. Its bytes are the size (10 bytes), the
        # API, the version, the correlation id, and a client id that is null.
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
        other, connection = await cluster.connect(), await cluster.connect()
        connection.send(data)
        assert await connection.ended()
        assert await other.ask(API_VERSIONS, 0)
        # The status has each reason, and how many connections were refused for it.
        ((refused_for, times),) = (await cluster.runtime.status()).refused_clients.items()
        assert reason in refused_for
        assert times == 1

    cluster = ListeningCluster(tmp_path)
    cluster.play(story)
    (refusal,) = cluster.refusals()
    assert reason in refusal


def test_answers_of_one_connection_keep_the_order_of_the_requests(
    tmp_path: Path,
) -> None:
    """The broker handles the requests of a connection one after the other.

    1. A Fetch waits for its 100 ms, and finds nothing: the records come only after it.
    2. A Produce of "a" with acks=0. Such a request gets no answer.
    3. A Produce of "b".
    4. A Fetch, which finds both records.
    """

    async def story(cluster: ListeningCluster) -> None:
        await with_topic(cluster)
        connection = await cluster.connect()
        connection.send_request(FETCH, 11, fetch_request("t"), correlation_id=1)
        connection.send_request(PRODUCE, 8, produce_request("t", "a", acks=0), correlation_id=2)
        connection.send_request(PRODUCE, 8, produce_request("t", "b"), correlation_id=3)
        connection.send_request(FETCH, 11, fetch_request("t"), correlation_id=4)

        answers = [await connection.answer() for _ in range(3)]
        assert [correlation_id for correlation_id, _ in answers] == [1, 3, 4]

        empty, produced, fetched = (body for _, body in answers)
        assert FetchResponse.decode(empty, version=11).responses[0].partitions[0].records == b""
        (topic,) = ProduceResponse.decode(produced, version=8).responses
        assert topic.partition_responses[0].base_offset == 1
        (topic,) = FetchResponse.decode(fetched, version=11).responses
        # An answer has at least one whole batch, although the limit is one byte here.
        first_batch = replace(client_batch("a"), base_offset=0, partition_leader_epoch=0)
        assert topic.partitions[0].records == encode_batch(first_batch)
        assert topic.partitions[0].last_stable_offset == 2
        assert topic.partitions[0].high_watermark == 2

    ListeningCluster(tmp_path).play(story)


def test_failed_produce_with_acks_0_ends_the_connection(tmp_path: Path) -> None:
    """With acks=0 no answer can report an error, so the broker closes the connection.

    The client notices the close, and requests new metadata.
    """

    async def story(cluster: ListeningCluster) -> None:
        connection = await cluster.connect()
        connection.send_request(PRODUCE, 8, produce_request("missing", "a", acks=0))
        assert await connection.ended()

    # Without this setting the broker would create the topic "missing".
    ListeningCluster(tmp_path, auto_create_topics_enable=False).play(story)


def test_damaged_batch_and_old_produce_are_refused_and_not_stored(tmp_path: Path) -> None:
    """The next valid batch has offset 0, so no record of the refused batches was stored.

    The broker offers Produce from version 3 on, because older versions have another record format.
    It answers version 2 with UNSUPPORTED_VERSION.
    """

    async def story(cluster: ListeningCluster) -> None:
        await with_topic(cluster)
        connection = await cluster.connect()
        # The last byte belongs to the records, so the CRC (checksum) is wrong now.
        damaged = produce_request("t", "a")[:-1] + b"?"
        answer = await connection.ask(PRODUCE, 8, damaged)
        (topic,) = ProduceResponse.decode(answer, version=8).responses
        (partition,) = topic.partition_responses
        assert partition.error_code == CORRUPT_MESSAGE

        # The first 2 bytes are the transactional_id, which version 2 does not have.
        old = produce_request("t", "a")[2:]
        answer = await connection.ask(PRODUCE, 2, old)
        (topic,) = ProduceResponse.decode(answer, version=2).responses
        (partition,) = topic.partition_responses
        assert partition.error_code == UNSUPPORTED_VERSION

        answer = await connection.ask(PRODUCE, 8, produce_request("t", "a"))
        (topic,) = ProduceResponse.decode(answer, version=8).responses
        assert topic.partition_responses[0].base_offset == 0

    ListeningCluster(tmp_path).play(story)


def test_fetch_session_is_declined_and_an_unknown_one_is_not_found(tmp_path: Path) -> None:
    """In a fetch session a client need not name the partitions again in each Fetch.

    A broker may decline to begin a session: it answers with session id 0 and all partitions. Our
    broker always does so. The client asks for a new session with epoch 0, and for a Fetch without
    a session with epoch -1. If the client names a session, the broker does not know the session.
    """

    async def story(cluster: ListeningCluster) -> None:
        await with_topic(cluster)
        connection = await cluster.connect()
        for epoch in (0, -1):
            raw = await connection.ask(FETCH, 11, fetch_request("t", session_epoch=epoch))
            answer = FetchResponse.decode(raw, version=11)
            assert answer.error_code == 0
            assert answer.session_id == 0
            assert len(answer.responses) == 1
        raw = await connection.ask(FETCH, 11, fetch_request("t", session_epoch=1, session_id=7))
        assert FetchResponse.decode(raw, version=11).error_code == FETCH_SESSION_ID_NOT_FOUND

    ListeningCluster(tmp_path).play(story)


def test_metadata_creates_a_topic_only_if_client_and_broker_allow_it(tmp_path: Path) -> None:
    """A Metadata request says whether the broker may create a missing topic that it names.

    The first answers still say that the topic is unknown, until it exists.
    """

    async def story(cluster: ListeningCluster) -> None:
        connection = await cluster.connect()

        async def error_and_partitions(name: str, *, may_create: bool) -> tuple[int, int]:
            raw = await connection.ask(METADATA, 4, metadata_request(name, may_create=may_create))
            (topic,) = MetadataResponse.decode(raw, version=4).topics
            return topic.error_code, len(topic.partitions)

        answer_if_forbidden = await error_and_partitions("new", may_create=False)
        assert answer_if_forbidden == (UNKNOWN_TOPIC_OR_PARTITION, 0)
        answer_to_wrong_name = await error_and_partitions("il/legal", may_create=True)
        assert answer_to_wrong_name == (INVALID_TOPIC, 0)
        # A new topic gets 3 partitions, by the setting num.partitions of `ListeningCluster`.
        while await error_and_partitions("new", may_create=True) != (0, 3):
            await asyncio.sleep(0.01)

        raw = await connection.ask(METADATA, 4, metadata_request("new"))
        answer = MetadataResponse.decode(raw, version=4)
        (broker,) = answer.brokers
        assert broker.node_id == 0
        assert f"{broker.host}:{broker.port}" == cluster.bootstrap
        assert len(answer.cluster_id) == 22  # a UUID in base64

    ListeningCluster(tmp_path).play(story)


def test_describe_configs_names_the_source_of_a_value(tmp_path: Path) -> None:
    """A value of a topic comes from the settings of the broker, or else it is Kafka's default."""
    from_broker, kafka_default = 4, 5  # Kafka's numbers of the sources

    async def story(cluster: ListeningCluster) -> None:
        await with_topic(cluster)
        connection = await cluster.connect()
        # One resource: type topic (2), name "t", and null in place of a list, for all its configs.
        resources = b"\x00\x00\x00\x01\x02\x00\x01t\xff\xff\xff\xff"
        include_synonyms = b"\x00"
        raw = await connection.ask(DESCRIBE_CONFIGS, 1, resources + include_synonyms)
        (result,) = DescribeConfigsResponse.decode(raw, version=1).results
        configs = {item.name: (item.value, item.config_source) for item in result.configs}
        assert configs["min.insync.replicas"] == ("2", from_broker)
        # The broker has this value in the setting message.max.bytes.
        assert configs["max.message.bytes"] == ("5000", from_broker)
        assert configs["message.timestamp.type"] == ("CreateTime", kafka_default)
        assert configs["cleanup.policy"] == ("delete", kafka_default)

    ListeningCluster(tmp_path, min_insync_replicas=2, message_max_bytes=5000).play(story)


def test_connection_above_max_connections_waits_for_a_free_place(tmp_path: Path) -> None:
    """Here the limit is 1, so the second connection waits until the first one is closed."""

    async def story(cluster: ListeningCluster) -> None:
        first, second = await cluster.connect(), await cluster.connect()
        assert await first.ask(API_VERSIONS, 0)
        second.send_request(API_VERSIONS, 0)
        assert await second.is_silent()
        first.close()
        correlation_id, _ = await second.answer()
        assert correlation_id == 1  # the default of `send_request`

    ListeningCluster(tmp_path, max_connections=1).play(story)


def test_connections_of_one_address_above_its_limit_are_closed(tmp_path: Path) -> None:
    """max.connections.per.ip is 1 here, so the second connection is closed, and the first stays."""

    async def story(cluster: ListeningCluster) -> None:
        first = await cluster.connect()
        assert await first.ask(API_VERSIONS, 0)
        second = await cluster.connect()
        assert await second.ended()
        assert await first.ask(API_VERSIONS, 0)

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
        half.send(b"\x00\x00\x00\x0a\x00\x12")  # the size of the request, 10 bytes, and 2 of them
        assert await half.ended()
        next_connection = await cluster.connect()
        assert await next_connection.ask(API_VERSIONS, 0)

    cluster = ListeningCluster(tmp_path, connections_max_idle_ms=100)
    cluster.play(story)
    assert "idle for connections.max.idle.ms" in cluster.refusals()


def test_hundreds_of_silent_connections_delay_no_client(tmp_path: Path) -> None:
    """A silent connection needs a socket and some memory, but no time of the broker."""

    async def story(cluster: ListeningCluster) -> None:
        silent = [await cluster.connect() for _ in range(300)]
        next_connection = await cluster.connect()
        assert await next_connection.ask(API_VERSIONS, 0)
        assert await silent[-1].ask(API_VERSIONS, 0)  # it was silent only so far
        for connection in silent:
            connection.close()

    cluster = ListeningCluster(tmp_path)
    cluster.play(story)
    assert len(cluster.requests(Api.API_VERSIONS)) == 2  # the two requests above


def test_crash_ends_connections_and_the_restarted_broker_has_the_same_port(
    tmp_path: Path,
) -> None:
    """Clients know a broker by its address, so the address must not change with a restart."""

    async def story(cluster: ListeningCluster) -> None:
        connection = await cluster.connect()
        assert await connection.ask(API_VERSIONS, 0)
        address_before = cluster.bootstrap
        await cluster.runtime.crash(BROKER)
        assert await connection.ended()
        assert cluster.bootstrap == ""  # no broker listens

        await cluster.runtime.restart(BROKER)
        assert cluster.bootstrap == address_before
        next_connection = await cluster.connect()
        assert await next_connection.ask(API_VERSIONS, 0)

    ListeningCluster(tmp_path).play(story)


def test_paused_broker_is_silent_and_answers_after_its_resume(tmp_path: Path) -> None:
    """During the pause the kernel accepts another connection. After it the broker answers on both.

    A pause stops the broker, but not the kernel of its machine.
    """

    async def story(cluster: ListeningCluster) -> None:
        connection = await cluster.connect()
        assert await connection.ask(API_VERSIONS, 0)

        await cluster.runtime.pause(BROKER)
        connection.send_request(API_VERSIONS, 0, correlation_id=2)
        late = await cluster.connect()
        late.send_request(API_VERSIONS, 0, correlation_id=3)
        assert await connection.is_silent()

        await cluster.runtime.resume(BROKER)
        correlation_id, _ = await connection.answer()
        assert correlation_id == 2
        correlation_id, _ = await late.answer()
        assert correlation_id == 3

    ListeningCluster(tmp_path).play(story)


@pytest.mark.parametrize("effect", [Cut(), Clog(), Slow(delay_us=60_000_000)], ids=str)
@pytest.mark.parametrize("from_client", [True, False])
def test_link_rules_hold_frames_of_both_directions_of_a_client(
    tmp_path: Path, effect: Cut | Clog | Slow, *, from_client: bool
) -> None:
    """A link rule can name a Kafka client: `client:raw` is the client with the id `raw`.

    After the first request a rule holds back the second request, or else its answer. When the rule
    is withdrawn, the answer arrives. Only a frame that is delayed by 60 s is still on its way when
    the test ends.
    """
    if from_client:
        selector = Selector(sources=(RAW,), destinations=(BROKER,))
    else:
        selector = Selector(sources=(BROKER,), destinations=(RAW,))
    rule = LinkRule(rule_id="r", selector=selector, effect=effect)

    async def story(cluster: ListeningCluster) -> None:
        connection = await cluster.connect()
        assert await connection.ask(API_VERSIONS, 0)
        await cluster.runtime.set_link_rules([rule])
        connection.send_request(API_VERSIONS, 0, correlation_id=2)
        assert await connection.is_silent()
        await cluster.runtime.set_link_rules([])
        if not isinstance(effect, Slow):
            correlation_id, _ = await connection.answer()
            assert correlation_id == 2

    cluster = ListeningCluster(tmp_path)
    cluster.play(story)
    second_request_is_on_its_way = from_client and isinstance(effect, Slow)
    received = len(cluster.requests(Api.API_VERSIONS))
    assert received == (1 if second_request_is_on_its_way else 2)


def test_reset_of_links_ends_only_the_connections_of_the_named_client(tmp_path: Path) -> None:
    """A reset for another client has no effect. A reset for RAW ends its connection."""

    async def story(cluster: ListeningCluster) -> None:
        connection = await cluster.connect()
        assert await connection.ask(API_VERSIONS, 0)
        runtime = cluster.runtime
        assert (await runtime.status()).kafka_clients == {RAW: 1}
        assert await runtime.reset_links([NodeName("client:other")], [BROKER]) == 0
        assert await connection.ask(API_VERSIONS, 0)
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
    """A broker must survive any bytes of a client.

    The test sends 40 pieces. Each one is random bytes, or a valid header with a random body.
    """
    # A header has 10 bytes after the size: API, version, correlation id 1, and a client id that is
    # null.
    requests_with_random_bodies = st.builds(
        lambda api, version, body: (
            (10 + len(body)).to_bytes(4, "big")
            + api.to_bytes(2, "big")
            + version.to_bytes(2, "big")
            + b"\x00\x00\x00\x01\xff\xff"
            + body
        ),
        st.sampled_from([api.value for api in OFFERED]),
        # No API is offered in a version above 11, so 12 is one that the broker does not know.
        st.integers(0, 12),
        st.binary(max_size=200),
    )
    any_piece = st.binary(max_size=100) | requests_with_random_bodies
    pieces = data.draw(st.lists(any_piece, min_size=40, max_size=40))

    async def story(cluster: ListeningCluster) -> None:
        for piece in pieces:
            connection = await cluster.connect()
            connection.send(piece)
            connection.close()
        next_connection = await cluster.connect()
        assert await next_connection.ask(API_VERSIONS, 0)

    ListeningCluster(tmp_path_factory.mktemp("bytes")).play(story)
