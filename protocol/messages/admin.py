"""Messages of an administrator to the controller, under Kafka's names.

Source: Kafka's message schemas. In KRaft an administrator may speak to the controllers directly
(KIP-919, `bootstrap.controllers`).
"""

from enum import IntEnum

import msgspec

from protocol.errors import ErrorCode


class ElectionType(IntEnum):
    """Which replicas an election may choose."""

    PREFERRED = 0
    UNCLEAN = 1


class ElectLeadersTopic(msgspec.Struct, frozen=True, array_like=True):
    """Partitions of one topic, by index."""

    topic: str
    partitions: tuple[int, ...]


class ElectLeadersRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """ElectLeaders (43). `topic_partitions` None means every partition."""

    election_type: int = ElectionType.PREFERRED
    topic_partitions: tuple[ElectLeadersTopic, ...] | None = None
    timeout_ms: int = 60_000


class DeleteTopicsRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """DeleteTopics (20), as in version 5: topics by name."""

    topic_names: tuple[str, ...]
    timeout_ms: int = 60_000


class DeletableTopicResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome for one topic."""

    name: str
    error_code: ErrorCode = ErrorCode.NONE


class DeleteTopicsResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to DeleteTopics."""

    responses: tuple[DeletableTopicResult, ...] = ()


def refused_deletion(request: DeleteTopicsRequest, error: ErrorCode) -> DeleteTopicsResponse:
    """Return the answer that fails for every topic: it has no error of the whole."""
    return DeleteTopicsResponse(
        responses=tuple(
            DeletableTopicResult(name=name, error_code=error)
            for name in dict.fromkeys(request.topic_names)
        )
    )


class PartitionResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome for one partition; `error_message` None where the code says it all."""

    partition_id: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class ReplicaElectionResult(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcomes for one topic."""

    topic: str
    partition_result: tuple[PartitionResult, ...]


class ElectLeadersResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to ElectLeaders; of every partition, those that needed no election are left out."""

    error_code: ErrorCode = ErrorCode.NONE
    replica_election_results: tuple[ReplicaElectionResult, ...] = ()


class ReassignablePartition(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The replicas that a partition shall have, preferred leader first; None cancels a move."""

    partition_index: int
    replicas: tuple[int, ...] | None


class ReassignableTopic(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The partitions of one topic that get other replicas."""

    name: str
    partitions: tuple[ReassignablePartition, ...]


class AlterPartitionReassignmentsRequest(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True
):
    """AlterPartitionReassignments (45): partitions get other replicas, or another order."""

    timeout_ms: int = 60_000
    topics: tuple[ReassignableTopic, ...]


class ReassignablePartitionResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome for one partition; `error_message` None where there is no error."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None


class ReassignableTopicResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcomes for one topic."""

    name: str
    partitions: tuple[ReassignablePartitionResponse, ...]


class AlterPartitionReassignmentsResponse(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True
):
    """Answer to AlterPartitionReassignments."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    responses: tuple[ReassignableTopicResponse, ...] = ()
