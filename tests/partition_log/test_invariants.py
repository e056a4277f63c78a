"""Each check of an invariant of a log or replica finds the damage that it is meant to find.

The tests take a sound log or replica and damage it, as a bug of this project would. Then the check
must raise an error. Functions such as `batches_lost` do one kind of damage each.

`log_of_epochs(0, 1, 2)` is a log with a batch of one record in each of these leader epochs.
`leader()` is a replica that leads, with the replicas A, B and C in its ISR.
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

FIRST_UNSTABLE_OFFSET = "the first unstable offset begins the oldest transaction without a marker"
"""The name of the invariant that a log knows the beginning of its oldest open transaction."""


def high_watermark_above_the_log(log: PartitionLog) -> None:
    """Move the high watermark above the log end, which is 4."""
    log.high_watermark = Offset(9)


def batches_lost(log: PartitionLog) -> None:
    """Remove the batches from offset 2 on from the storage. The log does not notice this."""
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
    """Remove the later epochs from the cache. Their batches stay in the log."""
    log.epochs.truncate_from_end(1)


def epoch_invented(log: PartitionLog) -> None:
    log.epochs.assign(LeaderEpoch(3), Offset(2))


def epochs_out_of_order(log: PartitionLog) -> None:
    log.epochs._start_offsets.reverse()


def transaction_forgotten(log: PartitionLog) -> None:
    """Forget the open transaction to which the log's last batch belongs."""
    log.producers = ProducerStates()


def flush_forgotten(log: PartitionLog) -> None:
    """Set flush.messages to 1. By this setting the log should have been flushed long ago."""
    log.flush_interval_messages = 1


def transaction_invented(log: PartitionLog) -> None:
    """Add a transaction of producer 9 to the producer states.

    The log has no batch of producer 9.
    """
    log.producers.appended(replace(batch(base_offset=1), producer_id=9, is_transactional=True))


@pytest.mark.parametrize(
    ("damage", "invariant"),
    [
        (high_watermark_above_the_log, "log start <= high watermark <= log end"),
        (batches_lost, "contiguous log"),
        (batch_in_a_wrong_place, "contiguous log"),
        (batch_of_an_older_epoch, "leader epochs never fall"),
        (batch_damaged, "batches are whole"),
        (epoch_forgotten, "epoch cache matches the batches"),
        (epoch_invented, "epoch cache matches the batches"),
        (epochs_out_of_order, "epoch cache increases"),
        (flush_forgotten, "a log is flushed at flush.messages"),
        (transaction_forgotten, FIRST_UNSTABLE_OFFSET),
        (transaction_invented, FIRST_UNSTABLE_OFFSET),
    ],
)
def test_check_log_finds_each_kind_of_damage(
    damage: Callable[[PartitionLog], None], invariant: str
) -> None:
    """The error has the name of the invariant that is violated."""
    log = log_of_epochs(0, 1, 2)
    log.append_as_leader(
        records("open"), leader_epoch=2, producer_id=7, producer_epoch=0, is_transactional=True
    )
    check_log(log)
    damage(log)
    with pytest.raises(InvariantViolation) as raised:
        check_log(log)
    assert raised.value.name == invariant


def truncated_while_leading(partition: Partition) -> None:
    partition.log.truncate_to(0)
    # The truncation has also removed the entry of the leader's epoch. The entry is added again, so
    # that only one invariant is violated.
    partition.log.assign_epoch_start(partition.leader_epoch)


def in_an_older_epoch(partition: Partition) -> None:
    partition.leader_epoch = LeaderEpoch(0)


def removed_from_the_replicas(partition: Partition) -> None:
    partition.replicas = (B,)


def maximal_isr_lacks_members_of_the_isr(partition: Partition) -> None:
    """The maximal ISR has the members of the ISR, and the members that a proposal would add."""
    partition._in_sync.maximal = (A,)


def maximal_isr_has_members_without_a_proposal(partition: Partition) -> None:
    """Only A is left in the ISR, and no proposal adds B and C."""
    partition._in_sync.committed = (A,)


@pytest.mark.parametrize(
    ("damage", "invariant"),
    [
        (truncated_while_leading, "a leader never truncates"),
        (in_an_older_epoch, "leader writes in its epoch"),
        (removed_from_the_replicas, "leader is a replica"),
        (maximal_isr_lacks_members_of_the_isr, "ISR within the maximal ISR"),
        (
            maximal_isr_has_members_without_a_proposal,
            "without a proposal in flight, the ISR is the maximal ISR",
        ),
    ],
)
def test_check_partition_finds_each_kind_of_damage(
    damage: Callable[[Partition], None], invariant: str
) -> None:
    """A leader with such damage would replicate wrong records, or acknowledge records too early."""
    leading = leader(partition_log=log_of_epochs(0, 0))
    check_partition(leading)
    damage(leading)
    with pytest.raises(InvariantViolation) as raised:
        check_partition(leading)
    assert raised.value.name == invariant


def test_check_partition_finds_a_follower_that_proposes() -> None:
    """Only a leader may propose a change of the ISR."""
    leading = leader(isr=(A,), min_insync_replicas=1)
    # The log is empty, so B has all records, and A proposes to add B to the ISR.
    assert fetch_as(leading, B, offset=0).proposal is not None
    # The damage: the proposal is still in flight when B leads.
    leading.leader_id = B
    with pytest.raises(InvariantViolation, match="follower proposes nothing"):
        check_partition(leading)
    check_partition(follower())  # a follower without a proposal is sound


def test_check_agreement_compares_below_both_high_watermarks() -> None:
    """Logs must agree below the lower high watermark. Above it, the logs may differ for a while."""
    first_log, second_log = log_of_epochs(0, 0), log_of_epochs(0)
    second_log.append_as_leader(records("different"), leader_epoch=1)
    first_log.update_high_watermark(2)
    second_log.update_high_watermark(1)
    check_agreement([first_log, second_log])  # the logs differ only at offset 1
    second_log.update_high_watermark(2)
    with pytest.raises(InvariantViolation, match="logs agree below the high watermark"):
        check_agreement([first_log, second_log])


def test_check_log_compares_producer_states_with_the_batches() -> None:
    """With a wrong producer state, a leader refuses a client's batches, or appends them twice."""
    written = log()
    for sequence in range(2):
        written.append_batch_as_leader(
            client_batch("v", producer_id=7, base_sequence=sequence), leader_epoch=0
        )
    check_log(written)
    # The damage: the producer states have two batches, but the truncated log has only one batch.
    states_of_both_batches = written.producers
    written.truncate_to(1)
    check_log(written)
    written.producers = states_of_both_batches
    with pytest.raises(InvariantViolation, match="the state of a producer follows from the log"):
        check_log(written)


def compacted_log(batch_count: int) -> PartitionLog:
    """Return a compacted log with this number of batches of producer 7, of one record each."""
    written = log()
    written.is_compacted = True
    for sequence in range(batch_count):
        written.append_batch_as_leader(
            client_batch("v", producer_id=7, base_sequence=sequence), leader_epoch=0
        )
    return written


def without_batches(written: PartitionLog, *removed: int) -> PartitionLog:
    """Remove these batches, as a cleaning does. The producer states do not change."""
    batch_count = len(written.storage)
    kept = [written.storage.batch(index) for index in range(batch_count) if index not in removed]
    written.replace_prefix(batch_count, kept)
    return written


def test_producer_states_of_a_compacted_log_may_remember_removed_batches() -> None:
    """A producer state remembers the last five batches of its producer.

    So after a cleaning the state may still have batches that are no longer in the log.
    """
    check_producers(without_batches(compacted_log(4), 1, 2))
    # Of these nine batches the state remembers the batches from 4 on, so it has forgotten 1 and 2.
    check_producers(without_batches(compacted_log(9), 1, 2, 5, 7))


def test_producer_state_beyond_the_end_of_a_compacted_log_is_found() -> None:
    """The producer state has a third batch, which was truncated."""
    written = compacted_log(3)
    states_before = written.producers
    written.truncate_to(2)
    check_producers(written)
    written.producers = states_before
    with pytest.raises(InvariantViolation, match="the log, which ends at 2"):
        check_producers(written)


def test_producer_state_that_lacks_a_batch_of_a_compacted_log_is_found() -> None:
    """The producer state lacks the second of three batches."""
    written = compacted_log(3)
    written.producers = ProducerStates()
    for index in (0, 2):
        written.producers.appended(written.storage.batch(index))
    with pytest.raises(InvariantViolation, match="the state of a producer follows from the log"):
        check_producers(written)


def test_producer_state_may_lack_batches_from_before_an_expiry() -> None:
    """A producer that writes nothing for some time expires: its state is forgotten.

    If it then writes again, the new state has only the new batches. So a state may lack batches,
    but only if there was enough time for an expiry before the next batch.
    """
    written = log()
    # Producer 7 has written a batch at 0, 1,000 and 2,000 ms. Its state has only the last batch.
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

    # Now there is no state of producer 7 at all. There is a state of producer 8.
    of_producer_8 = client_batch("v", producer_id=8, base_sequence=0, timestamp_ms=2_000)
    written.append_batch_as_leader(of_producer_8, leader_epoch=0)
    written.producers = ProducerStates()
    written.producers.appended(written.storage.batch(3))
    check_producers(written, expired_ms=2_000)
    with pytest.raises(InvariantViolation, match="no state of producer 7"):
        check_producers(written, expired_ms=1_999)


def test_producer_epoch_below_that_of_the_log_is_found() -> None:
    """The state has epoch 0 of producer 7, but the log ends with a batch of epoch 1."""
    written = compacted_log(2)
    states_of_epoch_0 = compacted_log(2).producers  # the states of another, equal log
    written.append_batch_as_leader(
        client_batch("v", producer_id=7, producer_epoch=1, base_sequence=0), leader_epoch=0
    )
    check_producers(written)
    written.producers = states_of_epoch_0
    with pytest.raises(InvariantViolation, match=r"has epoch 0 .* has epoch 1"):
        check_producers(written)


def test_sequences_of_a_producer_begin_again_after_the_largest_one() -> None:
    """After the number 2**31 - 1, the largest 32-bit integer, comes 0. This is no violation."""
    written = log()
    written.append_batch_as_leader(
        client_batch("v", "w", producer_id=7, base_sequence=2**31 - 1), leader_epoch=0
    )
    check_producers(written)
