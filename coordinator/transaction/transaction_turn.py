"""The transaction coordinator's turn: the context of one input, and the types of continuations.

A step is a change of one transactional id. A handler prepares a step (in `metadata`) and passes it
to `write`, a method of its turn, together with a `Purpose`: what to do once the append has
completed. `TransactionShared` has the state that outlives a turn. A marker is the record that ends
a transaction in one of its partitions. To fence a producer is to raise the epoch of its id, so that
its requests are refused.
"""

from dataclasses import dataclass, field

from coordinator.base_turn import BaseTurn, InFlight
from coordinator.transaction.effects import TransactionResult
from coordinator.transaction.load import TransactionLoad
from coordinator.transaction.metadata import TransactionMetadata, Transition
from coordinator.transaction.producer_ids import ProducerIds
from coordinator.transaction.states import STATE_IDS, TransactionState
from protocol.causes import TransactionCause
from protocol.config import BrokerConfig
from protocol.effects import Append
from protocol.errors import ErrorCode
from protocol.ids import RequestId, TopicPartition, transaction_partition
from protocol.partitioner import partition_for
from protocol.records.batch import Record
from protocol.records.transaction import (
    TransactionLogValue,
    TransactionPartitions,
    encode_transaction_key,
    encode_transaction_value,
)
from protocol.trace import TraceEvent, TraceKind


@dataclass(frozen=True, slots=True)
class NewProducerEpoch:
    """Purpose: answer the InitProducerId whose producer id and epoch are being written."""

    request_id: RequestId
    api_version: int


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """Purpose: add the outcome of one transaction to the answer of an AddPartitionsToTxn."""

    answer: "CollectedAnswer"
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndDecided:
    """Purpose: answer the request that ended a transaction, and send the markers.

    request_id: an EndTxn, or the InitProducerId of a new producer; None for a transaction that
        timed out.
    is_init: the request is an InitProducerId; the transaction of its predecessor is aborted.
    is_epoch_fence: the step also raises the epoch, to fence the producer.
    """

    is_commit: bool
    is_epoch_fence: bool
    request_id: RequestId | None
    api_version: int
    is_init: bool


@dataclass(frozen=True, slots=True)
class Completed:
    """Purpose: end a transaction, whose completion is being written.

    The completion is the step after the transaction's last marker.
    """


@dataclass(frozen=True, slots=True)
class Expired:
    """Purpose: forget a transactional id whose tombstone is being written."""


Purpose = NewProducerEpoch | PartitionsAdded | EndDecided | Completed | Expired


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingStep:
    """A step that is being written to a partition's log, with its purpose."""

    partition: int
    coordinator_epoch: int
    transactional_id: str
    step: Transition
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class AbortTimer:
    """Timer of the periodic check for transactions over their timeout."""


@dataclass(frozen=True, slots=True)
class ExpirationTimer:
    """Timer of the periodic check for expired transactional ids."""


@dataclass(frozen=True, slots=True)
class CompletionTimer:
    """Timer after which the failed append of a completion is repeated."""

    transactional_id: str


TransactionTimer = AbortTimer | ExpirationTimer | CompletionTimer


class CollectedAnswer:
    """The unfinished answer to an AddPartitionsToTxn: errors by transaction and partition.

    `missing`: number of transactions without an outcome so far.
    `is_add_offsets`: the request is an AddOffsetsToTxn. It is handled like an AddPartitionsToTxn of
    one transaction with one partition, but its answer has only that partition's error.
    """

    def __init__(
        self, request_id: RequestId, *, is_add_offsets: bool, transactions: int, api_version: int
    ) -> None:
        self.request_id = request_id
        self.is_add_offsets = is_add_offsets
        self.api_version = api_version
        self.missing = transactions
        self.errors: dict[str, dict[TopicPartition, ErrorCode]] = {}


@dataclass(slots=True)
class OwnedPartition:
    """One partition of `__transaction_state` that this broker leads and has loaded.

    `coordinator_epoch` is its leader epoch.
    """

    partition: int
    coordinator_epoch: int
    transactions: dict[str, TransactionMetadata] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class TransactionShared:
    """State of a transaction coordinator that outlives a turn."""

    config: BrokerConfig
    num_partitions: int
    num_offsets_partitions: int
    producer_ids: ProducerIds = field(default_factory=ProducerIds)
    owned: dict[int, OwnedPartition] = field(default_factory=dict)
    loading: dict[int, TransactionLoad] = field(default_factory=dict)
    in_flight: InFlight[TransactionTimer, PendingStep] = field(default_factory=InFlight)
    completions: dict[str, PendingStep] = field(default_factory=dict)
    """Transactional id -> the completion that is appended once its last marker is written."""


class TransactionTurn(BaseTurn[TransactionTimer, PendingStep, TransactionResult]):
    """The context of one input of the transaction coordinator."""

    __slots__ = ("shared",)

    def __init__(self, shared: TransactionShared, now_us: int) -> None:
        super().__init__(shared.config, shared.in_flight, TransactionResult(), now_us)
        self.shared = shared

    def owned(self, transactional_id: str) -> OwnedPartition | ErrorCode:
        """Return the partition of a transactional id, or the error if it is not served here."""
        partition = partition_for(transactional_id, self.shared.num_partitions)
        return self.owned_partition(partition)

    def owned_partition(self, partition: int) -> OwnedPartition | ErrorCode:
        """Return a partition, or the error if it is not served here.

        Source: Kafka TransactionStateManager.getAndMaybeAddTransactionState.
        """
        if partition in self.shared.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return self.shared.owned.get(partition) or ErrorCode.NOT_COORDINATOR

    def write(
        self,
        owned: OwnedPartition,
        metadata: TransactionMetadata,
        step: Transition,
        purpose: Purpose,
    ) -> None:
        """Append a step to the log; `purpose` says what follows once the log has answered."""
        self.write_step(
            PendingStep(
                partition=owned.partition,
                coordinator_epoch=owned.coordinator_epoch,
                transactional_id=metadata.transactional_id,
                step=step,
                purpose=purpose,
            )
        )

    def write_step(self, pending: PendingStep) -> None:
        """Append a step to the log."""
        # The append may take as long as the producer's transaction timeout, as in Kafka. If the
        # limit were shorter, a client could get an error although the step is stored soon after.
        self.result.appends.append(
            Append(
                append_id=self._in_flight.add_append(pending),
                partition=pending.partition,
                records=(_record(pending, self.now_ms),),
                timeout_ms=pending.step.txn_timeout_ms,
            )
        )

    def trace_state(
        self, pending: PendingStep, previous: TransactionState, cause: TransactionCause
    ) -> None:
        """Trace the new state of a transactional id."""
        step = pending.step
        self.trace(
            TraceEvent(
                kind=TraceKind.TRANSACTION_STATE,
                partition=str(transaction_partition(pending.partition)),
                leader_epoch=pending.coordinator_epoch,
                cause=cause,
                detail={
                    "transactional_id": pending.transactional_id,
                    "producer_id": step.producer_id,
                    "producer_epoch": step.producer_epoch,
                    "from": previous.value,
                    "to": step.state.value,
                },
            )
        )


def _record(pending: PendingStep, now_ms: int) -> Record:
    """Return the record of a step; a tombstone if the step removes the transactional id."""
    key = encode_transaction_key(pending.transactional_id)
    step = pending.step
    if step.state is TransactionState.DEAD:
        return Record(key, None, now_ms)

    by_topic: dict[str, tuple[int, ...]] = {}
    for topic, index in step.topic_partitions:
        by_topic[topic] = (*by_topic.get(topic, ()), index)
    # In the state Empty, Kafka writes null in place of an empty list of partitions.
    is_empty = step.state is TransactionState.EMPTY
    value = TransactionLogValue(
        producer_id=step.producer_id,
        producer_epoch=step.producer_epoch,
        transaction_timeout_ms=step.txn_timeout_ms,
        transaction_status=STATE_IDS[step.state],
        transaction_partitions=None
        if is_empty
        else tuple(TransactionPartitions(topic, ids) for topic, ids in by_topic.items()),
        transaction_last_update_timestamp_ms=step.txn_last_update_timestamp_ms,
        transaction_start_timestamp_ms=step.txn_start_timestamp_ms,
    )
    return Record(key, encode_transaction_value(value), now_ms)
