"""Refusal of static members by brokers before 2.3, which do not know static membership (KIP-345).

As in Kafka, this check comes before all others, and concerns four APIs: JoinGroup, SyncGroup,
Heartbeat and OffsetCommit.

Source: Kafka `KafkaApis`; docs/kafka, BEHAVIOUR 2.0.
"""

from coordinator.replies import join_error
from protocol.api import AnyResponse
from protocol.envelope import RequestEnvelope
from protocol.errors import ErrorCode
from protocol.messages.group import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    SyncGroupRequest,
    SyncGroupResponse,
)
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_ERROR = ErrorCode.UNSUPPORTED_VERSION
"""Kafka's answer: the field group.instance.id belongs to newer versions of the APIs."""


def static_member_refusal(envelope: RequestEnvelope) -> AnyResponse | None:
    """Return the error if a request of the four APIs has a group.instance.id, otherwise None."""
    # The pattern `str()` matches every text, but not None.
    match envelope.body:
        case JoinGroupRequest(group_instance_id=str()):
            return join_error("", _ERROR, envelope.api_version)  # "": no member id
        case SyncGroupRequest(group_instance_id=str()):
            return SyncGroupResponse(error_code=_ERROR)
        case HeartbeatRequest(group_instance_id=str()):
            return HeartbeatResponse(error_code=_ERROR)
        case OffsetCommitRequest(group_instance_id=str()) as request:
            # OffsetCommit has no error for the whole request, so each partition gets the error.
            return OffsetCommitResponse(
                topics=tuple(
                    OffsetCommitResponseTopic(
                        name=topic.name,
                        partitions=tuple(
                            OffsetCommitResponsePartition(
                                partition_index=entry.partition_index, error_code=_ERROR
                            )
                            for entry in topic.partitions
                        ),
                    )
                    for topic in request.topics
                )
            )
        case _:
            return None
