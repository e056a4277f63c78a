"""Coverage marks that one row shows by the values of one or two of its columns.

A mark is a rare situation of a run. Most marks need a function as their condition, because one row
alone does not show the situation. But each mark of this module is reached if a row of a certain
kind has a certain value in one column. For example, the mark `did_not_rejoin` is reached if a row
MEMBER_REMOVED has the cause DID_NOT_REJOIN. So these marks are listed in a table.
"""

from chaos.exploration.marks.base import Condition, MarkList
from chaos.exploration.marks.seen_cluster import SeenCluster
from protocol.api import Api
from protocol.causes import (
    CoordinatorUnknownCause,
    DeletionCause,
    IgnoredCause,
    MemberStateCause,
    RebalanceCause,
    RemovalCause,
    TransactionCause,
)
from protocol.errors import ErrorCode
from protocol.trace import TraceKind, TraceRow

# (kind of row, column, value) -> (name of the mark, its meaning)
# One of the keys has a RemovalCause in a row MEMBER_ADDED. This is no mistake. If a static member
# is replaced, two rows have the same cause: MEMBER_REMOVED with its old member id, and MEMBER_ADDED
# with its new member id.
_MARK_OF_VALUE = {
    (TraceKind.MEMBER_STATE, "cause", MemberStateCause.MISSED_POLL): (
        "missed_poll",
        "an application was slower than max.poll.interval.ms",
    ),
    (TraceKind.MEMBER_REMOVED, "cause", RemovalCause.DID_NOT_REJOIN): (
        "did_not_rejoin",
        "a join phase ended without a member, at the rebalance timeout",
    ),
    (TraceKind.MEMBER_REMOVED, "cause", RemovalCause.SYNC_DEADLINE): (
        "did_not_sync",
        "a member joined and never sent SyncGroup, until the deadline",
    ),
    (TraceKind.MEMBER_ADDED, "cause", RemovalCause.STATIC_MEMBER_REPLACED): (
        "static_member_replaced",
        "a static member came back under a new member id",
    ),
    (TraceKind.COORDINATOR_UNKNOWN, "cause", CoordinatorUnknownCause.SESSION_TIMEOUT): (
        "silent_coordinator_doubted",
        "a member gave its coordinator up after a session timeout of silence",
    ),
    (TraceKind.LOAD_IGNORED, "cause", IgnoredCause.STALE_LEADER_EPOCH): (
        "stale_load_refused",
        "a load of an older epoch was refused",
    ),
    (TraceKind.UNLOAD_IGNORED, "cause", IgnoredCause.STALE_LEADER_EPOCH): (
        "stale_unload_refused",
        "an unload of an older epoch was refused",
    ),
    (TraceKind.REBALANCE_STARTED, "cause", RebalanceCause.ASSIGNMENT_NOT_STORED): (
        "assignment_not_stored",
        "an assignment could not be written, and the group rebalanced again",
    ),
    (TraceKind.GROUP_STATE, "cause", DeletionCause.DELETED): (
        "group_deleted",
        "an administrator deleted a group",
    ),
    (TraceKind.OFFSET_REMOVED, "cause", DeletionCause.DELETED): (
        "offsets_deleted",
        "an administrator deleted committed offsets",
    ),
    (TraceKind.OFFSET_REMOVED, "cause", DeletionCause.EXPIRED): (
        "offsets_expired",
        "committed offsets expired, because their group had no members for too long",
    ),
    (TraceKind.COMMIT_FAILED, "error", ErrorCode.OFFSET_METADATA_TOO_LARGE.name): (
        "metadata_too_large",
        "a coordinator refused a commit for its metadata",
    ),
    (TraceKind.MEMBER_STATE, "error", ErrorCode.INCONSISTENT_GROUP_PROTOCOL.name): (
        "refused_for_its_assignors",
        "a group refused a member that supports other assignors",
    ),
    (TraceKind.ADMIN_COMMIT, "error", ErrorCode.NONE.name): (
        "offsets_reset",
        "an administrator committed for an empty group",
    ),
    (TraceKind.ADMIN_COMMIT, "error", ErrorCode.UNKNOWN_MEMBER_ID.name): (
        "offsets_not_reset",
        "an administrator's commit was refused because the group has members",
    ),
    (TraceKind.TRANSACTION_STATE, "cause", TransactionCause.TIMED_OUT): (
        "transaction_timed_out",
        "a transaction was ended because its producer had not ended it in time",
    ),
    (TraceKind.TRANSACTION_STATE, "cause", TransactionCause.NEW_PRODUCER): (
        "transaction_of_a_predecessor",
        "a producer found an open transaction of its predecessor, and had it aborted",
    ),
}

_LOST_RESPONSES = (
    (Api.JOIN_GROUP, ErrorCode.MEMBER_ID_REQUIRED),
    (Api.JOIN_GROUP, ErrorCode.NONE),
    (Api.SYNC_GROUP, ErrorCode.NONE),
    (Api.ALTER_PARTITION, ErrorCode.NONE),
    (Api.INIT_PRODUCER_ID, ErrorCode.NONE),
)
"""Responses, each as (API, error). There is a mark for the loss of each response.

If such a response is lost, the server has changed its state, and this affects the client's retry.
A row RESPONSE_LOST has the API and the error of the lost response in two columns.
"""

COLUMN_VALUES = MarkList()


def _has(column: str, value: str) -> Condition:
    """Return the condition that a row has `value` in `column`."""

    def condition(seen: SeenCluster, row: TraceRow) -> bool:
        del seen
        return bool(getattr(row, column) == value)

    return condition


def _is_lost(api: Api, error: ErrorCode) -> Condition:
    """Return the condition that a row is about a lost response of `api` with `error`."""

    def condition(seen: SeenCluster, row: TraceRow) -> bool:
        del seen
        return row.api == api.label and row.error == error.name

    return condition


# `add(...)` returns a decorator. The decorator is called with a condition, and so adds the mark.
for _api, _error in _LOST_RESPONSES:
    _suffix = "" if _error is ErrorCode.NONE else f"_{_error.name}"
    _error_text = "a success" if _error is ErrorCode.NONE else _error.name
    COLUMN_VALUES.add(
        f"lost_{_api.label}{_suffix}",
        f"a response to {_api.label}, {_error_text}, was lost with its connection",
        TraceKind.RESPONSE_LOST,
    )(_is_lost(_api, _error))

for (_kind, _column, _value), (_name, _meaning) in _MARK_OF_VALUE.items():
    COLUMN_VALUES.add(_name, _meaning, _kind)(_has(_column, _value))
