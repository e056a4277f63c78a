"""Two ways in which a broker's logs get to the disk: Kafka's flushes, and the system's write-back.

Data that a broker appends are first in the page cache, in the memory of the operating system. These
data are called dirty until they are on the disk. A power loss destroys dirty data.

- Kafka can flush a log after a number of messages, or after a time. By default it does neither. The
  `recovery_point` of a log is the offset up to which Kafka itself has flushed the log.
- The operating system writes dirty data to the disk by itself after some time (write-back). The
  `flushed_length` of a log is the number of its batches on the disk, whoever has written them.
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
    """A LogFlusher with the logs of two topics, orders and payments.

    `payments_config` is the configuration of payments. The topic orders always has the default
    configuration.
    """

    def __init__(
        self,
        config: BrokerConfig | None = None,
        *,
        payments_config: TopicConfig | None = None,
        model: StorageModel | None = None,
    ) -> None:
        cluster = replace(
            cluster_of(config=config or BrokerConfig()), storage=model or StorageModel()
        )
        self.hosts = HostLab()
        self.orders = PartitionLog(ORDERS, MemoryLogStorage())
        self.payments = PartitionLog(PAYMENTS, MemoryLogStorage())
        topic_configs = {"orders": TopicConfig(), "payments": payments_config or TopicConfig()}
        self.flusher = LogFlusher(
            self.hosts.host("broker-0"),
            cluster,
            lambda: [self.orders, self.payments],
            lambda topic: topic_configs[topic],
        )
        self.flusher.start()
        self.flusher.configure(self.orders)
        self.flusher.configure(self.payments)

    def append(self, log: PartitionLog) -> None:
        """Append one record."""
        log.append_as_leader(records("a"), leader_epoch=0)

    def seconds(self, duration_s: float) -> None:
        """Let `duration_s` seconds pass."""
        self.hosts.run_for(round(duration_s * SECOND_US))


def test_system_writes_back_data_that_is_dirty_for_30_seconds() -> None:
    """Linux checks its files every 5 s, and writes back what has been dirty for 30 s.

    Here a record is appended at 12 s. The next check, up to 5 s later, finds the log dirty. The
    data are written back 30 s after this check, so between 12 s + 30 s = 42 s and 47 s.
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
    """The 30 s count from the first dirty record. Then the whole file is written, with all records.

    One record is appended each second, from 0 s on. The check at 5 s finds the log dirty, so the
    whole log is written back at 5 s + 30 s = 35 s, with the youngest record.
    """
    lab = FlusherLab()
    for _ in range(36):
        lab.append(lab.orders)
        lab.seconds(1)
    assert lab.orders.storage.flushed_length >= 35  # the records of the seconds 0 to 34


def test_write_back_counts_from_the_first_append_after_a_flush() -> None:
    """After a flush the file is clean, so the 30 s count from the next append."""
    lab = FlusherLab()
    lab.append(lab.orders)
    lab.seconds(21)
    lab.orders.flush()
    lab.append(lab.orders)
    lab.seconds(20)
    # It is 41 s now. The second record, which was appended at 21 s, is still dirty.
    assert lab.orders.storage.flushed_length == 1
    lab.seconds(16)  # it is 57 s now, more than 21 s + 30 s + 5 s
    assert lab.orders.storage.flushed_length == 2


def test_write_back_interval_is_a_setting_of_the_cluster() -> None:
    """An experiment with power losses may set shorter times, so that fewer data are lost."""
    lab = FlusherLab(model=StorageModel(write_back_ms=1_000, write_back_check_ms=100))
    lab.append(lab.orders)
    lab.seconds(0.9)
    assert lab.orders.storage.flushed_length == 0
    lab.seconds(0.4)  # it is 1.3 s now, more than 1 s + 0.1 s
    assert lab.orders.storage.flushed_length == 1


def test_log_flush_interval_messages_is_the_default_of_flush_messages() -> None:
    """The topic's setting flush.messages has precedence over the broker's setting."""
    lab = FlusherLab(
        BrokerConfig(log_flush_interval_messages=2), payments_config=TopicConfig(flush_messages=3)
    )
    assert lab.orders.flush_interval_messages == 2
    assert lab.payments.flush_interval_messages == 3
    # By default Kafka does not flush after a number of messages.
    assert FlusherLab().orders.flush_interval_messages is None


def test_logs_are_not_flushed_by_time_unless_the_scheduler_is_on() -> None:
    """log.flush.interval.ms alone has no effect, because the scheduler is off by default.

    The scheduler looks for logs to flush every log.flush.scheduler.interval.ms. The default of this
    setting is Java's Long.MAX_VALUE, which means never.
    """
    lab = FlusherLab(BrokerConfig(log_flush_interval_ms=1))
    lab.append(lab.orders)
    lab.seconds(600)
    assert lab.orders.recovery_point == 0


def test_scheduler_flushes_logs_whose_last_flush_is_older_than_the_interval() -> None:
    """Kafka's scheduler first runs after 30 s, and then at its interval, here every 2 s.

    - payments has a flush interval of 1 s, so the scheduler flushes it at its first run, at 30 s.
    - orders has a flush interval of 40 s, so the scheduler flushes it at 40 s.
    """
    config = BrokerConfig(log_flush_interval_ms=40_000, log_flush_scheduler_interval_ms=2_000)
    lab = FlusherLab(config, payments_config=TopicConfig(flush_ms=1_000))

    lab.append(lab.orders)
    lab.append(lab.payments)

    lab.seconds(29)
    assert (lab.orders.recovery_point, lab.payments.recovery_point) == (0, 0)
    lab.seconds(2)  # it is 31 s now
    assert (lab.orders.recovery_point, lab.payments.recovery_point) == (0, 1)
    lab.seconds(8)  # it is 39 s now
    assert lab.orders.recovery_point == 0
    lab.seconds(2)  # it is 41 s now
    assert lab.orders.recovery_point == 1


def test_flush_by_number_of_messages_delays_the_flush_by_time() -> None:
    """The interval of 10 s counts from the last flush, even if this was a flush by number.

    At 35 s two messages are appended, and flushed by number. So the third message, at 36 s, is
    flushed by time at 35 s + 10 s = 45 s.
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
    lab.seconds(8)  # it is 44 s now
    assert lab.orders.recovery_point == 2
    lab.seconds(3)  # it is 47 s now
    assert lab.orders.recovery_point == 3


@pytest.mark.parametrize("interval_ms", [None, 5_000])
def test_flush_all_flushes_every_log(interval_ms: int | None) -> None:
    """An orderly shutdown flushes all logs by `flush_all`, whatever the settings are."""
    lab = FlusherLab(BrokerConfig(log_flush_interval_ms=interval_ms))
    lab.append(lab.orders)
    lab.append(lab.payments)
    lab.flusher.flush_all()
    assert (lab.orders.recovery_point, lab.payments.recovery_point) == (1, 1)
    assert (lab.orders.storage.flushed_length, lab.payments.storage.flushed_length) == (1, 1)
