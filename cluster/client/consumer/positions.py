"""Finds the position from which a consumer begins to fetch each assigned partition.

The position is the committed offset, which the coordinator knows (OffsetFetch). If no offset is
committed, or if the leader's log does not have the offset, the position is *reset*. It becomes the
beginning or the end of the log, as `auto.offset.reset` says. The consumer asks the partition's
leader for this offset (ListOffsets).

Each assignment creates a new AssignedPartition (called `state` below) for each partition. An answer
is used only if its `state` still belongs to the current assignment.

Source: Kafka ConsumerCoordinator.initWithCommittedOffsetsIfNeeded,
OffsetFetcher.resetPositionsIfNeeded; docs/kafka, BEHAVIOUR 7.5.
"""

from cluster.client.consumer.generation import ConsumerMember
from cluster.client.consumer.offset_fetches import (
    CommittedOffsets,
    OffsetFetches,
    partitions_by_topic,
)
from cluster.client.consumer.subscription import AssignedPartition, Position, Subscription
from cluster.client.net.coordinator_discovery import CoordinatorDiscovery
from cluster.client.net.errors import ClientError, error_from_code
from cluster.client.net.futures import RequestFuture, Wakeup
from cluster.client.net.metadata import Metadata
from cluster.client.net.network_client import NetworkClient
from cluster.client.net.retries import MS, ExponentialBackoff, with_retries
from cluster.host.connection_purposes import GENERAL
from cluster.host.host import Host
from protocol.causes import PositionCause
from protocol.config import ConsumerConfig
from protocol.errors import ErrorCode
from protocol.ids import NO_BROKER, NodeName, TopicPartition, broker_name
from protocol.messages.log import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.trace import TraceEvent, TraceKind

NO_OFFSET_FOR_PARTITION = "NO_OFFSET_FOR_PARTITION"
"""Name of the error if a reset is needed but `auto.offset.reset` is "none".

Kafka: NoOffsetForPartitionException."""

_Partitions = dict[TopicPartition, AssignedPartition]
"""Some assigned partitions, each with its state."""


class Positions:
    """Finds the first position of every assigned partition."""

    def __init__(
        self,
        host: Host,
        config: ConsumerConfig,
        member: ConsumerMember,
        subscription: Subscription,
        network: NetworkClient,
        metadata: Metadata,
        discovery: CoordinatorDiscovery,
        backoff: ExponentialBackoff,
        *,
        wakeup: Wakeup,
    ) -> None:
        """Create an object without requests.

        `wakeup`, which ends a wait of poll, is set at the end of each request.
        """
        self._host = host
        self._config = config
        self._member = member
        self._subscription = subscription
        self._network = network
        self._metadata = metadata
        self._discovery = discovery
        self._backoff = backoff
        self._wakeup = wakeup
        self._fetches = OffsetFetches(
            host, member.group_id, discovery, member_id=lambda: member.member_id
        )
        # The partitions of the OffsetFetch in flight, and its future; None if none is in flight.
        self._pending: tuple[_Partitions, RequestFuture[CommittedOffsets]] | None = None
        # The leaders that have not answered their ListOffsets yet, as the keys of the dict.
        self._resets_in_flight: dict[NodeName, None] = {}

    async def update(self, deadline_us: int) -> bool:
        """Look for missing positions; return True if this method must be called again soon.

        The method returns False if an event will wake poll when there is more to do. It waits for
        committed offsets, at most until `deadline_us`. It does not wait for resets.

        Raises: ClientError if an error is not retriable; NO_OFFSET_FOR_PARTITION.
        """
        if self._subscription.has_all_positions():
            return False
        if self._subscription.initializing():
            try:
                await with_retries(
                    self._host, self._backoff, deadline_us, self._fetch_committed, deadline_us
                )
            except ClientError as error:
                if not error.retriable:
                    raise
                return True  # the deadline has passed: the next poll tries again
        return self._reset_positions()

    def request_reset(self, state: AssignedPartition) -> None:
        """Reset a position that the leader's log does not have."""
        state.position = None
        state.needs_reset = True
        state.retry_at_us = 0

    # -- committed offsets --------------------------------------------------------------------

    async def _fetch_committed(self, deadline_us: int) -> None:
        """Send one OffsetFetch, and set the positions from its answer.

        Raises: ClientError, which is retriable if the deadline has come.
        """
        if not await self._discovery.ensure_known(deadline_us):
            raise error_from_code(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        wanted = {state.partition: state for state in self._subscription.initializing()}
        pending = self._pending
        # `!=` compares AssignedPartition objects by identity. If there was a rebalance since the
        # request in flight was sent, all objects are new, so another request is sent.
        if pending is None or pending[0] != wanted:
            fetch = self._fetches.fetch(tuple(wanted))
            fetch.add_listener(lambda _fetch: self._wakeup.set())
            pending = self._pending = (wanted, fetch)
        fetch = pending[1]
        if not await self._wakeup.wait_for(fetch, deadline_us):
            # The request stays in flight, and the next poll waits for the same answer.
            raise error_from_code(ErrorCode.REQUEST_TIMED_OUT)

        self._pending = None
        if fetch.error is not None:
            raise fetch.error
        for partition, state in wanted.items():
            if not self._subscription.is_current(state):
                continue
            committed = fetch.value.get(partition)
            if committed is None:
                state.needs_reset = True
            else:
                self._set(state, committed, PositionCause.COMMITTED)

    # -- resets -------------------------------------------------------------------------------

    def _reset_positions(self) -> bool:
        """Send ListOffsets for the partitions that need a reset, one request to each leader.

        Returns True if a partition waits for the end of its backoff, because no event wakes poll
        then. A partition without a leader waits for new metadata, which wakes poll.

        Raises: NO_OFFSET_FOR_PARTITION.
        """
        awaiting = self._subscription.awaiting_reset()
        if not awaiting:
            return False
        if self._config.auto_offset_reset == "none":
            raise ClientError(NO_OFFSET_FOR_PARTITION, retriable=False)
        now_us = self._host.now_us()
        by_leader: dict[NodeName, _Partitions] = {}
        must_poll_soon = False
        for state in awaiting:
            if now_us < state.retry_at_us:
                must_poll_soon = True
                continue
            leader = self._metadata.leader(state.partition).leader
            if leader == NO_BROKER:
                self._metadata.request_update()
                continue
            node = broker_name(leader)
            # If the leader has a ListOffsets in flight, its answer wakes poll, which then asks for
            # this partition.
            if node not in self._resets_in_flight:
                by_leader.setdefault(node, {})[state.partition] = state
        for node, partitions in by_leader.items():
            self._list_offsets(node, partitions)
        return must_poll_soon

    def _list_offsets(self, node: NodeName, partitions: _Partitions) -> None:
        """Ask a leader for the first or the end offsets of its partitions."""
        timestamp = (
            EARLIEST_TIMESTAMP if self._config.auto_offset_reset == "earliest" else LATEST_TIMESTAMP
        )
        topics = tuple(
            ListOffsetsTopic(
                name=topic,
                partitions=tuple(
                    ListOffsetsPartition(partition_index=index, timestamp=timestamp)
                    for index in indexes
                ),
            )
            for topic, indexes in partitions_by_topic(partitions).items()
        )
        self._resets_in_flight[node] = None
        self._network.send(
            node,
            GENERAL,
            ListOffsetsRequest(topics=topics),
            ListOffsetsResponse,
            timeout_us=self._config.request_timeout_ms * MS,
        ).add_listener(lambda answer: self._offsets_listed(answer, node, partitions))

    def _offsets_listed(
        self, answer: RequestFuture[ListOffsetsResponse], node: NodeName, partitions: _Partitions
    ) -> None:
        """Set the positions from the answer.

        A partition for which the answer has no offset is tried again later.
        """
        del self._resets_in_flight[node]
        entry_by_partition: dict[TopicPartition, ListOffsetsPartitionResponse] = {}
        if answer.error is None:
            for topic in answer.value.topics:
                for entry in topic.partitions:
                    if entry.error_code is ErrorCode.NONE:
                        entry_by_partition[TopicPartition(topic.name, entry.partition_index)] = (
                            entry
                        )
        # As in Kafka, this backoff does not grow with the number of failures. It is always as long
        # as after the first failure.
        retry_at_us = self._host.now_us() + self._backoff.delay_us(0)
        for partition, state in partitions.items():
            if not self._subscription.is_current(state) or not state.needs_reset:
                continue
            listed = entry_by_partition.get(partition)
            if listed is None:
                # Kafka retries every error here except missing authorization, which does not exist
                # in this project.
                state.retry_at_us = retry_at_us
                self._metadata.request_update()
            else:
                position = Position(listed.offset, listed.leader_epoch)
                self._set(state, position, PositionCause(self._config.auto_offset_reset))
        self._wakeup.set()

    def _set(self, state: AssignedPartition, position: Position, cause: PositionCause) -> None:
        """Set a partition's position, and trace it as POSITION_RESET, whatever the cause is."""
        state.position = position
        state.needs_reset = False
        state.retry_at_us = 0
        self._host.trace(
            TraceEvent(
                kind=TraceKind.POSITION_RESET,
                group=self._member.group_id,
                member=self._member.member_id or None,  # "" before the member has an id
                partition=str(state.partition),
                offset=position.offset,
                cause=cause,
            )
        )
