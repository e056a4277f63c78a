"""One input of the transaction coordinator being handled, its kinds of timers, and its steps.

Owns the partitions of `__transaction_state` that are here, and the markers that are not all
written. Handlers take a TransactionTurn, prepare steps, and say what the broker shall do through
it.
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
    """An InitProducerId waits for its id and epoch to be written."""

    request_id: RequestId
    api_version: int


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """Somebody waits for partitions to be added: one transaction of a collected answer."""

    answer: "CollectedAnswer"
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndDecided:
    """The end of a transaction is being written; markers follow.

    Shape: `request_id` is an EndTxn's or, where the transaction is in the way of a producer that
    begins anew, its InitProducerId's (`is_init`); None for a transaction that took too long.
    """

    is_commit: bool
    is_epoch_fence: bool
    request_id: RequestId | None
    api_version: int
    is_init: bool


@dataclass(frozen=True, slots=True)
class Completed:
    """That all markers are written is being written."""


@dataclass(frozen=True, slots=True)
class Expired:
    """A transactional id is being forgotten."""


Purpose = NewProducerEpoch | PartitionsAdded | EndDecided | Completed | Expired


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingStep:
    """A step that is being written to the log of a partition, and what it is for."""

    partition: int
    coordinator_epoch: int
    transactional_id: str
    step: Transition
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class AbortTimer:
    """Transactions that take too long are looked for."""


@dataclass(frozen=True, slots=True)
class ExpirationTimer:
    """Transactional ids that nobody uses are looked for."""


@dataclass(frozen=True, slots=True)
class CompletionTimer:
    """A completion that could not be written is written again."""

    transactional_id: str


TransactionTimer = AbortTimer | ExpirationTimer | CompletionTimer


class CollectedAnswer:
    """The answer to an AddPartitionsToTxn: errors by transaction and partition, until all are in.

    An AddOffsetsToTxn is one with one transaction, answered with its error alone.
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
    """What all turns of one transaction coordinator share."""

    config: BrokerConfig
    num_partitions: int
    num_offsets_partitions: int
    producer_ids: ProducerIds = field(default_factory=ProducerIds)
    owned: dict[int, OwnedPartition] = field(default_factory=dict)
    loading: dict[int, TransactionLoad] = field(default_factory=dict)
    in_flight: InFlight[TransactionTimer, PendingStep] = field(default_factory=InFlight)
    completions: dict[str, PendingStep] = field(default_factory=dict)
    """By transactional id: what will be written once its last marker is, or is tried again."""


class TransactionTurn(BaseTurn[TransactionTimer, PendingStep, TransactionResult]):
    """One input of the transaction coordinator being handled."""

    __slots__ = ("shared",)

    def __init__(self, shared: TransactionShared, now_us: int) -> None:
        super().__init__(shared.config, shared.in_flight, TransactionResult(), now_us)
        self.shared = shared

    def owned(self, transactional_id: str) -> OwnedPartition | ErrorCode:
        """Return the partition of a transactional id, or why it is not served here."""
        partition = partition_for(transactional_id, self.shared.num_partitions)
        return self.owned_partition(partition)

    def owned_partition(self, partition: int) -> OwnedPartition | ErrorCode:
        """Return a partition, or why it is not served here.

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
        """Append a step to the log; its outcome comes with `purpose`.

        It is waited for as long as the producer's transactions may last, as in Kafka.
        """
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
        """Record that a transactional id is in another state."""
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
    """Return the record of a step; a tombstone for one that forgets its transactional id.

    Partitions are stored while there is a transaction.
    """
    key = encode_transaction_key(pending.transactional_id)
    step = pending.step
    if step.state is TransactionState.DEAD:
        return Record(key, None, now_ms)
    by_topic: dict[str, tuple[int, ...]] = {}
    for topic, index in step.topic_partitions:
        by_topic[topic] = (*by_topic.get(topic, ()), index)
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
