"""FetchReader: reads the records for a Fetch.

After every append, each follower sends a Fetch for all its partitions, so this is the busiest code
of a broker. To save work, a partition is not read again if the follower has read it to the end, and
the partition has not changed since then. Then the partition is called *quiet*, otherwise *stirred*.
The module `quiet_fetches` remembers which partitions are quiet.

A Fetch of a follower also reports to the leader how far the follower is. From this progress the
leader decides whether the follower is in sync. To *count* a Fetch means to record the progress and
its time.

Source: Kafka `ReplicaManager.readFromLog`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from cluster.broker.replication.quiet_fetches import UNREAD, QuietFetches, QuietTopic
from partition_log.outcomes import FetchResult
from partition_log.replica import Partition
from protocol.errors import ErrorCode
from protocol.messages.log import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

PartitionKey = tuple[str, int]
"""Topic and partition index; equal to a TopicPartition, but cheaper to create."""


class FetchRead(NamedTuple):
    """An answer to a Fetch. If `is_complete` is False, the Fetch may wait for more bytes."""

    response: FetchResponse
    is_complete: bool


class FetchReader:
    """Reads the partitions of Fetch requests.

    `on_fetched` is called if the Fetch of a follower has moved the high watermark, or makes the
    leader propose a new ISR. `absence` returns the error for a partition of which this broker has
    no replica.
    """

    def __init__(
        self,
        partitions: Mapping[PartitionKey, Partition],
        absence: Callable[[str, int], ErrorCode],
        on_fetched: Callable[[Partition, FetchResult], None],
        quiet: QuietFetches,
    ) -> None:
        self._partitions = partitions
        self._absence = absence
        self._on_fetched = on_fetched
        self._quiet = quiet

    def read(
        self, request: FetchRequest, now_us: int, *, previous: FetchResponse | None = None
    ) -> FetchRead:
        """Read every partition of `request`, up to its limits.

        If the Fetch was parked to wait for more bytes, `previous` is its first answer, so that only
        changed partitions are read again.

        The result is complete if the Fetch need not wait. This is so if the answer has `min_bytes`,
        if a partition has an error or a diverging epoch, or if the request has no topics.
        """
        # A parked Fetch was counted when it was first read.
        counted_at_us = now_us if previous is None else None
        size_in_bytes = 0
        is_complete = not request.topics
        topics = []
        for topic_index, topic in enumerate(request.topics):
            quiet = self._quiet_topic(topic, request, is_new=previous is None)
            # Without a QuietTopic, every partition is read; otherwise only stirred partitions are.
            if quiet is None:
                answers: list[PartitionData] = [UNREAD] * len(topic.partitions)
                indices: Iterable[int] = range(len(answers))
            else:
                if previous is None:
                    quiet.count(now_us)
                if not quiet.stirred:
                    topics.append(quiet.whole_answer())  # every partition is quiet
                    continue
                # Answers with records or errors must not get into `quiet.answers`, so it is copied.
                answers = quiet.answers.copy()
                # The indices are sorted, because partitions are read in the order of the request.
                # The first partitions may use up the bytes.
                indices = sorted(quiet.stirred)

            # The answers of the first read, if the Fetch was parked, in the order of the request.
            before = () if previous is None else previous.responses[topic_index].partitions
            # A partition without a replica here gets an error. For all other partitions there are
            # three sources of an answer, which are tried in the order of their cost:
            # 1. the answer of the first read, if the Fetch was parked,
            # 2. an empty answer, if the log has nothing new,
            # 3. a read of the log.
            for index in indices:
                position = topic.partitions[index]
                partition = self._partitions.get((topic.topic, position.partition))
                if partition is None:
                    is_complete = True
                    answers[index] = PartitionData(
                        partition_index=position.partition,
                        error_code=self._absence(topic.topic, position.partition),
                    )
                    continue
                if before and _is_still_empty(partition, position, before[index], request):
                    answers[index] = before[index]
                    continue
                # A cheap check for the most frequent case: no new records, and no error. In this
                # case `fetch_nothing` also counts the Fetch.
                nothing = partition.fetch_nothing(
                    position, request.replica_id, request.replica_epoch, counted_at_us
                )
                if nothing is not None:
                    answers[index] = nothing
                    if quiet is not None:
                        quiet.keep(index, nothing, partition, request.replica_id)
                    continue
                result = partition.fetch(
                    position,
                    replica_id=request.replica_id,
                    replica_epoch=request.replica_epoch,
                    # The request's limit, less the bytes that earlier partitions have used.
                    max_bytes=request.max_bytes - size_in_bytes,
                    now_us=now_us,
                    # The first batch is returned even if it exceeds the limits (KIP-74).
                    min_one_batch=size_in_bytes == 0,
                    update_fetch_state=previous is None,
                )
                data = answers[index] = result.data
                size_in_bytes += result.size_in_bytes
                if data.error_code is not ErrorCode.NONE or data.diverging_epoch is not None:
                    is_complete = True
                if result.new_high_watermark is not None or result.proposal is not None:
                    self._on_fetched(partition, result)
            topics.append(FetchableTopicResponse(topic=topic.topic, partitions=tuple(answers)))
        return FetchRead(
            FetchResponse(responses=tuple(topics)),
            is_complete or size_in_bytes >= request.min_bytes,
        )

    def _quiet_topic(
        self, topic: FetchTopic, request: FetchRequest, *, is_new: bool
    ) -> QuietTopic | None:
        """Return the QuietTopic of a follower for `topic`, if there is one that can be used."""
        if request.replica_id < 0:
            # -1 is a consumer. It fetches few partitions, so a QuietTopic would save little.
            return None
        return self._quiet.topic(topic, request.replica_id, request.replica_epoch, is_new=is_new)


def _is_still_empty(
    partition: Partition, position: FetchPartition, before: PartitionData, request: FetchRequest
) -> bool:
    """Return True if `before` has no records and is still the answer for the partition."""
    log = partition.log
    return (
        not before.records
        and before.leader_epoch == partition.leader_epoch
        and before.high_watermark == log.high_watermark
        # A consumer reads up to the high watermark, which is unchanged, so there is nothing new to
        # read. A follower reads up to the log end. There is nothing new if it fetches at this end.
        and (request.replica_id < 0 or log.log_end_offset == position.fetch_offset)
    )
