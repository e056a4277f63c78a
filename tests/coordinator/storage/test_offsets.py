"""Committed and pending offsets of a group, after the offsets part of Kafka's GroupMetadataTest.

- `prepare` makes a commit pending: its append has begun and is not complete.
- `CommittedOffset(9, value)` is an offset whose record is at offset 9 of the coordinator's log.
- PRODUCER has a transaction. Its commits stay pending after their append until a marker ends the
  transaction. `complete(PRODUCER, ...)` ends it, and returns the committed offsets.
- A partition is unstable while it has a pending offset of a transaction.

Ids such as GM-31 are cases of Kafka's test (docs/kafka/BEHAVIOUR.md 10.2); BEHAVIOUR 4.10 is a
section of that file.
"""

from coordinator.storage.offsets import CommittedOffset, GroupOffsets
from protocol.ids import TopicPartition
from protocol.records.offsets import OffsetCommitValue

TP = TopicPartition("foo", 0)
PRODUCER = 7


def value(offset: int) -> OffsetCommitValue:
    """Return an offset to commit."""
    return OffsetCommitValue(offset=offset, commit_timestamp_ms=0)


def test_commit_is_pending_until_it_is_appended() -> None:
    """A pending commit counts as an offset, so the group is not deleted meanwhile.

    GM-31: commit is pending, then stored
    GM-48: pending plain commit of a partition
    """
    offsets = GroupOffsets()
    offsets.prepare(TP, value(37))
    assert (offsets.has_offsets, offsets.get(TP), offsets.is_pending(TP)) == (True, None, True)
    assert offsets.append_succeeded(TP, CommittedOffset(3, value(37)))
    assert (offsets.get(TP), offsets.is_pending(TP)) == (value(37), False)


def test_failed_commit_leaves_no_offset() -> None:
    """Neither the offset nor a pending commit remains.

    GM-32: failed commit leaves nothing
    """
    offsets = GroupOffsets()
    offsets.prepare(TP, value(37))
    offsets.append_failed(TP, value(37))
    assert (offsets.has_offsets, offsets.get(TP)) == (False, None)


def test_failure_of_the_first_of_two_leaves_the_second_pending() -> None:
    """The second value replaced the first one as the pending value.

    GM-33: first of two commits fails
    """
    offsets = GroupOffsets()
    offsets.prepare(TP, value(37))
    offsets.prepare(TP, value(57))
    offsets.append_failed(TP, value(37))
    assert offsets.is_pending(TP)
    assert offsets.append_succeeded(TP, CommittedOffset(3, value(57)))
    assert (offsets.get(TP), offsets.is_pending(TP)) == (value(57), False)


def test_success_of_the_first_of_two_leaves_the_second_pending() -> None:
    """The append of the first value commits it; the second value waits for its own append."""
    offsets = GroupOffsets()
    offsets.prepare(TP, value(37))
    offsets.prepare(TP, value(57))
    assert offsets.append_succeeded(TP, CommittedOffset(3, value(37)))
    assert (offsets.get(TP), offsets.is_pending(TP)) == (value(37), True)
    assert offsets.append_succeeded(TP, CommittedOffset(4, value(57)))
    assert (offsets.get(TP), offsets.is_pending(TP)) == (value(57), False)


def test_completions_out_of_order_do_not_bring_back_the_older_offset() -> None:
    """The commit with the higher log offset counts (BEHAVIOUR 4.10): 90 is at 9, 57 is at 4.

    A commit at the same log offset does not replace the value, either.
    """
    offsets = GroupOffsets()
    offsets.load(TP, CommittedOffset(9, value(90)))
    offsets.prepare(TP, value(57))
    assert not offsets.append_succeeded(TP, CommittedOffset(4, value(57)))
    assert (offsets.get(TP), offsets.is_pending(TP)) == (value(90), False)
    offsets.prepare(TP, value(58))
    assert not offsets.append_succeeded(TP, CommittedOffset(9, value(58)))
    assert offsets.get(TP) == value(90)


def test_completion_without_a_pending_commit_is_ignored() -> None:
    """For example, the partition may be deleted before the append completes."""
    offsets = GroupOffsets()
    assert not offsets.append_succeeded(TP, CommittedOffset(4, value(57)))
    assert offsets.get(TP) is None


# -- offsets of transactions --


def test_transactional_commit_makes_its_partition_unstable_and_no_other() -> None:
    """The partition is unstable from the request on. `is_pending` is True for plain commits only.

    GM-49: pending transactional commit of a partition
    """
    offsets = GroupOffsets()
    offsets.prepare_transactional(PRODUCER, TP, value(37))
    assert (offsets.is_unstable(TP), offsets.is_pending(TP)) == (True, False)
    assert not offsets.is_unstable(TopicPartition("foo", 1))
    assert offsets.has_offsets


def test_value_that_replaced_a_transactional_commit_waits_for_its_own_append() -> None:
    """A producer has one pending value per partition: the last, 57.

    The append of the first value, 37, does not count as the append of the last.
    """
    offsets = GroupOffsets()
    offsets.prepare_transactional(PRODUCER, TP, value(37))
    offsets.prepare_transactional(PRODUCER, TP, value(57))
    offsets.transactional_append_succeeded(PRODUCER, TP, CommittedOffset(3, value(37)))
    offsets.transactional_append_succeeded(PRODUCER, TP, CommittedOffset(4, value(57)))
    assert offsets.complete(PRODUCER, is_commit=True) == {TP: value(57)}


def test_failed_transactional_append_forgets_the_partition_whatever_value_is_pending() -> None:
    """The failure is that of a later append; Kafka forgets also the value that is in the log."""
    offsets = GroupOffsets()
    offsets.prepare_transactional(PRODUCER, TP, value(37))
    offsets.transactional_append_succeeded(PRODUCER, TP, CommittedOffset(3, value(37)))
    offsets.transactional_append_failed(PRODUCER, TP)
    assert (offsets.has_offsets, offsets.complete(PRODUCER, is_commit=True)) == (False, {})


def test_transaction_without_pending_offsets_keeps_its_group_until_the_marker() -> None:
    """The partition's offsets are removed, but the producer's empty map remains in Kafka's state.

    Kafka counts the map as offsets, so the group is not deleted (BEHAVIOUR 4.10).
    """
    offsets = GroupOffsets()
    offsets.prepare_transactional(PRODUCER, TP, value(37))
    offsets.remove((TP,))
    assert (offsets.has_offsets, offsets.is_unstable(TP)) == (True, False)
    offsets.complete(PRODUCER, is_commit=True)
    assert not offsets.has_offsets
