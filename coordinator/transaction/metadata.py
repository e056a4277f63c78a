"""TransactionMetadata: the state of one transactional id, and the steps that change it.

A step has three parts:
1. `prepare_...` returns the new values, and marks the step as pending.
2. The caller appends the values to the log.
3. When the log has acknowledged the values, `complete_transition_to` makes them current.

While a step is pending, no other step may begin. This module must not know requests or logs.

Several producers may use one transactional id, one after the other. Each producer gets a higher
epoch than the producer before. A producer is fenced when the epoch is raised and the producer does
not know the new epoch: its requests have the old epoch, and are refused.

Source: Kafka `TransactionMetadata`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from coordinator.transaction.states import VALID_PREVIOUS_STATES, TransactionState
from protocol.errors import IllegalTransition
from protocol.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition

EPOCH_MAX = 32_766
"""The last epoch that a producer can get. An epoch is an int16. The largest int16, 32,767, is left
for the fencing of a producer with the epoch 32,766."""
NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """The values that a transactional id has after a step. A timestamp of -1 means none."""

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

    `pending_state` is the state to which the pending step leads. It is None if no step is pending.
    The completion of a transaction becomes pending when the decision about its end is in the log.
    It stays pending while the markers are being written.
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
        # These fields are stored in the log, and a load reads them.
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.txn_timeout_ms = txn_timeout_ms
        self._state = state
        # The partitions of the open transaction. After its end is decided, only the partitions that
        # have no marker yet. Only the keys of the dict matter.
        self.topic_partitions = dict.fromkeys(topic_partitions)
        self.txn_start_timestamp_ms = txn_start_timestamp_ms
        self.txn_last_update_timestamp_ms = txn_last_update_timestamp_ms
        # The fields below are not stored. The next coordinator starts without them.
        self.last_producer_epoch = NO_PRODUCER_EPOCH  # the epoch before the current one, if known
        self.last_producer_id: int = NO_PRODUCER_ID  # the producer id before the current one
        self.pending_state: TransactionState | None = None
        # True if the append of a raised epoch has failed. Then the next fence does not raise the
        # epoch further.
        self.has_failed_epoch_fence = False

    @property
    def state(self) -> TransactionState:
        """State of the transactional id. Only `complete_transition_to` changes it."""
        return self._state

    @property
    def is_pending(self) -> bool:
        """True if a step is pending."""
        return self.pending_state is not None

    @property
    def is_epoch_exhausted(self) -> bool:
        """True if the producer id has no epoch left, so that the producer needs another id."""
        return self.producer_epoch >= EPOCH_MAX

    # -- steps --

    def prepare_new_epoch(
        self, *, txn_timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> Transition | None:
        """Prepare the next epoch for a producer.

        Return None if a newer producer has fenced this producer.

        `expected_epoch` is the epoch that the producer believes to have (KIP-360). It is None if
        the producer has just started.

        Source: Kafka TransactionMetadata.prepareIncrementProducerEpoch.
        """
        bumped = self.producer_epoch + 1
        if expected_epoch is None:
            epoch, last_epoch = bumped, NO_PRODUCER_EPOCH
        elif self.producer_epoch in (NO_PRODUCER_EPOCH, expected_epoch):
            # The producer is right about its epoch, or no producer ever got an epoch of this id.
            epoch, last_epoch = bumped, self.producer_epoch
        elif expected_epoch == self.last_producer_epoch:
            # The producer repeats its request, because it has not got the first answer. The first
            # request has raised the epoch already, so the second answer has the same epoch as the
            # first answer.
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
        """Prepare a new producer id with epoch 0, because the old id has no epoch left.

        `names_epoch` is True if the request names the epoch that the producer believes to have
        (KIP-360). If the answer gets lost, the producer repeats the request with the old epoch. The
        old epoch is remembered as `last_producer_epoch`, so that such a request is recognized.
        """
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
        """Prepare to add partitions to the open transaction, or to a new one if none is open."""
        is_new = self._state is not TransactionState.ONGOING
        return self._prepare(
            TransactionState.ONGOING,
            topic_partitions=tuple(dict.fromkeys((*self.topic_partitions, *partitions))),
            txn_start_timestamp_ms=now_ms if is_new else self.txn_start_timestamp_ms,
            now_ms=now_ms,
        )

    def prepare_abort_or_commit(self, *, is_commit: bool, now_ms: int) -> Transition:
        """Prepare the decision to commit or abort the transaction."""
        return self._prepare(
            TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
            topic_partitions=tuple(self.topic_partitions),
            now_ms=now_ms,
        )

    def prepare_complete(self, *, now_ms: int) -> Transition:
        """Prepare the completion of a transaction whose end is decided.

        The markers are written first. The completion is pending until then, and is appended after
        the last marker.
        """
        is_commit = self._state is TransactionState.PREPARE_COMMIT
        # The decision is in the log, and its record also has the epoch. So a raised epoch is stored
        # now, even if an earlier append of the raised epoch failed.
        self.has_failed_epoch_fence = False
        return self._prepare(
            TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            topic_partitions=(),
            now_ms=now_ms,
        )

    def prepare_fence_producer_epoch(self) -> Transition:
        """Prepare to fence the producer by a higher epoch, so that its transaction can be aborted.

        This step is never appended. The caller passes the epoch to `abort_fenced`, which ends the
        step, and then prepares the abort, whose record has the epoch. If the append of the abort
        fails, the next fence uses the same epoch again.
        """
        epoch = self.producer_epoch if self.has_failed_epoch_fence else self.producer_epoch + 1
        return self._prepare(
            TransactionState.PREPARE_EPOCH_FENCE,
            producer_epoch=epoch,
            last_producer_epoch=NO_PRODUCER_EPOCH,
            topic_partitions=tuple(self.topic_partitions),
            now_ms=self.txn_last_update_timestamp_ms,  # unchanged: nothing is stored
        )

    def prepare_dead(self) -> Transition:
        """Prepare the removal of the transactional id."""
        return self._prepare(
            TransactionState.DEAD,
            topic_partitions=(),
            now_ms=self.txn_last_update_timestamp_ms,  # unchanged: a tombstone has no values
        )

    def abort_fenced(self, producer_epoch: int) -> None:
        """End the pending fence, and take over its epoch, so that the abort can be prepared."""
        self.pending_state = None
        self.producer_epoch = producer_epoch
        self.last_producer_epoch = NO_PRODUCER_EPOCH

    def complete_transition_to(self, step: Transition) -> None:
        """Make the values of a step current, because the log has acknowledged these values.

        Raises: IllegalTransition if this step is not the pending step, or if VALID_PREVIOUS_STATES
            forbids the step.
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
        """Mark a step as pending and return it. An argument None means the present value."""
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
        """Raise IllegalTransition if `state` cannot follow the present one."""
        allowed = VALID_PREVIOUS_STATES[state]
        if self._state not in allowed:
            names = ", ".join(sorted(each.value for each in allowed))
            raise self._illegal(state, f"it is entered from {names}")

    def _illegal(self, state: TransactionState, why: str) -> IllegalTransition:
        return IllegalTransition(
            f"{self.transactional_id} (producer {self.producer_id}, epoch {self.producer_epoch}) "
            f"is {self._state.value} and cannot become {state.value}: {why}"
        )
