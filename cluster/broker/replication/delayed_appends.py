"""Appends with acks=all that wait for the high watermark.

Such an append is acknowledged when the high watermark has reached the end of its batch. Kafka's
name for the set of these waiting appends is produce purgatory.
"""

from collections import deque
from collections.abc import Callable

from partition_log.replica import Partition
from protocol.errors import ErrorCode, InvariantViolation
from protocol.ids import TopicPartition


class DelayedAppend:
    """One waiting append. `required_offset` is the offset after the last record of its batch.

    `is_done` becomes True just before `on_completed` is called. This ensures that `on_completed`
    is called only once.
    """

    __slots__ = ("is_done", "on_completed", "partition", "required_offset")

    def __init__(
        self, partition: Partition, required_offset: int, on_completed: Callable[[ErrorCode], None]
    ) -> None:
        self.partition = partition
        self.required_offset = required_offset
        self.on_completed = on_completed
        self.is_done = False


class DelayedAppends:
    """The waiting appends of all partitions."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, deque[DelayedAppend]] = {}
        """The waiting appends of each partition, the lowest offset first."""

    def park(
        self, partition: Partition, required_offset: int, on_completed: Callable[[ErrorCode], None]
    ) -> DelayedAppend:
        """Register an append that waits for the high watermark to reach `required_offset`.

        `on_completed` is called later. It gets NONE once all records below `required_offset` are
        acknowledged. It gets an error if they cannot be acknowledged, or if the append expires.
        """
        delayed = DelayedAppend(partition, required_offset, on_completed)
        waiting = self._waiting.setdefault(partition.topic_partition, deque())
        # Usually the new append has the highest offset. But a batch that its producer has sent
        # again waits for the offset of its first append, and appends with higher offsets may be
        # waiting.
        place = len(waiting)
        while place and waiting[place - 1].required_offset > required_offset:
            place -= 1
        waiting.insert(place, delayed)
        return delayed

    def check(self, partition: Partition) -> None:
        """Complete the appends that the high watermark has passed.

        If this broker no longer leads the partition, all its appends fail.
        """
        waiting = self._waiting.get(partition.topic_partition)
        while waiting:
            delayed = waiting[0]
            # None means that the append is undecided, ErrorCode.NONE that it is acknowledged, and
            # any other code that it has failed.
            error = partition.check_acknowledged(delayed.required_offset)
            if error is None:
                return  # later appends wait for this offset or a higher one: undecided, too
            # The append is marked as done before the callback, so that it cannot expire any more.
            waiting.popleft()
            delayed.is_done = True
            delayed.on_completed(error)

    def check_invariants(self) -> None:
        """Check that each waiting append is not done, and that its outcome is still undecided.

        Raises: InvariantViolation.
        """
        for name, waiting in self._waiting.items():
            for delayed in waiting:
                if delayed.is_done:
                    raise InvariantViolation(
                        "append_that_is_done_waits",
                        f"{name}: an append below {delayed.required_offset} will not expire",
                    )
                error = delayed.partition.check_acknowledged(delayed.required_offset)
                if error is not None:
                    raise InvariantViolation(
                        "append_waits_for_something",
                        f"{name}: an append below {delayed.required_offset} has {error.name}, and "
                        "waits",
                    )

    def expire(self, delayed: DelayedAppend) -> None:
        """Fail an append after its timeout, unless it is done. Its records stay in the log."""
        if not delayed.is_done:
            delayed.is_done = True
            self._waiting[delayed.partition.topic_partition].remove(delayed)
            delayed.on_completed(ErrorCode.REQUEST_TIMED_OUT)
