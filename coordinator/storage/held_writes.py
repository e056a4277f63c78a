"""Answers that wait for the high watermark, as those of Kafka's Java coordinator do.

A request that may change something is a write there, also if it appends nothing. It is carried out
when it comes, on the newest state; its answer waits until all is committed that the log had then,
for offsets.commit.timeout.ms at most. An error that its handler finds is told at once.
Source: Kafka [J] `CoordinatorRuntime.CoordinatorWriteEvent`, `CoordinatorContext.append`, `unload`;
BEHAVIOUR 2.4, 2.7, 5.3, 6.4, RT-3.
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
    """Answer `write` when all that the shard's log has now is committed."""
    key = shard.above_high_watermark.hold(shard.partition, write)
    turn.set_timer(key, HeldWriteTimer(shard), turn.config.offsets_commit_timeout_ms)


def release_committed(turn: Turn, shard: Shard) -> None:
    """Answer what waits for nothing any more, in the order in which it came."""
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
    """Answer all that waits with NOT_COORDINATOR: nobody here will know what is committed."""
    held = shard.above_high_watermark.held
    for key, (_, write) in held.items():
        turn.cancel_timer(key)
        _fail(turn, write, ErrorCode.NOT_COORDINATOR)
    held.clear()


def give_up(turn: Turn, shard: Shard, key: str) -> None:
    """Answer what has waited for offsets.commit.timeout.ms: COORDINATOR_NOT_AVAILABLE."""
    _, write = shard.above_high_watermark.held.pop(key)
    _fail(turn, write, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def answer_if_complete(turn: Turn, fetch: ParkedFetch) -> None:
    """Answer an OffsetFetch of which no group waits any more."""
    groups = tuple(group for group in fetch.groups if group is not None)
    if len(groups) == len(fetch.groups):
        turn.reply(fetch.request_id, OffsetFetchResponse(groups=groups))


def _fail(turn: Turn, write: HeldWrite, error: ErrorCode) -> None:
    match write:
        case HeldHeartbeat():
            turn.reply(write.request_id, HeartbeatResponse(error_code=error))
        case HeldFetch():
            # To a fetch Kafka tells a timeout like a lost leadership: look for another coordinator.
            failed = OffsetFetchResponseGroup(
                group_id=write.group.group_id, error_code=ErrorCode.NOT_COORDINATOR
            )
            _fill(turn, write, failed)


def _fill(turn: Turn, write: HeldFetch, group: OffsetFetchResponseGroup) -> None:
    write.fetch.groups[write.index] = group
    answer_if_complete(turn, write.fetch)
