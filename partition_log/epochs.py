"""LeaderEpochCache: the start offset of each leader epoch in a log.

A leader epoch is the number of a partition's leadership; each election increases it, and each batch
carries it. The cache shows where a follower's log diverges from its leader's: the follower names
the epoch of its last batch, and the leader answers with the offset where this epoch ends in the
leader's log.
Source: Kafka `LeaderEpochFileCache`.
DEVIATION: there is no `leader-epoch-checkpoint` file; a restart rebuilds the cache from the
batches. The rebuilt cache lacks an epoch in which no batch was written; nothing needs such an
epoch.
"""

from bisect import bisect_right
from typing import NamedTuple

from protocol.errors import SimulationError
from protocol.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset

UNDEFINED_OFFSET = Offset(-1)


class EpochEntry(NamedTuple):
    """A leader epoch with an offset: its start in the cache, its end in an answer."""

    epoch: LeaderEpoch
    offset: Offset


# The answer to a question about an epoch that the log does not know: (-1, -1).
UNDEFINED_EPOCH_END = EpochEntry(NO_LEADER_EPOCH, UNDEFINED_OFFSET)


class LeaderEpochCache:
    """The leader epochs of one log with their start offsets.

    Invariant: epochs and start offsets are strictly increasing.
    Attribute, to read only: `latest_epoch`, -1 in an empty cache.
    """

    __slots__ = ("_epochs", "_start_offsets", "latest_epoch")

    def __init__(self) -> None:
        self._epochs: list[LeaderEpoch] = []
        self._start_offsets: list[Offset] = []
        self.latest_epoch = NO_LEADER_EPOCH

    def entries(self) -> tuple[EpochEntry, ...]:
        """Return all epochs with their start offsets, oldest first."""
        return tuple(
            EpochEntry(epoch, start)
            for epoch, start in zip(self._epochs, self._start_offsets, strict=True)
        )

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> None:
        """Record that `epoch` begins at `start_offset`.

        Nothing changes if `epoch` is the latest and is known to begin there or earlier. Otherwise
        the entries that the new one contradicts are forgotten: epochs from `epoch` on, and epochs
        that begin at `start_offset` or later.

        Raises: SimulationError if `epoch` is negative.
        """
        if epoch < 0:
            raise SimulationError(f"leader epoch {epoch} cannot begin at {start_offset}")
        if epoch == self.latest_epoch and start_offset >= self._start_offsets[-1]:
            return
        # An epoch that wrote no record has the same start as its successor. Such an epoch is
        # removed, because both lists must stay strictly increasing.
        while self._epochs and (
            self._epochs[-1] >= epoch or self._start_offsets[-1] >= start_offset
        ):
            self._epochs.pop()
            self._start_offsets.pop()
        self._epochs.append(epoch)
        self._start_offsets.append(start_offset)
        self.latest_epoch = epoch

    def end_offset_for_epoch(self, requested: int, log_end_offset: Offset) -> EpochEntry:
        """Return the largest known epoch up to `requested`, and the offset where it ends.

        An epoch ends where the next known epoch begins; the latest epoch ends at `log_end_offset`.
        - If `requested` is older than all known epochs, the result is `requested` itself, and the
          start of the oldest known epoch.
        - If `requested` is -1, or newer than all known epochs, the result is UNDEFINED_EPOCH_END.

        Source: Kafka `LeaderEpochFileCache.endOffsetFor`.
        """
        if requested == NO_LEADER_EPOCH:
            return UNDEFINED_EPOCH_END
        if requested == self.latest_epoch:
            return EpochEntry(self.latest_epoch, log_end_offset)
        # The place of the first epoch above `requested`.
        higher = bisect_right(self._epochs, requested)
        if higher == len(self._epochs):
            return UNDEFINED_EPOCH_END
        end_offset = self._start_offsets[higher]
        if higher == 0:
            return EpochEntry(LeaderEpoch(requested), end_offset)
        return EpochEntry(self._epochs[higher - 1], end_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget the epochs that begin at `end_offset` or later."""
        while self._start_offsets and self._start_offsets[-1] >= end_offset:
            self._epochs.pop()
            self._start_offsets.pop()
        self.latest_epoch = self._epochs[-1] if self._epochs else NO_LEADER_EPOCH
