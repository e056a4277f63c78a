"""Fetches of `__cluster_metadata-0`: answered from the log, or parked until the log grows.

A broker that has read everything sends the next Fetch at once. The controller keeps this Fetch
without an answer (*parks* it) until there is a new record, or until its max_wait_ms is over.

In KRaft, the high watermark is the offset below which a majority of controllers has the records.
Here no other controller copies this log, so the high watermark is always the end of the log.

Source: KRaft's `KafkaRaftClient.handleFetchRequest` (long poll).
DEVIATION: no divergence check, because the log of a single controller is never truncated.
"""

from partition_log.log import PartitionLog
from protocol.effects import CancelTimer, Reply, Result, SetTimer
from protocol.errors import ErrorCode
from protocol.ids import METADATA_PARTITION, BrokerId, LeaderEpoch, RequestId
from protocol.messages.log import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

TIMER_PREFIX = "fetch-"
"""Beginning of the names of timers that end a wait; the request's id follows."""


class MetadataFetches:
    """Answers the Fetches of the metadata log, and holds the parked Fetches."""

    def __init__(
        self, log: PartitionLog, controller_id: BrokerId, controller_epoch: LeaderEpoch
    ) -> None:
        self._log = log
        self._controller_id = controller_id
        self._controller_epoch = controller_epoch
        self._parked: dict[RequestId, FetchPartition] = {}
        """The parked Fetches, by request id. The value is the part of the request that is about the
        metadata log; it has the fetch offset."""

    def handle(self, request_id: RequestId, request: FetchRequest, result: Result) -> None:
        """Answer a Fetch, or park it for `max_wait_ms` if no record is at its offset yet."""
        position = _metadata_position(request)
        if position is None:
            result.replies.append(Reply(request_id=request_id, response=_unknown(request)))
        elif position.fetch_offset < self._log.log_end_offset or request.max_wait_ms == 0:
            result.replies.append(self._reply(request_id, position))
        else:
            self._parked[request_id] = position
            result.timers.append(
                SetTimer(key=f"{TIMER_PREFIX}{request_id}", delay_us=request.max_wait_ms * 1_000)
            )

    def waiting(self) -> frozenset[RequestId]:
        """Return the parked Fetches."""
        return frozenset(self._parked)

    def wait_ended(self, key: str, result: Result) -> None:
        """Answer the parked Fetch whose timer `key` fired. The answer has no records."""
        request_id = RequestId(int(key.removeprefix(TIMER_PREFIX)))
        position = self._parked.pop(request_id, None)
        if position is not None:
            result.replies.append(self._reply(request_id, position))

    def log_grew(self, result: Result) -> None:
        """Answer every parked Fetch with the new records."""
        # Every parked Fetch waits at the old end of the log, where the new records begin.
        for request_id, position in self._parked.items():
            result.timers.append(CancelTimer(key=f"{TIMER_PREFIX}{request_id}"))
            result.replies.append(self._reply(request_id, position))
        self._parked.clear()

    def _reply(self, request_id: RequestId, position: FetchPartition) -> Reply:
        """Return the answer with the records from the fetch offset on, or an error."""
        log = self._log
        in_range = log.log_start_offset <= position.fetch_offset <= log.log_end_offset
        data = PartitionData(
            partition_index=METADATA_PARTITION.partition,
            error_code=ErrorCode.NONE if in_range else ErrorCode.OFFSET_OUT_OF_RANGE,
            high_watermark=log.log_end_offset,
            log_start_offset=log.log_start_offset,
            leader_id=self._controller_id,
            leader_epoch=self._controller_epoch,
            # up to the broker's own limit, or nothing if the offset is not in the log
            records=log.read(
                position.fetch_offset, position.partition_max_bytes, up_to=log.log_end_offset
            )
            if in_range
            else (),
        )
        topic = FetchableTopicResponse(topic=METADATA_PARTITION.topic, partitions=(data,))
        return Reply(request_id=request_id, response=FetchResponse(responses=(topic,)))


def _metadata_position(request: FetchRequest) -> FetchPartition | None:
    """Return the requested position in the metadata log, None if other partitions are requested."""
    # `(topic,)` matches a tuple with exactly one item.
    match request.topics:
        case (topic,) if topic.topic == METADATA_PARTITION.topic:
            match topic.partitions:
                case (position,) if position.partition == METADATA_PARTITION.partition:
                    return position
    return None


def _unknown(request: FetchRequest) -> FetchResponse:
    """Return the answer of a node without the partitions of `request`."""
    return FetchResponse(
        responses=tuple(
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=tuple(
                    PartitionData(
                        partition_index=position.partition,
                        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    )
                    for position in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
