"""Answers that wait until all records of the log are committed, as in Kafka's Java coordinator.

The Java coordinator processes a request immediately, on the newest state in memory. A part of this
state may come from records that are not committed yet: these records are above the high watermark,
and may be lost if this broker fails. So the answer is held until every record that was in the log
when the request was processed is committed. The wait takes at most offsets.commit.timeout.ms. A
request that is refused is answered immediately.

`above_high_watermark` keeps the held answers of one partition. The functions here hold answers, and
send them when the wait is over: the records are committed, the broker has lost the leadership, or
the time is up.

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
    """Hold an answer until every record that is now in the shard's log is committed."""
    key = shard.above_high_watermark.hold(shard.partition, write)
    turn.set_timer(key, HeldWriteTimer(shard), turn.config.offsets_commit_timeout_ms)


def release_committed(turn: Turn, shard: Shard) -> None:
    """Send the held answers whose records are committed by now, in the order of the requests."""
    # A value of `held` is a pair: the offset for which an answer waits, and the answer (`write`).
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
    """Answer all held requests with NOT_COORDINATOR, because the leadership is lost."""
    held = shard.above_high_watermark.held
    for key, (_, write) in held.items():
        turn.cancel_timer(key)
        _fail(turn, write, ErrorCode.NOT_COORDINATOR)
    held.clear()


def give_up(turn: Turn, shard: Shard, key: str) -> None:
    """Answer a held request with an error, because its timer `key` has fired.

    The error is COORDINATOR_NOT_AVAILABLE, into which the Java coordinator translates its own error
    REQUEST_TIMED_OUT.
    """
    _, write = shard.above_high_watermark.held.pop(key)
    _fail(turn, write, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def answer_if_complete(turn: Turn, fetch: ParkedFetch) -> None:
    """Answer an OffsetFetch if no part of its answer is held any more."""
    # A part that is still held is None in `fetch.groups`.
    groups = tuple(group for group in fetch.groups if group is not None)
    if len(groups) == len(fetch.groups):
        turn.reply(fetch.request_id, OffsetFetchResponse(groups=groups))


def _fail(turn: Turn, write: HeldWrite, error: ErrorCode) -> None:
    """Answer a held request with an error.

    A Heartbeat gets `error`. In the answer to an OffsetFetch only the held group gets an error, and
    this error is always NOT_COORDINATOR.
    """
    match write:
        case HeldHeartbeat():
            turn.reply(write.request_id, HeartbeatResponse(error_code=error))
        case HeldFetch():
            # Kafka replaces any error of a fetch by NOT_COORDINATOR, so that the client looks for
            # the coordinator again.
            failed = OffsetFetchResponseGroup(
                group_id=write.group.group_id, error_code=ErrorCode.NOT_COORDINATOR
            )
            _fill(turn, write, failed)


def _fill(turn: Turn, write: HeldFetch, group: OffsetFetchResponseGroup) -> None:
    """Put a group's part into the answer, and send the answer if it is complete now."""
    write.fetch.groups[write.index] = group
    answer_if_complete(turn, write.fetch)
