"""What is known of one transactional id, and every step that it may take.

A step is prepared, written to the log, and then completed: `prepare_…` says what the log shall hold
and marks the step as pending, `complete_transition_to` takes it over once the log has it. While one
is pending no other may begin. Must not know requests or logs.
Source: Kafka `TransactionMetadata`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.transaction.states import VALID_PREVIOUS_STATES, TransactionState
from protocol.errors import IllegalTransition
from protocol.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

EPOCH_MAX = 32_766
"""The last epoch that is given to a producer; the one above is kept for fencing it."""
NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A step: what the transactional id will be. Units: milliseconds; -1 is no timestamp."""

    producer_id: int
    producer_epoch: int
    last_producer_epoch: int
    txn_timeout_ms: int
    state: TransactionState
    topic_partitions: tuple[TopicPartition, ...]
    txn_start_timestamp_ms: int
    txn_last_update_timestamp_ms: int


class TransactionMetadata:
    """One transactional id.

    Invariant: `pending_state` is set exactly while a step is being written, or markers are.
    Units: timestamps and timeouts in milliseconds.
    """

    __slots__ = (
        "_state",
        "has_failed_epoch_fence",
        "last_producer_epoch",
        "last_producer_id",
        "pending_state",
        "producer_epoch",
        "producer_id",
        "topic_partitions",
        "transactional_id",
        "txn_last_update_timestamp_ms",
        "txn_start_timestamp_ms",
        "txn_timeout_ms",
    )

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        *,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        txn_timeout_ms: int,
        state: TransactionState = TransactionState.EMPTY,
        topic_partitions: Iterable[TopicPartition] = (),
        txn_start_timestamp_ms: int = NO_TIMESTAMP,
        txn_last_update_timestamp_ms: int,
    ) -> None:
        self.transactional_id = transactional_id
        # Hard state: what the log holds.
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.txn_timeout_ms = txn_timeout_ms
        self._state = state
        # Those that still want a marker, once the end is decided.
        self.topic_partitions = dict.fromkeys(topic_partitions)
        self.txn_start_timestamp_ms = txn_start_timestamp_ms
        self.txn_last_update_timestamp_ms = txn_last_update_timestamp_ms
        # Soft state.
        self.last_producer_epoch = NO_PRODUCER_EPOCH  # before a bump that the producer asked for
        self.last_producer_id: int = NO_PRODUCER_ID  # before the present one
        self.pending_state: TransactionState | None = None
        self.has_failed_epoch_fence = False  # the epoch was bumped in vain: not once more

    @property
    def state(self) -> TransactionState:
        """Its state; only complete_transition_to writes it."""
        return self._state

    @property
    def is_pending(self) -> bool:
        """Whether a step is under way."""
        return self.pending_state is not None

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether no further epoch can be given out under this producer id."""
        return self.producer_epoch >= EPOCH_MAX

    # -- steps --

    def prepare_new_epoch(
        self, *, txn_timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> Transition | None:
        """Give the producer the next epoch. None: it was fenced by another one.

        A producer that names its epoch gets the next one; the same request once more, whose answer
        was lost, gets the same answer.
        Source: Kafka TransactionMetadata.prepareIncrementProducerEpoch; KIP-360.
        """
        bumped = self.producer_epoch + 1
        if expected_epoch is None:
            epoch, last_epoch = bumped, NO_PRODUCER_EPOCH
        elif self.producer_epoch in (NO_PRODUCER_EPOCH, expected_epoch):
            epoch, last_epoch = bumped, self.producer_epoch
        elif expected_epoch == self.last_producer_epoch:
            epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        else:
            return None
        return self._prepare(
            TransactionState.EMPTY,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            txn_timeout_ms=txn_timeout_ms,
            topic_partitions=(),
            txn_start_timestamp_ms=NO_TIMESTAMP,
            now_ms=now_ms,
        )

    def prepare_producer_id_rotation(
        self, producer_id: int, *, txn_timeout_ms: int, names_epoch: bool, now_ms: int
    ) -> Transition:
        """Give the producer another id, from epoch 0 on: its epochs are used up."""
        return self._prepare(
            TransactionState.EMPTY,
            producer_id=producer_id,
            producer_epoch=0,
            last_producer_epoch=self.producer_epoch if names_epoch else NO_PRODUCER_EPOCH,
            txn_timeout_ms=txn_timeout_ms,
            topic_partitions=(),
            txn_start_timestamp_ms=NO_TIMESTAMP,
            now_ms=now_ms,
        )

    def prepare_add_partitions(
        self, partitions: Iterable[TopicPartition], *, now_ms: int
    ) -> Transition:
        """Add partitions to the transaction, which begins if there is none."""
        is_new = self._state is not TransactionState.ONGOING
        return self._prepare(
            TransactionState.ONGOING,
            topic_partitions=tuple(dict.fromkeys((*self.topic_partitions, *partitions))),
            txn_start_timestamp_ms=now_ms if is_new else self.txn_start_timestamp_ms,
            now_ms=now_ms,
        )

    def prepare_abort_or_commit(self, *, is_commit: bool, now_ms: int) -> Transition:
        """Decide the end of the transaction."""
        return self._prepare(
            TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
            topic_partitions=tuple(self.topic_partitions),
            now_ms=now_ms,
        )

    def prepare_complete(self, *, now_ms: int) -> Transition:
        """Take note that every partition has its marker; pending until they have."""
        is_commit = self._state is TransactionState.PREPARE_COMMIT
        # What was bumped to fence the producer is in the log with this.
        self.has_failed_epoch_fence = False
        return self._prepare(
            TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            topic_partitions=(),
            now_ms=now_ms,
        )

    def prepare_fence_producer_epoch(self) -> Transition:
        """Take the epoch above the producer's, with which its transaction is then aborted.

        An attempt whose append failed is made again with the same epoch.
        """
        epoch = self.producer_epoch if self.has_failed_epoch_fence else self.producer_epoch + 1
        return self._prepare(
            TransactionState.PREPARE_EPOCH_FENCE,
            producer_epoch=epoch,
            last_producer_epoch=NO_PRODUCER_EPOCH,
            topic_partitions=tuple(self.topic_partitions),
            now_ms=self.txn_last_update_timestamp_ms,
        )

    def prepare_dead(self) -> Transition:
        """Forget the transactional id."""
        return self._prepare(
            TransactionState.DEAD,
            topic_partitions=(),
            now_ms=self.txn_last_update_timestamp_ms,
        )

    def abort_fenced(self, producer_epoch: int) -> None:
        """Leave the fence for the abort that it was made for, with the epoch of the fence."""
        self.pending_state = None
        self.producer_epoch = producer_epoch
        self.last_producer_epoch = NO_PRODUCER_EPOCH

    def complete_transition_to(self, step: Transition) -> None:
        """Be what the log now holds.

        Raises: IllegalTransition if this is not the step that is pending, or its table forbids it.
        """
        if self.pending_state is not step.state:
            raise self._illegal(step.state, f"{self.pending_state} is pending")
        self._check_previous(step.state)
        self.pending_state = None
        self._state = step.state
        if step.producer_id != self.producer_id:
            self.last_producer_id, self.producer_id = self.producer_id, step.producer_id
        self.producer_epoch = step.producer_epoch
        self.last_producer_epoch = step.last_producer_epoch
        self.txn_timeout_ms = step.txn_timeout_ms
        self.topic_partitions = dict.fromkeys(step.topic_partitions)
        self.txn_start_timestamp_ms = step.txn_start_timestamp_ms
        self.txn_last_update_timestamp_ms = step.txn_last_update_timestamp_ms

    def _prepare(
        self,
        state: TransactionState,
        *,
        producer_id: int | None = None,
        producer_epoch: int | None = None,
        last_producer_epoch: int | None = None,
        txn_timeout_ms: int | None = None,
        topic_partitions: tuple[TopicPartition, ...],
        txn_start_timestamp_ms: int | None = None,
        now_ms: int,
    ) -> Transition:
        """Mark a step as pending; what is None stays."""
        if self.pending_state is not None:
            raise self._illegal(state, f"{self.pending_state.value} is pending")
        self._check_previous(state)
        self.pending_state = state
        start_ms = self.txn_start_timestamp_ms
        last_epoch = self.last_producer_epoch
        return Transition(
            producer_id=self.producer_id if producer_id is None else producer_id,
            producer_epoch=self.producer_epoch if producer_epoch is None else producer_epoch,
            last_producer_epoch=last_epoch if last_producer_epoch is None else last_producer_epoch,
            txn_timeout_ms=self.txn_timeout_ms if txn_timeout_ms is None else txn_timeout_ms,
            state=state,
            topic_partitions=topic_partitions,
            txn_start_timestamp_ms=start_ms
            if txn_start_timestamp_ms is None
            else txn_start_timestamp_ms,
            txn_last_update_timestamp_ms=now_ms,
        )

    def _check_previous(self, state: TransactionState) -> None:
        allowed = VALID_PREVIOUS_STATES[state]
        if self._state not in allowed:
            names = ", ".join(sorted(each.value for each in allowed))
            raise self._illegal(state, f"it is entered from {names}")

    def _illegal(self, state: TransactionState, why: str) -> IllegalTransition:
        return IllegalTransition(
            f"{self.transactional_id} (producer {self.producer_id}, epoch {self.producer_epoch}) "
            f"is {self._state.value} and cannot become {state.value}: {why}"
        )
