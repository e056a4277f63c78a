"""State of transactional producers in a log (KIP-98), and verification guards (KIP-890).

Before a leader appends the first batch of a transaction, its broker asks the transaction
coordinator whether the transaction is open. At the beginning of this verification the leader gives
out a guard, which is a number. The leader accepts the batch only with this guard. If the
transaction ends in between, its marker makes the guard invalid. So a late batch cannot open a
transaction that is over.

`transactional(5)` is a batch at offset 5 in a transaction of producer 7. `marker(6)` ends the
transaction by a commit. Both batches have producer epoch 0, unless a test gives another epoch.
"""

from partition_log.batches import build_batch
from partition_log.log import PartitionLog
from partition_log.producer_states import ProducerStates
from protocol.effects import ACKS_ALL
from protocol.errors import ErrorCode
from protocol.records.batch import RecordBatch, encode_records
from protocol.records.control import EndTransactionMarker, decode_marker, encode_marker
from tests.support.builders.partition_logs import B, C, follower, leader, log, records, replicate

PRODUCER = 7
EPOCH = 0
"""The producer epoch of each batch, unless a test gives another epoch."""


def transactional(base_offset: int, *, producer: int = PRODUCER, epoch: int = EPOCH) -> RecordBatch:
    """Return a batch of one record, which belongs to a transaction."""
    return build_batch(
        records("v"),
        base_offset=base_offset,
        leader_epoch=0,
        producer_id=producer,
        producer_epoch=epoch,
        is_transactional=True,
    )


def marker(
    base_offset: int,
    *,
    is_commit: bool = True,
    epoch: int = EPOCH,
    coordinator_epoch: int = 0,
) -> RecordBatch:
    """Return the control batch that ends a transaction of PRODUCER."""
    end = EndTransactionMarker(is_commit=is_commit, coordinator_epoch=coordinator_epoch)
    return build_batch(
        (encode_marker(end, timestamp_ms=0),),
        base_offset=base_offset,
        leader_epoch=0,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        is_transactional=True,
        is_control=True,
    )


def states(*batches: RecordBatch) -> ProducerStates:
    """Return the producer states of a log with these batches."""
    producer_states = ProducerStates()
    for appended_batch in batches:
        producer_states.appended(appended_batch)
    return producer_states


def test_encoded_marker_is_decoded_to_an_equal_one() -> None:
    """A marker has two fields: the outcome of the transaction, and the coordinator epoch."""
    for is_commit in (True, False):
        end = EndTransactionMarker(is_commit=is_commit, coordinator_epoch=9)
        encoded = marker(3, is_commit=is_commit, coordinator_epoch=9)
        assert decode_marker(encoded) == end


def test_control_batch_without_records_is_ignored() -> None:
    """A compaction may remove the marker from its batch. The batch then ends no transaction."""
    without_marker = RecordBatch(
        base_offset=1,
        partition_leader_epoch=0,
        last_offset_delta=0,
        max_timestamp_ms=0,
        records=encode_records(()),
        producer_id=PRODUCER,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )
    assert decode_marker(without_marker) is None
    producer_states = states(transactional(0), without_marker)
    assert producer_states.has_ongoing_transaction(PRODUCER, EPOCH)


def test_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    """While a transaction is open, the offset of its first batch is the first unstable offset.

    Consumers with isolation.level=read_committed must not read beyond this offset.
    """
    producer_states = states(transactional(5), transactional(6))
    assert producer_states.has_ongoing_transaction(PRODUCER, EPOCH)
    assert not producer_states.has_ongoing_transaction(PRODUCER, 1)  # another producer epoch
    assert producer_states.first_unstable_offset == 5
    producer_states.appended(marker(7))
    assert not producer_states.has_ongoing_transaction(PRODUCER, EPOCH)
    assert producer_states.first_unstable_offset is None


def test_first_unstable_offset_is_that_of_the_oldest_open_transaction() -> None:
    """The transaction at 2 has ended. The only open transaction is that of producer 8, at 4."""
    producer_states = states(transactional(2), transactional(4, producer=8), marker(6))
    assert producer_states.first_unstable_offset == 4


def test_batch_that_begins_a_transaction_needs_a_verification() -> None:
    """The guard must come from a verification of the same producer (KIP-890)."""
    producer_states = ProducerStates()
    assert producer_states.check_transactional(PRODUCER, EPOCH, None) is ErrorCode.INVALID_TXN_STATE
    guard = producer_states.begin_verification(PRODUCER, EPOCH)
    assert guard is not None
    # A second verification before the batch gets the same guard.
    assert producer_states.begin_verification(PRODUCER, EPOCH) == guard
    assert producer_states.check_transactional(8, 0, guard) is ErrorCode.INVALID_TXN_STATE
    assert producer_states.check_transactional(PRODUCER, EPOCH, guard) is ErrorCode.NONE


def test_batch_of_an_open_transaction_needs_no_verification() -> None:
    """The verification of the first batch is valid until the transaction ends."""
    producer_states = states(transactional(0))
    assert producer_states.begin_verification(PRODUCER, EPOCH) is None
    assert producer_states.check_transactional(PRODUCER, EPOCH, None) is ErrorCode.NONE


def test_guard_is_invalid_after_the_transaction_has_ended() -> None:
    """A delayed batch must not open a transaction that no marker will end."""
    producer_states = ProducerStates()
    guard = producer_states.begin_verification(PRODUCER, EPOCH)
    producer_states.appended(marker(0, is_commit=False))
    assert (
        producer_states.check_transactional(PRODUCER, EPOCH, guard) is ErrorCode.INVALID_TXN_STATE
    )


def test_batch_of_an_older_epoch_is_refused() -> None:
    """The coordinator can abort with a marker of the next producer epoch, here 1.

    So the producer, which still uses epoch 0, is fenced: its batches are refused.
    """
    producer_states = states(transactional(0), marker(1, is_commit=False, epoch=1))
    guard = producer_states.begin_verification(PRODUCER, EPOCH)
    assert (
        producer_states.check_transactional(PRODUCER, EPOCH, guard)
        is ErrorCode.INVALID_PRODUCER_EPOCH
    )


def test_marker_of_an_older_producer_epoch_or_coordinator_epoch_is_refused() -> None:
    """A coordinator that was replaced must not end a later transaction."""
    producer_states = states(transactional(0, epoch=3), marker(1, epoch=3, coordinator_epoch=5))
    of_coordinator_epoch_4 = EndTransactionMarker(is_commit=True, coordinator_epoch=4)
    of_coordinator_epoch_5 = EndTransactionMarker(is_commit=True, coordinator_epoch=5)

    def check(producer: int, producer_epoch: int, end: EndTransactionMarker) -> ErrorCode:
        return producer_states.check_marker(producer, producer_epoch, end)

    assert check(PRODUCER, 2, of_coordinator_epoch_5) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert check(PRODUCER, 3, of_coordinator_epoch_4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert check(PRODUCER, 3, of_coordinator_epoch_5) is ErrorCode.NONE
    # The log knows no epoch of producer 8, so each marker of this producer is accepted.
    assert check(8, 0, of_coordinator_epoch_4) is ErrorCode.NONE


def test_producer_states_are_rebuilt_after_a_restart_and_a_truncation() -> None:
    """The rebuilt states must follow from the batches that are left in the log."""
    written = log()
    written.append_as_leader(records("v"), leader_epoch=0)
    assert written.append_as_follower((transactional(1), marker(2))) is ErrorCode.NONE
    reopened = PartitionLog(written.topic_partition, written.storage)
    assert len(reopened.producers) == 1
    assert not reopened.producers.has_ongoing_transaction(PRODUCER, EPOCH)
    reopened.truncate_to(2)  # removes the marker
    assert reopened.producers.has_ongoing_transaction(PRODUCER, EPOCH)
    reopened.truncate_to(1)  # removes the batch of the transaction, too
    assert len(reopened.producers) == 0


def test_leader_appends_a_verified_transaction_and_its_marker_and_replicates_both() -> None:
    """Without a guard the batch is refused. A follower computes the state from the batches."""
    leading, following = leader(), follower()
    producers = leading.log.producers
    refused = leading.append_records(
        records("v"),
        required_acks=ACKS_ALL,
        now_us=0,
        producer_id=PRODUCER,
        producer_epoch=0,
        is_transactional=True,
    )
    assert (refused.error, leading.log_end_offset) == (ErrorCode.INVALID_TXN_STATE, 0)

    verified = leading.append_records(
        records("v"),
        required_acks=ACKS_ALL,
        now_us=0,
        producer_id=PRODUCER,
        producer_epoch=0,
        is_transactional=True,
        verification_guard=producers.begin_verification(PRODUCER, EPOCH),
    )
    assert (verified.error, verified.base_offset) == (ErrorCode.NONE, 0)

    replicate(leading, following)
    assert following.log.producers.has_ongoing_transaction(PRODUCER, EPOCH)

    ended = leading.append_marker(
        EndTransactionMarker(is_commit=True, coordinator_epoch=4),
        producer_id=PRODUCER,
        producer_epoch=0,
        timestamp_ms=0,
        now_us=0,
    )
    assert (ended.error, ended.base_offset) == (ErrorCode.NONE, 1)
    replicate(leading, following)
    assert not following.log.producers.has_ongoing_transaction(PRODUCER, EPOCH)


def test_marker_is_refused_where_appends_are_refused() -> None:
    """A follower refuses a marker, and so does a leader with too few in-sync replicas.

    The leader here has two in-sync replicas, and min.insync.replicas is 3.
    """
    end = EndTransactionMarker(is_commit=True, coordinator_epoch=0)
    for replica, error in (
        (follower(), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (leader(isr=(B, C), broker=B, min_insync_replicas=3), ErrorCode.NOT_ENOUGH_REPLICAS),
    ):
        info = replica.append_marker(
            end, producer_id=PRODUCER, producer_epoch=0, timestamp_ms=0, now_us=0
        )
        assert (info.error, replica.log_end_offset) == (error, 0)
