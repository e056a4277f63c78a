"""A producer that commits a consumer's offsets in transactions.

A typical application consumes records, transforms them and produces results. A transaction then
contains the results and the offsets of the consumed records. The members in this project produce no
results, so their transactions contain only offsets.

Two coordinators take part in a transaction. The transaction coordinator begins and ends the
transaction; this module looks that coordinator up. The group's coordinator stores the offsets, and
is found by the consumer's CoordinatorDiscovery. The producer does not know the state of the group:
the caller passes the group's id, generation and offsets to each commit (KIP-447).

Source: Kafka `KafkaProducer.sendOffsetsToTransaction`, `TransactionManager`; KIP-98, KIP-447.
DEVIATION: a producer is fenced when another producer begins to use its transactional id. Kafka's
producer must then be closed. This class gets a new producer id, as if the application had restarted
its producer.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from cluster.client.consumer.generation import Generation
from cluster.client.consumer.offset_commits import Offsets, commit_topics
from cluster.client.net.coordinator_discovery import CoordinatorDiscovery
from cluster.client.net.errors import (
    NO_BROKER_AVAILABLE,
    TIMED_OUT,
    ClientError,
    CommitFailedError,
    error_from_code,
    unexpected_error,
)
from cluster.client.net.futures import RequestFuture, Wakeup
from cluster.client.net.network_client import NetworkClient
from cluster.client.net.retries import MS, ExponentialBackoff, with_retries
from cluster.host.connection_purposes import TRANSACTIONAL_PRODUCER
from cluster.host.host import Host
from protocol.api import AnyRequest, AnyResponse
from protocol.errors import ErrorCode
from protocol.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    GroupId,
    NodeName,
    broker_name,
)
from protocol.messages.discovery import (
    CoordinatorType,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from protocol.messages.transaction import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

R = TypeVar("R", bound=AnyResponse)
T = TypeVar("T")

TRANSACTION_ABORTED = "TRANSACTION_ABORTED"
"""Name of the error of a transaction that did not commit."""
CLOSED = "PRODUCER_CLOSED"
"""Name of the error if the producer was closed before the request succeeded."""
FOREVER_US = 1 << 62
"""Stands for "no deadline".

Requests that end a transaction are repeated without a limit, because the next transaction cannot
begin before this one has ended."""

_FENCED = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""Errors after which Kafka's producer can only be closed.

The first three mean that the transactional id now belongs to another producer, or to none.
INVALID_TXN_STATE means that no transaction is open, for example because it timed out.
"""
_NOT_COORDINATOR = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
)
"""Answers after which the coordinator is looked up again."""


class ProducerFencedError(ClientError):
    """Kafka's ProducerFencedException and similar errors. This producer must not continue."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name, retriable=False)


class TransactionInDoubt(ClientError):
    """The producer was closed before it knew the outcome of its transaction.

    The group's coordinator `peer` has the offsets, and they may still become valid. For the caller
    this is a commit without an answer, so the name of the error is TIMED_OUT.
    """

    def __init__(self, peer: NodeName) -> None:
        super().__init__(TIMED_OUT, retriable=False)
        self.peer = peer


class TransactionAborted(ClientError):
    """The transaction will never commit. `why` is the name of the error that caused this."""

    def __init__(self, why: str) -> None:
        super().__init__(TRANSACTION_ABORTED, retriable=False)
        self.why = why


class TransactionalProducer:
    """The transactions of one transactional id, one after the other."""

    def __init__(
        self,
        host: Host,
        network: NetworkClient,
        discovery: CoordinatorDiscovery,
        backoff: ExponentialBackoff,
        *,
        transactional_id: str,
        transaction_timeout_ms: int,
        request_timeout_us: int,
    ) -> None:
        """Create a producer without an id.

        `discovery` is the consumer's: it finds the coordinator of the consumer's group.
        """
        self._host = host
        self._network = network
        self._discovery = discovery
        self._backoff = backoff
        self._transactional_id = transactional_id
        self._timeout_ms = transaction_timeout_ms
        self._request_timeout_us = request_timeout_us
        self._wakeup = Wakeup(host)
        """Set at the end of each request, and by `close`."""
        self._coordinator: NodeName | None = None
        """The transaction coordinator; None if it must be looked up."""
        self._producer_id: int = NO_PRODUCER_ID
        self._producer_epoch = NO_PRODUCER_EPOCH
        self._is_closed = False

    def close(self) -> None:
        """Stop: a commit under way fails, and the outcome of its transaction is unknown."""
        self._is_closed = True
        self._wakeup.set()

    async def commit(
        self,
        group_id: GroupId,
        offsets: Offsets,
        sent: Generation,
        group_instance_id: str | None,
        *,
        metadata: str = "",
    ) -> NodeName:
        """Commit offsets in a transaction; return the group's coordinator that stored them.

        `_init` gets a producer id if the producer has none, `_add_offsets` begins the transaction,
        `_commit` sends the offsets, and `_end` commits the transaction.

        The group's coordinator checks `sent`, the member's id and generation. It stores the text
        `metadata` beside each offset.

        Raises: TransactionAborted; TransactionInDoubt.
        """
        try:
            # After this time the transaction coordinator aborts the transaction by itself.
            deadline_us = self._host.now_us() + self._timeout_ms * MS
            if self._producer_id == NO_PRODUCER_ID:
                await self._retry(deadline_us, self._init)
            await self._retry(deadline_us, lambda: self._add_offsets(group_id))
            peer = await self._retry(
                deadline_us,
                lambda: self._commit(group_id, offsets, sent, group_instance_id, metadata=metadata),
            )
        except ProducerFencedError as error:
            self._drop_producer_id()
            raise TransactionAborted(error.name) from error
        except ClientError as error:
            # If the abort cannot be sent, the coordinator aborts the transaction after the
            # transaction's timeout. The transaction never commits, because this producer has not
            # asked for a commit.
            await self._abort()
            raise TransactionAborted(error.name) from error
        try:
            # Once this request is sent, the transaction may be committed even if no answer comes.
            # So the request is repeated without a deadline.
            await self._retry(FOREVER_US, lambda: self._end(is_commit=True))
        except ProducerFencedError as error:
            # Another producer has taken over the transactional id. The takeover has aborted this
            # transaction, unless the coordinator had already decided to commit it. The error does
            # not show which of the two is true. As in Kafka, the commit is reported as a failure.
            self._drop_producer_id()
            raise TransactionAborted(error.name) from error
        except ClientError as error:  # after `close`, or an error that no retry can help
            raise TransactionInDoubt(peer) from error
        return peer

    # -- requests -----------------------------------------------------------------------------

    async def _init(self) -> None:
        """Get an id and an epoch; an earlier producer of the same transactional id is fenced."""
        answer = await self._ask(
            InitProducerIdRequest(
                transactional_id=self._transactional_id, transaction_timeout_ms=self._timeout_ms
            ),
            InitProducerIdResponse,
        )
        self._check(answer.error_code)
        self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch

    async def _add_offsets(self, group_id: GroupId) -> None:
        """Begin the transaction: announce that it will contain offsets of the group."""
        answer = await self._ask(
            AddOffsetsToTxnRequest(
                transactional_id=self._transactional_id,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                group_id=group_id,
            ),
            AddOffsetsToTxnResponse,
        )
        self._check(answer.error_code)

    async def _commit(
        self,
        group_id: GroupId,
        offsets: Offsets,
        sent: Generation,
        group_instance_id: str | None,
        *,
        metadata: str,
    ) -> NodeName:
        """Send the offsets to the group's coordinator (TxnOffsetCommit); return its name.

        The offsets stay pending until the transaction ends.
        """
        node = self._discovery.coordinator()
        if node is None:
            await self._wait_for(self._discovery.lookup())
            node = self._discovery.coordinator()
        if node is None:
            raise error_from_code(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        answer = await self._wait_for(
            self._network.send(
                node.name,
                TRANSACTIONAL_PRODUCER,
                TxnOffsetCommitRequest(
                    transactional_id=self._transactional_id,
                    group_id=group_id,
                    producer_id=self._producer_id,
                    producer_epoch=self._producer_epoch,
                    generation_id=sent.generation_id,
                    member_id=sent.member_id,
                    group_instance_id=group_instance_id,
                    topics=commit_topics(offsets, metadata),
                ),
                TxnOffsetCommitResponse,
                timeout_us=self._request_timeout_us,
            )
        )
        for topic in answer.topics:
            for entry in topic.partitions:
                code = entry.error_code
                # A lookup may have found another coordinator meanwhile, and then this coordinator
                # must not be forgotten. `coordinator()` is not called here, because it also checks
                # the connection.
                if code in _NOT_COORDINATOR and node == self._discovery.believed_coordinator():
                    self._discovery.mark_unknown(code.name)
                if code in _FENCED:
                    raise ProducerFencedError(code)
                if code is not ErrorCode.NONE:
                    raise _commit_error(code)
        return node.name

    async def _abort(self) -> None:
        """Abort the transaction, if one has begun.

        If the producer is closed, `_retry` sends no request, and the transaction times out.
        """
        try:
            await self._retry(FOREVER_US, lambda: self._end(is_commit=False))
        except ProducerFencedError as error:
            # The error has the name of the code. INVALID_TXN_STATE says that no transaction is
            # open, so the producer may go on.
            if error.name != ErrorCode.INVALID_TXN_STATE.name:
                self._drop_producer_id()
        except ClientError:  # `close` was called, or (rarely) an error that no retry can help
            self._host.log(f"{self._transactional_id}: closed with an open transaction")

    async def _end(self, *, is_commit: bool) -> None:
        """Ask the transaction coordinator to commit or abort (EndTxn)."""
        answer = await self._ask(
            EndTxnRequest(
                transactional_id=self._transactional_id,
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                committed=is_commit,
            ),
            EndTxnResponse,
        )
        self._check(answer.error_code)

    # -- the transaction coordinator ----------------------------------------------------------

    async def _ask(self, request: AnyRequest, response_type: type[R]) -> R:
        """Send a request to the transaction coordinator.

        If the coordinator is unknown, or cannot be connected to at the moment, it is looked up
        first.
        """
        node = self._coordinator
        if node is None or self._network.is_unavailable(node, TRANSACTIONAL_PRODUCER):
            node = self._coordinator = await self._find_coordinator()
        try:
            return await self._wait_for(
                self._network.send(
                    node,
                    TRANSACTIONAL_PRODUCER,
                    request,
                    response_type,
                    timeout_us=self._request_timeout_us,
                )
            )
        except ClientError:
            # No answer came, so the next attempt looks the coordinator up again.
            self._coordinator = None
            raise

    async def _find_coordinator(self) -> NodeName:
        """Return the coordinator of the transactional id. Raises: ClientError."""
        # `asked` has the name of the node, and the purpose of the connection to it.
        asked = self._network.least_loaded_node()
        if asked is None:
            raise ClientError(NO_BROKER_AVAILABLE, retriable=True)
        answer = await self._wait_for(
            self._network.send(
                asked.name,
                asked.purpose,
                FindCoordinatorRequest(
                    key_type=CoordinatorType.TRANSACTION,
                    coordinator_keys=(self._transactional_id,),
                ),
                FindCoordinatorResponse,
                timeout_us=self._request_timeout_us,
            )
        )
        coordinator = answer.coordinators[0]
        if coordinator.error_code is not ErrorCode.NONE:
            raise error_from_code(coordinator.error_code)
        return broker_name(coordinator.node_id)

    def _check(self, code: ErrorCode) -> None:
        """Raise the error for `code` in a transaction coordinator's answer, unless it is NONE."""
        if code in _NOT_COORDINATOR:
            self._coordinator = None
        if code in _FENCED:
            raise ProducerFencedError(code)
        if code is not ErrorCode.NONE:
            raise error_from_code(code)

    # -- helpers ------------------------------------------------------------------------------

    async def _retry(self, deadline_us: int, attempt: Callable[[], Awaitable[T]]) -> T:
        """Repeat after retriable failures, until `deadline_us` or until the producer is closed."""

        async def attempt_if_open() -> T:
            if self._is_closed:
                raise ClientError(CLOSED, retriable=False)
            return await attempt()

        return await with_retries(self._host, self._backoff, deadline_us, attempt_if_open)

    async def _wait_for(self, future: RequestFuture[T]) -> T:
        """Wait for the outcome of a request, which comes after its timeout at the latest.

        `close` does not end this wait, but it prevents the next attempt of `_retry`.
        """
        future.add_listener(lambda _future: self._wakeup.set())
        while not future.is_done:
            await self._wakeup.wait(None)
        if future.error is not None:
            raise future.error
        return future.value

    def _drop_producer_id(self) -> None:
        """Drop the producer's id, so that the next transaction gets a new producer."""
        self._producer_id = NO_PRODUCER_ID
        self._producer_epoch = NO_PRODUCER_EPOCH


def _commit_error(code: ErrorCode) -> ClientError:
    """Return the error of a TxnOffsetCommit. Source: Kafka TxnOffsetCommitHandler."""
    match code:
        case (
            ErrorCode.UNKNOWN_MEMBER_ID
            | ErrorCode.ILLEGAL_GENERATION
            | ErrorCode.FENCED_INSTANCE_ID
        ):
            return CommitFailedError(code.name)
        case _ if code.retriable:
            return error_from_code(code)
        case _:
            return unexpected_error(code)
