"""Messages between brokers and the controller, under KRaft's names.

The controller keeps the cluster's metadata in the log `__cluster_metadata-0`, which brokers read
with Fetch. The controller increases the partition epoch of a partition with every change of the
partition's leader, ISR or replicas. A broker gets a higher broker epoch each time it registers.

A number after the name of a request is its API key. `array_like` and `tag` say how this project's
processes send messages to each other: a struct is sent as an array of its fields. A request or an
answer has the name of its struct in front.

Source: Kafka's message schemas.
"""

import msgspec

from protocol.errors import ErrorCode
from protocol.records.metadata import BrokerEndpoint


class BrokerRegistrationRequest(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True
):
    """BrokerRegistration (62): a broker that has started registers at the controller.

    Other nodes reach the broker at `host` and `port`. Kafka clients reach it at one of `listeners`.
    """

    broker_id: int
    incarnation_id: int
    host: str
    port: int
    rack: str | None = None
    listeners: tuple[BrokerEndpoint, ...] = ()


class BrokerRegistrationResponse(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True
):
    """Answer to BrokerRegistration with the broker epoch."""

    error_code: ErrorCode = ErrorCode.NONE
    broker_epoch: int = -1


class BrokerHeartbeatRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """BrokerHeartbeat (63), every `broker.heartbeat.interval.ms`.

    current_metadata_offset: offset up to which the broker has read the metadata log.
    want_fence: True if the broker asks to be fenced, that is, to lead no partition for now.
    want_shut_down: True if the broker asks for a controlled shutdown.
    """

    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False


class BrokerHeartbeatResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to BrokerHeartbeat.

    `is_caught_up` is True if the broker has read its own registration in the metadata log.
    `should_shut_down` is True if the broker may shut down now: it has asked for a controlled
    shutdown, and other brokers have taken over its leaderships.
    """

    error_code: ErrorCode = ErrorCode.NONE
    is_caught_up: bool = False
    is_fenced: bool = True
    should_shut_down: bool = False


class IsrBrokerState(msgspec.Struct, frozen=True, array_like=True):
    """A broker in a proposed ISR, with the broker epoch of its last Fetch at the leader."""

    broker_id: int
    broker_epoch: int = -1


class AlterPartitionPartitionData(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """A proposed ISR of one partition."""

    partition_index: int
    leader_epoch: int
    partition_epoch: int
    new_isr_with_epochs: tuple[IsrBrokerState, ...]


class AlterPartitionTopicData(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The proposed ISRs of one topic."""

    topic_name: str
    partitions: tuple[AlterPartitionPartitionData, ...]


class AlterPartitionRequest(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """AlterPartition (56): a leader proposes another ISR to the controller."""

    broker_id: int
    broker_epoch: int
    topics: tuple[AlterPartitionTopicData, ...]


class AlterPartitionPartitionResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcome for one partition, with the partition's present state."""

    partition_index: int
    error_code: ErrorCode = ErrorCode.NONE
    leader_id: int = -1
    leader_epoch: int = -1
    isr: tuple[int, ...] = ()
    partition_epoch: int = -1


class AlterPartitionTopicResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The outcomes for one topic."""

    topic_name: str
    partitions: tuple[AlterPartitionPartitionResponse, ...]


class AlterPartitionResponse(msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True):
    """Answer to AlterPartition."""

    error_code: ErrorCode = ErrorCode.NONE
    topics: tuple[AlterPartitionTopicResponse, ...] = ()


class AllocateProducerIdsRequest(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True
):
    """AllocateProducerIds (67): a broker requests a block of producer ids for itself alone."""

    broker_id: int
    broker_epoch: int


class AllocateProducerIdsResponse(
    msgspec.Struct, frozen=True, kw_only=True, array_like=True, tag=True
):
    """Answer to AllocateProducerIds: `producer_id_len` ids from `producer_id_start` on."""

    error_code: ErrorCode = ErrorCode.NONE
    producer_id_start: int = 0
    producer_id_len: int = 0
