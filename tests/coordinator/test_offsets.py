"""Committed and pending offsets of a group. Mirrors the offsets part of GroupMetadataTest."""

from coordinator.offsets import CommittedOffset, GroupOffsets
from protocol.ids import TopicPartition
from protocol.offsets_records import OffsetCommitValue

TP = TopicPartition("foo", 0)


def value(offset: int) -> OffsetCommitValue:
    """Return an offset to commit."""
    return OffsetCommitValue(offset=offset, commit_timestamp_ms=0)


def test_commit_is_pending_until_the_log_has_it() -> None:
    """GM-31, GM-48: pending counts as having offsets, so that the group is not reaped."""
    offsets = GroupOffsets()
    offsets.prepare(TP, value(37))
    assert (offsets.has_offsets, offsets.get(TP), offsets.is_pending(TP)) == (True, None, True)
    assert offsets.append_succeeded(TP, CommittedOffset(3, value(37)))
    assert (offsets.get(TP), offsets.is_pending(TP)) == (value(37), False)


def test_commit_that_failed_leaves_nothing() -> None:
    """GM-32."""
    offsets = GroupOffsets()
    offsets.prepare(TP, value(37))
    offsets.append_failed(TP, value(37))
    assert (offsets.has_offsets, offsets.get(TP)) == (False, None)


def test_failure_of_the_first_of_two_leaves_the_second_pending() -> None:
    """GM-33."""
    offsets = GroupOffsets()
    offsets.prepare(TP, value(37))
    offsets.prepare(TP, value(57))
    offsets.append_failed(TP, value(37))
    assert offsets.is_pending(TP)
    assert offsets.append_succeeded(TP, CommittedOffset(3, value(57)))
    assert (offsets.get(TP), offsets.is_pending(TP)) == (value(57), False)


def test_success_of_the_first_of_two_leaves_the_second_pending() -> None:
    """GM-34."""
    offsets = GroupOffsets()
    offsets.prepare(TP, value(37))
    offsets.prepare(TP, value(57))
    assert offsets.append_succeeded(TP, CommittedOffset(3, value(37)))
    assert (offsets.get(TP), offsets.is_pending(TP)) == (value(37), True)
    assert offsets.append_succeeded(TP, CommittedOffset(4, value(57)))
    assert (offsets.get(TP), offsets.is_pending(TP)) == (value(57), False)


def test_completions_out_of_order_do_not_bring_back_the_older_offset() -> None:
    """The order in the log decides (BEHAVIOUR 4.10)."""
    offsets = GroupOffsets()
    offsets.load(TP, CommittedOffset(9, value(90)))
    offsets.prepare(TP, value(57))
    assert not offsets.append_succeeded(TP, CommittedOffset(4, value(57)))
    assert (offsets.get(TP), offsets.is_pending(TP)) == (value(90), False)


def test_completion_without_a_pending_commit_is_ignored() -> None:
    """Its partition was deleted meanwhile."""
    offsets = GroupOffsets()
    assert not offsets.append_succeeded(TP, CommittedOffset(4, value(57)))
    assert offsets.get(TP) is None
