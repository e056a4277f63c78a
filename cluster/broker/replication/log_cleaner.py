"""LogCleaner: compacts the logs of Kafka's internal topics on one broker.

To compact or *clean* a log means to remove each record whose key has a newer record. The *dirty*
part of a log is the part that came since its last cleaning. Every log.cleaner.backoff.ms, the
cleaner looks for the log with the largest dirty share. It cleans this log if the share is above
min.cleanable.dirty.ratio. Each broker cleans its own replicas, whether it leads them or not.

In Kafka a separate thread cleans, and does not delay the broker's other work. So here cleaning
takes no virtual time. In real time, the cleaner reads a log in turns, and the broker's other tasks
can run between two turns.

Source: Kafka `LogCleaner`, `LogCleanerManager` (log.cleaner.threads 1, no throttle).
DEVIATION: data topics are not compacted, whatever their cleanup.policy is, because the checkers
need all their records. If a log was truncated, the records that are left of its clean part count as
clean. In Kafka, the next cleaning of such a log begins at the active segment, or at the log's
start.
"""

from collections.abc import Callable, Iterable

from cluster.host.host import Host
from cluster.storage.compression import CODECS
from partition_log.checkpoints import decode_offset_checkpoint, encode_offset_checkpoint
from partition_log.compaction import Compaction, CompactionResult
from partition_log.invariants_of_cleaning import check_segments
from partition_log.log import PartitionLog
from partition_log.segments import Cleanable, Segments
from partition_log.transaction_index import TransactionIndex
from protocol.config import BrokerConfig, TopicConfig
from protocol.ids import CONSUMER_OFFSETS, TRANSACTION_STATE, Offset, TopicPartition
from protocol.trace import TraceEvent, TraceKind

CLEANER_OFFSET_CHECKPOINT = "cleaner-offset-checkpoint"
"""Kafka's name of the file with the end of the last cleaning of each log."""
CLEANED_TOPICS = (CONSUMER_OFFSETS, TRANSACTION_STATE)
"""Kafka's internal topics; the module's docstring has the reason to compact only these."""
CLEAN_TURN_BYTES = 65_536
"""Bytes that a cleaning reads in one turn, which takes a few milliseconds of real time."""
_MS_PER_HOUR = 3_600_000


class LogCleaner:
    """The cleaner of one broker.

    `logs` returns all logs of the broker, `topic_config` returns the settings of a topic.
    """

    def __init__(
        self,
        host: Host,
        config: BrokerConfig,
        logs: Callable[[], Iterable[PartitionLog]],
        topic_config: Callable[[str], TopicConfig],
    ) -> None:
        self._host = host
        self._config = config
        self._backoff_us = config.log_cleaner_backoff_ms * 1_000
        self._logs = logs
        self._topic_config = topic_config
        self._first_dirty: dict[TopicPartition, Offset] = {}
        """Log -> the offset at which its last cleaning ended and its dirty part begins."""
        self._segments: dict[TopicPartition, Segments] = {}
        """Log -> the segments into which Kafka would divide it. Whole segments are cleaned."""

    def start(self, logs: Iterable[PartitionLog]) -> None:
        """Read the checkpoint with the ends of the last cleanings, and start the periodic check.

        `logs` are the logs on the disk. A log may have lost its end since its last cleaning.
        """
        content = self._host.storage.read_checkpoint(CLEANER_OFFSET_CHECKPOINT)
        if content is not None:
            self._first_dirty = decode_offset_checkpoint(content)
        for log in logs:
            self.end_moved_back(log)
        if self._config.log_cleaner_enable:
            # In virtual time the first check may come early, so that the brokers do not all clean
            # at the same moments.
            first_us = self._host.first_tick_us("log-cleaner", self._backoff_us)
            self._host.after(first_us, self._look)

    def end_moved_back(self, log: PartitionLog) -> None:
        """Lower the start of the dirty part to the log's end, if the log was truncated below it.

        The caller must call this immediately after a truncation. Once the log has grown beyond the
        old offset again, nothing would show that the new records are dirty.

        Source: Kafka `LogManager.truncateTo`, `LogCleanerManager.maybeTruncateCheckpoint`.
        """
        name = log.topic_partition
        if self._first_dirty.get(name, 0) > log.log_end_offset:
            self._first_dirty[name] = log.log_end_offset
            self._write_checkpoint()

    def forget(self, partition: TopicPartition) -> None:
        """Drop the cleaner's state of a deleted partition.

        Source: Kafka `LogManager.asyncDelete`.
        """
        self._segments.pop(partition, None)
        if self._first_dirty.pop(partition, None) is not None:
            self._write_checkpoint()

    def check_invariants(self) -> None:
        """Check the segments of each log. Raises: InvariantViolation."""
        for segments in self._segments.values():
            check_segments(segments)

    def _look_later(self) -> None:
        """Schedule the next call of `_look`, the periodic check."""
        self._host.after(self._backoff_us, self._look)

    def _look(self) -> None:
        """Clean the logs that are dirty enough, one by one; then schedule the next check."""
        if self._filthiest() is None:
            self._look_later()
        else:
            self._host.spawn(self._clean_all(), name="log-cleaner")

    async def _clean_all(self) -> None:
        """Clean the filthiest log, again and again, until no log is dirty enough.

        This is a task, because a cleaning lets other tasks run between two turns.
        """
        while (chosen := self._filthiest()) is not None:
            await self._clean(*chosen)
        self._look_later()

    def _filthiest(self) -> tuple[PartitionLog, TransactionIndex, Cleanable] | None:
        """Return the log whose dirty share is largest, if this share is above the minimum.

        The result also has the log's transactions, and the part of the log that may be cleaned.
        Source: Kafka `LogCleanerManager.grabFilthiestCompactedLog`.
        """
        filthiest: tuple[PartitionLog, TransactionIndex, Cleanable] | None = None
        for log in self._logs():
            name = log.topic_partition
            if name.topic not in CLEANED_TOPICS:
                continue
            if self._topic_config(name.topic).cleanup_policy != "compact":
                continue
            # Only records below the last stable offset may be cleaned: the high watermark or, if
            # lower, the start of the oldest open transaction.
            transactions = TransactionIndex(log)
            cleanable = self._segments_of(log).cleanable(
                transactions.last_stable_offset,
                min_lag_ms=self._config.log_cleaner_min_compaction_lag_ms,
                now_ms=self._host.wall_us() // 1_000,
            )
            # `ratio` is the dirty share of the bytes; `filthiest[2]` is the best Cleanable so far.
            least = self._config.log_cleaner_min_cleanable_ratio
            if cleanable.ratio > least and (
                filthiest is None or cleanable.ratio > filthiest[2].ratio
            ):
                filthiest = log, transactions, cleanable
        return filthiest

    def _segments_of(self, log: PartitionLog) -> Segments:
        """Return the segments of a log, made anew after a cleaning or a truncation."""
        name = log.topic_partition
        segments = self._segments.get(name)
        if segments is None or segments.is_outdated:
            config = self._config
            roll_ms = config.log_roll_ms  # takes precedence over log.roll.hours
            segments = self._segments[name] = Segments(
                log,
                first_dirty_offset=self._first_dirty.get(name, log.log_start_offset),
                segment_bytes=(
                    config.offsets_topic_segment_bytes
                    if name.topic == CONSUMER_OFFSETS
                    else config.log_segment_bytes
                ),
                roll_ms=config.log_roll_hours * _MS_PER_HOUR if roll_ms is None else roll_ms,
            )
            # If the log ends below the offset, Segments has lowered the offset to the log's end.
            self._first_dirty[name] = Offset(segments.first_dirty_offset)
        return segments

    async def _clean(
        self, log: PartitionLog, transactions: TransactionIndex, cleanable: Cleanable
    ) -> None:
        """Clean one log, and write the end of the cleaning to the checkpoint."""
        name = log.topic_partition
        compaction = Compaction(
            log,
            transactions,
            first_dirty_offset=self._first_dirty[name],  # set by `_segments_of`
            end_offset=cleanable.end_offset,
            now_ms=self._host.wall_us() // 1_000,
            delete_retention_ms=self._config.log_cleaner_delete_retention_ms,
            codecs=CODECS,
        )
        while not compaction.step(CLEAN_TURN_BYTES):  # `step` returns True at the end
            await self._host.sleep(0)  # lets other tasks run
        if name not in self._segments:
            return  # `forget` has removed them: the topic was deleted while the cleaning slept
        del self._segments[name]  # these segments describe the log before the cleaning
        result = compaction.apply()  # None if the log was truncated since the cleaning began
        if result is None:
            self._host.log(f"cleaning of {name} was given up: its log was cut")
            return
        self._first_dirty[name] = result.end_offset
        self._write_checkpoint()
        self._trace(name, result)

    def _write_checkpoint(self) -> None:
        """Write the end of each log's last cleaning to the disk."""
        self._host.storage.write_checkpoint(
            CLEANER_OFFSET_CHECKPOINT, encode_offset_checkpoint(self._first_dirty.items())
        )

    def _trace(self, name: TopicPartition, result: CompactionResult) -> None:
        """Trace the end of a cleaning; `name` is the partition of the log."""
        self._host.trace(
            TraceEvent(
                kind=TraceKind.LOG_CLEANED,
                partition=str(name),
                offset=result.end_offset,
                detail={
                    "records": result.records_after,
                    "bytes": result.bytes_after,
                    "removed_records": result.records_before - result.records_after,
                    "removed_bytes": result.bytes_before - result.bytes_after,
                },
            )
        )
