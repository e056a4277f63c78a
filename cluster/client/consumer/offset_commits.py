"""OffsetCommit: asynchronous, synchronous and automatic, and each of its errors.

The caller chooses the offsets; this module sends the requests and handles the answers. The outcome
of a commit is traced (recorded in the run's trace) once for each partition, even if the commit
failed before a request was sent.

An answer may come late, when the member has another generation. So the handlers also get `sent`:
the generation that the request carried.

Source: Kafka ConsumerCoordinator; docs/kafka, BEHAVIOUR 7.5.
"""

from collections.abc import Callable
from typing import Protocol

from cluster.client.consumer.generation import Generation, MemberState, reset_reason
from cluster.client.consumer.membership import Membership
from cluster.client.consumer.subscription import Position
from cluster.client.net.coordinator_discovery import CoordinatorDiscovery
from cluster.client.net.errors import (
    TIMED_OUT,
    ClientError,
    CommitFailedError,
    RebalanceInProgressError,
    error_from_code,
    unexpected_error,
)
from cluster.client.net.futures import RequestFuture, Wakeup
from cluster.client.net.retries import MS, ExponentialBackoff, with_retries
from cluster.host.host import Host
from protocol.config import ConsumerConfig
from protocol.errors import ErrorCode
from protocol.ids import TopicPartition
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from protocol.trace import TraceEvent, TraceKind

Offsets = dict[TopicPartition, Position]
"""For each partition the position to commit: the offset from which the group will continue."""


class Commits(Protocol):
    """Commits a member's offsets, in transactions or without."""

    acknowledged: int
    """Number of commits that were acknowledged for all of their partitions."""
    metadata: str
    """Text that later commits store beside each offset. Source: Kafka OffsetAndMetadata."""

    def commit_async(self, offsets: Offsets) -> RequestFuture[None]:
        """Commit once, without retries."""

    async def commit_sync(self, offsets: Offsets, deadline_us: int) -> None:
        """Commit, and wait until `deadline_us`. Raises: ClientError with the reason."""

    def close(self) -> None:
        """Accept no further commits."""


class OffsetCommits:
    """Commits of one member, by OffsetCommit."""

    def __init__(
        self,
        host: Host,
        config: ConsumerConfig,
        membership: Membership,
        discovery: CoordinatorDiscovery,
        backoff: ExponentialBackoff,
        *,
        wakeup: Wakeup,
    ) -> None:
        """Create an object without commits. `wakeup` is set after each outcome."""
        self.acknowledged = 0
        """Number of commits that the coordinator acknowledged for all of their partitions."""
        self.metadata = ""
        self._host = host
        self._config = config
        self._membership = membership
        self._discovery = discovery
        self._backoff = backoff
        self._wakeup = wakeup

    def commit_async(self, offsets: Offsets) -> RequestFuture[None]:
        """Commit without retries. If no coordinator is known, one lookup is tried first.

        Source: Kafka ConsumerCoordinator.commitOffsetsAsync.
        """
        if not offsets or self._discovery.coordinator() is not None:
            # Without offsets no coordinator is needed, because `_commit` sends nothing then.
            return self._commit(offsets)
        result: RequestFuture[None] = RequestFuture()

        def commit_after_lookup(lookup: RequestFuture[None]) -> None:
            if lookup.error is not None:
                self._fail(offsets, self._membership.member.generation, result, lookup.error)
                return
            self._commit(offsets).add_listener(lambda commit: _copy_outcome(commit, result))

        self._discovery.lookup().add_listener(commit_after_lookup)
        return result

    async def commit_sync(self, offsets: Offsets, deadline_us: int) -> None:
        """Commit, and repeat after retriable errors until `deadline_us`.

        Raises: ClientError with the reason; TIMED_OUT if no answer came in time.
        Source: Kafka ConsumerCoordinator.commitOffsetsSync.
        """
        if offsets:
            await with_retries(
                self._host, self._backoff, deadline_us, self._commit_once, offsets, deadline_us
            )

    def close(self) -> None:
        """Do nothing: commits in flight end with their connection."""

    async def _commit_once(self, offsets: Offsets, deadline_us: int) -> None:
        """Commit once, and wait for the outcome. Raises: ClientError."""
        if not await self._discovery.ensure_known(deadline_us):
            raise error_from_code(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        commit = self._commit(offsets)
        if not await self._wakeup.wait_for(commit, deadline_us):
            raise ClientError(TIMED_OUT, retriable=True)
        if commit.error is not None:
            raise commit.error

    def _commit(self, offsets: Offsets) -> RequestFuture[None]:
        """Send one OffsetCommit, or fail if the member is not STABLE or knows no coordinator.

        Source: Kafka ConsumerCoordinator.sendOffsetCommitRequest.
        """
        result: RequestFuture[None] = RequestFuture()
        if not offsets:
            result.complete(None)
            return result
        member = self._membership.member
        sent = member.generation
        node = self._discovery.coordinator()
        # Kafka's order of checks: the coordinator first, then the member's state.
        if node is None:
            unknown = error_from_code(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self._fail(offsets, sent, result, unknown)
            return result
        if member.state is not MemberState.STABLE:
            local_error = (
                RebalanceInProgressError() if member.is_rebalancing else CommitFailedError()
            )
            self._fail(offsets, sent, result, local_error)
            return result
        request = OffsetCommitRequest(
            group_id=member.group_id,
            generation_id_or_member_epoch=sent.generation_id,
            member_id=sent.member_id,
            group_instance_id=self._config.group_instance_id,
            topics=commit_topics(offsets, self.metadata),
        )
        self._discovery.send(request, OffsetCommitResponse).add_listener(
            lambda answer: self._answered(answer, offsets, sent, node.name, result)
        )
        return result

    def _answered(
        self,
        answer: RequestFuture[OffsetCommitResponse],
        offsets: Offsets,
        sent: Generation,
        peer: str,
        result: RequestFuture[None],
    ) -> None:
        """Trace the outcome of each partition, and react to the first error."""
        if answer.error is not None:
            self._fail(offsets, sent, result, answer.error, peer=peer)
            return
        failure: ClientError | None = None
        for topic in answer.value.topics:
            for entry in topic.partitions:
                code = entry.error_code
                partition = TopicPartition(topic.name, entry.partition_index)
                if code is ErrorCode.NONE:
                    self._trace(TraceKind.OFFSETS_COMMITTED, offsets, partition, sent, peer)
                    continue
                self._trace(
                    TraceKind.COMMIT_FAILED, offsets, partition, sent, peer, error=code.name
                )
                # Kafka's handler stops at the first error. So only the first error has effects
                # here; the loop goes on to trace the other partitions.
                failure = failure or self._handle(code, sent)
        if failure is None:
            self.acknowledged += 1
            result.complete(None)
        else:
            result.fail(failure)
        self._wakeup.set()

    def _handle(self, code: ErrorCode, sent: Generation) -> ClientError:
        """React to `code` as Kafka's handler does, and return the commit's error."""
        membership = self._membership
        member = membership.member
        is_preparing = member.state is MemberState.PREPARING_REBALANCE
        match code:
            case ErrorCode.COORDINATOR_LOAD_IN_PROGRESS | ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return error_from_code(code)
            case (
                ErrorCode.COORDINATOR_NOT_AVAILABLE
                | ErrorCode.NOT_COORDINATOR
                | ErrorCode.REQUEST_TIMED_OUT
            ):
                self._discovery.mark_unknown(code.name)
                return error_from_code(code)
            case ErrorCode.REBALANCE_IN_PROGRESS:
                membership.request_rejoin("offset commit failed since group is already rebalancing")
                return RebalanceInProgressError()
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION:
                # If the generation of the commit is over and the member is joining already, a reset
                # would disturb this join. In other states Kafka resets the member, even if its
                # generation has changed.
                if member.generation != sent and is_preparing:
                    return RebalanceInProgressError()
                # After ILLEGAL_GENERATION the coordinator still knows the member's id.
                membership.reset_and_rejoin(
                    reset_reason("OffsetCommit", code),
                    reset_member_id=code is not ErrorCode.ILLEGAL_GENERATION,
                )
                return CommitFailedError(code.name)
            case ErrorCode.FENCED_INSTANCE_ID:
                # Another consumer has joined with the same instance id. The application ends with
                # this error, unless the member has left the generation of the commit.
                if member.generation == sent:
                    return error_from_code(code)
                return RebalanceInProgressError() if is_preparing else CommitFailedError(code.name)
            case (
                ErrorCode.OFFSET_METADATA_TOO_LARGE
                | ErrorCode.INVALID_COMMIT_OFFSET_SIZE
                | ErrorCode.GROUP_AUTHORIZATION_FAILED
                | ErrorCode.TOPIC_AUTHORIZATION_FAILED
            ):
                return error_from_code(code)
            case _:
                return unexpected_error(code)

    def _fail(
        self,
        offsets: Offsets,
        sent: Generation,
        result: RequestFuture[None],
        error: ClientError,
        *,
        peer: str | None = None,
    ) -> None:
        """Trace a failure of all partitions, and fail `result`."""
        for partition in offsets:
            self._trace(TraceKind.COMMIT_FAILED, offsets, partition, sent, peer, error=error.name)
        result.fail(error)
        self._wakeup.set()

    def _trace(
        self,
        kind: TraceKind,
        offsets: Offsets,
        partition: TopicPartition,
        sent: Generation,
        peer: str | None,
        *,
        error: str | None = None,
    ) -> None:
        """Trace the outcome of one partition; `peer` is the coordinator that was asked."""
        self._host.trace(
            TraceEvent(
                kind=kind,
                group=self._membership.member.group_id,
                member=sent.member_id or None,  # "" before the member has an id
                generation=sent.generation_id,
                partition=str(partition),
                offset=offsets[partition].offset,
                peer=peer,
                error=error,
            )
        )


class AutoCommit:
    """Carries out `enable.auto.commit`: a poll commits the records of earlier polls.

    A commit is due when `auto.commit.interval.ms` are over since the last commit. `consumed`
    returns the positions after the last records that the application has got.
    Source: Kafka ConsumerCoordinator.maybeAutoCommitOffsetsAsync.
    """

    def __init__(
        self,
        host: Host,
        config: ConsumerConfig,
        commits: Commits,
        consumed: Callable[[], Offsets],
    ) -> None:
        self._host = host
        self._interval_us = config.auto_commit_interval_ms * MS
        self._retry_us = config.retry_backoff_ms * MS
        self._commits = commits
        self._consumed = consumed
        self.due_us = host.now_us() + self._interval_us
        """Time at which the next automatic commit is due."""

    def reset(self) -> None:
        """Begin a new interval, after an assignment or a commit."""
        self.due_us = self._host.now_us() + self._interval_us

    def commit_if_due(self) -> None:
        """Commit asynchronously if due. A retriable failure makes the next commit due earlier."""
        now_us = self._host.now_us()
        if now_us < self.due_us:
            return
        self.reset()

        def answered(commit: RequestFuture[None]) -> None:
            if commit.error is not None and commit.error.retriable:
                self.due_us = min(self.due_us, self._host.now_us() + self._retry_us)

        self._commits.commit_async(self._consumed()).add_listener(answered)


def commit_topics(offsets: Offsets, metadata: str = "") -> tuple[OffsetCommitRequestTopic, ...]:
    """Return `offsets` in the form in which OffsetCommit has them, grouped by topic."""
    by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
    for partition, position in offsets.items():
        by_topic.setdefault(partition.topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=position.offset,
                committed_leader_epoch=position.leader_epoch,
                committed_metadata=metadata,
            )
        )
    return tuple(
        OffsetCommitRequestTopic(name=topic, partitions=tuple(partitions))
        for topic, partitions in by_topic.items()
    )


def _copy_outcome(source: RequestFuture[None], target: RequestFuture[None]) -> None:
    """End `target` with the outcome of `source`, which has ended."""
    if source.error is not None:
        target.fail(source.error)
    else:
        target.complete(None)
