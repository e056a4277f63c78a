"""The listener of our broker reads requests of real clients, and answers like a real broker.

A real Kafka client can connect to a broker of the test lab through its listener, which speaks
Kafka's wire format. These tests need no network, because two files contain recorded bytes:

- `recorded/requests.json` has requests of four real clients. An entry is [client, API key,
  version, bytes in hexadecimal]. The listener must be able to read each request.
- `recorded/answers.json` has answers of a real broker. An entry is [API key, version, bytes].

An answer is tested in three steps:

1. kafka-python, which is a client, decodes the recorded bytes into an object of its own, `theirs`.
2. The test copies the values of `theirs` into a message of the test lab.
3. The listener encodes this message. The result must be the recorded bytes.
"""

import json
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from kafka.protocol import admin, consumer, metadata, producer

from cluster.wire.codec import encode_response
from cluster.wire.exchange import Exchange, read_exchange
from protocol.api import Api
from protocol.errors import ErrorCode
from protocol.messages.discovery import (
    ApiVersionsRequest,
    Coordinator,
    FindCoordinatorResponse,
)
from protocol.messages.group_admin import NO_AUTHORIZED_OPERATIONS
from protocol.messages.log import ProduceRequest
from protocol.messages.offset import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)
from protocol.records.kafka_format import decode_batches
from protocol.wire.listener_versions import OFFERED

FOLDER = Path(__file__).parent / "recorded"
REQUESTS = json.loads((FOLDER / "requests.json").read_text())
ANSWERS = json.loads((FOLDER / "answers.json").read_text())
OurMessage = TypeVar("OurMessage", bound=msgspec.Struct)
API_BY_KEY = {api.value: api for api in Api}
CLIENTS = ("aiokafka", "java", "kafka-python", "librdkafka")


def their_class(name: str) -> Any:  # noqa: ANN401 (kafka-python has no types)
    """Return kafka-python's class for a message, such as "HeartbeatResponse"."""
    modules = (producer, consumer, metadata, admin)
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def exchange_of(client: str, api: Api) -> Exchange:
    """Return what the listener reads from the last recorded request of a client for an API."""
    payloads = [
        payload
        for recorded_client, key, _version, payload in REQUESTS
        if (recorded_client, key) == (client, api)
    ]
    return read_exchange(bytes.fromhex(payloads[-1]))


@pytest.mark.parametrize(("client", "key", "version", "payload"), REQUESTS)
def test_request_of_a_real_client_is_read(
    client: str, key: int, version: int, payload: str
) -> None:
    """The listener finds the API, the version and the client id, and reads the body.

    The body becomes an object of the test lab's class for requests of this API. There is one
    exception: some clients send ApiVersions in a newer version than the listener offers. As in
    Kafka, the listener then ignores the body and answers in version 0.
    """
    exchange = read_exchange(bytes.fromhex(payload))
    api = API_BY_KEY[key]
    assert exchange.api is api
    # For the recording, each client was given a client id that begins with its name.
    assert exchange.header.client_id.startswith(client)
    assert exchange.refused_batches == {}
    if version > OFFERED[api].newest:
        assert exchange.answer_version == 0
        assert exchange.body == ApiVersionsRequest()
    else:
        assert exchange.header.api_version == version
        assert exchange.answer_version == version
        assert isinstance(exchange.body, api.request)


@pytest.mark.parametrize("client", CLIENTS)
def test_batch_of_a_real_client_is_accepted_by_the_log(client: str) -> None:
    """The codec finds that the checksum (CRC) of the client's batch is correct.

    With a correct checksum the codec keeps the header of the batch in the field `kafka`. With a
    wrong checksum this field is None.

    All recorded clients except aiokafka are idempotent producers, so their batches have a producer
    id of 0 or more. A batch of aiokafka has the producer id -1.
    """
    request = exchange_of(client, Api.PRODUCE).body
    assert isinstance(request, ProduceRequest)
    batch = request.topic_data[0].partition_data[0].records
    assert batch.kafka is not None
    is_idempotent = batch.producer_id >= 0
    assert is_idempotent is (client != "aiokafka")


@pytest.mark.parametrize("client", CLIENTS)
def test_recordings_of_each_client_have_every_api_that_a_group_needs(client: str) -> None:
    """The tests above can only test what was recorded. So no API may be missing for any client."""
    recorded = {key for recorded_client, key, _, _ in REQUESTS if recorded_client == client}
    log_apis = {0, 1, 2, 3}  # Produce, Fetch, ListOffsets and Metadata
    group_apis = {8, 9, 10, 11, 12, 13, 14}  # from OffsetCommit to SyncGroup
    api_versions = {18}
    assert recorded >= log_apis | group_apis | api_versions


def ours(
    cls: type[OurMessage],
    theirs: Any,  # noqa: ANN401 (kafka-python has no types)
) -> OurMessage:
    """Return a message of our class `cls` with the values that kafka-python has decoded.

    The fields have the same names in both classes. kafka-python lacks a few of our fields, which
    keep their defaults.
    """
    values = {}
    for field in msgspec.structs.fields(cls):
        if field.name == "records":
            values["records"] = decode_batches(bytes(theirs.records or b""))
        elif hasattr(theirs, field.name):
            values[field.name] = our_value(field.type, getattr(theirs, field.name))
    return cls(**values)


def our_value(annotation: Any, value: Any) -> Any:  # noqa: ANN401 (a field's value)
    """Convert a value of kafka-python to `annotation`, the type of our field.

    For example, the int 16 becomes `ErrorCode.NOT_COORDINATOR` if the type is ErrorCode.
    """
    if annotation is ErrorCode:
        return ErrorCode(value)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return ours(annotation, value)

    if isinstance(value, list):
        # The type of our field is `tuple[Item, ...]` or `tuple[Item, ...] | None`. In the second
        # case the first argument of the union is `tuple[Item, ...]`, which must be opened, too.
        (item_type, *_) = [arg for arg in annotation.__args__ if arg not in (type(None), Ellipsis)]
        if getattr(item_type, "__origin__", None) is tuple:
            item_type = item_type.__args__[0]
        return tuple(our_value(item_type, item) for item in value)

    if annotation is int and not isinstance(value, int):
        # This is a bit field of authorized operations, which kafka-python turns into a set. The
        # recorded broker had no authorizer, so it always sent the number for "no operations".
        return NO_AUTHORIZED_OPERATIONS
    return value


def our_answer(api: Api, version: int, answer: bytes) -> Any:  # noqa: ANN401 (of any API)
    """Decode an answer of a real broker with kafka-python, and return it as our message.

    FindCoordinator and OffsetFetch are special. In the recorded versions they answer for a single
    key or group. Our messages have the form of later versions, with a list of keys or groups.
    """
    theirs = their_class(f"{api.label}Response").decode(answer, version=version)
    if api is Api.FIND_COORDINATOR:
        found = Coordinator(
            key="",
            error_code=ErrorCode(theirs.error_code),
            error_message=theirs.error_message if version >= 1 else None,
            node_id=theirs.node_id,
            host=theirs.host,
            port=theirs.port,
        )
        return FindCoordinatorResponse(coordinators=(found,))
    if api is Api.OFFSET_FETCH:
        topics = tuple(ours(OffsetFetchResponseTopics, topic) for topic in theirs.topics)
        error = ErrorCode(theirs.error_code) if version >= 2 else ErrorCode.NONE
        group = OffsetFetchResponseGroup(group_id="", topics=topics, error_code=error)
        return OffsetFetchResponse(groups=(group,))
    return ours(api.response, theirs)


@pytest.mark.parametrize(("key", "version", "answer"), ANSWERS)
def test_answer_of_a_real_broker_is_written_byte_for_byte(
    key: int, version: int, answer: str
) -> None:
    """A client must not see a difference between our broker and a real one.

    Some fields of Kafka's answers are not in our messages, and the listener always writes the same
    value for them. Equal bytes show that a real broker sent this value, too.
    """
    api = API_BY_KEY[key]
    expected = bytes.fromhex(answer)
    out = bytearray()
    encode_response(api, version, our_answer(api, version, expected), out)
    assert bytes(out) == expected


def test_every_api_and_version_was_recorded_from_a_real_broker() -> None:
    """Only Produce v0 to v2 is missing: no recorded client writes the record formats of v0 to v2.

    The sets in this test have pairs of an API key and a version. Produce has the key 0.
    """
    recorded = {(key, version) for key, version, _ in ANSWERS}
    offered = {
        (api.value, version)
        for api, row in OFFERED.items()
        for version in range(row.oldest, row.newest + 1)
    }
    assert offered - recorded == {(0, 0), (0, 1), (0, 2)}
