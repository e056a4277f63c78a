"""Kafka's classic consumer: poll, commit, close.

GroupConsumer creates the parts of a consumer and connects them. Its `poll` calls them in Kafka's
order: first the work for the group, then the lookup of missing positions, then fetches.

With Kafka, a poll ends after its timeout if there are no records, and the application polls again.
Here one call of `poll` may stand for many of these polls: it waits until something happens. In
virtual time (on a simulated clock) this saves many events, because an idle consumer does nothing.
Everything that poll may have to react to sets the wakeup, which ends the wait.

Source: Kafka ClassicKafkaConsumer, ConsumerNetworkClient.poll.
"""

from collections.abc import Callable

from cluster.client.consumer.consumer_coordinator import (
    ConsumerCoordinator,
    GroupSubscriber,
    RebalanceListener,
)
from cluster.client.consumer.fetcher import ConsumedRange, Fetcher
from cluster.client.consumer.generation import ConsumerMember, StateReason
from cluster.client.consumer.heartbeat import Heartbeat
from cluster.client.consumer.membership import Membership
from cluster.client.consumer.offset_commits import AutoCommit, Commits, OffsetCommits
from cluster.client.consumer.positions import Positions
from cluster.client.consumer.subscription import Subscription
from cluster.client.consumer.transactional_commits import TransactionalCommits
from cluster.client.net.coordinator_discovery import CoordinatorDiscovery, CoordinatorNode
from cluster.client.net.errors import ClientError
from cluster.client.net.futures import RequestFuture, Wakeup
from cluster.client.net.metadata import Metadata
from cluster.client.net.network_client import NetworkClient
from cluster.client.net.retries import MS, retry_backoff
from cluster.client.producer.transactional_producer import TransactionalProducer
from cluster.host.host import Host, WaitingRequest
from cluster.spec import ClusterSpec
from protocol.causes import MemberStateCause
from protocol.config import ConsumerConfig
from protocol.ids import GroupId, MemberId

CLOSE_TIMEOUT_MS = 30_000
"""Longest time that `close` waits for commits and LeaveGroup.

Source: Kafka DEFAULT_CLOSE_TIMEOUT_MS."""


class GroupConsumer:
    """A consumer that subscribes to topics as a member of a group."""

    def __init__(
        self,
        host: Host,
        cluster: ClusterSpec,
        config: ConsumerConfig,
        group_id: GroupId,
        topics: tuple[str, ...],
        listener: RebalanceListener,
        *,
        transaction_timeout_ms: int | None = None,
    ) -> None:
        """Create a consumer without connections; `listener` is called before a revocation.

        If `transaction_timeout_ms` is given, the consumer has a transactional producer of its own,
        and every commit is a transaction. The producer's transactional id is the node's name.
        """
        self.wakeup = Wakeup(host)
        """Set by everything that may give a waiting poll something to do."""
        self.member = ConsumerMember(host, group_id)
        self.subscription = Subscription(topics)
        self._host = host
        self._config = config
        self._metadata = Metadata(host, cluster, config, topics, on_update=self._metadata_updated)
        self._network = NetworkClient(
            host,
            config,
            known_nodes=self._metadata.nodes,
            on_disconnect=self._disconnected,
        )
        self._discovery = CoordinatorDiscovery(
            host,
            group_id,
            self._network,
            self._metadata,
            retry_backoff(host, config),
            request_timeout_us=config.request_timeout_ms * MS,
            wakeup=self.wakeup,
            member_id=lambda: self.member.member_id,
            on_change=self._coordinator_changed,
        )
        self._subscriber = GroupSubscriber(config, self.subscription, self._metadata)
        self._membership = Membership(
            self.member,
            config,
            self._discovery,
            self._subscriber,
            on_joined=self._joined,
            on_rejoin_needed=self.wakeup.set,
        )
        self._heartbeat = Heartbeat(
            host,
            config,
            self._membership,
            self._discovery,
            retry_backoff(host, config),
            application=self.wakeup,
        )
        self.commits = self._make_commits(transaction_timeout_ms)
        self._positions = Positions(
            host,
            config,
            self.member,
            self.subscription,
            self._network,
            self._metadata,
            self._discovery,
            retry_backoff(host, config),
            wakeup=self.wakeup,
        )
        self._fetcher = Fetcher(
            host,
            config,
            self._network,
            self._metadata,
            self.subscription,
            wakeup=self.wakeup,
            on_out_of_range=self._positions.request_reset,
        )
        self._auto_commit = (
            AutoCommit(host, config, self.commits, self.subscription.consumed)
            if config.enable_auto_commit
            else None
        )
        self._coordinator = ConsumerCoordinator(
            host,
            config,
            self._membership,
            self._discovery,
            self._heartbeat,
            self.subscription,
            self._subscriber,
            self._fetcher,
            self.commits,
            self._auto_commit,
            listener,
        )

    def _make_commits(self, transaction_timeout_ms: int | None) -> Commits:
        """Return the object that commits: by OffsetCommit, or in transactions of a new producer.

        `transaction_timeout_ms` is None for OffsetCommit.
        """
        host, config = self._host, self._config
        backoff = retry_backoff(host, config)
        if transaction_timeout_ms is None:
            return OffsetCommits(
                host, config, self._membership, self._discovery, backoff, wakeup=self.wakeup
            )
        producer = TransactionalProducer(
            host,
            self._network,
            self._discovery,
            backoff,
            transactional_id=host.name,
            transaction_timeout_ms=transaction_timeout_ms,
            request_timeout_us=config.request_timeout_ms * MS,
        )
        return TransactionalCommits(host, config, self._membership, producer, wakeup=self.wakeup)

    def start(self) -> None:
        """Begin to refresh metadata, and start the task that sends heartbeats."""
        self._metadata.start(self._network)
        self._host.spawn(self._heartbeat.run(), name="heartbeat")

    @property
    def coordinator(self) -> CoordinatorNode | None:
        """The believed coordinator, None if unknown."""
        return self._discovery.believed_coordinator()

    @property
    def owner_id(self) -> MemberId:
        """The member id under which the current partitions were assigned."""
        return self._coordinator.assigned_under.member_id

    async def poll(
        self,
        deadline_us: int,
        idle_until_us: Callable[[], int | None],
        poll_ends_us: Callable[[int], int],
    ) -> list[ConsumedRange]:
        """Wait for records and return them; return an empty list if none come in time.

        An *application poll* is one of the polls that an application of Kafka would make during
        this call, each `poll_timeout_ms` long. The parameters tell when they end, because a Kafka
        application can act only between two polls:

        - `deadline_us` is the end of the current application poll. A lookup of the coordinator
          lasts at most until then. If something must be tried again soon, this call ends then, too.
        - `idle_until_us` returns the time at which the application wants to do something else, such
          as a commit; None if it only waits for records.
        - `poll_ends_us` returns the end of the first application poll that ends at the given time
          or later. If a partition cannot be fetched because of a backoff, this call ends with the
          application poll in which the backoff ends.

        Raises: ClientError for the application.
        """
        self._heartbeat.poll_entered()
        records = await self._poll(deadline_us, idle_until_us, poll_ends_us)
        self._heartbeat.poll_left()
        return records

    def waiting_requests(self) -> tuple[WaitingRequest, ...]:
        """Return the requests that no server has answered yet."""
        return self._network.waiting()

    def commit_async(self) -> RequestFuture[None]:
        """Commit all positions, without retries."""
        return self.commits.commit_async(self.subscription.consumed())

    async def commit_sync(self, timeout_us: int) -> None:
        """Commit all positions, with retries. Raises: ClientError with the reason."""
        await self.commits.commit_sync(
            self.subscription.consumed(), self._host.now_us() + timeout_us
        )

    async def close(self, ended_by: ClientError | None = None) -> None:
        """Commit if commits are automatic, give up the partitions, leave the group, disconnect.

        `ended_by` is the error that ended the application; None if the application was asked to
        stop.
        Source: Kafka AbstractCoordinator.close, ConsumerCoordinator.close.
        """
        deadline_us = self._host.now_us() + CLOSE_TIMEOUT_MS * MS
        self._heartbeat.close()
        if self._auto_commit is not None:
            try:
                await self.commits.commit_sync(self.subscription.consumed(), deadline_us)
            except ClientError as error:
                self._host.log(f"automatic commit at close failed: {error.name}")
        await self._coordinator.release_partitions()
        # Leaving comes last, because only a member of the group may commit.
        leave = self._membership.leave(
            StateReason(cause=MemberStateCause.LEFT, text="the consumer is being closed")
            if ended_by is None
            else StateReason(
                cause=MemberStateCause.LEFT,
                text=f"the application stops: {ended_by.name}",
                error=ended_by.name,
            )
        )
        if leave is not None:
            leave.add_listener(lambda _leave: self.wakeup.set())
            await self.wakeup.wait_for(leave, deadline_us)
        self.commits.close()
        self._metadata.close()
        self._network.close()

    async def _poll(
        self,
        deadline_us: int,
        idle_until_us: Callable[[], int | None],
        poll_ends_us: Callable[[int], int],
    ) -> list[ConsumedRange]:
        """Poll in Kafka's order, and again after each wakeup, until there are records or poll ends.

        The parameters are those of `poll`.
        """
        host = self._host
        while True:
            must_poll_soon = await self._coordinator.poll(deadline_us)
            # `update` must be called in any case, so it is on the left side of `or`.
            must_poll_soon = await self._positions.update(deadline_us) or must_poll_soon
            # Collect before sending, because a Fetch leaves out partitions whose records are not
            # yet collected.
            records = self._fetcher.collect(self._config.max_poll_records)
            held_until_us = self._fetcher.send_fetches()
            if records or host.now_us() >= deadline_us:
                return records

            if must_poll_soon:
                until_us: int | None = deadline_us
            else:
                # When the application or an automatic commit needs the end of poll.
                until_us = self._idle_until_us(idle_until_us())
                # When the application poll ends in which the backoff of a partition is over.
                if held_until_us is not None:
                    until_us = _earlier(until_us, poll_ends_us(held_until_us))
            await self.wakeup.wait(until_us)
            if until_us is not None and host.now_us() >= until_us:
                # Records may have arrived at this very time.
                return self._fetcher.collect(self._config.max_poll_records)

    def _idle_until_us(self, application_us: int | None) -> int | None:
        """Return the time at which a poll without records must end, None if there is none.

        The poll must end when the application wants to do something (`application_us`), or when an
        automatic commit is due.
        """
        automatic_us = self._coordinator.auto_commit_due_us()
        return application_us if automatic_us is None else _earlier(application_us, automatic_us)

    def _metadata_updated(self) -> None:
        """React to new metadata."""
        self._subscriber.metadata_updated()
        self.wakeup.set()

    def _disconnected(self) -> None:
        """React to the end of a connection."""
        # A broker may have died. Then the leaders of its partitions have moved, or soon will.
        self._metadata.request_update()
        self.wakeup.set()
        self._heartbeat.wake()

    def _coordinator_changed(self) -> None:
        """React when the coordinator was found or forgotten."""
        # The session timeout may have passed while the member looked for a coordinator. If it were
        # not restarted, the heartbeat task would at once forget the new coordinator.
        if self._discovery.believed_coordinator() is not None:
            self._heartbeat.reset_session_timeout()
        self._heartbeat.wake()
        self.wakeup.set()

    def _joined(self) -> None:
        """Begin heartbeats.

        Membership calls this method and not `_heartbeat.enable`, because Membership is created
        before Heartbeat.
        """
        self._heartbeat.enable()


def _earlier(known_us: int | None, other_us: int) -> int:
    """Return the earlier of two times; the first may be missing."""
    return other_us if known_us is None else min(known_us, other_us)
