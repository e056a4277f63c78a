"""Flushes of a broker's logs: Kafka's scheduler and settings, the system's write-back.

Only flushed data survives a power loss. A recovery point is the offset up to which Kafka itself has
flushed a log; `flushed_length` also counts what the operating system has written back, in batches.
Dirty data is not flushed yet. Kafka flushes by number of messages, by time, or, by default, never.
"""

import pytest
from msgspec.structs import replace

from cluster.broker.replication.log_flusher import LogFlusher
from cluster.spec import StorageModel
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from protocol.config import BrokerConfig, TopicConfig
from protocol.ids import TopicPartition
from tests.support.builders.partition_logs import records
from tests.support.harness.controllers import cluster_of
from tests.support.harness.virtual_hosts import HostLab

SECOND_US = 1_000_000
ORDERS = TopicPartition("orders", 0)
PAYMENTS = TopicPartition("payments", 0)


class FlusherLab:
    """A flusher on a host of its own, with two logs; `topic` has the settings of payments."""

    def __init__(
        self,
        config: BrokerConfig | None = None,
        *,
        topic: TopicConfig | None = None,
        model: StorageModel | None = None,
    ) -> None:
        cluster = replace(
            cluster_of(config=config or BrokerConfig()), storage=model or StorageModel()
        )
        self.hosts = HostLab()
        self.orders = PartitionLog(ORDERS, MemoryLogStorage())
        self.payments = PartitionLog(PAYMENTS, MemoryLogStorage())
        settings = {"payments": topic or TopicConfig()}
        self.flusher = LogFlusher(
            self.hosts.host("broker-0"),
            cluster,
            lambda: [self.orders, self.payments],
            lambda name: settings.get(name, TopicConfig()),
        )
        self.flusher.start()
        self.flusher.configure(self.orders)
        self.flusher.configure(self.payments)

    def append(self, log: PartitionLog) -> None:
        """Append one record."""
        log.append_as_leader(records("a"), leader_epoch=0)

    def seconds(self, duration_s: float) -> None:
        """Advance the time."""
        self.hosts.run_for(round(duration_s * SECOND_US))


def test_system_writes_back_data_that_is_dirty_for_30_seconds() -> None:
    """In Linux dirty data expires after 30 s, and the kernel's flusher wakes up every 5 s.

    A check first notes that a log is dirty, up to 5 s after the append. The write-back follows at
    the first check 30 s after that: here at 42 to 47 s.
    """
    lab = FlusherLab()
    lab.seconds(12)
    lab.append(lab.orders)
    lab.seconds(29)  # at 41 s
    assert lab.orders.storage.flushed_length == 0
    lab.seconds(10)  # at 51 s
    assert lab.orders.storage.flushed_length == 1
    assert lab.orders.recovery_point == 0  # Kafka itself has not flushed the log


def test_system_writes_back_the_whole_file() -> None:
    """The age is that of the file's first dirty page; newer pages are written back with it.

    One record is appended each second: at 35 s the write-back takes all records so far.
    """
    lab = FlusherLab()
    for _ in range(36):
        lab.append(lab.orders)
        lab.seconds(1)
    assert lab.orders.storage.flushed_length >= 35


def test_write_back_counts_from_the_first_append_after_a_flush() -> None:
    """A flush makes the file clean, so that its age begins anew."""
    lab = FlusherLab()
    lab.append(lab.orders)
    lab.seconds(21)
    lab.orders.flush()
    lab.append(lab.orders)
    lab.seconds(20)
    # 41 s after the first append, but only 20 s after the second.
    assert lab.orders.storage.flushed_length == 1
    lab.seconds(16)
    assert lab.orders.storage.flushed_length == 2


def test_write_back_interval_is_a_setting_of_the_cluster() -> None:
    """An experiment with power losses sets this interval."""
    lab = FlusherLab(model=StorageModel(write_back_ms=1_000, write_back_check_ms=100))
    lab.append(lab.orders)
    lab.seconds(0.9)
    assert lab.orders.storage.flushed_length == 0
    lab.seconds(0.4)
    assert lab.orders.storage.flushed_length == 1


def test_log_flush_interval_messages_applies_to_every_log() -> None:
    """The setting of the topic takes precedence over that of the broker."""
    lab = FlusherLab(
        BrokerConfig(log_flush_interval_messages=2), topic=TopicConfig(flush_messages=3)
    )
    assert lab.orders.flush_interval_messages == 2
    assert lab.payments.flush_interval_messages == 3
    assert FlusherLab().orders.flush_interval_messages is None


def test_logs_are_not_flushed_by_time_unless_the_scheduler_is_on() -> None:
    """log.flush.interval.ms alone has no effect.

    The default of log.flush.scheduler.interval.ms is Long.MAX: the scheduler never runs.
    """
    lab = FlusherLab(BrokerConfig(log_flush_interval_ms=1))
    lab.append(lab.orders)
    lab.seconds(600)
    assert lab.orders.recovery_point == 0


def test_scheduler_flushes_logs_whose_last_flush_is_older_than_the_interval() -> None:
    """Kafka's kafka-log-flusher first runs after 30 s, then at its interval, which is 2 s here.

    At 30 s the interval of payments, 1 s, is over. That of orders, 40 s, is over at 40 s.
    """
    config = BrokerConfig(log_flush_interval_ms=40_000, log_flush_scheduler_interval_ms=2_000)
    lab = FlusherLab(config, topic=TopicConfig(flush_ms=1_000))

    lab.append(lab.orders)
    lab.append(lab.payments)

    lab.seconds(29)
    assert (lab.orders.recovery_point, lab.payments.recovery_point) == (0, 0)
    lab.seconds(2)
    assert (lab.orders.recovery_point, lab.payments.recovery_point) == (0, 1)
    lab.seconds(8)
    assert lab.orders.recovery_point == 0
    lab.seconds(2)
    assert lab.orders.recovery_point == 1


def test_flush_by_number_of_messages_delays_the_flush_by_time() -> None:
    """The interval of 10 s counts from the last flush of either kind.

    The second message is flushed by number at 35 s, so the third one is flushed at 45 s or later.
    """
    config = BrokerConfig(
        log_flush_interval_messages=2,
        log_flush_interval_ms=10_000,
        log_flush_scheduler_interval_ms=1_000,
    )
    lab = FlusherLab(config)
    lab.seconds(35)
    lab.append(lab.orders)

    lab.append(lab.orders)
    assert lab.orders.recovery_point == 2  # flushed by the number of messages
    lab.seconds(1)
    lab.append(lab.orders)
    lab.seconds(8)
    assert lab.orders.recovery_point == 2  # 9 s after that flush, less than the interval of 10 s
    lab.seconds(3)
    assert lab.orders.recovery_point == 3


@pytest.mark.parametrize("interval_ms", [None, 5_000])
def test_flush_all_flushes_every_log(interval_ms: int | None) -> None:
    """An orderly shutdown leaves no data for the system to write back."""
    lab = FlusherLab(BrokerConfig(log_flush_interval_ms=interval_ms))
    lab.append(lab.orders)
    lab.append(lab.payments)
    lab.flusher.flush_all()
    assert (lab.orders.recovery_point, lab.payments.recovery_point) == (1, 1)
    assert (lab.orders.storage.flushed_length, lab.payments.storage.flushed_length) == (1, 1)
