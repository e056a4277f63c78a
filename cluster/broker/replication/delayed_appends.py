"""Appends with acks=all that wait for the high watermark: Kafka's produce purgatory.

The high watermark is the offset below which every in-sync replica has the records. An append is
acknowledged when the high watermark has reached the end of the append's batch. A purgatory is
Kafka's list of operations that wait.
"""

from collections import deque
from collections.abc import Callable

from partition_log.replica import Partition
from protocol.errors import ErrorCode, InvariantViolation
from protocol.ids import TopicPartition


class DelayedAppend:
    """One waiting append. `required_offset` is the offset after its batch.

    `is_done` is True when `on_completed` was called or is the next call, so that the append has
    only one outcome.
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
    """The waiting appends of all partitions; those of one partition are sorted by offset."""

    def __init__(self) -> None:
        self._waiting: dict[TopicPartition, deque[DelayedAppend]] = {}
        """The waiting appends of each partition, the lowest offset first."""

    def park(
        self, partition: Partition, required_offset: int, on_completed: Callable[[ErrorCode], None]
    ) -> DelayedAppend:
        """Register an append that waits for the high watermark to reach `required_offset`.

        `on_completed` is called later: with NONE once all records below that offset are
        acknowledged; with an error if they cannot be acknowledged, or if the append expires.
        """
        delayed = DelayedAppend(partition, required_offset, on_completed)
        waiting = self._waiting.setdefault(partition.topic_partition, deque())
        # The waiting appends are sorted by offset, and a new append is usually the last one. The
        # exception is a batch that its producer sends again. It waits for the offset of its first
        # append, so appends with higher offsets may be waiting already.
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
            # Python's None means that the append is undecided, ErrorCode.NONE that it is
            # acknowledged. With any other code it cannot be acknowledged on this broker.
            error = partition.check_acknowledged(delayed.required_offset)
            if error is None:
                return  # all later appends have higher offsets, so they are undecided, too
            # Done before the callback, so that the append cannot expire any more.
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
        """Fail an append after its timeout, unless it is done; its records stay in the log."""
        if not delayed.is_done:
            delayed.is_done = True
            self._waiting[delayed.partition.topic_partition].remove(delayed)
            delayed.on_completed(ErrorCode.REQUEST_TIMED_OUT)
