"""Segments: the parts of a log that a cleaning may take, computed from the log's batches.

A cleaning is one round of log compaction, which removes replaced records. The first dirty offset is
the beginning of the part that no cleaning has processed yet. Kafka stores a log as a sequence of
segment files. It appends to the last one, which is called active. A cleaning takes whole segments,
and never the active one. Here a log is one sequence of batches. The borders of segments are
computed only when the broker asks what a cleaning could take, so that an append need not do it.
Source: Kafka `LogSegment.shouldRoll`, `LogCleanerManager.cleanableOffsets`, `LogToClean`.
DEVIATION: the log below the first dirty offset counts as one segment, and after a restart segments
are counted anew from there. No segment ends because its index is full.
"""

from dataclasses import dataclass

from partition_log.log import PartitionLog


@dataclass(slots=True)
class _Segment:
    """A segment, full or not. Its timestamps are the max timestamps of its batches."""

    base_offset: int
    first_timestamp_ms: int = 0
    """0 before the first batch with a timestamp."""
    size_in_bytes: int = 0
    max_timestamp_ms: int = -1
    """-1 before the first batch with a timestamp."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleanable:
    """The part of the log that a cleaning would process: the batches below `end_offset`.

    clean_bytes: size of the part that an earlier cleaning has processed.
    cleanable_bytes: size of the part written since then.
    """

    end_offset: int
    clean_bytes: int
    cleanable_bytes: int

    @property
    def ratio(self) -> float:
        """Share of `cleanable_bytes` in the whole part; 0 if the part is empty."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0


class Segments:
    """The segments of one log from `first_dirty_offset` on; a new object after each cleaning.

    Units: `segment_bytes` is Kafka's segment.bytes, `roll_ms` its segment.ms.
    Attribute, to read only: `first_dirty_offset`.
    """

    def __init__(
        self, log: PartitionLog, *, first_dirty_offset: int, segment_bytes: int, roll_ms: int
    ) -> None:
        # A truncation may have cut the log below the end of the last cleaning.
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
        """Largest size of a segment of more than one batch."""
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
        """Number of the log's batches that this object has read so far."""
        return self._next_index

    @property
    def is_outdated(self) -> bool:
        """True if the log was truncated since this object was made; then it must be replaced."""
        return self._truncations != self._log.truncations

    def cleanable(self, uncleanable_offset: int, *, min_lag_ms: int, now_ms: int) -> Cleanable:
        """Return the part of the log that a cleaning would process now.

        The part ends before the first segment for which one of these conditions holds:
        - it contains `uncleanable_offset`, the log's last stable offset; a transaction above this
          offset may still be aborted;
        - it has a record younger than `min_lag_ms`;
        - it is the active segment.
        """
        self._update()
        end_offset, cleanable_bytes = self.first_dirty_offset, 0
        # Each segment is paired with its successor. The active segment is the last one, and has no
        # successor, so the loop does not reach it.
        for segment, successor in zip(self._segments, self._segments[1:], strict=False):
            if successor.base_offset > uncleanable_offset:
                break
            # As in Kafka, a `min_lag_ms` of 0 lets a cleaning take even records whose time is in
            # the future.
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
        """Add the batches that were appended since the last call to the segments."""
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
        # The batch would make the segment larger than segment.bytes. Kafka writes it this way, too.
        if active.size_in_bytes > self._segment_bytes - size:
            return True
        first_ms = active.first_timestamp_ms
        return first_ms > 0 and timestamp_ms - first_ms > self._roll_ms
