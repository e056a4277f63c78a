"""Two ways in which a broker's logs get to the disk: Kafka's flushes, and the system's write-back.

- Appended data are in the page cache, memory of the operating system. Data are dirty until they are
  on the disk. Only data on the disk survive a power loss.
- Kafka flushes by number of messages, by time or, by default, never.
- The operating system writes dirty data to the disk by itself after some time (write-back).
- `recovery_point` is the offset up to which Kafka itself has flushed a log.
- `flushed_length` is the number of batches on the disk, by a flush or by a write-back.
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
    """A flusher on a host of its own, with two logs; `topic` has the settings of topic payments."""

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
    """In Linux dirty data are written back after 30 s; the kernel checks every 5 s.

    A record is appended at 12 s. A check notes that the log is dirty up to 5 s after the append.
    The write-back is at the first check that is 30 s later. So here it is between
    12 s + 30 s = 42 s and 42 s + 5 s = 47 s.
    """
    lab = FlusherLab()
    lab.seconds(12)
    lab.append(lab.orders)
    lab.seconds(29)  # it is 41 s now
    assert lab.orders.storage.flushed_length == 0
    lab.seconds(10)  # it is 51 s now
    assert lab.orders.storage.flushed_length == 1
    assert lab.orders.recovery_point == 0  # Kafka itself has not flushed the log


def test_system_writes_back_the_whole_file() -> None:
    """A file is as old as its first dirty page. Its newer pages are written back together with it.

    One record is appended each second, from 0 s on. The first check, at 5 s, notes that the log is
    dirty, so the write-back is at 5 s + 30 s = 35 s. It includes all records so far, also the
    youngest.
    """
    lab = FlusherLab()
    for _ in range(36):
        lab.append(lab.orders)
        lab.seconds(1)
    assert lab.orders.storage.flushed_length >= 35


def test_write_back_counts_from_the_first_append_after_a_flush() -> None:
    """After a flush the file is clean, so its age counts from the next append."""
    lab = FlusherLab()
    lab.append(lab.orders)
    lab.seconds(21)
    lab.orders.flush()
    lab.append(lab.orders)
    lab.seconds(20)
    # This is 41 s after the first append, but only 20 s after the second.
    assert lab.orders.storage.flushed_length == 1
    lab.seconds(16)
    assert lab.orders.storage.flushed_length == 2


def test_write_back_interval_is_a_setting_of_the_cluster() -> None:
    """Experiments with power losses set shorter times, which lose fewer data."""
    lab = FlusherLab(model=StorageModel(write_back_ms=1_000, write_back_check_ms=100))
    lab.append(lab.orders)
    lab.seconds(0.9)
    assert lab.orders.storage.flushed_length == 0
    lab.seconds(0.4)
    assert lab.orders.storage.flushed_length == 1


def test_log_flush_interval_messages_applies_to_every_log() -> None:
    """A setting of the topic has precedence over the broker's setting."""
    lab = FlusherLab(
        BrokerConfig(log_flush_interval_messages=2), topic=TopicConfig(flush_messages=3)
    )
    assert lab.orders.flush_interval_messages == 2
    assert lab.payments.flush_interval_messages == 3
    assert FlusherLab().orders.flush_interval_messages is None  # by default no flush by number


def test_logs_are_not_flushed_by_time_unless_the_scheduler_is_on() -> None:
    """log.flush.interval.ms alone has no effect, because the scheduler is off by default.

    The scheduler runs every log.flush.scheduler.interval.ms. The default is Java's Long.MAX_VALUE,
    which means never.
    """
    lab = FlusherLab(BrokerConfig(log_flush_interval_ms=1))
    lab.append(lab.orders)
    lab.seconds(600)
    assert lab.orders.recovery_point == 0


def test_scheduler_flushes_logs_whose_last_flush_is_older_than_the_interval() -> None:
    """Kafka's kafka-log-flusher first runs after 30 s, and then at its interval, here 2 s.

    At 30 s the interval of payments, 1 s, is over. The interval of orders, 40 s, is over at 40 s.
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
    """The interval of 10 s counts from the last flush, by time or by number of messages.

    At 35 s two messages are appended, and flushed by number. So the third message is flushed by
    time at 35 s + 10 s = 45 s or later.
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
    assert lab.orders.recovery_point == 2  # the flush by number of messages
    lab.seconds(1)
    lab.append(lab.orders)
    lab.seconds(8)
    assert lab.orders.recovery_point == 2  # it is 44 s now
    lab.seconds(3)
    assert lab.orders.recovery_point == 3


@pytest.mark.parametrize("interval_ms", [None, 5_000])
def test_flush_all_flushes_every_log(interval_ms: int | None) -> None:
    """An orderly shutdown must leave no data to the write-back, whatever the settings are."""
    lab = FlusherLab(BrokerConfig(log_flush_interval_ms=interval_ms))
    lab.append(lab.orders)
    lab.append(lab.payments)
    lab.flusher.flush_all()
    assert (lab.orders.recovery_point, lab.payments.recovery_point) == (1, 1)
    assert (lab.orders.storage.flushed_length, lab.payments.storage.flushed_length) == (1, 1)
