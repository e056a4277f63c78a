"""LogFlusher: decides when the records of a broker's logs are written to the disk.

An appended record is in memory at first. If the machine loses power before the record was flushed
to the disk, the record is lost. There are three ways in which a log is flushed:

1. The log flushes itself after every `log.flush.interval.messages` records.
2. A scheduler flushes it every `log.flush.interval.ms`. As in Kafka, this is off by default.
3. The operating system writes back what it has kept in memory for some time. The length of this
   time is a setting of the cluster's StorageModel, both in virtual time and on real nodes.

All three ways move the *flush mark* (`flushed_length`), the number of batches of a log that would
survive a loss of power. Only the first two ways move the *recovery point*. This is the offset up to
which Kafka knows that the log is on the disk, and Kafka does not know what the operating system
does.

Source: Kafka `LogManager` (kafka-log-flusher), `UnifiedLog.flush`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from cluster.host.host import Host
from cluster.spec import ClusterSpec
from partition_log.log import PartitionLog
from protocol.config import LONG_MAX, TopicConfig
from protocol.ids import Offset, TopicPartition

INITIAL_TASK_DELAY_MS = 30_000
"""Time from the broker's start to the first check of the scheduler.

Source: Kafka `LogManager.InitialTaskDelayMs`."""


@dataclass(slots=True, kw_only=True)
class _LastFlush:
    """The time of a log's last flush (on the host's clock), and the recovery point after it."""

    recovery_point: Offset
    at_us: int


@dataclass(slots=True, kw_only=True)
class _Dirty:
    """The time since which a log has had unflushed batches, and its flush mark at that time."""

    flushed_length: int
    since_us: int


class LogFlusher:
    """Flushes the logs of one broker.

    `logs` returns all logs of the broker, `topic_config` returns the settings of a topic.
    """

    def __init__(
        self,
        host: Host,
        cluster: ClusterSpec,
        logs: Callable[[], Iterable[PartitionLog]],
        topic_config: Callable[[str], TopicConfig],
    ) -> None:
        self._host = host
        self._config = cluster.broker_config
        self._model = cluster.storage
        self._write_back_us = self._model.write_back_check_ms * 1_000
        """Interval in which `_write_back` checks the logs."""
        self._logs = logs
        self._topic_config = topic_config
        self._started_at_us = 0
        self._last_flushes: dict[TopicPartition, _LastFlush] = {}
        """The last flush of each log, for the scheduler."""
        self._dirty: dict[TopicPartition, _Dirty] = {}
        """The logs that had unflushed batches at the last call of `_write_back`."""

    def start(self) -> None:
        """Begin the periodic checks."""
        self._started_at_us = self._host.now_us()
        if self._config.log_flush_scheduler_interval_ms < LONG_MAX:  # LONG_MAX means never
            self._host.after(INITIAL_TASK_DELAY_MS * 1_000, self._flush_dirty_logs)
        # When a broker starts, the operating system has been running for some time. So its next
        # check may come at any time within an interval.
        first_us = self._host.first_tick_us("write-back", self._write_back_us)
        self._host.after(first_us, self._write_back)

    def configure(self, log: PartitionLog) -> None:
        """Give a log the flush settings of its topic, and begin to watch the log's flushes."""
        self._last_flushes[log.topic_partition] = _LastFlush(
            recovery_point=log.recovery_point, at_us=self._host.now_us()
        )
        messages = self._topic_config(log.topic_partition.topic).flush_messages
        if messages is None:
            messages = self._config.log_flush_interval_messages
        # LONG_MAX, Kafka's default, means never.
        log.flush_interval_messages = messages if messages < LONG_MAX else None

    def forget(self, partition: TopicPartition) -> None:
        """Drop the flusher's state of a deleted partition."""
        self._last_flushes.pop(partition, None)
        self._dirty.pop(partition, None)

    def flush_all(self) -> None:
        """Flush every log, as an orderly shutdown does. Source: Kafka `LogManager.shutdown`."""
        for log in self._logs():
            log.flush()

    # -- Kafka's scheduler --

    def _flush_dirty_logs(self) -> None:
        """Flush the logs whose interval is over. Source: Kafka `LogManager.flushDirtyLogs`."""
        now_us = self._host.now_us()
        for log in self._logs():
            last = self._last_flush(log, now_us)
            # As in Kafka, the time of the last flush stays if there is nothing to flush. So after
            # a quiet time, a new record may be flushed soon after its append.
            if (
                log.recovery_point < log.log_end_offset
                and now_us - last.at_us >= self._flush_ms(log) * 1_000
            ):
                log.flush()
                last.recovery_point = log.recovery_point
                last.at_us = now_us
        self._host.after(
            self._config.log_flush_scheduler_interval_ms * 1_000, self._flush_dirty_logs
        )

    def _last_flush(self, log: PartitionLog, now_us: int) -> _LastFlush:
        """Return the last flush of `log`. As in Kafka, the opening of a log counts as a flush.

        If the log has flushed itself since the last check, the time of that flush is not known, so
        the time of this check is noted instead.
        """
        last = self._last_flushes.get(log.topic_partition)
        # Until `configure` is called for a log, the start of this broker counts as its last flush.
        if last is None:
            return _LastFlush(recovery_point=log.recovery_point, at_us=self._started_at_us)
        if last.recovery_point < log.recovery_point:
            last.at_us = now_us
        last.recovery_point = log.recovery_point
        return last

    def _flush_ms(self, log: PartitionLog) -> int:
        """Return the topic's flush interval; if it is not set, the broker's or the scheduler's."""
        flush_ms = self._topic_config(log.topic_partition.topic).flush_ms
        if flush_ms is None:
            flush_ms = self._config.log_flush_interval_ms
        return self._config.log_flush_scheduler_interval_ms if flush_ms is None else flush_ms

    # -- the operating system --

    def _write_back(self) -> None:
        """Write back each log that has had unflushed batches for `write_back_ms`.

        The whole log is written back, also its newer batches.
        """
        now_us = self._host.now_us()
        for log in self._logs():
            name, storage = log.topic_partition, log.storage
            flushed_length = storage.flushed_length
            if flushed_length == len(storage):
                self._dirty.pop(name, None)
                continue
            dirty = self._dirty.get(name)
            # The wait begins now, if the log became dirty or was flushed in part since the last
            # check.
            if dirty is None or dirty.flushed_length != flushed_length:
                self._dirty[name] = _Dirty(flushed_length=flushed_length, since_us=now_us)
            elif now_us - dirty.since_us >= self._model.write_back_ms * 1_000:
                storage.write_back()
                del self._dirty[name]
        self._host.after(self._write_back_us, self._write_back)
