"""Each invariant check of replicas finds the damage that it is for.

A test damages a sound log or replica, and the check must raise an error. Functions such as
`batch_lost` do one kind of damage.

- A leader epoch counts a partition's leaders. The epoch cache of a log has the first offset of each
  epoch. The high watermark is the end of the committed records.
- The ISR is the set of in-sync replicas. The maximal ISR also has the members that a proposal to
  the controller would add.
- `log_of_epochs(0, 1, 2)` returns a log with a batch of one record in each of these leader epochs.
- `leader()` returns a leader, with the replicas A, B and C in its ISR.
"""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from partition_log.invariants import (
    check_agreement,
    check_log,
    check_partition,
    check_producers,
)
from partition_log.log import PartitionLog
from partition_log.producer_states import ProducerStates
from partition_log.replica import Partition
from protocol.errors import InvariantViolation
from protocol.ids import LeaderEpoch, Offset
from tests.support.builders.client_batches import client_batch
from tests.support.builders.partition_logs import (
    A,
    B,
    batch,
    fetch_as,
    follower,
    leader,
    log,
    log_of_epochs,
    records,
)

# The name of an invariant. The first unstable offset is where the oldest open transaction begins.
UNSTABLE = "the first unstable offset begins the oldest transaction without a marker"


def high_watermark_above_the_log(log: PartitionLog) -> None:
    """Move the high watermark above the log end, which is 4."""
    log.high_watermark = Offset(9)


def batch_lost(log: PartitionLog) -> None:
    """Remove the batches from offset 2 on, behind the log's back: its end stays 4."""
    log.storage.truncate(2)


def batch_in_a_wrong_place(log: PartitionLog) -> None:
    log.storage.truncate(2)
    log.storage.append(batch(base_offset=7))


def batch_of_an_older_epoch(log: PartitionLog) -> None:
    log.storage.truncate(2)
    log.storage.append(batch(base_offset=2, leader_epoch=0))


def batch_damaged(log: PartitionLog) -> None:
    damaged = replace(log.storage.batch(2), crc=1)
    log.storage.truncate(2)
    log.storage.append(damaged)


def epoch_forgotten(log: PartitionLog) -> None:
    """Remove the later epochs from the cache; their batches stay in the log."""
    log.epochs.truncate_from_end(1)


def epoch_invented(log: PartitionLog) -> None:
    log.epochs.assign(LeaderEpoch(3), Offset(2))


def epochs_out_of_order(log: PartitionLog) -> None:
    log.epochs._start_offsets.reverse()


def transaction_forgotten(log: PartitionLog) -> None:
    """Forget the open transaction that the log's last batch belongs to."""
    log.producers = ProducerStates()


def flush_forgotten(log: PartitionLog) -> None:
    """Set flush.messages to 1, which demands a flush after each record, on an unflushed log."""
    log.flush_interval_messages = 1


def transaction_invented(log: PartitionLog) -> None:
    """Add a transaction of producer 9 to the producer states; the log has no batch of it."""
    log.producers.appended(replace(batch(base_offset=1), producer_id=9, is_transactional=True))


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (high_watermark_above_the_log, "log start <= high watermark <= log end"),
        (batch_lost, "contiguous log"),
        (batch_in_a_wrong_place, "contiguous log"),
        (batch_of_an_older_epoch, "leader epochs never fall"),
        (batch_damaged, "batches are whole"),
        (epoch_forgotten, "epoch cache matches the batches"),
        (epoch_invented, "epoch cache matches the batches"),
        (epochs_out_of_order, "epoch cache increases"),
        (flush_forgotten, "a log is flushed at flush.messages"),
        (transaction_forgotten, UNSTABLE),
        (transaction_invented, UNSTABLE),
    ],
)
def test_check_log_finds_each_kind_of_damage(
    damage: Callable[[PartitionLog], None], name: str
) -> None:
    """The test damages the log directly, as a bug or a broken disk would."""
    log = log_of_epochs(0, 1, 2)
    log.append_as_leader(
        records("open"), leader_epoch=2, producer_id=7, producer_epoch=0, is_transactional=True
    )
    check_log(log)
    damage(log)
    with pytest.raises(InvariantViolation) as raised:
        check_log(log)
    assert raised.value.name == name


def truncated_while_leading(partition: Partition) -> None:
    partition.log.truncate_to(0)
    # Without its epoch in the epoch cache, the check of "leader writes in its epoch" would raise.
    partition.log.assign_epoch_start(partition.leader_epoch)


def in_an_older_epoch(partition: Partition) -> None:
    partition.leader_epoch = LeaderEpoch(0)


def removed_from_the_replicas(partition: Partition) -> None:
    partition.replicas = (B,)


def member_not_counted(partition: Partition) -> None:
    """Leave members of the ISR out of the maximal ISR."""
    partition._in_sync.maximal = (A,)


def non_member_counted(partition: Partition) -> None:
    """Remove B and C from the ISR. Then the maximal ISR has members that no proposal adds."""
    partition._in_sync.committed = (A,)


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (truncated_while_leading, "a leader never truncates"),
        (in_an_older_epoch, "leader writes in its epoch"),
        (removed_from_the_replicas, "leader is a replica"),
        (member_not_counted, "ISR within the maximal ISR"),
        (non_member_counted, "without a proposal in flight, the ISR is the maximal ISR"),
    ],
)
def test_check_partition_finds_each_kind_of_damage(
    damage: Callable[[Partition], None], name: str
) -> None:
    """A leader with such damage would replicate wrong records, so the check must find it."""
    leading = leader(partition_log=log_of_epochs(0, 0))
    check_partition(leading)
    damage(leading)
    with pytest.raises(InvariantViolation) as raised:
        check_partition(leading)
    assert raised.value.name == name


def test_check_partition_finds_a_follower_that_proposes() -> None:
    """Only a leader may propose a change of the ISR."""
    leading = leader(isr=(A,), min_insync_replicas=1)
    # The log is empty, so B has all records, and A proposes to add B to the ISR.
    assert fetch_as(leading, B, offset=0).proposal is not None
    # The damage: a proposal is in flight, and B is now the leader.
    leading.leader_id = B
    with pytest.raises(InvariantViolation, match="follower proposes nothing"):
        check_partition(leading)
    check_partition(follower())


def test_check_agreement_compares_below_both_high_watermarks() -> None:
    """Logs must agree up to the lower high watermark; behind it they may differ for a while."""
    first_log, second_log = log_of_epochs(0, 0), log_of_epochs(0)
    second_log.append_as_leader(records("different"), leader_epoch=1)
    first_log.update_high_watermark(2)
    second_log.update_high_watermark(1)
    check_agreement([first_log, second_log])  # they differ at offset 1
    second_log.update_high_watermark(2)
    with pytest.raises(InvariantViolation, match="logs agree below the high watermark"):
        check_agreement([first_log, second_log])


def test_check_log_compares_producer_states_with_the_batches() -> None:
    """A leader with a wrong producer state refuses a client's batches, or appends them twice."""
    written = log()
    for sequence in range(2):
        written.append_batch_as_leader(
            client_batch("v", producer_id=7, base_sequence=sequence), leader_epoch=0
        )
    check_log(written)
    # The damage: the state has two batches, of which the truncated log has one.
    states_of_both_batches = written.producers
    written.truncate_to(1)
    check_log(written)
    written.producers = states_of_both_batches
    with pytest.raises(InvariantViolation, match="the state of a producer follows from the log"):
        check_log(written)


def compacted(count: int) -> PartitionLog:
    """Return a compacted log with the first `count` batches of producer 7, one record each."""
    written = log()
    written.is_compacted = True
    for sequence in range(count):
        written.append_batch_as_leader(
            client_batch("v", producer_id=7, base_sequence=sequence), leader_epoch=0
        )
    return written


def without_batches(written: PartitionLog, *removed: int) -> PartitionLog:
    """Remove these batches by a cleaning; the producer states stay as they were before."""
    rest = [written.storage.batch(i) for i in range(len(written.storage)) if i not in removed]
    written.replace_prefix(len(written.storage), rest)
    return written


def test_producer_states_of_a_compacted_log_may_remember_more() -> None:
    """A producer state may have batches that a cleaning removed, or may have forgotten them.

    A state has at most the last five batches of its producer. The first log had four batches, the
    second nine; the cleaning of the second removes two batches that the state has forgotten.
    """
    check_producers(without_batches(compacted(4), 1, 2))
    check_producers(without_batches(compacted(9), 1, 2, 5, 7))


def test_producer_state_beyond_the_end_of_a_compacted_log_is_found() -> None:
    """The state knows a third batch, which the log has lost."""
    written = compacted(3)
    states_before = written.producers
    written.truncate_to(2)
    check_producers(written)
    written.producers = states_before
    with pytest.raises(InvariantViolation, match="the log, which ends at 2"):
        check_producers(written)


def test_producer_state_that_lacks_a_batch_of_a_compacted_log_is_found() -> None:
    """The state lacks the second of three batches."""
    written = compacted(3)
    written.producers = ProducerStates()
    for index in (0, 2):
        written.producers.appended(written.storage.batch(index))
    with pytest.raises(InvariantViolation, match="the state of a producer follows from the log"):
        check_producers(written)


def test_producer_that_expired_and_wrote_again_lacks_only_old_batches() -> None:
    """The state lacks batches that are old enough for an expiry; younger ones are a violation.

    The log has three batches of producer 7, at 0, 1,000 and 2,000 ms.
    """
    written = log()
    for sequence in range(3):
        sent = client_batch(
            "v", producer_id=7, base_sequence=sequence, timestamp_ms=sequence * 1_000
        )
        written.append_batch_as_leader(sent, leader_epoch=0)
    written.producers = ProducerStates()
    written.producers.appended(written.storage.batch(2))
    check_producers(written, expired_ms=1_000)
    with pytest.raises(InvariantViolation, match="the state of a producer follows from the log"):
        check_producers(written, expired_ms=999)

    other = client_batch("v", producer_id=8, base_sequence=0, timestamp_ms=2_000)
    written.append_batch_as_leader(other, leader_epoch=0)
    written.producers = ProducerStates()
    written.producers.appended(written.storage.batch(3))
    check_producers(written, expired_ms=2_000)
    with pytest.raises(InvariantViolation, match="no state of producer 7"):
        check_producers(written, expired_ms=1_999)


def test_producer_epoch_below_that_of_the_log_is_found() -> None:
    """The state knows epoch 0 of producer 7; the log ends with a batch of epoch 1."""
    written = compacted(2)
    states_before = compacted(2).producers  # of another, equal log
    written.append_batch_as_leader(
        client_batch("v", producer_id=7, producer_epoch=1, base_sequence=0), leader_epoch=0
    )
    check_producers(written)
    written.producers = states_before
    with pytest.raises(InvariantViolation, match=r"has epoch 0 .* has epoch 1"):
        check_producers(written)


def test_sequences_of_a_producer_begin_again_after_the_largest_one() -> None:
    """Sequence numbers are 32-bit integers of 0 and more: 0 follows 2,147,483,647."""
    written = log()
    written.append_batch_as_leader(
        client_batch("v", "w", producer_id=7, base_sequence=2**31 - 1), leader_epoch=0
    )
    check_producers(written)
