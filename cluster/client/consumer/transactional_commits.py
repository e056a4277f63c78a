"""Commits in transactions, with the same interface as `offset_commits`.

Each commit is a transaction of its own: its offsets become valid when the transaction commits. A
producer can have only one transaction at a time. While one is running, `commit_sync` waits for its
end, and `commit_async` fails. The outcome is traced (recorded in the run's trace) once for each
partition, when the transaction has ended. By then the member may have another generation. `sent` is
the generation that the transaction carries.
"""

from cluster.client.consumer.generation import Generation, MemberState
from cluster.client.consumer.membership import Membership
from cluster.client.consumer.offset_commits import Offsets
from cluster.client.net.errors import (
    TIMED_OUT,
    ClientError,
    CommitFailedError,
    RebalanceInProgressError,
)
from cluster.client.net.futures import RequestFuture, Wakeup
from cluster.client.producer.transactional_producer import (
    TransactionAborted,
    TransactionalProducer,
    TransactionInDoubt,
)
from cluster.host.host import Host
from protocol.config import ConsumerConfig
from protocol.ids import NodeName
from protocol.trace import TraceEvent, TraceKind


class TransactionalCommits:
    """Commits of one member, each a transaction of its producer."""

    def __init__(
        self,
        host: Host,
        config: ConsumerConfig,
        membership: Membership,
        producer: TransactionalProducer,
        *,
        wakeup: Wakeup,
    ) -> None:
        """Create an object without commits. `wakeup` is set after each outcome."""
        self.acknowledged = 0
        """Number of transactions that committed."""
        self.metadata = ""
        self._host = host
        self._config = config
        self._membership = membership
        self._producer = producer
        self._wakeup = wakeup
        # The future of the running transaction; None if none is running.
        self._running: RequestFuture[None] | None = None

    def commit_async(self, offsets: Offsets) -> RequestFuture[None]:
        """Commit in a transaction; fails if another transaction is running."""
        result: RequestFuture[None] = RequestFuture()
        if not offsets:
            result.complete(None)
            return result
        member = self._membership.member
        sent = member.generation
        local_error: ClientError | None = None
        if member.state is not MemberState.STABLE:
            local_error = (
                RebalanceInProgressError() if member.is_rebalancing else CommitFailedError()
            )
        elif self._running is not None:
            # The commit need not wait in a queue, because the application's next commit has these
            # offsets, too.
            local_error = CommitFailedError()
        if local_error is not None:
            self._fail(offsets, sent, result, local_error, peer=None)
            return result
        self._running = result
        self._host.spawn(self._run(offsets, sent, result), name="transaction")
        return result

    async def commit_sync(self, offsets: Offsets, deadline_us: int) -> None:
        """Wait for the running transaction, commit in a new transaction, and wait for the outcome.

        Raises: ClientError with the reason; TIMED_OUT if no outcome is known by the deadline.
        """
        while self._running is not None:
            if not await self._wakeup.wait_for(self._running, deadline_us):
                raise ClientError(TIMED_OUT, retriable=True)
        commit = self.commit_async(offsets)
        if not await self._wakeup.wait_for(commit, deadline_us):
            raise ClientError(TIMED_OUT, retriable=True)
        if commit.error is not None:
            raise commit.error

    def close(self) -> None:
        """Begin no further transaction, and abandon the running one."""
        self._producer.close()

    async def _run(self, offsets: Offsets, sent: Generation, result: RequestFuture[None]) -> None:
        """Commit in a transaction of the producer, and complete or fail `result`."""
        try:
            peer = await self._producer.commit(
                self._membership.member.group_id,
                offsets,
                sent,
                self._config.group_instance_id,
                metadata=self.metadata,
            )
        except ClientError as error:
            # `_running` is cleared before the listeners of `result` run, because a listener may
            # begin the next transaction.
            self._running = None
            # After a TransactionInDoubt, the offsets may still become valid. The group coordinator
            # `error.peer` has them, so the trace row names this coordinator. After any other error
            # the offsets never become valid.
            in_doubt = error.peer if isinstance(error, TransactionInDoubt) else None
            self._fail(offsets, sent, result, error, peer=in_doubt)
            return
        self._running = None
        self.acknowledged += 1
        self._trace(TraceKind.OFFSETS_COMMITTED, offsets, sent, peer=peer)
        result.complete(None)
        self._wakeup.set()

    def _fail(
        self,
        offsets: Offsets,
        sent: Generation,
        result: RequestFuture[None],
        error: ClientError,
        *,
        peer: NodeName | None,
    ) -> None:
        """Trace a failure of all partitions, and fail `result`."""
        self._trace(TraceKind.COMMIT_FAILED, offsets, sent, peer=peer, error=error)
        result.fail(error)
        self._wakeup.set()

    def _trace(
        self,
        kind: TraceKind,
        offsets: Offsets,
        sent: Generation,
        *,
        peer: NodeName | None,
        error: ClientError | None = None,
    ) -> None:
        """Trace the outcome of a transaction, with one row for each partition."""
        for partition, position in offsets.items():
            self._host.trace(
                TraceEvent(
                    kind=kind,
                    group=self._membership.member.group_id,
                    member=sent.member_id or None,  # "" before the member has an id
                    generation=sent.generation_id,
                    partition=str(partition),
                    offset=position.offset,
                    peer=peer,
                    error=None if error is None else error.name,
                    cause_text=error.why if isinstance(error, TransactionAborted) else None,
                )
            )
