"""The listener of our broker reads recorded requests, and writes recorded answers.

- `recorded/requests.json` has requests of four real clients: (client, API key, version, bytes). The
  listener must read each of them.
- `recorded/answers.json` has answers of a real broker: (API key, version, bytes). kafka-python
  reads the bytes of an answer as its own message (`theirs`). The test copies the values into our
  message. From our message the listener must write the bytes of the answer.
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
S = TypeVar("S", bound=msgspec.Struct)
API_BY_KEY = {api.value: api for api in Api}
CLIENTS = ("aiokafka", "java", "kafka-python", "librdkafka")


def their_class(name: str) -> Any:  # noqa: ANN401 (kafka-python has no types)
    """Return the class of kafka-python for a message."""
    modules = (producer, consumer, metadata, admin)
    return next(getattr(module, name) for module in modules if hasattr(module, name))


def exchange_of(client: str, api: Api) -> Exchange:
    """Return the newest request of an API that a client has sent."""
    payloads = [
        bytes.fromhex(payload) for name, key, _, payload in REQUESTS if (name, key) == (client, api)
    ]
    return read_exchange(payloads[-1])


@pytest.mark.parametrize(("client", "key", "version", "payload"), REQUESTS)
def test_request_of_a_real_client_is_read(
    client: str, key: int, version: int, payload: str
) -> None:
    """The request has the API, version and client id of its header, and a body of our types.

    Some clients ask for a newer version of ApiVersions than the listener offers. As in Kafka the
    listener then answers in version 0.
    """
    exchange = read_exchange(bytes.fromhex(payload))
    api = API_BY_KEY[key]
    assert exchange.api is api
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
    """The codec checks the CRC (checksum) of a batch, and keeps its header in `kafka`.

    It leaves `kafka` out if the CRC is wrong. All clients except aiokafka are idempotent: their
    batches have a producer id of 0 or more.
    """
    request = exchange_of(client, Api.PRODUCE).body
    assert isinstance(request, ProduceRequest)
    batch = request.topic_data[0].partition_data[0].records
    assert batch.kafka is not None
    is_idempotent = batch.producer_id >= 0
    assert is_idempotent is (client != "aiokafka")


@pytest.mark.parametrize("client", CLIENTS)
def test_recordings_of_each_client_have_every_api_that_a_group_needs(client: str) -> None:
    """If an API were missing in the recordings of a client, its requests would not be tested.

    The APIs: 0 to 3 are Produce, Fetch, ListOffsets and Metadata; 8 to 14 are those of groups; 18
    is ApiVersions.
    """
    recorded = {key for name, key, _, _ in REQUESTS if name == client}
    assert recorded >= {0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18}


def ours(cls: type[S], theirs: Any) -> S:  # noqa: ANN401 (kafka-python has no types)
    """Return our message with the values that kafka-python has read."""
    values = {}
    for field in msgspec.structs.fields(cls):
        if field.name == "records":
            values["records"] = decode_batches(bytes(theirs.records or b""))
        elif hasattr(theirs, field.name):
            values[field.name] = our_value(field.type, getattr(theirs, field.name))
    return cls(**values)


def our_value(annotation: Any, value: Any) -> Any:  # noqa: ANN401 (a field's value)
    """Return a value of kafka-python as a value of our field, whose type is `annotation`."""
    if annotation is ErrorCode:
        return ErrorCode(value)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return ours(annotation, value)

    if isinstance(value, list):
        # The type T of `tuple[T, ...]` or of `tuple[T, ...] | None`.
        (inner, *_) = [arg for arg in annotation.__args__ if arg not in (type(None), Ellipsis)]
        if getattr(inner, "__origin__", None) is tuple:
            inner = inner.__args__[0]
        return tuple(our_value(inner, item) for item in value)

    if annotation is int and not isinstance(value, int):
        # A bit field of authorized operations, of which kafka-python makes a set. The recorded
        # broker has no authorizer, so its value is always this one.
        return NO_AUTHORIZED_OPERATIONS
    return value


def our_answer(api: Api, version: int, answer: bytes) -> Any:  # noqa: ANN401 (of any API)
    """Return an answer of a real broker as our message."""
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

    Some fields of Kafka's answer are not in our message. The listener writes a constant in their
    place. Equal bytes show that a real broker sends this constant, too.
    """
    api, expected = API_BY_KEY[key], bytes.fromhex(answer)
    out = bytearray()
    encode_response(api, version, our_answer(api, version, expected), out)
    assert bytes(out) == expected


def test_every_api_and_version_was_recorded_from_a_real_broker() -> None:
    """Only Produce v0 to v2 is missing, because no recorded client writes their record formats."""
    recorded = {(key, version) for key, version, _ in ANSWERS}
    offered = {
        (api.value, version)
        for api, row in OFFERED.items()
        for version in range(row.oldest, row.newest + 1)
    }
    assert offered - recorded == {(0, 0), (0, 1), (0, 2)}
