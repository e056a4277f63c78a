"""The transaction coordinator's turn, and the values that say how to continue in a later turn.

A turn is the handling of one input, such as a request or a completed append. If a request changes a
transactional id, its handler prepares the change, which is called a step (see `metadata`). The
handler passes the step to `TransactionTurn.write`, which appends it to the log. Together with the
step it passes a `Purpose`, which says what to do when the append has completed. For example, the
purpose of a new producer epoch is to answer the InitProducerId that asked for this epoch.
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
    """Purpose of a step with a new epoch: to answer the InitProducerId of the producer."""

    request_id: RequestId
    api_version: int


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """Purpose of a step that adds partitions: to put the outcome into the answer of the request.

    The request may be about several transactions, so its answer is collected step by step.
    """

    answer: "CollectedAnswer"
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndDecided:
    """Purpose of a step that decides the end of a transaction: to answer, and to send the markers.

    request_id: the request that ended the transaction. It is an EndTxn, or the InitProducerId of a
        new producer with the same transactional id. None if the transaction timed out.
    is_init: True if the request is an InitProducerId.
    is_epoch_fence: True if the step also raises the epoch, so that the old producer's requests are
        refused.
    """

    is_commit: bool
    is_epoch_fence: bool
    request_id: RequestId | None
    api_version: int
    is_init: bool


@dataclass(frozen=True, slots=True)
class Completed:
    """Purpose of a transaction's last step, after all markers: the transaction is complete."""


@dataclass(frozen=True, slots=True)
class Expired:
    """Purpose of a step that deletes an expired transactional id: to forget this id."""


Purpose = NewProducerEpoch | PartitionsAdded | EndDecided | Completed | Expired


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingStep:
    """A step that is being appended to a partition of `__transaction_state`, with its purpose."""

    partition: int
    coordinator_epoch: int
    transactional_id: str
    step: Transition
    purpose: Purpose


@dataclass(frozen=True, slots=True)
class AbortTimer:
    """Timer of the periodic search for transactions that have run longer than their timeout."""


@dataclass(frozen=True, slots=True)
class ExpirationTimer:
    """Timer of the periodic search for transactional ids that no producer has used for long."""


@dataclass(frozen=True, slots=True)
class CompletionTimer:
    """Timer after which the last step of a transaction is appended again, because it failed."""

    transactional_id: str


TransactionTimer = AbortTimer | ExpirationTimer | CompletionTimer


class CollectedAnswer:
    """The unfinished answer to an AddPartitionsToTxn, which may be about several transactions.

    `errors` has the outcomes so far: transactional id -> partition -> error. `missing` is the
    number of transactions that have no outcome yet.

    An AddOffsetsToTxn is handled in the same way, as a request with one transaction and one
    partition. Then `is_add_offsets` is True, and the answer has only that partition's error.
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

    `coordinator_epoch` is the partition's leader epoch.
    """

    partition: int
    coordinator_epoch: int
    # Transactional id -> its metadata.
    transactions: dict[str, TransactionMetadata] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class TransactionShared:
    """State that all turns of a transaction coordinator share.

    - `num_partitions`: number of partitions of `__transaction_state`.
    - `num_offsets_partitions`: number of partitions of `__consumer_offsets`.
    - `owned` and `loading`: by partition of `__transaction_state`.
    """

    config: BrokerConfig
    num_partitions: int
    num_offsets_partitions: int
    producer_ids: ProducerIds = field(default_factory=ProducerIds)
    owned: dict[int, OwnedPartition] = field(default_factory=dict)
    loading: dict[int, TransactionLoad] = field(default_factory=dict)
    in_flight: InFlight[TransactionTimer, PendingStep] = field(default_factory=InFlight)
    completions: dict[str, PendingStep] = field(default_factory=dict)
    """Transactional id -> the completion of its transaction, which is the step that is appended
    after the last marker."""


class TransactionTurn(BaseTurn[TransactionTimer, PendingStep, TransactionResult]):
    """The context in which the transaction coordinator handles one input."""

    __slots__ = ("shared",)

    def __init__(self, shared: TransactionShared, now_us: int) -> None:
        super().__init__(shared.config, shared.in_flight, TransactionResult(), now_us)
        self.shared = shared

    def owned(self, transactional_id: str) -> OwnedPartition | ErrorCode:
        """Return the partition of a transactional id, or an error if it is not served here."""
        partition = partition_for(transactional_id, self.shared.num_partitions)
        return self.owned_partition(partition)

    def owned_partition(self, partition: int) -> OwnedPartition | ErrorCode:
        """Return a partition, or an error if this broker does not serve it.

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
        """Append a step to the log. `purpose` says what to do when the append has completed."""
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
        # As in Kafka, the append fails only after the producer's transaction timeout. With a
        # shorter limit, a client could get an error although the step is stored soon after.
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
    """Return the record of a step. A step that removes a transactional id has a tombstone."""
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
