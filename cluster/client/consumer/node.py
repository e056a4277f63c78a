"""The consumer node: an application that polls, processes, and commits what it has processed.

The application does the same as the application with which we measured Kafka (docs/kafka,
MEASURED_FAILOVER set-up). It repeats three steps, which are called a *turn* here:

1. It polls, with the timeout `poll_timeout_ms`.
2. It processes the records. Each record takes `process_us`, plus a random time if
   `process_spread_us` is set.
3. If `commit_interval_ms` are over since its last commit, it commits its positions asynchronously,
   unless a commit is in flight.

Before partitions are revoked, the application commits synchronously, as an ordinary rebalance
listener does. If partitions are lost, it cannot commit any more. Records count as consumed when
they are processed. So if a consumer dies between processing and commit, the next owner of the
partition consumes some records again.

With Kafka, a poll without records ends after `poll_timeout_ms`, and the application polls again.
Here one call of `GroupConsumer.poll` stands for many of these polls, to save events in virtual time
(on a simulated clock). But the application can commit only between two polls of Kafka. So this
module computes when Kafka's polls would begin and end.
"""

from collections.abc import Callable
from itertools import cycle

from cluster.client.consumer.fetcher import ConsumedRange
from cluster.client.consumer.group_consumer import GroupConsumer
from cluster.client.net.errors import ClientError
from cluster.client.net.futures import RequestFuture
from cluster.client.net.retries import MS
from cluster.client.record_work import RecordWork
from cluster.host.host import Host
from cluster.runtime import ClusterStatus, MemberStatus
from cluster.spec import ClusterSpec, ConsumerSpec
from protocol.ids import GroupId
from protocol.trace import TraceEvent, TraceKind


class ConsumerNode:
    """One consumer of a group, and its application."""

    def __init__(self, host: Host, cluster: ClusterSpec, spec: ConsumerSpec) -> None:
        self._host = host
        self._spec = spec
        self._consumer = GroupConsumer(
            host,
            cluster,
            spec.config,
            GroupId(spec.group_id),
            spec.topics,
            self,  # the RebalanceListener
            transaction_timeout_ms=spec.transaction_timeout_ms if spec.transactional else None,
        )
        self._records_consumed = 0
        self._work = RecordWork(host, spec.process_us, spec.process_spread_us)
        costs = cluster.costs
        self._start_us = costs.consumer_start_us if host.simulates_costs else 0
        self._start_jitter_us = costs.consumer_start_jitter_us if host.simulates_costs else 0
        # At least 1 ms, because the code below divides by it.
        self._poll_timeout_us = max(1, spec.poll_timeout_ms) * MS
        # Time at which the present poll of a Kafka application would have begun.
        self._poll_began_us = 0
        self._commit_due_us = 0
        self._is_committing = False
        # The metadata of the asynchronous commits. Each commit gets the next text; after the last
        # text, the first text comes again. Without `commit_metadata` the text is always "".
        self._texts = cycle(spec.commit_metadata or ("",))
        self._is_closing = False
        self._ended_by: ClientError | None = None
        self._on_closed: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin to consume, after `start_after_ms`."""
        self._host.spawn(self._run(), name="application")

    def close(self) -> None:
        """Ask the application to close its consumer, which then commits and leaves the group."""
        self._is_closing = True
        self._consumer.wakeup.set()

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Close the consumer (it commits and leaves the group), then call `on_done`."""
        self._on_closed = on_done
        self.close()

    def report(self, status: ClusterStatus) -> None:
        """Add an entry to `status` with this member's own view of its state."""
        consumer = self._consumer
        coordinator = consumer.coordinator
        status.members[self._host.name] = MemberStatus(
            group_id=self._spec.group_id,
            member_id=consumer.member.member_id,
            generation=consumer.member.generation.generation_id,
            state=consumer.member.state.value,
            coordinator=None if coordinator is None else coordinator.broker_id,
            assigned=tuple(consumer.subscription.assigned),
            records_consumed=self._records_consumed,
            commits_acknowledged=consumer.commits.acknowledged,
            waiting=consumer.waiting_requests(),
            ended_by=None if self._ended_by is None else self._ended_by.name,
        )

    async def on_partitions_revoked(self) -> None:
        """Commit the processed records, while the member still owns the partitions."""
        if self._spec.commit_interval_ms is None:  # the application never commits
            return
        try:
            await self._consumer.commit_sync(self._spec.config.default_api_timeout_ms * MS)
        except ClientError as error:
            self._host.log(f"commit before revocation failed: {error.name}")

    async def _run(self) -> None:
        """Run the application until it is closed, or an error ends it; then close the consumer."""
        if self._spec.start_after_ms:
            await self._host.sleep(self._spec.start_after_ms * MS)
        # The time that the start of a consumer takes. Both parts are 0 unless the host simulates
        # costs.
        if start_us := self._start_us + _drawn_us(self._host, "start", self._start_jitter_us):
            await self._host.sleep(start_us)
        self._consumer.start()
        self._poll_began_us = self._host.now_us()
        ended_by: ClientError | None = None
        try:
            while not self._is_closing:
                await self._turn()
        except ClientError as error:
            # Kafka's poll throws the error; an ordinary application then closes its consumer.
            self._host.log(f"the application stops: {error.name}")
            ended_by = error
            self._ended_by = error
        await self._consumer.close(ended_by)
        self._on_closed()

    async def _turn(self) -> None:
        """Poll once, process the records, and commit if a commit is due."""
        # The first argument is the time at which Kafka's present poll would end.
        records = await self._consumer.poll(
            self._poll_began_us + self._poll_timeout_us, self._idle_until_us, self._poll_ends_us
        )
        if records:
            await self._process(records)
        self._commit_if_due()
        now_us = self._host.now_us()
        if records:
            self._poll_began_us = now_us
        else:
            # An application of Kafka would have made several polls without records meanwhile. The
            # next poll begins where the last of these polls would have ended.
            empty_polls = (now_us - self._poll_began_us) // self._poll_timeout_us
            self._poll_began_us += empty_polls * self._poll_timeout_us

    async def _process(self, records: list[ConsumedRange]) -> None:
        """Sleep for the processing time of each range of records, then trace the range."""
        worked_us = 0
        for consumed in records:
            detail: dict[str, object] = {"count": consumed.count, "last": consumed.last}
            if self._work.costs_time:
                work_us = self._work.draw_us(consumed.count)
                worked_us += work_us
                await self._host.sleep(work_us)
                # This is the sum of the processing times and not the time since the poll, because
                # the process may have been paused meanwhile.
                detail["work_us"] = worked_us
            self._records_consumed += consumed.count
            self._host.trace(
                TraceEvent(
                    kind=TraceKind.RECORDS_CONSUMED,
                    group=self._spec.group_id,
                    member=self._consumer.owner_id,
                    partition=str(consumed.partition),
                    offset=consumed.first,
                    detail=detail,
                )
            )

    def _commit_if_due(self) -> None:
        """Commit asynchronously if the interval is over and no commit is in flight."""
        interval_ms = self._spec.commit_interval_ms
        if interval_ms is None or self._is_committing or self._host.now_us() < self._commit_due_us:
            return
        if not self._consumer.subscription.consumed():
            return
        self._commit_due_us = self._host.now_us() + interval_ms * MS
        self._is_committing = True
        self._consumer.commits.metadata = next(self._texts)
        self._consumer.commit_async().add_listener(self._committed)

    def _committed(self, _commit: RequestFuture[None]) -> None:
        self._is_committing = False

    def _idle_until_us(self) -> int | None:
        """Return when poll must end even without records, so that the application can commit.

        An application of Kafka can commit only between two polls. So the result is the end of the
        Kafka poll in which the commit becomes due; None if no commit will become due.
        """
        if self._is_closing:
            return self._host.now_us()
        # The end of a commit in flight wakes poll. And there is nothing to commit without
        # positions.
        if (
            self._spec.commit_interval_ms is None
            or self._is_committing
            or not self._consumer.subscription.consumed()
        ):
            return None
        return self._poll_ends_us(self._commit_due_us)

    def _poll_ends_us(self, at_us: int) -> int:
        """Return the end of the first Kafka poll that ends at `at_us` or later.

        If the present poll began at 0 s and a poll takes 1 s, the result for 2.5 s is 3 s.
        """
        # At least 1: if `at_us` is in the past, the result is the end of the present poll.
        wait_us = max(1, at_us - self._poll_began_us)
        polls = -(-wait_us // self._poll_timeout_us)  # division, rounded up
        return self._poll_began_us + polls * self._poll_timeout_us


def _drawn_us(host: Host, purpose: str, most_us: int) -> int:
    """Return a random time from 0 to `most_us`."""
    return host.stream(purpose).randint(0, most_us) if most_us else 0
