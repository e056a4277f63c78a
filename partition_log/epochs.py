"""The history of leader epochs in one log: where each of them began.

A follower asks its leader where the epoch of its own last batch ends; the first difference is
where it must truncate. Source: Kafka `LeaderEpochFileCache`.
DEVIATION: no `leader-epoch-checkpoint` file; the cache is rebuilt from the batches, which carry
every epoch that wrote anything.
"""

from bisect import bisect_right
from typing import NamedTuple

from protocol.errors import SimulationError
from protocol.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset

UNDEFINED_OFFSET = Offset(-1)


class EpochEntry(NamedTuple):
    """A leader epoch and an offset: of its start in the cache, of its end in answers."""

    epoch: LeaderEpoch
    offset: Offset


UNDEFINED_EPOCH_END = EpochEntry(NO_LEADER_EPOCH, UNDEFINED_OFFSET)


class LeaderEpochCache:
    """Leader epochs of one log with their start offsets.

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
        """Let `epoch` begin at `start_offset`, unless it is the latest and began before.

        Entries that would not stay increasing give way: an epoch that wrote nothing has the start
        offset of its successor.
        Raises: SimulationError if `epoch` is negative.
        """
        if epoch < 0:
            raise SimulationError(f"leader epoch {epoch} cannot begin at {start_offset}")
        if epoch == self.latest_epoch and start_offset >= self._start_offsets[-1]:
            return
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

        The latest epoch ends at `log_end_offset`. An epoch before all known ones is answered with
        itself, ending where the first known begins. UNDEFINED_EPOCH_END for -1 and for an epoch
        after all known ones. Source: Kafka `LeaderEpochFileCache.endOffsetFor`.
        """
        if requested == NO_LEADER_EPOCH:
            return UNDEFINED_EPOCH_END
        if requested == self.latest_epoch:
            return EpochEntry(self.latest_epoch, log_end_offset)
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
