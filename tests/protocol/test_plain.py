"""Kafka's message schemas agree with our messages and with the JSON that Kafka prints.

A message occurs in two forms. The first form is a Struct of ours, such as JoinGroupRequest, which
has the fields of the newest version of its API. The second form is a plain message: a dict with the
fields of one certain version, as Kafka prints the message. Our recordings of a real Kafka have
plain messages. A schema says which fields each version of an API has. With the help of schemas the
functions `request_from_plain` and `response_to_plain` convert between the two forms.
"""

import typing

import msgspec
import pytest

from protocol.api import AnyResponse, Api
from protocol.errors import ErrorCode, SimulationError
from protocol.messages.discovery import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.group import (
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from protocol.messages.offset import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)
from protocol.messages.transaction import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from protocol.plain import (
    NotAMessage,
    is_known,
    request_from_plain,
    response_to_plain,
)
from protocol.wire.fields import ApiSchema, Kind, PlainMessage, WireField

APIS_WITH_SCHEMA = [
    pytest.param(api, api.schema, id=api.label) for api in Api if api.schema is not None
]


def fields_in(fields: tuple[WireField, ...], version: int) -> dict[str, WireField]:
    """Return the fields of the version, with their names as keys."""
    return {field.name: field for field in fields if field.is_in(version)}


def struct_in(annotation: object) -> type[msgspec.Struct] | None:
    """Return the Struct in the annotation of a field, such as `tuple[Item, ...]`, or None."""
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return annotation
    structs = (struct_in(argument) for argument in typing.get_args(annotation))
    return next((struct for struct in structs if struct is not None), None)


def check_fields(fields: tuple[WireField, ...], struct: type[msgspec.Struct], version: int) -> None:
    """Check that the struct has every field of the version, unless the field may be missing.

    A field may be missing if our code does not use it, or if the schema has a value `absent`. Then
    this value is sent in place of the field.
    """
    types = {field.name: field.type for field in msgspec.structs.fields(struct)}
    for name, field in fields_in(fields, version).items():
        if field.is_unused:
            continue
        if name not in types and field.absent is not None:
            continue
        assert name in types, f"{struct.__name__} has no {name}"
        if field.kind is Kind.STRUCT:
            inner = struct_in(types[name])
            assert inner is not None
            check_fields(field.fields, inner, version)


@pytest.mark.parametrize(("api", "schema"), APIS_WITH_SCHEMA)
def test_newest_version_of_a_schema_has_the_fields_of_our_messages(
    api: Api, schema: ApiSchema
) -> None:
    """A field that only the schema or only the message has would be lost without notice."""
    version = api.latest_version
    for fields, struct in (
        (schema.request_fields, api.request),
        (schema.response_fields, api.response),
    ):
        check_fields(fields, struct, version)
        # Some of our fields are only in older versions.
        in_any_version = {field.name for field in fields}
        ours = {field.name for field in msgspec.structs.fields(struct)}
        assert ours <= in_any_version


@pytest.mark.parametrize(("api", "schema"), APIS_WITH_SCHEMA)
def test_answer_without_content_is_written_in_every_version(api: Api, schema: ApiSchema) -> None:
    """An answer with default values can be written in every version.

    Some old versions have room for exactly one key, group or transaction. So the answers of these
    APIs have one item.
    """
    answers_with_one_item = {
        "FindCoordinator": FindCoordinatorResponse(coordinators=(Coordinator(key="g"),)),
        "OffsetFetch": OffsetFetchResponse(groups=(OffsetFetchResponseGroup(group_id="g"),)),
        "AddPartitionsToTxn": AddPartitionsToTxnResponse(
            results_by_transaction=(
                AddPartitionsToTxnResult(transactional_id="t", topic_results=()),
            )
        ),
    }
    # The cast is needed because the declared type of `api.response` is wider than AnyResponse.
    answer = typing.cast(AnyResponse, answers_with_one_item.get(api.label, api.response()))
    for version in api.versions:
        plain = response_to_plain(api.label, version, answer)
        assert set(plain) == set(fields_in(schema.response_fields, version))


def test_request_is_built_from_the_fields_of_its_version() -> None:
    """JoinGroup v0 has no rebalance timeout and no instance id. Both fields get their defaults."""
    plain: PlainMessage = {
        "group_id": "g",
        "session_timeout_ms": 6_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"x"}],
    }
    request = request_from_plain("JoinGroup", 0, plain)
    assert isinstance(request, JoinGroupRequest)
    assert request.rebalance_timeout_ms == -1
    assert request.group_instance_id is None
    (protocol,) = request.protocols
    assert protocol.name == "range"
    assert protocol.metadata == b"x"


@pytest.mark.parametrize(
    ("api", "version", "plain", "expected"),
    [
        (
            "LeaveGroup",
            2,
            {"group_id": "g", "member_id": "m"},
            LeaveGroupRequest(group_id="g", members=(MemberIdentity(member_id="m"),)),
        ),
        ("FindCoordinator", 0, {"key": "g"}, FindCoordinatorRequest(coordinator_keys=("g",))),
        (
            "AddPartitionsToTxn",
            3,
            {
                "v3_and_below_transactional_id": "t",
                "v3_and_below_producer_id": 7,
                "v3_and_below_producer_epoch": 1,
                "v3_and_below_topics": [{"name": "a", "partitions": [0, 2]}],
            },
            AddPartitionsToTxnRequest(
                transactions=(
                    AddPartitionsToTxnTransaction(
                        transactional_id="t",
                        producer_id=7,
                        producer_epoch=1,
                        topics=(AddPartitionsToTxnTopic(name="a", partitions=(0, 2)),),
                    ),
                )
            ),
        ),
        (
            "FindCoordinator",
            3,
            {"key": "t", "key_type": 1},
            FindCoordinatorRequest(coordinator_keys=("t",), key_type=1),
        ),
        (
            "OffsetFetch",
            7,
            {
                "group_id": "g",
                "topics": [{"name": "t", "partition_indexes": [0, 1]}],
                "require_stable": True,
            },
            OffsetFetchRequest(
                groups=(
                    OffsetFetchRequestGroup(
                        group_id="g",
                        topics=(OffsetFetchRequestTopics(name="t", partition_indexes=(0, 1)),),
                    ),
                ),
                require_stable=True,
            ),
        ),
        (
            "OffsetFetch",
            2,
            {"group_id": "g", "topics": None},
            OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id="g"),)),
        ),
    ],
)
def test_request_of_an_old_version_is_converted_to_the_newest(
    api: str, version: int, plain: PlainMessage, expected: msgspec.Struct
) -> None:
    """An old version has one member, key, transaction or group. The newest version has a list."""
    assert request_from_plain(api, version, plain) == expected


def test_answer_has_the_fields_of_its_version_in_kafkas_order() -> None:
    """JoinGroup v0 lacks four fields that v9 has.

    These fields are the throttle time, the protocol type, `skip_assignment`, and the instance id of
    each member.
    """
    answer = JoinGroupResponse(
        error_code=ErrorCode.NONE,
        generation_id=3,
        protocol_type="consumer",
        protocol_name="range",
        leader="m",
        member_id="m",
        members=(JoinGroupResponseMember(member_id="m", group_instance_id="i", metadata=b"x"),),
    )
    old = response_to_plain("JoinGroup", 0, answer)
    assert list(old) == [
        "error_code",
        "generation_id",
        "protocol_name",
        "leader",
        "member_id",
        "members",
    ]
    assert old["members"] == [{"member_id": "m", "metadata": b"x"}]
    new = response_to_plain("JoinGroup", 9, answer)
    assert new["throttle_time_ms"] == 0
    assert new["protocol_type"] == "consumer"
    assert new["skip_assignment"] is False
    assert new["members"] == [{"member_id": "m", "group_instance_id": "i", "metadata": b"x"}]


def test_answer_of_one_key_has_the_flat_form_below_version_4() -> None:
    """FindCoordinator asks for several keys since v4 (KIP-699). v0 has the fields of one key."""
    answer = FindCoordinatorResponse(
        coordinators=(Coordinator(key="g", node_id=1, host="h", port=9092),)
    )
    assert response_to_plain("FindCoordinator", 0, answer) == {
        "error_code": 0,
        "node_id": 1,
        "host": "h",
        "port": 9092,
    }


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"generation_id": "1"}, "request.generation_id: expected an integer, got '1'"),
        ({"generation_id": True}, "request.generation_id: expected an integer, got True"),
        ({"member_id": None}, "request.member_id: expected a string, got None"),
        ({"reason": "x"}, "request.reason: there is no such field in v4"),
    ],
)
def test_plain_data_that_is_no_message_is_refused_with_the_field(
    change: PlainMessage, complaint: str
) -> None:
    """Before the change the message is a valid Heartbeat v4. After the change it is not valid."""
    plain: PlainMessage = {
        "group_id": "g",
        "generation_id": 1,
        "member_id": "m",
        "group_instance_id": None,
    }
    request_from_plain("Heartbeat", 4, plain)
    with pytest.raises(NotAMessage) as caught:
        request_from_plain("Heartbeat", 4, plain | change)
    assert str(caught.value) == complaint


def test_missing_field_of_a_nested_object_is_refused_with_its_path() -> None:
    """The error says where the field is missing, as a path of names and indexes."""
    plain: PlainMessage = {"group_id": "g", "topics": [{"name": "t", "partitions": [{}]}]}
    with pytest.raises(NotAMessage, match=r"request.topics\[0\].partitions\[0\].partition_index"):
        request_from_plain("OffsetDelete", 0, plain)


def test_versions_without_a_schema_are_refused() -> None:
    """The schemas have OffsetCommit from v2 on, JoinGroup up to v9, and no ShareFetch."""
    assert not is_known("OffsetCommit", 1)  # below the first version of the schema
    assert not is_known("JoinGroup", 10)  # above the last version
    assert not is_known("ShareFetch", 0)  # no schema at all
    with pytest.raises(SimulationError, match="no JoinGroup v10"):
        request_from_plain("JoinGroup", 10, {})


def test_answer_of_another_api_raises() -> None:
    """Only a bug in a handler can answer a Heartbeat with a LeaveGroupResponse."""
    with pytest.raises(SimulationError, match="LeaveGroupResponse"):
        response_to_plain("Heartbeat", 0, LeaveGroupResponse())
    assert response_to_plain("Heartbeat", 0, HeartbeatResponse()) == {"error_code": 0}
