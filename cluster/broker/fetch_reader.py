"""Reads what a Fetch asks for. Source: Kafka `ReplicaManager.readFromLog`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from partition_log.outcomes import FetchResult
from partition_log.replica import Partition
from protocol.errors import ErrorCode
from protocol.ids import TopicPartition
from protocol.log_messages import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)


@dataclass(frozen=True, slots=True)
class FetchRead:
    """An answer to a Fetch, and whether it is worth sending before max_wait_ms is over."""

    response: FetchResponse
    is_complete: bool


class FetchReader:
    """Reads Fetches. `on_fetched` learns what a follower's progress led to.

    `absence` says why there is no replica of a partition here.
    """

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        absence: Callable[[str, int], ErrorCode],
        on_fetched: Callable[[Partition, FetchResult], None],
    ) -> None:
        self._partitions = partitions
        self._absence = absence
        self._on_fetched = on_fetched

    def read(self, request: FetchRequest, now_us: int, *, update_fetch_state: bool) -> FetchRead:
        """Read every partition of `request`, up to its limits.

        `update_fetch_state` False: a parked Fetch of a follower is read again, and its progress was
        counted when it came. Complete: `min_bytes` are there, or a partition has an error or a
        diverging epoch, or nothing is asked for.
        """
        size_in_bytes = 0
        is_complete = not request.topics
        topics = []
        for topic in request.topics:
            answers = []
            for position in topic.partitions:
                partition = self._partitions.get(TopicPartition(topic.topic, position.partition))
                if partition is None:
                    is_complete = True
                    answers.append(
                        PartitionData(
                            partition_index=position.partition,
                            error_code=self._absence(topic.topic, position.partition),
                        )
                    )
                    continue
                result = partition.fetch(
                    position,
                    replica_id=request.replica_id,
                    replica_epoch=request.replica_epoch,
                    max_bytes=request.max_bytes - size_in_bytes,
                    now_us=now_us,
                    min_one_batch=size_in_bytes == 0,
                    update_fetch_state=update_fetch_state,
                )
                data = result.data
                answers.append(data)
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
