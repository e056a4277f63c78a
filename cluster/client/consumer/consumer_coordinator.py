"""What a poll does for the group: find the coordinator, rejoin, and commit automatically.

A member takes part in a rebalance in the background (see `membership`). But its partitions change
only inside poll, so that the application knows of each change. This project has only the eager
protocol. In this protocol a member gives up all its partitions before it sends JoinGroup, and gets
its new partitions from the answer to SyncGroup.

If the member is the leader of its group, `GroupSubscriber` computes the partitions of every member.

Source: Kafka ConsumerCoordinator; docs/kafka, BEHAVIOUR 7.3, 7.6, 7.7.
"""

from collections.abc import Callable
from typing import Protocol

from cluster.client.consumer.assignors import ASSIGNORS, MemberSubscription
from cluster.client.consumer.fetcher import Fetcher
from cluster.client.consumer.generation import Generation, MemberState, StateReason
from cluster.client.consumer.heartbeat import Heartbeat
from cluster.client.consumer.membership import REJOIN_AT_ONCE, Assignments, Membership
from cluster.client.consumer.offset_commits import AutoCommit, Commits
from cluster.client.consumer.offset_fetches import partitions_by_topic
from cluster.client.consumer.subscription import Subscription
from cluster.client.net.coordinator_discovery import CoordinatorDiscovery
from cluster.client.net.errors import ClientError
from cluster.client.net.metadata import Metadata
from cluster.client.net.retries import MS
from cluster.host.host import Host
from protocol.causes import MemberStateCause
from protocol.config import ConsumerConfig
from protocol.ids import MemberId, TopicPartition
from protocol.messages.group import (
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequestAssignment,
)
from protocol.trace import TraceEvent, TraceKind
from protocol.wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

INSUFFICIENT_ASSIGNMENT = "INSUFFICIENT_ASSIGNMENT"
"""Name of the error for an assignment that is too short. Kafka: IllegalStateException."""


class RebalanceListener(Protocol):
    """The application's reaction to a revocation. Source: ConsumerRebalanceListener."""

    async def on_partitions_revoked(self) -> None:
        """Finish work on the partitions and commit, while they are still owned."""


class GroupSubscriber:
    """The consumer's part in JoinGroup: its subscription, and the leader's assignment."""

    def __init__(
        self, config: ConsumerConfig, subscription: Subscription, metadata: Metadata
    ) -> None:
        self.assignment_snapshot: dict[str, int] | None = None
        """Number of partitions of each topic at the last assignment that this member computed as
        the leader; None if another member is the leader."""
        self._config = config
        self._subscription = subscription
        self._metadata = metadata
        self._waiting: tuple[int, Callable[[], None]] | None = None
        """An assignment that waits for newer metadata: the version of the metadata that was not
        enough, and the function that computes the assignment; None if none waits."""

    def protocols(self) -> tuple[JoinGroupRequestProtocol, ...]:
        """Return the subscription under the name of each configured assignor.

        DEVIATION: the subscription has no generation (Kafka's v2 field), so its bytes are equal in
        every JoinGroup. Sticky assignors, which need the field, do not exist here.
        """
        metadata = encode_subscription(
            ConsumerProtocolSubscription(
                topics=self._subscription.topics,
                owned_partitions=_by_topic(tuple(self._subscription.assigned)),
            )
        )
        return tuple(
            JoinGroupRequestProtocol(name, metadata)
            for name in self._config.partition_assignment_strategy
        )

    def on_leader_elected(
        self, response: JoinGroupResponse, assign: Callable[[Assignments], None]
    ) -> None:
        """Compute the assignment once the partition counts of all the group's topics are known.

        Source: Kafka ConsumerCoordinator.onLeaderElected.
        """
        members = tuple(
            MemberSubscription(
                member_id=MemberId(member.member_id),
                topics=decode_subscription(member.metadata).topics,
                group_instance_id=member.group_instance_id,
            )
            for member in response.members
        )
        # Sorted, because the order of a set of strings differs between runs.
        topics = tuple(sorted({topic for member in members for topic in member.topics}))

        # Called below or, if a partition count is not known yet, later by `metadata_updated`.
        def compute() -> None:
            counts = self.assignment_snapshot = self._counts(topics)
            # If a static member has restarted and is the leader, the group keeps its assignment.
            # The snapshot above is needed even then, because the leader watches the counts for
            # changes.
            if response.skip_assignment:
                assign(())
                return
            # A successful answer always has a name; `or ""` only satisfies the type checker.
            assignor = ASSIGNORS[response.protocol_name or ""]
            assign(
                tuple(
                    SyncGroupRequestAssignment(member_id, _encode_partitions(partitions))
                    for member_id, partitions in assignor.assign(counts, members).items()
                )
            )

        self._metadata.add_topics(topics)
        if len(self._counts(topics)) == len(topics):
            compute()
        else:
            self._waiting = (self._metadata.version, compute)
            self._metadata.request_update()

    def metadata_updated(self) -> None:
        """Compute the assignment that waits for metadata, if any, even if a topic is still unknown.

        None of the partitions of an unknown topic is assigned.
        """
        # `_waiting[0]` is the version of the metadata that was not enough.
        if self._waiting is not None and self._metadata.version > self._waiting[0]:
            _version, compute = self._waiting
            self._waiting = None
            compute()

    def metadata_changed(self) -> bool:
        """Return True if a partition count has changed since the leader's last assignment."""
        snapshot = self.assignment_snapshot
        return snapshot is not None and self._counts(tuple(snapshot)) != snapshot

    def _counts(self, topics: tuple[str, ...]) -> dict[str, int]:
        """Return the number of partitions of each of `topics` that is known."""
        known = ((topic, self._metadata.partition_count(topic)) for topic in topics)
        return {topic: count for topic, count in known if count is not None}


class ConsumerCoordinator:
    """The group's part of one consumer's poll."""

    def __init__(
        self,
        host: Host,
        config: ConsumerConfig,
        membership: Membership,
        discovery: CoordinatorDiscovery,
        heartbeat: Heartbeat,
        subscription: Subscription,
        subscriber: GroupSubscriber,
        fetcher: Fetcher,
        commits: Commits,
        auto_commit: AutoCommit | None,
        listener: RebalanceListener,
    ) -> None:
        """Create the object for a member that has not joined.

        `auto_commit` is None if automatic commits are switched off.
        """
        self.assigned_under = Generation()
        """Generation that assigned the current partitions, for the trace of their revocation."""
        self._host = host
        self._config = config
        self._membership = membership
        self._discovery = discovery
        self._heartbeat = heartbeat
        self._subscription = subscription
        self._subscriber = subscriber
        self._fetcher = fetcher
        self._commits = commits
        self._auto_commit = auto_commit
        self._listener = listener

    async def poll(self, deadline_us: int) -> bool:
        """Do what the group needs; return True if this method must be called again soon.

        The method returns False if an event will wake the poll when there is more to do. It waits
        only for the coordinator to be found, at most until `deadline_us`. It does not wait for a
        join.
        Raises: ClientError for the application.
        Source: Kafka ConsumerCoordinator.poll, which KafkaConsumer calls with `waitForJoinGroup`
        false.
        """
        if self._heartbeat.failure is not None:
            raise self._heartbeat.failure
        if not await self._discovery.ensure_known(deadline_us):
            return True
        membership = self._membership
        if not membership.rejoin_needed_or_pending and self._subscriber.metadata_changed():
            membership.request_rejoin("cached metadata has changed")
        if membership.rejoin_needed_or_pending and not await self._join_if_needed():
            # The end of a join in flight wakes poll. If no join is in flight, for example because
            # the last join has failed, nothing wakes poll when it is time to try again.
            join = membership.join
            return join is None or join.is_done
        if self._auto_commit is not None:
            self._auto_commit.commit_if_due()
        return False

    def auto_commit_due_us(self) -> int | None:
        """Return the time at which poll must commit automatically.

        None during a rebalance, and if automatic commits are switched off.
        """
        if self._auto_commit is None or self._membership.rejoin_needed_or_pending:
            return None
        return self._auto_commit.due_us

    async def _join_if_needed(self) -> bool:
        """Advance the rebalance as far as is possible without waiting; return True if it is over.

        Source: Kafka AbstractCoordinator.joinGroupIfNeeded with an expired timer.
        """
        membership = self._membership
        while membership.rejoin_needed_or_pending:
            # The coordinator may have been lost since `poll` found it, for example while
            # `_join_prepare` waited.
            if self._discovery.coordinator() is None:
                self._discovery.lookup()
                return False
            if membership.needs_join_prepare:
                # The flag is cleared before the wait and not after it, because a reset during the
                # wait sets it again.
                membership.needs_join_prepare = False
                await self._join_prepare()
            join = membership.initiate_join()
            if not join.is_done:
                return False
            if join.error is None:
                self._join_completed(join.value)
                # Normally this ends the loop. But `_join_completed` requests another rejoin if the
                # assignment does not fit, or if the member was reset meanwhile.
                continue
            error = join.error
            membership.join_failed(error)
            if error.name in REJOIN_AT_ONCE:
                continue
            if not error.retriable:
                raise error
            return False
        return True

    async def _join_prepare(self) -> None:
        """Commit and release all partitions before JoinGroup, as the eager protocol demands."""
        if self._auto_commit is not None:
            # `max.poll.interval.ms` is also the rebalance timeout: the time for which the
            # coordinator waits for this member's JoinGroup.
            deadline_us = self._host.now_us() + self._config.max_poll_interval_ms * MS
            try:
                await self._commits.commit_sync(self._subscription.consumed(), deadline_us)
            except ClientError as error:  # as in Kafka, the member joins even so
                self._host.log(f"automatic commit before the rebalance failed: {error.name}")
        await self.release_partitions()
        # The next rebalance may make another member the leader. If this member stays the leader, it
        # sets the snapshot again.
        self._subscriber.assignment_snapshot = None

    async def release_partitions(self) -> None:
        """Give up all partitions.

        If the member has a generation, the partitions are revoked: the application can still
        commit. Otherwise they are lost: the group may have given them to other members.

        Source: Kafka onJoinPrepare, onLeavePrepare.
        """
        partitions = tuple(self._subscription.assigned)
        if not partitions:
            return
        if self._membership.member.has_generation:
            # The listener is application code, so its time counts against max.poll.interval.ms.
            self._heartbeat.poll_left()
            await self._listener.on_partitions_revoked()
            self._heartbeat.poll_entered()
            self._trace(TraceKind.PARTITIONS_REVOKED, partitions)
        else:
            self._trace(TraceKind.PARTITIONS_LOST, partitions)
        self._subscription.assign(())
        self._fetcher.clear()

    def _join_completed(self, assignment: bytes) -> None:
        """Assign the partitions of a finished join.

        Source: joinGroupIfNeeded, ConsumerCoordinator.onJoinComplete.
        Raises: ClientError for bytes that are no assignment.
        """
        membership = self._membership
        member = membership.member
        membership.take_join()
        if not member.has_generation or member.state is not MemberState.STABLE:
            # This is possible as follows:
            # 1. The join completed.
            # 2. The answer to a heartbeat made the member drop its generation.
            # 3. Only now the application polls, which takes the result of the join.
            membership.reset_and_rejoin(
                StateReason(
                    cause=MemberStateCause.RESET_WHILE_JOINING,
                    text="generation was reset before the join was complete",
                ),
                reset_member_id=True,
            )
            return

        membership.needs_join_prepare = True  # the next rebalance must release the partitions
        if len(assignment) < 2:  # the version, two bytes, comes first
            raise ClientError(INSUFFICIENT_ASSIGNMENT, retriable=False)
        partitions = decode_assignment(assignment).partitions()
        # As in Kafka, where the application may change its subscription during a join.
        if any(partition.topic not in self._subscription.topics for partition in partitions):
            membership.request_rejoin("received assignment doesn't match the current subscription")
            return
        self._subscription.assign(partitions)
        self._fetcher.clear()
        if self._auto_commit is not None:
            self._auto_commit.reset()
        self.assigned_under = member.generation
        self._trace(TraceKind.PARTITIONS_ASSIGNED, partitions, peer=membership.assigned_by)

    def _trace(
        self, kind: TraceKind, partitions: tuple[TopicPartition, ...], *, peer: str | None = None
    ) -> None:
        """Trace a change of the member's partitions.

        `peer` is the coordinator that assigned the partitions; None for the end of an assignment.
        """
        self._host.trace(
            TraceEvent(
                kind=kind,
                peer=peer,
                group=self._membership.member.group_id,
                member=self.assigned_under.member_id,
                generation=self.assigned_under.generation_id,
                detail={"partitions": [str(partition) for partition in partitions]},
            )
        )


def _by_topic(partitions: tuple[TopicPartition, ...]) -> tuple[TopicPartitions, ...]:
    """Return partitions as the consumer protocol lists them: topic by topic."""
    return tuple(
        TopicPartitions(topic=topic, partitions=indexes)
        for topic, indexes in partitions_by_topic(partitions).items()
    )


def _encode_partitions(partitions: tuple[TopicPartition, ...]) -> bytes:
    """Return the bytes of a member's assignment."""
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=_by_topic(partitions)))
