"""The leader epoch cache: where each leader epoch begins in a log.

Each batch has the epoch of the leader that wrote it. The cache has an entry for each epoch in the
log: the epoch, and the offset at which the epoch begins. For example, `(2, 4), (4, 6), (7, 11)` are
the entries of the epochs 2, 4 and 7. Epoch 2 begins at offset 4 and ends at 6, where epoch 4
begins.

The tests follow Kafka's LeaderEpochFileCacheTest. "Kafka:" in a docstring names the test of Kafka
that the test follows.
"""

import pytest

from partition_log.epochs import UNDEFINED_EPOCH_END, LeaderEpochCache
from protocol.errors import SimulationError
from protocol.ids import LeaderEpoch, Offset
from tests.support.builders.partition_logs import entries

LOG_END = Offset(20)
"""The end of the log, where its latest epoch ends."""


def cache(*pairs: tuple[int, int]) -> LeaderEpochCache:
    """Return a cache after calls of `assign` with these pairs: an epoch and its first offset."""
    epochs = LeaderEpochCache()
    for epoch, start in pairs:
        epochs.assign(LeaderEpoch(epoch), Offset(start))
    return epochs


def test_assign_keeps_the_first_offset_of_an_epoch() -> None:
    """A later batch of the same epoch does not change the offset at which the epoch begins.

    Kafka: shouldNotUpdateEpochAndStartOffsetIfItDidNotChange.
    """
    assert cache((2, 6), (2, 9)).entries() == entries((2, 6))


def test_assign_at_the_same_offset_replaces_an_epoch_that_wrote_nothing() -> None:
    """If epochs 2 and 3 begin at the same offset, epoch 2 has no batch, and is dropped."""
    assert cache((2, 6), (3, 6)).entries() == entries((3, 6))


def test_assign_drops_later_entries_that_would_not_increase() -> None:
    """Epochs and their first offsets must both increase, so epoch 3 at 8 drops epoch 4 at 9.

    Kafka: shouldEnforceMonotonicallyIncreasingEpochs / StartOffsets.
    """
    assert cache((2, 6), (4, 9), (3, 8)).entries() == entries((2, 6), (3, 8))


def test_assign_of_epoch_minus_1_raises_an_exception() -> None:
    """-1 is no epoch of a leader. In Kafka's answers -1 means that there is no such epoch."""
    with pytest.raises(SimulationError):
        cache((-1, 0))


# In this test epoch 2 begins at offset 4, epoch 4 at 6, and epoch 7 at 11. The log ends at 20.
# UNDEFINED_EPOCH_END is the pair (-1, -1).
@pytest.mark.parametrize(
    ("requested", "answer"),
    [
        (-1, UNDEFINED_EPOCH_END),  # no epoch
        (1, (1, 4)),  # not in the cache, and below all of its epochs: it ends where epoch 2 begins
        (2, (2, 6)),
        (3, (2, 6)),  # not in the cache: the answer is about epoch 2, the next lower one
        (4, (4, 11)),
        (7, (7, 20)),  # the latest epoch ends at the log end
        (8, UNDEFINED_EPOCH_END),  # above all epochs of the cache
    ],
)
def test_epoch_ends_where_the_next_one_begins(requested: int, answer: tuple[int, int]) -> None:
    """The answer has the requested epoch, or the next lower epoch in the cache, and its end.

    Source: LeaderEpochFileCache.endOffsetFor.
    """
    epochs = cache((2, 4), (4, 6), (7, 11))
    assert epochs.end_offset_for_epoch(requested, LOG_END) == answer


def test_end_offset_in_an_empty_cache_is_undefined() -> None:
    """Kafka: shouldReturnUndefinedOffsetIfNoEpochsAssigned."""
    assert cache().end_offset_for_epoch(0, LOG_END) == UNDEFINED_EPOCH_END


@pytest.mark.parametrize(
    ("new_log_end", "remaining"),
    [
        (20, entries((2, 4), (4, 6), (7, 11))),
        (12, entries((2, 4), (4, 6), (7, 11))),
        (11, entries((2, 4), (4, 6))),
        (7, entries((2, 4), (4, 6))),
        (4, entries()),
    ],
)
def test_truncate_from_end_forgets_epochs_that_begin_there_or_later(
    new_log_end: int, remaining: tuple[tuple[LeaderEpoch, Offset], ...]
) -> None:
    """An epoch that begins at the new log end, or at a larger offset, has no batch left.

    Kafka: shouldTruncateFromEnd.
    """
    epochs = cache((2, 4), (4, 6), (7, 11))
    epochs.truncate_from_end(new_log_end)
    assert epochs.entries() == remaining
    # The latest epoch of an empty cache is -1.
    latest_remaining_epoch = remaining[-1][0] if remaining else -1
    assert epochs.latest_epoch == latest_remaining_epoch
