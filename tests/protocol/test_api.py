"""The table of APIs agrees with the messages, and `error_of` finds the error in each answer.

`Api` is a table. It has a row for each API, that is, for each kind of request, such as
Api.HEARTBEAT. A row has the number of the API, its versions, the classes of its request and its
answer, and the fields of the answer that have errors. AnyRequest and AnyResponse are the unions of
all classes.
"""

import re
import typing
from collections.abc import Iterator

import msgspec
import pytest

from protocol.api import (
    API_OF_REQUEST,
    AnyRequest,
    AnyResponse,
    Api,
    error_of,
)
from protocol.errors import ErrorCode
from protocol.messages.admin import (
    AlterPartitionReassignmentsResponse,
    ElectLeadersResponse,
    PartitionResult,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    ReplicaElectionResult,
)
from protocol.messages.controller import AlterPartitionResponse
from protocol.messages.discovery import (
    Coordinator,
    FindCoordinatorResponse,
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol.messages.group import HeartbeatResponse, LeaveGroupResponse, MemberResponse
from protocol.messages.log import FetchResponse
from protocol.messages.offset import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopics,
)
from protocol.messages.zookeeper import KeeperError


def test_rows_and_unions_name_the_same_messages() -> None:
    """A message without a row cannot be sent. A message outside of the unions cannot be decoded."""
    assert {api.request for api in Api} == set(typing.get_args(AnyRequest))
    assert {api.response for api in Api} == set(typing.get_args(AnyResponse))


def test_each_row_has_messages_of_its_own() -> None:
    """The row is found by the class of the request, so no two rows may have the same class."""
    assert len(API_OF_REQUEST) == len(Api)
    assert len({api.response for api in Api}) == len(Api)
    for api in Api:
        assert api.response.__name__ == f"{api.label}Response"


def test_label_is_kafkas_printed_name() -> None:
    """Traces and reports print the same name as Kafka's logs.

    This name is the name of the row in camel case.
    """
    assert Api.JOIN_GROUP.label == "JoinGroup"
    assert Api.ADD_PARTITIONS_TO_TXN.label == "AddPartitionsToTxn"
    for api in Api:
        assert "".join(part.capitalize() for part in api.name.split("_")) == api.label


@pytest.mark.parametrize("api", Api, ids=lambda api: api.label)
def test_docstring_of_a_request_names_key_and_versions_of_its_row(api: Api) -> None:
    """A docstring begins like "JoinGroup (11) v0-v9". An API without a schema has one version."""
    doc = api.request.__doc__ or ""
    first, last = api.versions[0], api.versions[-1]
    assert last == api.latest_version
    if api.schema is None:
        assert first == last
        assert doc.startswith(f"{api.label} ({api.value})")
    else:
        versions = f"v{first}" if first == last else f"v{first}-v{last}"
        assert re.match(rf"{api.label} \({api.value}\) {versions}[.:]", doc)


def error_paths(struct: type[msgspec.Struct], prefix: str = "") -> Iterator[str]:
    """Yield the path of each field that has an error, such as `topics.partitions.error_code`.

    As in the rows of `Api`, outer fields come before inner fields.
    """
    hints = typing.get_type_hints(struct)
    for name, hint in hints.items():
        if hint in (ErrorCode, KeeperError):
            yield prefix + name
    for name, hint in hints.items():
        for item in typing.get_args(hint):
            if isinstance(item, type) and issubclass(item, msgspec.Struct):
                yield from error_paths(item, f"{prefix}{name}.")


@pytest.mark.parametrize("api", Api, ids=lambda api: api.label)
def test_row_lists_every_error_of_its_answer(api: Api) -> None:
    """If a row lacked an error, an answer with this error would be traced as NONE.

    Two rows leave an error out on purpose. A Metadata request has not failed if a partition has no
    leader. An AckEpoch has transactions with the errors of other requests.
    """
    left_out = {Api.METADATA: "topics.partitions.error_code", Api.ACK_EPOCH: "txns.body.error"}
    paths = [path for path in error_paths(api.response) if path != left_out.get(api)]
    assert list(api.errors) == paths


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR), "NOT_COORDINATOR"),
        (FetchResponse(error_code=ErrorCode.NOT_CONTROLLER), "NOT_CONTROLLER"),
        (AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH), "STALE_BROKER_EPOCH"),
        (
            LeaveGroupResponse(
                members=(MemberResponse(member_id="m", error_code=ErrorCode.UNKNOWN_MEMBER_ID),)
            ),
            "UNKNOWN_MEMBER_ID",
        ),
        (
            OffsetCommitResponse(
                topics=(
                    OffsetCommitResponseTopic(
                        name="t",
                        partitions=(
                            OffsetCommitResponsePartition(partition_index=0),
                            OffsetCommitResponsePartition(
                                partition_index=1, error_code=ErrorCode.REQUEST_TIMED_OUT
                            ),
                        ),
                    ),
                )
            ),
            "REQUEST_TIMED_OUT",
        ),
        (
            FindCoordinatorResponse(
                coordinators=(Coordinator(key="g", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE),)
            ),
            "COORDINATOR_NOT_AVAILABLE",
        ),
        (
            ElectLeadersResponse(
                replica_election_results=(
                    ReplicaElectionResult(
                        topic="t",
                        partition_result=(
                            PartitionResult(partition_id=0),
                            PartitionResult(
                                partition_id=1,
                                error_code=ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
                            ),
                        ),
                    ),
                )
            ),
            "PREFERRED_LEADER_NOT_AVAILABLE",
        ),
        (
            AlterPartitionReassignmentsResponse(
                responses=(
                    ReassignableTopicResponse(
                        name="t",
                        partitions=(
                            ReassignablePartitionResponse(
                                partition_index=0, error_code=ErrorCode.INVALID_REPLICA_ASSIGNMENT
                            ),
                        ),
                    ),
                )
            ),
            "INVALID_REPLICA_ASSIGNMENT",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_error_of_returns_the_first_error_wherever_kafka_puts_it(
    answer: AnyResponse, error: str
) -> None:
    """Kafka has an error at the top of an answer, or in its members, partitions or keys."""
    assert error_of(answer) == error


def test_error_of_reads_one_path_after_the_other() -> None:
    """The row of OffsetFetch has two paths: errors of groups, and then errors of partitions.

    In the second answer the first group has an error in a partition, and the second group has an
    error itself. The error of the group is found first.
    """
    partition = OffsetFetchResponsePartition(
        partition_index=0, error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT
    )
    topics = (OffsetFetchResponseTopics(name="t", partitions=(partition,)),)
    first = OffsetFetchResponseGroup(group_id="a", topics=topics)
    second = OffsetFetchResponseGroup(group_id="b", error_code=ErrorCode.NOT_COORDINATOR)
    assert error_of(OffsetFetchResponse(groups=(first,))) == "UNSTABLE_OFFSET_COMMIT"
    assert error_of(OffsetFetchResponse(groups=(first, second))) == "NOT_COORDINATOR"


def test_error_of_metadata_ignores_its_partitions() -> None:
    """A Metadata request has not failed if a partition of the answer has no leader."""
    partition = MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE, partition_index=0, leader_id=-1
    )
    topic = MetadataResponseTopic(name="t", partitions=(partition,))
    assert error_of(MetadataResponse(topics=(topic,))) == "NONE"
