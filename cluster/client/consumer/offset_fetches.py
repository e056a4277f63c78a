"""OffsetFetch: the group's committed offsets, from its coordinator.

As in Kafka's Java consumer, every request sets `require_stable`. This matters for offsets that are
committed in a transaction. As long as the transaction is undecided, the coordinator answers
UNSTABLE_OFFSET_COMMIT for the partition, and the client must ask again.

Source: Kafka ConsumerCoordinator.OffsetFetchResponseHandler; docs/kafka, BEHAVIOUR 7.5.
"""

from collections.abc import Callable, Iterable

from cluster.client.consumer.subscription import Position
from cluster.client.net.coordinator_discovery import CoordinatorDiscovery
from cluster.client.net.errors import ClientError, error_from_code, unexpected_error
from cluster.client.net.futures import RequestFuture
from cluster.host.host import Host
from protocol.causes import OffsetFetchCause
from protocol.errors import ErrorCode
from protocol.ids import GroupId, MemberId, TopicPartition
from protocol.messages.offset import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
)
from protocol.trace import TraceEvent, TraceKind

CommittedOffsets = dict[TopicPartition, Position | None]
"""The committed offset of each partition, or None if no offset was committed."""


class OffsetFetches:
    """Requests the committed offsets of one group from its coordinator."""

    def __init__(
        self,
        host: Host,
        group_id: GroupId,
        discovery: CoordinatorDiscovery,
        *,
        member_id: Callable[[], MemberId],
        cause: OffsetFetchCause | None = None,
    ) -> None:
        """Create an object without requests.

        `member_id` and `cause` are for the trace. `member_id` returns "" if the client is not a
        member. `cause` is None if a consumer fetches offsets for itself.
        """
        self._host = host
        self._group_id = group_id
        self._discovery = discovery
        self._member_id = member_id
        self._cause = cause

    def fetch(
        self, partitions: tuple[TopicPartition, ...] | None
    ) -> RequestFuture[CommittedOffsets]:
        """Request the committed offsets of `partitions`; None means all that have one."""
        # Only for the trace; `send` below finds the coordinator by itself.
        node = self._discovery.coordinator()
        result: RequestFuture[CommittedOffsets] = RequestFuture()
        topics = None  # OffsetFetch without topics asks for all partitions
        if partitions is not None:
            topics = tuple(
                OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
                for topic, indexes in partitions_by_topic(partitions).items()
            )
        peer = None if node is None else node.name

        def answered(answer: RequestFuture[OffsetFetchResponse]) -> None:
            if answer.error is not None:
                result.fail(answer.error)
                return
            outcome = self._read(answer.value, peer)
            if isinstance(outcome, ClientError):
                result.fail(outcome)
            else:
                result.complete(outcome)

        self._discovery.send(
            OffsetFetchRequest(
                groups=(OffsetFetchRequestGroup(group_id=self._group_id, topics=topics),),
                require_stable=True,
            ),
            OffsetFetchResponse,
        ).add_listener(answered)
        return result

    def _read(
        self, response: OffsetFetchResponse, peer: str | None
    ) -> CommittedOffsets | ClientError:
        """Return the offsets in an answer and trace them, or return the first error in it."""
        group = response.groups[0]  # the request names one group
        match group.error_code:
            case ErrorCode.NONE:
                pass
            case ErrorCode.COORDINATOR_NOT_AVAILABLE | ErrorCode.NOT_COORDINATOR:
                self._discovery.mark_unknown(group.error_code.name)
                return error_from_code(group.error_code)
            case _:
                return error_from_code(group.error_code)
        offsets: CommittedOffsets = {}
        for topic in group.topics:
            for entry in topic.partitions:
                if entry.error_code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    return error_from_code(entry.error_code)
                if entry.error_code is not ErrorCode.NONE:
                    # Kafka's handler treats every other code of a partition as fatal, even
                    # UNKNOWN_TOPIC_OR_PARTITION, which is retriable elsewhere.
                    return unexpected_error(entry.error_code)
                partition = TopicPartition(topic.name, entry.partition_index)
                offsets[partition] = _position(entry)
        for partition, position in offsets.items():
            self._host.trace(
                TraceEvent(
                    kind=TraceKind.OFFSETS_FETCHED,
                    group=self._group_id,
                    member=self._member_id() or None,
                    partition=str(partition),
                    offset=-1 if position is None else position.offset,  # -1 as in Kafka's answer
                    peer=peer,
                    cause=self._cause,
                )
            )
        return offsets


def partitions_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, tuple[int, ...]]:
    """Return the partition indexes of each topic: {"a": (0, 2), "b": (1,)} for a-0, b-1, a-2."""
    by_topic: dict[str, tuple[int, ...]] = {}
    for partition in partitions:
        by_topic[partition.topic] = (*by_topic.get(partition.topic, ()), partition.partition)
    return by_topic


def _position(entry: OffsetFetchResponsePartition) -> Position | None:
    if entry.committed_offset < 0:  # Kafka's -1: nothing is committed
        return None
    return Position(entry.committed_offset, entry.committed_leader_epoch)
