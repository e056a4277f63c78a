"""Reads what a Fetch asks for. Source: Kafka `ReplicaManager.readFromLog`.

The busiest code of a broker: followers ask for every partition that they follow after every append.
What is quiet is not looked at again (`quiet_fetches`).
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
"""Topic and partition index: equal to a TopicPartition, cheaper to make."""


class FetchRead(NamedTuple):
    """An answer to a Fetch, and whether it is worth sending before max_wait_ms is over."""

    response: FetchResponse
    is_complete: bool


class FetchReader:
    """Reads Fetches. `on_fetched` learns what a follower's progress led to.

    `absence` says why there is no replica of a partition here.
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

        `previous` is what a parked Fetch read when it came: a follower's progress was counted
        then, and what has not changed since is not read again. Complete: `min_bytes` are there, a
        partition has an error or a diverging epoch, or nothing is asked for.
        """
        # A parked Fetch was counted as its follower's progress when it came.
        counted_at_us = now_us if previous is None else None
        size_in_bytes = 0
        is_complete = not request.topics
        topics = []
        for topic_index, topic in enumerate(request.topics):
            quiet = self._quiet_topic(topic, request, is_new=previous is None)
            if quiet is None:
                answers: list[PartitionData] = [UNREAD] * len(topic.partitions)
                indices: Iterable[int] = range(len(answers))
            else:
                if previous is None:
                    quiet.count(now_us)
                if not quiet.stirred:
                    topics.append(quiet.whole_answer())
                    continue
                answers = quiet.answers.copy()
                indices = sorted(quiet.stirred)
            before = () if previous is None else previous.responses[topic_index].partitions
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
                    max_bytes=request.max_bytes - size_in_bytes,
                    now_us=now_us,
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
        if request.replica_id < 0:
            return None  # a consumer has few partitions, and lacks something of most
        return self._quiet.topic(topic, request.replica_id, request.replica_epoch, is_new=is_new)


def _is_still_empty(
    partition: Partition, position: FetchPartition, before: PartitionData, request: FetchRequest
) -> bool:
    """Return whether `before`, which has no records, is what a read would give now too."""
    log = partition.log
    return (
        not before.records
        and before.leader_epoch == partition.leader_epoch
        and before.high_watermark == log.high_watermark
        # A consumer reads to the high watermark, which is what it was; a follower to the log end.
        and (request.replica_id < 0 or log.log_end_offset == position.fetch_offset)
    )
