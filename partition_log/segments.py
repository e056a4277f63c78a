"""Segments: they limit how far a cleaning, a round of log compaction, may go in a log.

Kafka stores a log as a sequence of files, which are called segments, and appends to the last file,
the active segment. A cleaning takes whole segments, and never the active segment. Here a log is not
stored in segments. But a cleaning must stop where a cleaning in Kafka would stop. So this module
computes where Kafka would have begun each segment, when the broker asks how far a cleaning may go.

Only the part of the log that no cleaning has read yet needs segments. It begins at the first dirty
offset.

Source: Kafka `LogSegment.shouldRoll`, `LogCleanerManager.cleanableOffsets`, `LogToClean`.
DEVIATION: the log below the first dirty offset counts as one segment, and after a restart segments
are counted anew from there. No segment ends because its index is full.
"""

from dataclasses import dataclass

from partition_log.log import PartitionLog


@dataclass(slots=True)
class _Segment:
    """One segment. The timestamp of a batch is its max timestamp here."""

    base_offset: int
    first_timestamp_ms: int = 0
    """0 before the first batch with a timestamp."""
    size_in_bytes: int = 0
    max_timestamp_ms: int = -1
    """-1 before the first batch with a timestamp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """The part of the log that a cleaning would read: the batches below `end_offset`.

    clean_bytes: size of the part that an earlier cleaning has read already.
    cleanable_bytes: size of the part that was written since then.
    """

    end_offset: int
    clean_bytes: int
    cleanable_bytes: int

    @property
    def ratio(self) -> float:
        """`cleanable_bytes` divided by the number of all bytes, or 0 if there are no bytes.

        The cleaner compares this ratio with log.cleaner.min.cleanable.ratio.
        """
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


class Segments:
    """The segments of one log from `first_dirty_offset` on.

    After each cleaning, and after a truncation, a new Segments object must be made. `segment_bytes`
    is Kafka's segment.bytes, and `roll_ms` is segment.ms.
    """

    def __init__(
        self, log: PartitionLog, *, first_dirty_offset: int, segment_bytes: int, roll_ms: int
    ) -> None:
        # The log may have been truncated to an offset before the end of the last cleaning.
        self.first_dirty_offset = min(first_dirty_offset, log.log_end_offset)
        self._log = log
        self._segment_bytes = segment_bytes
        self._roll_ms = roll_ms
        self._truncations = log.truncations
        self._clean_bytes = 0
        self._segments: list[_Segment] = []
        self._next_index = 0
        self._update()

    @property
    def log(self) -> PartitionLog:
        """The log that has these segments."""
        return self._log

    @property
    def segment_bytes(self) -> int:
        """Largest size of a segment, unless it has only one batch."""
        return self._segment_bytes

    @property
    def roll_ms(self) -> int:
        """Longest time between the first and the last record of a segment, in milliseconds."""
        return self._roll_ms

    @property
    def base_offsets(self) -> tuple[int, ...]:
        """The offsets at which the segments begin."""
        return tuple(segment.base_offset for segment in self._segments)

    @property
    def read_length(self) -> int:
        """Number of the log's batches that this Segments object has read so far."""
        return self._next_index

    @property
    def is_outdated(self) -> bool:
        """True if the log was truncated since this object was made, so that it is useless now."""
        return self._truncations != self._log.truncations

    def cleanable(self, uncleanable_offset: int, *, min_lag_ms: int, now_ms: int) -> Cleanable:
        """Return the part of the log that a cleaning would read now.

        This part ends before the first segment that must not be cleaned yet:
        - a segment with records above `uncleanable_offset`, the log's last stable offset, because a
          transaction above this offset may still be aborted;
        - a segment with a record younger than `min_lag_ms`;
        - the active segment.
        """
        self._update()
        end_offset, cleanable_bytes = self.first_dirty_offset, 0
        # The active segment is the last segment. It has no successor, so the loop does not reach
        # it.
        for segment, successor in zip(self._segments, self._segments[1:], strict=False):
            if successor.base_offset > uncleanable_offset:
                break
            # As in Kafka, if `min_lag_ms` is 0, even records with a time in the future are cleaned.
            if min_lag_ms > 0 and segment.max_timestamp_ms > now_ms - min_lag_ms:
                break
            end_offset = successor.base_offset
            cleanable_bytes += segment.size_in_bytes
        return Cleanable(
            end_offset=end_offset,
            clean_bytes=self._clean_bytes,
            cleanable_bytes=cleanable_bytes,
        )

    def _update(self) -> None:
        """Read the batches that were appended since the last call, and add them to segments."""
        storage = self._log.storage
        for index in range(self._next_index, len(storage)):
            batch = storage.batch(index)
            size = batch.size_in_bytes
            if batch.base_offset < self.first_dirty_offset:
                self._clean_bytes += size
                continue
            timestamp_ms = batch.max_timestamp_ms
            if not self._segments or self._is_full(self._segments[-1], size, timestamp_ms):
                self._segments.append(_Segment(batch.base_offset))
            active = self._segments[-1]
            if active.first_timestamp_ms <= 0:  # not set yet
                active.first_timestamp_ms = timestamp_ms
            active.size_in_bytes += size
            active.max_timestamp_ms = max(active.max_timestamp_ms, timestamp_ms)
        self._next_index = len(storage)

    def _is_full(self, active: _Segment, size: int, timestamp_ms: int) -> bool:
        """Return True if a batch of this size and timestamp must begin the next segment."""
        # The segment would be larger than segment.bytes with the batch.
        if active.size_in_bytes > self._segment_bytes - size:
            return True
        first_ms = active.first_timestamp_ms
        return first_ms > 0 and timestamp_ms - first_ms > self._roll_ms
