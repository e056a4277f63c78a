"""Answers that are held until all records of the log are committed, as in Kafka's Java coordinator.

Records below the high watermark are committed: every in-sync replica has them. The Java coordinator
treats a request that may change memory as a write, even if it appends no record. It processes the
request immediately, on the newest state. The answer waits until every record that was in the log at
that moment is committed, but at most offsets.commit.timeout.ms. A request that is refused is
answered immediately.

A turn is the handling of one input; replies and timers go through it. A shard has the groups of one
partition of `__consumer_offsets`. Its `above_high_watermark.held` maps the key of a timer to a
pair: the high watermark to wait for, and the request with its answer. RT-3 names a scenario of
BEHAVIOUR.md.
Source: Kafka (Java) `CoordinatorRuntime.CoordinatorWriteEvent`, `CoordinatorContext.append`,
`unload`; docs/kafka/BEHAVIOUR.md 2.4, 2.7, 5.3, 6.4, RT-3.
"""

from coordinator.shard import Shard
from coordinator.storage.above_high_watermark import (
    HeldFetch,
    HeldHeartbeat,
    HeldWrite,
    ParkedFetch,
)
from coordinator.turn import HeldWriteTimer, Turn
from protocol.errors import ErrorCode
from protocol.messages.group import HeartbeatResponse
from protocol.messages.offset import OffsetFetchResponse, OffsetFetchResponseGroup


def hold(turn: Turn, shard: Shard, write: HeldWrite) -> None:
    """Hold the answer of `write` until every record now in the shard's log is committed."""
    key = shard.above_high_watermark.hold(shard.partition, write)
    turn.set_timer(key, HeldWriteTimer(shard), turn.config.offsets_commit_timeout_ms)


def release_committed(turn: Turn, shard: Shard) -> None:
    """Send the answers whose records are committed, in the order of their requests."""
    for key in shard.above_high_watermark.committed_keys():
        turn.cancel_timer(key)
        _, write = shard.above_high_watermark.held.pop(key)
        match write:
            case HeldHeartbeat():
                response = HeartbeatResponse(error_code=write.error_code)
                turn.reply(write.request_id, response)
            case HeldFetch():
                _fill(turn, write, write.group)


def fail_held(turn: Turn, shard: Shard) -> None:
    """Answer all held requests with NOT_COORDINATOR, after a loss of leadership."""
    held = shard.above_high_watermark.held
    for key, (_, write) in held.items():
        turn.cancel_timer(key)
        _fail(turn, write, ErrorCode.NOT_COORDINATOR)
    held.clear()


def give_up(turn: Turn, shard: Shard, key: str) -> None:
    """Answer the request whose timer `key` has fired, with COORDINATOR_NOT_AVAILABLE.

    Kafka's Java coordinator translates its REQUEST_TIMED_OUT into this error for the client.
    """
    _, write = shard.above_high_watermark.held.pop(key)
    _fail(turn, write, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def answer_if_complete(turn: Turn, fetch: ParkedFetch) -> None:
    """Answer an OffsetFetch if no group of its answer waits any more."""
    # A group that still waits is None in `fetch.groups`.
    groups = tuple(group for group in fetch.groups if group is not None)
    if len(groups) == len(fetch.groups):
        turn.reply(fetch.request_id, OffsetFetchResponse(groups=groups))


def _fail(turn: Turn, write: HeldWrite, error: ErrorCode) -> None:
    """Answer a held request with an error.

    A Heartbeat gets `error`. In a fetch only the held group gets an error, always NOT_COORDINATOR.
    """
    match write:
        case HeldHeartbeat():
            turn.reply(write.request_id, HeartbeatResponse(error_code=error))
        case HeldFetch():
            # Kafka answers a fetch with NOT_COORDINATOR in place of any other error, so that its
            # client looks for the coordinator again.
            failed = OffsetFetchResponseGroup(
                group_id=write.group.group_id, error_code=ErrorCode.NOT_COORDINATOR
            )
            _fill(turn, write, failed)


def _fill(turn: Turn, write: HeldFetch, group: OffsetFetchResponseGroup) -> None:
    """Put a group's part into the answer; send the answer if it was the last missing part."""
    write.fetch.groups[write.index] = group
    answer_if_complete(turn, write.fetch)
