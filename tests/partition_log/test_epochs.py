"""The leader epoch cache: where each leader epoch begins in a log.

Each election of a leader increases the leader epoch of the partition. Each batch has the epoch of
the leader that wrote it. An entry of the cache is a pair: an epoch and the offset at which this
epoch begins. `end_offset_for_epoch` returns another pair: an epoch and the offset at which this
epoch ends. "Kafka:" names tests of Kafka's LeaderEpochFileCacheTest, which these tests follow.
"""

import pytest

from partition_log.epochs import UNDEFINED_EPOCH_END, LeaderEpochCache
from protocol.errors import SimulationError
from protocol.ids import LeaderEpoch, Offset
from tests.support.builders.partition_logs import entries

LOG_END = Offset(20)


def cache(*pairs: tuple[int, int]) -> LeaderEpochCache:
    """Return a cache to which these pairs (epoch, first offset) were assigned in turn."""
    epochs = LeaderEpochCache()
    for epoch, start in pairs:
        epochs.assign(LeaderEpoch(epoch), Offset(start))
    return epochs


def test_assign_keeps_the_first_start_of_an_epoch() -> None:
    """A later batch of the same epoch does not change the offset at which the epoch begins.

    Kafka: shouldNotUpdateEpochAndStartOffsetIfItDidNotChange.
    """
    assert cache((2, 6), (2, 9)).entries() == entries((2, 6))


def test_assign_at_the_same_offset_replaces_an_epoch_that_wrote_nothing() -> None:
    """Epoch 2 has no batch if epoch 3 begins at the same offset, so the cache drops epoch 2."""
    assert cache((2, 6), (3, 6)).entries() == entries((3, 6))


def test_assign_drops_later_entries_that_would_not_increase() -> None:
    """Epoch 3 at 8 drops epoch 4 at 9, since epochs and starts must both increase.

    Kafka: shouldEnforceMonotonicallyIncreasingEpochs / StartOffsets.
    """
    assert cache((2, 6), (4, 9), (3, 8)).entries() == entries((2, 6), (3, 8))


def test_assign_of_no_epoch_is_misuse() -> None:
    """The pair UNDEFINED_EPOCH_END has the epoch -1, so no leader can have this epoch."""
    with pytest.raises(SimulationError):
        cache((-1, 0))


# The cache of this test knows the epochs 2, 4 and 7, which begin at the offsets 4, 6 and 11.
# UNDEFINED_EPOCH_END is the pair (-1, -1).
@pytest.mark.parametrize(
    ("requested", "answer"),
    [
        (-1, UNDEFINED_EPOCH_END),  # -1 is no epoch
        (1, (1, 4)),  # before all known epochs: it ends where epoch 2 begins
        (2, (2, 6)),
        (3, (2, 6)),  # not known: the answer is about epoch 2, the largest known epoch below 3
        (4, (4, 11)),
        (7, (7, 20)),  # the latest epoch ends at LOG_END
        (8, UNDEFINED_EPOCH_END),  # after all known epochs
    ],
)
def test_epoch_ends_where_the_next_known_epoch_begins(
    requested: int, answer: tuple[int, int]
) -> None:
    """The answer is the largest known epoch up to the requested one, and its end offset.

    Source: LeaderEpochFileCache.endOffsetFor.
    """
    known = cache((2, 4), (4, 6), (7, 11))
    assert known.end_offset_for_epoch(requested, LOG_END) == answer


def test_end_offset_in_an_empty_cache_is_undefined() -> None:
    """Kafka: shouldReturnUndefinedOffsetIfNoEpochsAssigned."""
    assert cache().end_offset_for_epoch(0, LOG_END) == UNDEFINED_EPOCH_END


# The epochs of this test begin at the offsets 4, 6 and 11. `left` are the entries that remain.
@pytest.mark.parametrize(
    ("end_offset", "left"),
    [
        (20, entries((2, 4), (4, 6), (7, 11))),
        (12, entries((2, 4), (4, 6), (7, 11))),
        (11, entries((2, 4), (4, 6))),
        (7, entries((2, 4), (4, 6))),
        (4, entries()),
    ],
)
def test_truncate_from_end_forgets_epochs_that_begin_there_or_later(
    end_offset: int, left: tuple[tuple[LeaderEpoch, Offset], ...]
) -> None:
    """An epoch that begins at the new log end, or at a larger offset, has no batch left.

    Kafka: shouldTruncateFromEnd.
    """
    known = cache((2, 4), (4, 6), (7, 11))
    known.truncate_from_end(end_offset)
    assert known.entries() == left
    # The latest epoch of an empty cache is -1.
    assert known.latest_epoch == (left[-1][0] if left else -1)
