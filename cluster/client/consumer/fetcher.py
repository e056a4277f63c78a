"""The Fetcher sends Fetch requests, and keeps the records until the consumer's poll takes them.

It has at most one Fetch in flight for each leader. The applications of this project only count
records and never read them, so fetched records are kept as ranges of offsets. The Fetcher knows
nothing of groups: it fetches for the partitions in a Subscription. Each of these is an
AssignedPartition (called `state` below), which has the position from which to fetch.

Source: Kafka AbstractFetch, FetchCollector.
DEVIATION: no fetch sessions; no OffsetsForLeaderEpoch validation after a change of leader (a
truncated position shows as OFFSET_OUT_OF_RANGE); after a failed fetch a partition is skipped for
`retry.backoff.ms`, where Kafka asks again immediately.
"""

from collections.abc import Callable
from dataclasses import dataclass

from cluster.client.consumer.subscription import AssignedPartition, Position, Subscription
from cluster.client.net.futures import RequestFuture, Wakeup
from cluster.client.net.metadata import LeaderAndEpoch, Metadata
from cluster.client.net.network_client import NetworkClient
from cluster.client.net.retries import MS
from cluster.host.connection_purposes import GENERAL
from cluster.host.host import Host
from protocol.config import ConsumerConfig
from protocol.errors import ErrorCode
from protocol.ids import NO_BROKER, BrokerId, LeaderEpoch, NodeName, TopicPartition, broker_name
from protocol.messages.log import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from protocol.records.batch import RecordBatch


@dataclass(frozen=True, slots=True)
class ConsumedRange:
    """The records `first` to `last` of a partition, which the application gets together."""

    partition: TopicPartition
    first: int
    last: int

    @property
    def count(self) -> int:
        """Number of records."""
        return self.last - self.first + 1


@dataclass(slots=True)
class _Range:
    """Fetched records `first` to `last`, and the leader epoch of the batches they came in."""

    first: int
    last: int
    leader_epoch: int


@dataclass(slots=True)
class _CompletedFetch:
    """The fetched records of one partition that poll has not yet collected; never empty.

    `next_position` is the position after the last fetched batch. The last batch may be a control
    batch of a transaction, which has no records for the application.
    """

    state: AssignedPartition
    ranges: list[_Range]
    next_position: Position


class Fetcher:
    """Fetches for the current assignment."""

    def __init__(
        self,
        host: Host,
        config: ConsumerConfig,
        network: NetworkClient,
        metadata: Metadata,
        subscription: Subscription,
        *,
        wakeup: Wakeup,
        on_out_of_range: Callable[[AssignedPartition], None],
    ) -> None:
        """Create a fetcher that has sent nothing.

        `wakeup`, which ends a wait of poll, is set after each answer. `on_out_of_range` is called
        with a partition if the leader's log does not have the partition's position.
        """
        self._host = host
        self._config = config
        self._network = network
        self._metadata = metadata
        self._subscription = subscription
        self._wakeup = wakeup
        self._on_out_of_range = on_out_of_range
        self._in_flight: dict[NodeName, None] = {}
        """The leaders that have not answered their Fetch yet, as the keys of the dict."""
        self._completed: dict[TopicPartition, _CompletedFetch] = {}
        self._retry_backoff_us = config.retry_backoff_ms * MS
        self._request_timeout_us = config.request_timeout_ms * MS

    def clear(self) -> None:
        """Drop all fetched records, because the partitions are revoked or lost."""
        self._completed.clear()

    def send_fetches(self) -> int | None:
        """Send a Fetch to every leader that has none in flight, if one of its partitions needs it.

        Returns the earliest end of a backoff that keeps a partition from being fetched, because no
        event wakes poll at this time; None if no backoff does.
        """
        by_leader: dict[NodeName, list[tuple[AssignedPartition, FetchPartition]]] = {}
        held_until_us: int | None = None
        # For each leader, whether it can be connected to. This saves a check for each partition.
        available: dict[NodeName, bool] = {}
        for partition, state in self._subscription.assigned.items():
            position = state.position
            if position is None or partition in self._completed:
                continue  # no position to fetch from yet, or its records are not collected yet

            # A partition is not fetched now if its own backoff goes on, if it has no known leader,
            # if its leader has a Fetch already, or if the connection to its leader is in a backoff.
            if state.retry_at_us and self._host.now_us() < state.retry_at_us:
                held_until_us = _earlier(held_until_us, state.retry_at_us)
                continue
            leader = self._metadata.leader(partition)
            if leader.leader == NO_BROKER:
                self._metadata.request_update()
                continue
            node = broker_name(leader.leader)
            if node in self._in_flight:
                continue
            if node not in available:
                available[node] = not self._network.is_unavailable(node, GENERAL)
            if not available[node]:
                held_until_us = _earlier(held_until_us, self._network.retry_at_us(node, GENERAL))
                continue

            entry = FetchPartition(
                partition=partition.partition,
                current_leader_epoch=leader.leader_epoch,
                fetch_offset=position.offset,
                partition_max_bytes=self._config.max_partition_fetch_bytes,
            )
            by_leader.setdefault(node, []).append((state, entry))
        for node, entries in by_leader.items():
            self._send(node, entries)
        return held_until_us

    def collect(self, max_records: int) -> list[ConsumedRange]:
        """Return up to `max_records` fetched records, and move the positions past them."""
        collected: list[ConsumedRange] = []
        # `list` makes a copy, because the loop deletes entries of the dict.
        for partition, completed in list(self._completed.items()):
            state = completed.state
            if not self._subscription.is_current(state):  # of an earlier assignment
                del self._completed[partition]
                continue
            # Take whole ranges, and as much of the last range as `max_records` allows.
            ranges = completed.ranges
            while ranges and max_records > 0:
                head = ranges[0]
                last = min(head.last, head.first + max_records - 1)
                collected.append(ConsumedRange(partition, head.first, last))
                max_records -= last - head.first + 1
                state.position = Position(last + 1, head.leader_epoch)
                if last == head.last:
                    ranges.pop(0)
                else:
                    head.first = last + 1
            if not ranges:
                # All is collected. The next Fetch begins after the control batches at the end.
                state.position = completed.next_position
                del self._completed[partition]
        return collected

    def _send(self, node: NodeName, asked: list[tuple[AssignedPartition, FetchPartition]]) -> None:
        """Send one Fetch for some partitions of one leader."""
        by_topic: dict[str, list[FetchPartition]] = {}
        for state, entry in asked:
            by_topic.setdefault(state.partition.topic, []).append(entry)
        request = FetchRequest(
            max_wait_ms=self._config.fetch_max_wait_ms,
            min_bytes=self._config.fetch_min_bytes,
            topics=tuple(
                FetchTopic(topic=topic, partitions=tuple(entries))
                for topic, entries in by_topic.items()
            ),
        )
        asked_by_partition = {
            state.partition: (state, entry.fetch_offset) for state, entry in asked
        }
        self._in_flight[node] = None
        self._network.send(
            node, GENERAL, request, FetchResponse, timeout_us=self._request_timeout_us
        ).add_listener(lambda answer: self._answered(answer, node, asked_by_partition))

    def _answered(
        self,
        answer: RequestFuture[FetchResponse],
        node: NodeName,
        asked: dict[TopicPartition, tuple[AssignedPartition, int]],
    ) -> None:
        """Process the answer to a Fetch.

        `asked` has each partition of the Fetch, with its state and the offset in the Fetch.
        """
        del self._in_flight[node]
        if answer.error is not None or answer.value.error_code is not ErrorCode.NONE:
            # After an error code, the partitions need a backoff. After a lost connection, the
            # network client itself keeps a backoff and asks for new metadata.
            if answer.error is None:
                for state, _offset in asked.values():
                    self._retry_later(state)
            self._wakeup.set()
            return
        for topic in answer.value.responses:
            for data in topic.partitions:
                partition = TopicPartition(topic.topic, data.partition_index)
                state, offset = asked[partition]
                position = state.position
                # The records are stale if a rebalance or a reset has changed the position since
                # the Fetch was sent.
                if (
                    self._subscription.is_current(state)
                    and position is not None
                    and position.offset == offset
                ):
                    self._take(state, position, data)
        self._wakeup.set()

    def _take(self, state: AssignedPartition, position: Position, data: PartitionData) -> None:
        """Process the answer for one partition."""
        match data.error_code:
            case ErrorCode.NONE:
                state.retry_at_us = 0
                if data.records:
                    self._keep(state, position, data.records)
            case ErrorCode.OFFSET_OUT_OF_RANGE if state.partition in self._completed:
                # How this happens:
                # 1. A Fetch to the old leader is slow to be answered.
                # 2. The new leader returns records from the same offset.
                # 3. The old leader answers that the offset is out of range.
                # The offset is in range, so the position stays.
                # Source: FetchCollector.handleInitializeErrors compares the offset with the
                # position after it has returned the records that came before.
                pass
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                self._on_out_of_range(state)
            case _:
                # NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH and similar:
                # the leader has changed. If the answer does not name the new leader, an update of
                # the metadata will.
                if data.leader_id != NO_BROKER:
                    leader = LeaderAndEpoch(
                        leader=BrokerId(data.leader_id), leader_epoch=LeaderEpoch(data.leader_epoch)
                    )
                    self._metadata.learn_leader(state.partition, leader)
                self._retry_later(state)

    def _keep(
        self, state: AssignedPartition, position: Position, batches: tuple[RecordBatch, ...]
    ) -> None:
        """Keep the fetched records for `collect`, and drop the records before `position`.

        There may be records before the position, because a broker returns whole batches. Control
        batches are not kept; they only advance the position.
        """
        ranges: list[_Range] = []
        next_position = position
        for batch in batches:
            first = max(batch.base_offset, next_position.offset)
            last = batch.last_offset
            if last < first:  # the whole batch is before the position
                continue
            epoch = batch.partition_leader_epoch
            next_position = Position(last + 1, epoch)
            if batch.is_control:
                continue
            # A batch that follows directly, in the same epoch, extends the last range.
            if ranges and ranges[-1].last + 1 == first and ranges[-1].leader_epoch == epoch:
                ranges[-1].last = last
            else:
                ranges.append(_Range(first, last, epoch))
        if ranges:
            self._completed[state.partition] = _CompletedFetch(state, ranges, next_position)
        else:
            state.position = next_position

    def _retry_later(self, state: AssignedPartition) -> None:
        """Hold a partition back for the retry backoff, and look for its leader."""
        state.retry_at_us = self._host.now_us() + self._retry_backoff_us
        self._metadata.request_update()


def _earlier(known_us: int | None, other_us: int) -> int:
    """Return the earlier of two times; the first may be missing."""
    return other_us if known_us is None else min(known_us, other_us)
