"""State of transactional producers in a log (KIP-98), and verification guards (KIP-890).

Before a producer's first batch of a transaction, the leader verifies that the transaction is open.
A marker is the control batch that ends a transaction, by commit or abort. A producer epoch fences:
when a producer has got a new epoch, its old one is refused.

- The verification returns a guard, which is a number. The first batch must come with this guard.
- A marker between the verification and the batch makes the guard invalid.
- `transactional(5)` returns a batch of producer 7 at offset 5, in producer epoch 0 unless a test
  gives another one.
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


def transactional(base_offset: int, *, producer: int = PRODUCER, epoch: int = 0) -> RecordBatch:
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
    epoch: int = 0,
    coordinator_epoch: int = 0,
) -> RecordBatch:
    """Return a control batch that ends a transaction of PRODUCER."""
    end = EndTransactionMarker(is_commit=is_commit, coordinator_epoch=coordinator_epoch)
    return build_batch(
        (encode_marker(end, 0),),
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
    """The marker keeps its outcome and its coordinator epoch, which fences old coordinators."""
    for is_commit in (True, False):
        end = EndTransactionMarker(is_commit=is_commit, coordinator_epoch=9)
        encoded = marker(3, is_commit=is_commit, coordinator_epoch=9)
        assert decode_marker(encoded) == end


def test_control_batch_without_records_is_ignored() -> None:
    """Compaction may leave a control batch without its marker; the transaction stays open."""
    empty = RecordBatch(
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
    assert decode_marker(empty) is None
    known = states(transactional(0), empty)
    assert known.has_ongoing_transaction(PRODUCER, 0)


def test_transaction_is_open_from_its_first_batch_to_its_marker() -> None:
    """A consumer of committed records stops at the first batch of an open transaction.

    This offset is the first unstable offset.
    """
    known = states(transactional(5), transactional(6))
    assert known.has_ongoing_transaction(PRODUCER, 0)
    assert not known.has_ongoing_transaction(PRODUCER, 1)  # of another producer epoch
    assert known.first_unstable_offset == 5
    known.appended(marker(7))
    assert not known.has_ongoing_transaction(PRODUCER, 0)
    assert known.first_unstable_offset is None


def test_first_unstable_offset_is_that_of_the_oldest_open_transaction() -> None:
    """The transaction at 2 has ended, the one of producer 8 at 4 is open."""
    known = states(transactional(2), transactional(4, producer=8), marker(6))
    assert known.first_unstable_offset == 4


def test_batch_that_begins_a_transaction_needs_a_verification() -> None:
    """The guard must come from a verification of the same producer (KIP-890)."""
    known = ProducerStates()
    assert known.check_transactional(PRODUCER, 0, None) is ErrorCode.INVALID_TXN_STATE
    guard = known.begin_verification(PRODUCER, 0)
    assert guard is not None
    # A second request before the batch gets the same guard.
    assert known.begin_verification(PRODUCER, 0) == guard
    assert known.check_transactional(8, 0, guard) is ErrorCode.INVALID_TXN_STATE
    assert known.check_transactional(PRODUCER, 0, guard) is ErrorCode.NONE


def test_batch_of_an_open_transaction_needs_no_verification() -> None:
    """The verification of the first batch is valid until the transaction ends."""
    known = states(transactional(0))
    assert known.begin_verification(PRODUCER, 0) is None
    assert known.check_transactional(PRODUCER, 0, None) is ErrorCode.NONE


def test_guard_is_invalid_after_the_transaction_has_ended() -> None:
    """A delayed batch must not open a transaction that no marker will end."""
    known = ProducerStates()
    guard = known.begin_verification(PRODUCER, 0)
    known.appended(marker(0, is_commit=False))
    assert known.check_transactional(PRODUCER, 0, guard) is ErrorCode.INVALID_TXN_STATE


def test_batch_of_an_older_epoch_is_refused() -> None:
    """To fence a producer, its coordinator aborts with a marker of the next producer epoch, here 1.

    So the epoch that the producer itself still uses, 0, is older.
    """
    known = states(transactional(0), marker(1, is_commit=False, epoch=1))
    guard = known.begin_verification(PRODUCER, 0)
    assert known.check_transactional(PRODUCER, 0, guard) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_marker_of_an_older_producer_epoch_or_coordinator_epoch_is_refused() -> None:
    """A coordinator that was replaced must not end a later transaction.

    The log knows no epoch of producer 8, so a marker of producer 8 is accepted.
    """
    known = states(transactional(0, epoch=3), marker(1, epoch=3, coordinator_epoch=5))
    of_epoch_4 = EndTransactionMarker(is_commit=True, coordinator_epoch=4)
    of_epoch_5 = EndTransactionMarker(is_commit=True, coordinator_epoch=5)
    # The second argument is the producer epoch.
    assert known.check_marker(PRODUCER, 2, of_epoch_5) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert known.check_marker(PRODUCER, 3, of_epoch_4) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert known.check_marker(PRODUCER, 3, of_epoch_5) is ErrorCode.NONE
    assert known.check_marker(8, 0, of_epoch_4) is ErrorCode.NONE


def test_producer_states_are_rebuilt_after_a_restart_and_a_truncation() -> None:
    """The first truncation removes the marker, at 2.

    The second removes the batch before it, at 1.
    """
    written = log()
    written.append_as_leader(records("v"), leader_epoch=0)
    assert written.append_as_follower((transactional(1), marker(2))) is ErrorCode.NONE
    reopened = PartitionLog(written.topic_partition, written.storage)
    assert len(reopened.producers) == 1
    assert not reopened.producers.has_ongoing_transaction(PRODUCER, 0)
    reopened.truncate_to(2)
    assert reopened.producers.has_ongoing_transaction(PRODUCER, 0)
    reopened.truncate_to(1)
    assert len(reopened.producers) == 0


def test_leader_appends_a_verified_transaction_and_its_marker_and_replicates_both() -> None:
    """Without a guard the batch is refused. A follower's state follows from the copied batches."""
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

    taken = leading.append_records(
        records("v"),
        required_acks=ACKS_ALL,
        now_us=0,
        producer_id=PRODUCER,
        producer_epoch=0,
        is_transactional=True,
        verification_guard=producers.begin_verification(PRODUCER, 0),
    )
    assert (taken.error, taken.base_offset) == (ErrorCode.NONE, 0)

    replicate(leading, following)
    assert following.log.producers.has_ongoing_transaction(PRODUCER, 0)

    ended = leading.append_marker(
        EndTransactionMarker(is_commit=True, coordinator_epoch=4),
        producer_id=PRODUCER,
        producer_epoch=0,
        timestamp_ms=0,
        now_us=0,
    )
    assert (ended.error, ended.base_offset) == (ErrorCode.NONE, 1)
    replicate(leading, following)
    assert not following.log.producers.has_ongoing_transaction(PRODUCER, 0)


def test_marker_is_refused_where_appends_are_refused() -> None:
    """Both a follower and a leader with too few in-sync replicas refuse a marker.

    The leader has two replicas in sync. min.insync.replicas, the least number for a write, is 3.
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
