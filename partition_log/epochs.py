"""LeaderEpochCache: the offset at which each leader epoch begins in a log.

Each batch has the leader epoch in which it was written. With the cache a leader finds out where a
follower's log diverges from the leader's log. The follower names the epoch of its last batch. The
leader looks up where this epoch ends in the leader's log.

Source: Kafka `LeaderEpochFileCache`.
DEVIATION: there is no `leader-epoch-checkpoint` file; a restart rebuilds the cache from the
batches. The rebuilt cache does not have an epoch in which no batch was written, but nothing needs
such an epoch.
"""

from bisect import bisect_right
from typing import NamedTuple

from protocol.errors import SimulationError
from protocol.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset

UNDEFINED_OFFSET = Offset(-1)


class EpochEntry(NamedTuple):
    """A leader epoch with its start offset, or its end offset (`end_offset_for_epoch`)."""

    epoch: LeaderEpoch
    offset: Offset


# The answer about an epoch that the log does not know.
UNDEFINED_EPOCH_END = EpochEntry(NO_LEADER_EPOCH, UNDEFINED_OFFSET)


class LeaderEpochCache:
    """The leader epochs of one log with their start offsets.

    `latest_epoch` is -1 if there are no epochs.
    Invariant: epochs and start offsets are strictly increasing.
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
        """Note that `epoch` begins at `start_offset`.

        Nothing changes if `epoch` is the latest epoch and already begins at `start_offset` or
        earlier. Otherwise the new entry replaces entries that contradict it. These are the entries
        of `epoch` and later epochs, and entries that begin at `start_offset` or later.

        Raises: SimulationError if `epoch` is negative.
        """
        if epoch < 0:
            raise SimulationError(f"leader epoch {epoch} cannot begin at {start_offset}")
        if epoch == self.latest_epoch and start_offset >= self._start_offsets[-1]:
            return
        # An epoch in which nothing was written begins where the next epoch begins. Such an epoch is
        # removed here, because both lists must be strictly increasing.
        while self._epochs and (
            self._epochs[-1] >= epoch or self._start_offsets[-1] >= start_offset
        ):
            self._epochs.pop()
            self._start_offsets.pop()
        self._epochs.append(epoch)
        self._start_offsets.append(start_offset)
        self.latest_epoch = epoch

    def end_offset_for_epoch(self, requested: int, log_end_offset: Offset) -> EpochEntry:
        """Return the largest known epoch up to `requested`, and the offset at which it ends.

        An epoch ends where the next known epoch begins. The latest epoch ends at `log_end_offset`.
        For example, epoch 2 begins at 0, epoch 4 at 7, and the log ends at 9:

            requested   result
            1           (1, 0), because it is older than all known epochs
            2 or 3      (2, 7)
            4           (4, 9)
            5 or -1     UNDEFINED_EPOCH_END

        Source: Kafka `LeaderEpochFileCache.endOffsetFor`.
        """
        if requested == NO_LEADER_EPOCH:
            return UNDEFINED_EPOCH_END
        if requested == self.latest_epoch:
            return EpochEntry(self.latest_epoch, log_end_offset)
        # The index of the first epoch above `requested`.
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
