"""The transaction coordinator: ids, epochs, and ends of transactions with their markers.

A transaction ends in two steps. First the coordinator writes its decision to its log. Then the
state is PrepareCommit or PrepareAbort. In the second step the coordinator sends a marker to each
partition of the transaction. A marker is a record that ends the transaction in that partition. When
all markers are written, the state becomes CompleteCommit or CompleteAbort.

In these tests `h` is a TransactionHarness: a transaction coordinator together with its log and its
timers. The methods of `h` send the requests of producers. Most tests have one producer. Its
transactional id is TX, and its producer id is 0.

- `h.init()` sends the request InitProducerId for TX. `h.init(None)` sends this request without a
  transactional id.
- `h.add_offsets(0)` begins a transaction of producer 0 with the partition OFFSETS. `h.end(0)`
  commits the transaction. `h.verify(0)` asks whether the transaction is open.
- If a test sets `h.holds_appends`, appends to the log wait until the test calls `h.complete`. With
  `h.holds_markers` the markers wait until the test calls `h.answer_markers`.
- `h.failover()` returns another coordinator, which has loaded a copy of the log.

The tests mirror Kafka's TransactionCoordinatorTest, TransactionMetadataTest and
TransactionMarkerChannelManagerTest.
"""

import pytest

from coordinator.transaction.metadata import EPOCH_MAX, TransactionMetadata
from coordinator.transaction.states import STATE_IDS, VALID_PREVIOUS_STATES, TransactionState
from protocol.errors import ErrorCode, IllegalTransition, SimulationError
from protocol.ids import TopicPartition
from protocol.messages.transaction import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    InitProducerIdRequest,
)
from protocol.records.batch import Record
from protocol.records.transaction import (
    TransactionLogValue,
    encode_transaction_key,
    encode_transaction_value,
)
from tests.support.harness.transaction_harness import OFFSETS, TX, TransactionHarness, end_txn

NONE = ErrorCode.NONE
DATA = TopicPartition("out", 1)
"""A partition to which a producer writes records in its transaction."""


def ongoing() -> TransactionHarness:
    """Return a coordinator with an open transaction: producer 0, epoch 0, partition OFFSETS."""
    h = TransactionHarness()
    assert h.init().producer_id == 0
    assert h.add_offsets(0) is NONE
    return h


# -- ids and epochs --


def test_next_block_of_producer_ids_is_requested_before_the_last_id_is_assigned() -> None:
    """The controller gives producer ids to the coordinator in blocks, here of ten ids.

    The coordinator requests the next block when it has assigned nine ids of a block. So none of 25
    producers has to wait for its id.
    """
    h = TransactionHarness()
    producer_ids = [h.init(None).producer_id for _ in range(25)]
    assert producer_ids == list(range(25))


def test_init_producer_id_without_free_ids_gets_a_retriable_error() -> None:
    """The first block has ten ids. The eleventh producer must repeat its request later."""
    h = TransactionHarness()
    h.gives_producer_ids = False
    answers = [h.init(f"tx-{i}") for i in range(11)]
    assert [answer.error_code for answer in answers[:10]] == [NONE] * 10
    refused = answers[10]
    assert refused.error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert refused.producer_id == -1
    assert refused.producer_epoch == -1

    h.gives_producer_ids = True
    # This request makes the coordinator request a block, and is refused before the block arrives.
    assert h.init("tx-10").error_code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert h.init("tx-10").producer_id == 10


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_transaction_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    """A timeout must be at least 1 ms, and at most transaction.max.timeout.ms, 900,000 ms here."""
    h = TransactionHarness()
    assert h.init(timeout_ms=timeout_ms).error_code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert h.coordinator.metadata(TX) is None
    assert h.init(timeout_ms=900_000).error_code is NONE


def test_id_without_its_epoch_is_invalid() -> None:
    """A new producer sends neither an id nor an epoch. Other producers send both (KIP-360)."""
    h = TransactionHarness()
    assert h.init(producer_id=5).error_code is ErrorCode.INVALID_REQUEST
    assert h.init(epoch=5).error_code is ErrorCode.INVALID_REQUEST


def test_producer_whose_epochs_are_exhausted_gets_another_id() -> None:
    """An epoch has 16 bits. A producer with the largest epoch gets a new id, with epoch 0."""
    h = TransactionHarness()
    h.init()
    # A producer reaches the largest epoch after 32,766 requests. The test sets it instead.
    h.metadata().producer_epoch = EPOCH_MAX
    rotated = h.init(producer_id=0, epoch=EPOCH_MAX)
    assert rotated.producer_id == 1
    assert rotated.producer_epoch == 0
    # If this answer is lost, the producer repeats its request, and gets the same answer.
    retried = h.init(producer_id=0, epoch=EPOCH_MAX)
    assert retried.error_code == NONE
    assert retried.producer_id == 1
    assert retried.producer_epoch == 0


# -- a transaction --


def test_request_without_transactions_gets_an_empty_answer() -> None:
    """Since version 4 AddPartitionsToTxn has a list of transactions, and the list may be empty."""
    h = TransactionHarness()
    request_id = h.submit(AddPartitionsToTxnRequest(transactions=()))
    assert h.responses[request_id] == AddPartitionsToTxnResponse()


def test_append_of_a_step_has_the_timeout_of_the_transaction() -> None:
    """A step is a change of a transaction's state, which the coordinator appends to its log.

    Kafka uses the timeout of the transaction as the timeout of this append, too.
    """
    h = TransactionHarness()
    h.holds_appends = True
    h.submit(InitProducerIdRequest(transactional_id=TX, transaction_timeout_ms=33_000))
    assert h.held[0].timeout_ms == 33_000


# -- markers --


def test_marker_that_fails_is_sent_again_until_every_partition_has_one() -> None:
    """Until every marker is written, the transaction stays in PrepareCommit.

    A retry goes only to the partitions whose marker has failed.
    """
    h = ongoing()
    h.add_partitions(0, 0, DATA)  # for producer 0 in epoch 0
    h.holds_markers = True
    h.end(0)

    # The coordinator sends the markers of both partitions together. DATA's marker fails.
    (markers,) = h.markers
    h.markers.clear()
    h.execute(
        h.coordinator.markers_answered(
            TX,
            markers.coordinator_epoch,
            {OFFSETS: NONE, DATA: ErrorCode.NOT_LEADER_OR_FOLLOWER},
            h.now_us,
        )
    )

    (retried,) = h.markers
    assert retried.partitions == (DATA,)
    assert retried.is_retry
    assert not markers.is_retry

    h.answer_markers(ErrorCode.NETWORK_EXCEPTION)  # the retry fails, too, and is repeated
    assert h.state() is TransactionState.PREPARE_COMMIT
    h.answer_markers()
    assert h.state() is TransactionState.COMPLETE_COMMIT


def test_outcome_of_markers_of_another_tenure_is_ignored() -> None:
    """A tenure is the time in which a broker leads the coordinator's partition without a break.

    Each tenure has its own coordinator epoch: the leader epoch of the partition. Here the
    coordinator epoch is 0, and an outcome arrives for markers that were sent in another epoch.
    """
    h = ongoing()
    h.holds_markers = True
    h.end(0)
    another_epoch = 7
    h.execute(h.coordinator.markers_answered(TX, another_epoch, {OFFSETS: NONE}, h.now_us))
    assert h.state() is TransactionState.PREPARE_COMMIT
    # After an unload the tenure is over, so the outcome of its own markers is ignored, too.
    h.coordinator.unload(0)
    h.answer_markers()
    assert h.markers == []  # no new markers are sent


# -- leadership --


def test_requests_are_refused_while_the_partition_is_elsewhere_or_loading() -> None:
    """After either error a producer repeats its request.

    After NOT_COORDINATOR it first looks for its coordinator again.
    """
    h = TransactionHarness(epoch=None)  # this broker does not lead the partition
    assert h.init().error_code is ErrorCode.NOT_COORDINATOR
    h.coordinator.begin_load(0, coordinator_epoch=3)
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert h.init().error_code is loading
    assert h.add_offsets(0) is loading
    assert h.end(0) is loading
    assert h.verify(0) is loading

    h.execute(h.coordinator.finish_load(0, h.now_us))
    assert h.init().error_code is NONE

    # The broker is elected again. The coordinator drops its state, which is from an earlier leader
    # epoch, and loads the log.
    h.coordinator.begin_load(0, coordinator_epoch=4)
    assert not h.coordinator.is_owned(0)
    assert h.init().error_code is loading


def test_next_coordinator_knows_open_transactions() -> None:
    """The next coordinator can end the open transaction, or abort it after its timeout.

    The log has the time at which the transaction began, so the timeout of 60 s counts from this
    time. Here 50 s pass before the failover, and 20 s after the failover.
    """
    h = ongoing()
    h.advance(50_000)
    first_successor = h.failover()
    assert first_successor.state() is TransactionState.ONGOING
    assert first_successor.verify(0) is NONE
    assert first_successor.end(0) is NONE

    # The first successor has its own copy of the log. In the log of `h` the transaction is still
    # open.
    second_successor = h.failover()
    second_successor.advance(20_000)
    assert second_successor.state() is TransactionState.COMPLETE_ABORT


def test_next_coordinator_completes_a_decided_transaction_without_partitions_at_once() -> None:
    """The log has a decision to abort a transaction that had no partitions yet.

    So there are no markers to write, and the next coordinator completes the abort when it loads the
    log.
    """
    h = TransactionHarness()
    decided = TransactionLogValue(
        producer_id=3,
        producer_epoch=1,
        transaction_timeout_ms=60_000,
        transaction_status=STATE_IDS[TransactionState.PREPARE_ABORT],
    )
    h.write(Record(encode_transaction_key(TX), encode_transaction_value(decided), timestamp_ms=0))
    other = h.failover()
    assert other.markers == []
    assert other.state() is TransactionState.COMPLETE_ABORT


def test_step_of_a_lost_tenure_is_answered_and_changes_nothing() -> None:
    """The append of the step is still in flight when the partition moves away and back.

    1. The producer ends its transaction. The append of this step to the log is in flight.
    2. The broker loses the partition, and gets the partition again. The coordinator loads the log,
       which does not have the step.
    3. The append succeeds. The request gets NOT_COORDINATOR, and the transaction stays open.
    """
    h = ongoing()
    h.holds_appends = True
    ending = h.submit(end_txn(0))

    h.coordinator.unload(0)
    h.coordinator.begin_load(0, coordinator_epoch=5)
    h.coordinator.load_batches(0, tuple(h.log))
    h.execute(h.coordinator.finish_load(0, h.now_us))

    h.complete()
    assert h.end_error(ending) is ErrorCode.NOT_COORDINATOR
    assert h.state() is TransactionState.ONGOING


def test_partition_that_has_moved_away_is_no_longer_served() -> None:
    """An EndTxn whose append is in flight gets NOT_COORDINATOR, even if the append succeeds."""
    for outcome in (NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER):
        h = ongoing()
        h.holds_appends = True
        ending = h.submit(end_txn(0))
        h.coordinator.unload(0)
        assert not h.coordinator.is_owned(0)
        assert h.init().error_code is ErrorCode.NOT_COORDINATOR
        h.complete(outcome)
        assert h.end_error(ending) is ErrorCode.NOT_COORDINATOR


def test_load_with_an_unreadable_record_keeps_the_records_before_it() -> None:
    """Kafka's coordinator ends the load at the unreadable record, and serves what it has read."""
    h = TransactionHarness()
    h.init()
    # The value has version 9, which does not exist.
    h.write(Record(encode_transaction_key("other"), b"\x00\x09", timestamp_ms=0))
    h.coordinator.begin_load(0, coordinator_epoch=1)
    h.coordinator.load_batches(0, tuple(h.log))
    assert "version 9" in (h.coordinator.load_error(0) or "")
    h.execute(h.coordinator.finish_load(0, h.now_us))
    assert h.state() is TransactionState.EMPTY


def test_load_ignores_records_of_an_unknown_kind() -> None:
    """A coordinator of a newer version may have written a record of a new kind.

    Here the key has version 7, which our coordinator does not know.
    """
    h = TransactionHarness()
    h.init()
    h.write(Record(b"\x00\x07x", b"\x00\x00", timestamp_ms=0))
    assert h.failover().coordinator.metadata(TX) is not None


def test_timer_or_batch_that_the_coordinator_did_not_ask_for_raises() -> None:
    """Only a bug of the broker can give the coordinator such an input."""
    h = TransactionHarness()
    with pytest.raises(SimulationError, match="never set"):
        h.coordinator.timer_fired("other", 0)
    with pytest.raises(SimulationError, match="not loading"):
        h.coordinator.load_batches(0, ())


# -- states --


def metadata(state: TransactionState) -> TransactionMetadata:
    """Return the metadata of a transactional id in this state."""
    return TransactionMetadata(
        TX,
        producer_id=1,
        producer_epoch=0,
        txn_timeout_ms=1,
        state=state,
        txn_last_update_timestamp_ms=0,
    )


def test_states_have_kafkas_numbers() -> None:
    """The log stores a state as its number, so the numbers must be those of Kafka, 0 to 7."""
    assert [STATE_IDS[state] for state in TransactionState] == list(range(8))
    assert STATE_IDS[TransactionState.PREPARE_EPOCH_FENCE] == 7


@pytest.mark.parametrize("state", list(TransactionState))
@pytest.mark.parametrize("step", ["new epoch", "add", "commit", "fence", "dead"])
def test_state_machine_allows_the_steps_of_the_table(state: TransactionState, step: str) -> None:
    """A legal step makes its target state pending. An illegal step raises and changes nothing.

    The table VALID_PREVIOUS_STATES has the states from which each state can be reached.
    """
    target = {
        "new epoch": TransactionState.EMPTY,
        "add": TransactionState.ONGOING,
        "commit": TransactionState.PREPARE_COMMIT,
        "fence": TransactionState.PREPARE_EPOCH_FENCE,
        "dead": TransactionState.DEAD,
    }[step]

    stepping = metadata(state)

    def prepare_step() -> None:
        match step:
            case "new epoch":
                stepping.prepare_new_epoch(txn_timeout_ms=1, expected_epoch=None, now_ms=0)
            case "add":
                stepping.prepare_add_partitions((OFFSETS,), now_ms=0)
            case "commit":
                stepping.prepare_abort_or_commit(is_commit=True, now_ms=0)
            case "fence":
                stepping.prepare_fence_producer_epoch()
            case _:
                stepping.prepare_dead()

    # The state itself changes only when the step is in the log. This test writes no log.
    if state in VALID_PREVIOUS_STATES[target]:
        prepare_step()
        assert (stepping.state, stepping.pending_state) == (state, target)
    else:
        with pytest.raises(IllegalTransition, match=target.value):
            prepare_step()
        assert (stepping.state, stepping.pending_state) == (state, None)


def test_second_step_while_one_is_pending_raises() -> None:
    """The request handlers refuse such a step earlier, with the error CONCURRENT_TRANSACTIONS.

    So only a bug can prepare a second step, or complete a step twice.
    """
    stepping = metadata(TransactionState.EMPTY)
    step = stepping.prepare_add_partitions((OFFSETS,), now_ms=0)
    with pytest.raises(IllegalTransition, match="pending"):
        stepping.prepare_add_partitions((DATA,), now_ms=0)
    stepping.complete_transition_to(step)
    with pytest.raises(IllegalTransition, match="None is pending"):
        stepping.complete_transition_to(step)
