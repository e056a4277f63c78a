"""Checks of each log cleaning (compaction) in virtual time: compare the log before and after it.

A cleaning replaces the batches in the first part of a log on the simulated disk. At the moment of
the replacement both versions still exist, and they are compared. A cleaning that removes nothing
also replaces nothing. Such a cleaning is checked when a row in the trace (the run's record of
events) shows that it has ended.
"""

from collections.abc import Sequence
from functools import partial

from cluster.broker.replication.log_cleaner import CLEAN_TURN_BYTES
from cluster.host.host import Host
from cluster.spec import ClusterSpec
from cluster.storage.compression import CODECS
from partition_log.invariants_of_cleaning import check_cleaning
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryStorage
from protocol.ids import NodeName, TopicPartition
from protocol.records.batch import RecordBatch


class CleaningChecks:
    """The checks of a run's cleanings. A failed check raises InvariantViolation."""

    def __init__(self, spec: ClusterSpec) -> None:
        self._delete_retention_ms = spec.broker_config.log_cleaner_delete_retention_ms
        self._replaced: dict[tuple[NodeName, TopicPartition], None] = {}
        """The logs whose present cleaning has replaced batches, and so was checked already.

        The dict, whose values are all None, is used as a set.
        """

    def watch(self, host: Host, storage: MemoryStorage) -> None:
        """Check the cleanings of the node on `host`, whose disk is `storage`."""
        storage.on_replace = partial(self._check_replaced, host)

    def cleaned(self, host: Host, log: PartitionLog, end_offset: int) -> None:
        """Check a cleaning of the batches below `end_offset`, which has just ended.

        If the cleaning replaced batches, `_check_replaced` has checked it already, and nothing is
        done here. Otherwise the log must be allowed to stay exactly as it is.
        """
        if (host.name, log.topic_partition) in self._replaced:
            del self._replaced[host.name, log.topic_partition]
            return
        storage = log.storage
        batches = [storage.batch(index) for index in range(len(storage))]
        # The number of batches that the cleaning was about.
        length = sum(batch.next_offset <= end_offset for batch in batches)
        self._check(host, log.topic_partition, batches, length, batches[:length])

    def _check_replaced(
        self,
        host: Host,
        name: TopicPartition,
        before: Sequence[RecordBatch],
        length: int,
        after: Sequence[RecordBatch],
    ) -> None:
        """Check a cleaning that has just replaced the first `length` batches by `after`."""
        self._replaced[host.name, name] = None
        self._check(host, name, before, length, after)

    def _check(
        self,
        host: Host,
        name: TopicPartition,
        before: Sequence[RecordBatch],
        length: int,
        after: Sequence[RecordBatch],
    ) -> None:
        """Check that the first `length` batches of `before` became `after`, in partition `name`."""
        # A cleaning compares the ages of tombstones with the time at which it began. It reads each
        # batch twice. If that takes only one turn (a step in which no other task runs), the
        # cleaning has begun just now, and the time is known exactly. With several turns it may have
        # begun long ago.
        read_bytes = 2 * sum(batch.size_in_bytes for batch in before[:length])
        check_cleaning(
            name,
            before,
            length,
            after,
            now_ms=host.wall_us() // 1_000,
            delete_retention_ms=self._delete_retention_ms,
            is_time_exact=read_bytes < CLEAN_TURN_BYTES,
            codecs=CODECS,
        )
