"""Verification that an offsets partition is part of a transaction (KIP-890).

A request of a transaction may be so late that the transaction has ended when it arrives. Its
records must not be appended then. So before the group coordinator appends a transaction's offsets,
it asks for a verification. If the log of the partition has an open transaction of the producer,
this is enough. Otherwise this broker asks the transaction coordinator.

The transaction may still end while the answer is on its way. Therefore the log gives out a number
for each verification, the *guard*, and the append carries the guard. When the marker that ends the
transaction is appended, the guard becomes invalid, and the log refuses the append.

Source: Kafka `ReplicaManager.maybeStartTransactionVerificationForPartition`,
`AddPartitionsToTxnManager`.
"""

from collections.abc import Callable
from functools import partial

from cluster.broker.channels import BrokerChannels
from cluster.broker.control.metadata_cache import MetadataCache
from cluster.broker.replication.replica_manager import ReplicaManager
from cluster.host.connection_purposes import TRANSACTION_VERIFICATION
from cluster.host.host import Disconnected, Host, RequestTimedOut
from protocol.api import AnyResponse
from protocol.effects import TransactionVerified, VerifyTransaction
from protocol.errors import ErrorCode, SimulationError
from protocol.ids import TopicPartition, offsets_partition
from protocol.messages.transaction import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)


class TransactionVerifier:
    """Carries out the verifications that the group coordinator asks for.

    `on_verified` is called with the outcome, sometimes before `verify` returns.
    """

    def __init__(
        self,
        host: Host,
        replicas: ReplicaManager,
        cache: MetadataCache,
        on_verified: Callable[[TransactionVerified], None],
    ) -> None:
        self._replicas = replicas
        self._cache = cache
        self._on_verified = on_verified
        self._channels = BrokerChannels(host, TRANSACTION_VERIFICATION)

    def verify(self, asked: VerifyTransaction) -> None:
        """Check the log; ask the transaction coordinator if the log has no open transaction."""
        name = offsets_partition(asked.partition)
        partition = self._replicas.partition(name)
        if partition is None:
            self._end(asked, error=self._replicas.absence(name.topic, name.partition))
            return
        if not partition.is_leader:
            self._end(asked, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        # The guard must exist before the transaction coordinator is asked:
        # 1. The coordinator confirms the partition, and its answer is under way.
        # 2. The transaction ends; its marker is appended here, and makes the guard invalid.
        # 3. The answer arrives. The log refuses the append that carries this guard.
        guard = partition.log.producers.begin_verification(asked.producer_id, asked.producer_epoch)
        # None means that the log has an open transaction of this producer. Then the append needs no
        # guard.
        if guard is None:
            self._end(asked)
            return
        coordinator = self._cache.transaction_coordinator(asked.transactional_id)
        if coordinator is None:
            self._end(asked, error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        self._channels.send(
            coordinator, _request(asked, name), partial(self._answered, asked, guard)
        )

    def _answered(
        self,
        asked: VerifyTransaction,
        guard: int,
        outcome: AnyResponse | Disconnected | RequestTimedOut,
    ) -> None:
        """Take the transaction coordinator's answer, or the failure of the request."""
        if isinstance(outcome, Disconnected | RequestTimedOut):
            self._end(asked, error=ErrorCode.NETWORK_EXCEPTION)
            return
        if not isinstance(outcome, AddPartitionsToTxnResponse):
            raise SimulationError(f"AddPartitionsToTxn was answered by {outcome}")
        error = _error_of(outcome, tells_abortable=asked.tells_abortable)
        if error is ErrorCode.NONE:
            self._end(asked, guard=guard)
        else:
            self._end(asked, error=error)

    def _end(
        self,
        asked: VerifyTransaction,
        *,
        error: ErrorCode = ErrorCode.NONE,
        guard: int | None = None,
    ) -> None:
        """Report the outcome of a verification. Without an `error`, the append is allowed.

        `guard` is None if the append needs no guard, or is not allowed.
        """
        self._on_verified(
            TransactionVerified(verification_id=asked.verification_id, error=error, guard=guard)
        )


def _request(asked: VerifyTransaction, name: TopicPartition) -> AddPartitionsToTxnRequest:
    """Return the request that only asks whether a partition belongs to the transaction."""
    topic = AddPartitionsToTxnTopic(name=name.topic, partitions=(name.partition,))
    return AddPartitionsToTxnRequest(
        transactions=(
            AddPartitionsToTxnTransaction(
                transactional_id=asked.transactional_id,
                producer_id=asked.producer_id,
                producer_epoch=asked.producer_epoch,
                verify_only=True,
                topics=(topic,),
            ),
        )
    )


def _error_of(response: AddPartitionsToTxnResponse, *, tells_abortable: bool) -> ErrorCode:
    """Return the error of the only partition, translated for the committing client.

    `tells_abortable` is True if the client's version of TxnOffsetCommit knows
    TRANSACTION_ABORTABLE.
    """
    if response.error_code is not ErrorCode.NONE:
        return response.error_code
    # The request was about one partition of one transaction. So the generator yields one list with
    # one error, and the pattern on the left unpacks this error.
    ((error,),) = (
        [each.partition_error_code for each in topic.results_by_partition]
        for result in response.results_by_transaction
        for topic in result.topic_results
    )
    # Kafka translates these two errors, too. INVALID_PRODUCER_EPOCH is older than PRODUCER_FENCED,
    # so all clients know INVALID_PRODUCER_EPOCH.
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    # Clients of older versions do not know TRANSACTION_ABORTABLE.
    if error is ErrorCode.TRANSACTION_ABORTABLE and not tells_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error
