"""Messages of KIP-848's consumer groups. Brokers refuse them, because the protocol is off here.

KIP-848 is Kafka's newer rebalance protocol. In this protocol the coordinator computes the
assignment, and sends each member its partitions in the answer to a heartbeat.

Source: Kafka's message schemas.
"""

import msgspec

from protocol.errors import ErrorCode


class HeartbeatTopicPartitions(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Partitions of one topic that a member owns, or is assigned."""

    topic_id: str
    partitions: tuple[int, ...]


class ConsumerGroupHeartbeatRequest(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True
):
    """ConsumerGroupHeartbeat (68) v0: a member joins, stays in the group, or leaves it."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    server_assignor: str | None = None
    topic_partitions: tuple[HeartbeatTopicPartitions, ...] | None = None


class HeartbeatAssignment(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The partitions that a member is assigned."""

    topic_partitions: tuple[HeartbeatTopicPartitions, ...]


class ConsumerGroupHeartbeatResponse(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True
):
    """Answer to ConsumerGroupHeartbeat. With an error, the other fields have their defaults."""

    error_code: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: HeartbeatAssignment | None = None
