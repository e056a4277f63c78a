"""GroupOffsets, which has the committed offsets of a group, and the pending commits.

A commit goes through two calls. Between these calls it is pending:

    offsets.prepare(TP, value(37))  # the append to the coordinator's log begins
    offsets.append_succeeded(TP, CommittedOffset(9, value(37)))  # its record is at log offset 9

`append_succeeded` returns True if this offset is now the committed offset of the partition.

A commit of a transaction goes through three calls. Between the first call and the last, its
partition is unstable. An unstable partition has a committed offset that a reader must not trust
yet:

    offsets.prepare_transactional(PRODUCER, TP, value(37))
    offsets.transactional_append_succeeded(PRODUCER, TP, CommittedOffset(9, value(37)))
    offsets.complete(PRODUCER, is_commit=True)  # a marker ends the transaction

`complete` returns what the transaction has committed, here {TP: value(37)}.

The tests follow the offsets part of Kafka's GroupMetadataTest. A line such as "GM-31: ..." says
which case of docs/kafka/BEHAVIOUR.md 10.2 a test repeats. "BEHAVIOUR 4.10" is a section of that
page.
"""

from coordinator.storage.offsets import CommittedOffset, GroupOffsets
from protocol.ids import TopicPartition
from protocol.records.offsets import OffsetCommitValue

TP = TopicPartition("foo", 0)
PRODUCER = 7


def value(offset: int) -> OffsetCommitValue:
    """Return the value that a client commits: an offset, together with the commit time."""
    return OffsetCommitValue(offset=offset, commit_timestamp_ms=0)


def test_commit_is_pending_until_it_is_appended() -> None:
    """A pending commit counts as an offset, so the group is not deleted meanwhile.

    GM-31: commit is pending, then stored
    GM-48: pending plain commit of a partition
    """
    offsets = GroupOffsets()
    offsets.prepare(TP, value(37))
    assert offsets.has_offsets
    assert offsets.get(TP) is None
    assert offsets.is_pending(TP)

    assert offsets.append_succeeded(TP, CommittedOffset(3, value(37)))
    assert offsets.get(TP) == value(37)
    assert not offsets.is_pending(TP)


def test_failed_commit_leaves_no_offset() -> None:
    """When its append has failed, neither the offset nor a pending commit remains.

    GM-32: failed commit leaves nothing
    """
    offsets = GroupOffsets()
    offsets.prepare(TP, value(37))
    offsets.append_failed(TP, value(37))
    assert not offsets.has_offsets
    assert offsets.get(TP) is None


def test_failure_of_the_first_of_two_leaves_the_second_pending() -> None:
    """Two commits follow each other, and the first append fails. The second commit still waits.

    GM-33: first of two commits fails
    """
    offsets = GroupOffsets()
    offsets.prepare(TP, value(37))
    offsets.prepare(TP, value(57))
    offsets.append_failed(TP, value(37))
    assert offsets.is_pending(TP)
    assert offsets.append_succeeded(TP, CommittedOffset(3, value(57)))
    assert offsets.get(TP) == value(57)
    assert not offsets.is_pending(TP)


def test_success_of_the_first_of_two_leaves_the_second_pending() -> None:
    """The append of the first value commits it. The second value waits for its own append."""
    offsets = GroupOffsets()
    offsets.prepare(TP, value(37))
    offsets.prepare(TP, value(57))
    assert offsets.append_succeeded(TP, CommittedOffset(3, value(37)))
    assert offsets.get(TP) == value(37)
    assert offsets.is_pending(TP)

    assert offsets.append_succeeded(TP, CommittedOffset(4, value(57)))
    assert offsets.get(TP) == value(57)
    assert not offsets.is_pending(TP)


def test_completions_out_of_order_do_not_bring_back_the_older_offset() -> None:
    """The commit with the higher log offset counts (BEHAVIOUR 4.10).

    The value 90 is at log offset 9. Neither the value 57 at log offset 4 nor the value 58 at log
    offset 9 replaces it.
    """
    offsets = GroupOffsets()
    offsets.load(TP, CommittedOffset(9, value(90)))
    offsets.prepare(TP, value(57))
    assert not offsets.append_succeeded(TP, CommittedOffset(4, value(57)))
    assert offsets.get(TP) == value(90)
    assert not offsets.is_pending(TP)

    offsets.prepare(TP, value(58))
    assert not offsets.append_succeeded(TP, CommittedOffset(9, value(58)))
    assert offsets.get(TP) == value(90)


def test_completion_without_a_pending_commit_is_ignored() -> None:
    """The offsets of a partition may be deleted before an append for the partition completes."""
    offsets = GroupOffsets()
    assert not offsets.append_succeeded(TP, CommittedOffset(4, value(57)))
    assert offsets.get(TP) is None


# -- offsets of transactions --


def test_transactional_commit_makes_its_partition_unstable_and_no_other() -> None:
    """The partition is unstable from the request on.

    `is_pending` is False nevertheless, because it tells only about commits without a transaction.

    GM-49: pending transactional commit of a partition
    """
    offsets = GroupOffsets()
    offsets.prepare_transactional(PRODUCER, TP, value(37))
    assert offsets.is_unstable(TP)
    assert not offsets.is_pending(TP)
    assert not offsets.is_unstable(TopicPartition("foo", 1))
    assert offsets.has_offsets


def test_value_that_replaced_a_transactional_commit_waits_for_its_own_append() -> None:
    """A transaction commits 37 and then 57 for one partition, and both are appended in this order.

    Only the last value is kept for each partition. The append of 37 must not count as the append of
    57.
    """
    offsets = GroupOffsets()
    offsets.prepare_transactional(PRODUCER, TP, value(37))
    offsets.prepare_transactional(PRODUCER, TP, value(57))
    offsets.transactional_append_succeeded(PRODUCER, TP, CommittedOffset(3, value(37)))
    offsets.transactional_append_succeeded(PRODUCER, TP, CommittedOffset(4, value(57)))
    assert offsets.complete(PRODUCER, is_commit=True) == {TP: value(57)}


def test_failed_transactional_append_forgets_the_partition_whatever_value_is_pending() -> None:
    """A transaction commits twice for one partition, and the second append fails.

    Kafka then forgets the first commit, too, although it is in the log.
    """
    offsets = GroupOffsets()
    offsets.prepare_transactional(PRODUCER, TP, value(37))
    offsets.transactional_append_succeeded(PRODUCER, TP, CommittedOffset(3, value(37)))
    offsets.transactional_append_failed(PRODUCER, TP)
    assert not offsets.has_offsets
    assert offsets.complete(PRODUCER, is_commit=True) == {}


def test_transaction_without_pending_offsets_keeps_its_group_until_the_marker() -> None:
    """The offsets of the only partition are deleted, but the transaction is still open.

    Kafka keeps an empty map for the producer, and counts this map as offsets. So the group is not
    deleted before the marker comes (BEHAVIOUR 4.10).
    """
    offsets = GroupOffsets()
    offsets.prepare_transactional(PRODUCER, TP, value(37))
    offsets.remove((TP,))
    assert offsets.has_offsets
    assert not offsets.is_unstable(TP)
    offsets.complete(PRODUCER, is_commit=True)
    assert not offsets.has_offsets
