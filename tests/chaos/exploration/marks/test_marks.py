"""Coverage marks: has a run reached a given rare situation?

A search plays many runs, and wants to know which rare situations they have reached. Each situation
has a name, called a mark, such as `two_coordinators`. The modules of chaos/exploration/marks
describe each mark. A run writes a trace: a list of rows, each of which reports one event.
CoverageMarks observes these rows, and notes the marks that they reach.

Each mark has a "story" here: a short list of trace rows, a second apart. The last row of the story
reaches the mark. For example, the story of `elected_in_join_phase` has three steps (the first one
consists of several rows):

1. broker-0 is elected, leads, and has loaded the group;
2. the group begins a rebalance: it enters the state PreparingRebalance, which is called the join
   phase;
3. broker-1 is elected.

Each function between here and the stories makes one row. The docstring of the function says which
event the row reports.

The stories are about the group `g`, whose members are the consumers C0 and C1. The group's offsets
partition (its partition of `__consumer_offsets`) is on the brokers 0 to 2, and the leader of this
partition coordinates the group. The state CompletingRebalance is called the sync phase. A "zombie"
is a coordinator that was replaced and does not know this yet.
"""

import pytest

from chaos.checkers.context import CheckContext, GroupExpectation
from chaos.exploration.marks.registry import ALL_MARKS, MARKS, ZOOKEEPER_MARKS, CoverageMarks
from protocol.causes import CoordinatorUnknownCause, MemberStateCause, RebalanceCause, RemovalCause
from protocol.trace import TraceKind
from tests.support.builders.rows import OFFSETS_0, Columns, Rows

SESSION_TIMEOUT_S = 10
CONTEXT = CheckContext(
    groups={
        "g": GroupExpectation(
            consumers=("consumer-g-0", "consumer-g-1"),
            offsets_partition=OFFSETS_0,
            commits=True,
            session_timeout_us=SESSION_TIMEOUT_S * 1_000_000,
        )
    },
    min_insync_replicas=2,
)
B0, B1, B2 = "broker-0", "broker-1", "broker-2"
C0, C1 = "consumer-g-0", "consumer-g-1"
CONTROLLER, DRIVER = "controller-100", "driver"

StoryRow = tuple[str, TraceKind, Columns]
"""Node, kind and columns of a row."""


# -- rows -----------------------------------------------------------------------------------------


def isr_changed(*isr: int) -> StoryRow:
    """The in-sync replicas of the offsets partition are the brokers `isr`."""
    columns: Columns = {"partition": OFFSETS_0, "leader_epoch": 0, "detail": {"isr": list(isr)}}
    return (CONTROLLER, TraceKind.ISR_CHANGED, columns)


def lost_response(api: str, error: str) -> StoryRow:
    """The network loses broker-0's response to C0."""
    return (B0, TraceKind.RESPONSE_LOST, {"peer": C0, "api": api, "error": error})


def operation(fault: str) -> StoryRow:
    """A fault hits the group `g`.

    The faults `rollout` (replace all members) and `scale` (change their number) are called
    operations, because users do the same to their groups on purpose.
    """
    detail: dict[str, object] = {"fault": fault, "groups": ["g"], "to": ["broker-0"]}
    return (DRIVER, TraceKind.FAULT_INJECTED, {"cause": f"{fault}-0", "detail": detail})


def creates_topic(topic: str) -> StoryRow:
    """An administrator orders the creation of `topic`."""
    detail: dict[str, object] = {"fault": "create_topic", "topic": topic}
    return (DRIVER, TraceKind.FAULT_INJECTED, {"cause": "create_topic-0", "detail": detail})


def topic_deleted(topic: str) -> StoryRow:
    """The controller deletes `topic`."""
    detail: dict[str, object] = {"topic": topic, "partitions": 1}
    return (CONTROLLER, TraceKind.TOPIC_DELETED, {"detail": detail})


def static_member_returns(member: str) -> StoryRow:
    """A static member comes back under the new member id `member`.

    The coordinator replaces the old id by the new one, so the cause of the row is a replacement.
    """
    columns: Columns = {"group": "g", "member": member}
    return (
        B0,
        TraceKind.MEMBER_ADDED,
        {**columns, "cause": RemovalCause.STATIC_MEMBER_REPLACED},
    )


def elected(leader: str, epoch: int, isr: tuple[int, ...] = (0, 1, 2)) -> StoryRow:
    """The controller elects `leader` as leader of the offsets partition.

    If `leader` is "", the partition has no leader from now on.
    """
    detail: dict[str, object] = {"isr": list(isr), "reason": "any"}
    return (
        CONTROLLER,
        TraceKind.LEADER_ELECTED,
        {"partition": OFFSETS_0, "leader_epoch": epoch, "peer": leader, "detail": detail},
    )


def leads(node: str, epoch: int, end: int = 0) -> StoryRow:
    """`node` becomes the leader of the offsets partition. The log of `node` ends at `end`."""
    return (
        node,
        TraceKind.BECAME_LEADER,
        {"partition": OFFSETS_0, "leader_epoch": epoch, "offset": end},
    )


def loading(node: str, epoch: int, wait_us: int = 0) -> StoryRow:
    """`node` begins to load the groups of the offsets partition, after a wait of `wait_us`."""
    return (
        node,
        TraceKind.LOAD_STARTED,
        {"partition": OFFSETS_0, "leader_epoch": epoch, "detail": {"wait_us": wait_us}},
    )


def loaded(node: str, epoch: int, end: int = 0) -> StoryRow:
    """`node` has loaded the offsets partition up to the offset `end`, and now coordinates."""
    return (
        node,
        TraceKind.LOAD_COMPLETED,
        {"partition": OFFSETS_0, "leader_epoch": epoch, "offset": end},
    )


def order_ignored(kind: TraceKind, node: str, epoch: int, cause: str) -> StoryRow:
    """`node` ignores an order to load or unload the offsets partition in `epoch`."""
    return (node, kind, {"partition": OFFSETS_0, "leader_epoch": epoch, "cause": cause})


def group_loaded(node: str, *members: str, generation: int, state: str = "Stable") -> StoryRow:
    """`node` has loaded the group, in this generation and state, and with these members."""
    detail: dict[str, object] = {"state": state, "members": list(members), "offsets": 0}
    return (
        node,
        TraceKind.GROUP_LOADED,
        {"group": "g", "partition": OFFSETS_0, "generation": generation, "detail": detail},
    )


def group_state(node: str, before: str, after: str, cause: str = "any") -> StoryRow:
    """At the coordinator `node` the group changes its state."""
    detail: dict[str, object] = {"from": before, "to": after}
    return (
        node,
        TraceKind.GROUP_STATE,
        {"group": "g", "generation": 1, "cause": cause, "detail": detail},
    )


def generation_started(node: str, number: int, leader: str = "m0") -> StoryRow:
    """The coordinator `node` starts a generation of the group."""
    detail: dict[str, object] = {"members": [leader], "leader": leader, "protocol": "range"}
    return (
        node,
        TraceKind.GENERATION_STARTED,
        {"group": "g", "generation": number, "detail": detail},
    )


def rebalance(
    node: str, cause: RebalanceCause = RebalanceCause.JOIN, reason: str | None = None
) -> StoryRow:
    """The coordinator `node` begins a rebalance of the group."""
    return (
        node,
        TraceKind.REBALANCE_STARTED,
        {"group": "g", "generation": 1, "cause": cause, "detail": {"client_reason": reason}},
    )


def transaction(
    node: str, before: str, after: str, cause: str = "the producer ended it"
) -> StoryRow:
    """The transaction coordinator `node` changes the state of C0's transaction."""
    detail: dict[str, object] = {"transactional_id": C0, "producer_id": 0, "from": before}
    return (node, TraceKind.TRANSACTION_STATE, {"cause": cause, "detail": {**detail, "to": after}})


def offset_in_transaction(node: str, producer_id: int = 0) -> StoryRow:
    """An open transaction contains an offset of the group."""
    detail: dict[str, object] = {"producer_id": producer_id}
    return (node, TraceKind.TXN_COMMIT_PENDING, {"group": "g", "offset": 1, "detail": detail})


def admin_deletes_group(node: str) -> StoryRow:
    """The coordinator `node` deletes the empty group by an order of an administrator."""
    return group_state(node, "Empty", "Dead", "deleted by an administrator")


def admin_commit(error: str) -> StoryRow:
    """An administrator commits an offset, and gets the answer `error` ("NONE" means success)."""
    columns: Columns = {"group": "g", "partition": "t-0", "offset": 0, "error": error}
    return ("admin-0", TraceKind.ADMIN_COMMIT, columns)


def marker_written(node: str, *, committed: bool = True) -> StoryRow:
    """`node`, the coordinator of the group, has written the marker that ends a transaction."""
    detail: dict[str, object] = {"producer_id": 0, "committed": committed, "offsets": 1}
    return (node, TraceKind.TRANSACTION_COMPLETED, {"group": "g", "detail": detail})


def append(node: str, epoch: int, base: int) -> StoryRow:
    """`node`, as leader in `epoch`, begins an append at the offset `base`."""
    return (
        node,
        TraceKind.APPEND_STARTED,
        {
            "partition": OFFSETS_0,
            "leader_epoch": epoch,
            "offset": base,
            "correlation_id": 1,  # the id of the append
        },
    )


def append_completed(node: str, epoch: int, base: int, error: str) -> StoryRow:
    """The append at `base` ends. The error "NONE" means that the append is acknowledged."""
    return (
        node,
        TraceKind.APPEND_COMPLETED,
        {
            "partition": OFFSETS_0,
            "leader_epoch": epoch,
            "offset": base,
            "correlation_id": 1,  # the id of the append
            "error": error,
        },
    )


def high_watermark(node: str, offset: int) -> StoryRow:
    """`node` now has this high watermark of the offsets partition."""
    return (
        node,
        TraceKind.HIGH_WATERMARK,
        {"partition": OFFSETS_0, "leader_epoch": 1, "offset": offset},
    )


def truncated(node: str, end: int) -> StoryRow:
    """`node` truncates its log of the offsets partition to the offset `end`."""
    return (
        node,
        TraceKind.LOG_TRUNCATED,
        {"partition": OFFSETS_0, "leader_epoch": 1, "offset": end},
    )


def member_removed(member: str, cause: str = "session expiry", node: str = B0) -> StoryRow:
    """The coordinator `node` removes a member from the group."""
    return (
        node,
        TraceKind.MEMBER_REMOVED,
        {"group": "g", "member": member, "generation": 1, "cause": cause},
    )


def member_state(
    node: str,
    member: str,
    to: str,
    cause: MemberStateCause = MemberStateCause.REBALANCE,
    error: str | None = None,
) -> StoryRow:
    """The consumer `node`, whose member id is `member`, enters the state `to`."""
    return (
        node,
        TraceKind.MEMBER_STATE,
        {
            "group": "g",
            "member": member,
            "generation": 1,
            "error": error,
            "cause": cause,
            "detail": {"from": "UNJOINED", "to": to},
        },
    )


def partitions_assigned(node: str, peer: str = B0, *partitions: str) -> StoryRow:
    """The consumer `node` gets partitions from the coordinator `peer`."""
    return (
        node,
        TraceKind.PARTITIONS_ASSIGNED,
        {
            "group": "g",
            "member": node,
            "generation": 1,
            "peer": peer,
            "detail": {"partitions": list(partitions)},
        },
    )


def commit(
    kind: TraceKind, node: str, offset: int, error: str | None = None, member: str | None = None
) -> StoryRow:
    """`node` reports a commit of an offset of t-0. `kind` says what became of the commit."""
    columns: Columns = {"group": "g", "partition": "t-0", "offset": offset, "error": error}
    return (node, kind, {**columns, "member": member, "peer": B0})


def driver(kind: TraceKind, peer: str) -> StoryRow:
    """The driver, which plays the run, does something to a node, for example kills it."""
    return (DRIVER, kind, {"peer": peer})


def controller(kind: TraceKind, peer: str) -> StoryRow:
    """The controller does something to a broker, for example fences it."""
    return (CONTROLLER, kind, {"peer": peer, "detail": {"reason": "session ended", "silent_ms": 1}})


def found_coordinator(node: str, peer: str) -> StoryRow:
    """The consumer `node` finds its coordinator, `peer`."""
    return (node, TraceKind.COORDINATOR_FOUND, {"group": "g", "peer": peer})


def gave_up_coordinator(node: str, cause: CoordinatorUnknownCause) -> StoryRow:
    """The consumer `node` gives up its coordinator."""
    return (node, TraceKind.COORDINATOR_UNKNOWN, {"group": "g", "cause": cause})


KILLED, PAUSED, RESUMED = TraceKind.NODE_KILLED, TraceKind.NODE_PAUSED, TraceKind.NODE_RESUMED
FAILED, STORED = TraceKind.COMMIT_FAILED, TraceKind.COMMIT_STORED
STALE = "stale leader epoch"

B0_COORDINATES: tuple[StoryRow, ...] = (
    elected(B0, epoch=0),
    leads(B0, epoch=0),
    loaded(B0, epoch=0),
)
"""broker-0 leads and coordinates in epoch 0."""
B1_ELECTED: tuple[StoryRow, ...] = (*B0_COORDINATES, elected(B1, epoch=1))
"""The rows of B0_COORDINATES, and then the election of broker-1.

broker-0 does not learn of this election, so broker-0 still coordinates: it is a zombie.
"""
A_SESSION_PASSES: tuple[StoryRow, ...] = tuple(
    high_watermark(B2, offset=end) for end in range(SESSION_TIMEOUT_S)
)
"""Ten rows that only let time pass. They take ten seconds, which is the session timeout."""

STORIES: dict[str, tuple[StoryRow, ...]] = {
    "elected_in_join_phase": (
        *B0_COORDINATES,
        group_state(B0, "Stable", "PreparingRebalance"),
        elected(B1, epoch=1),
    ),
    "elected_in_sync_phase": (
        *B0_COORDINATES,
        group_state(B0, "PreparingRebalance", "CompletingRebalance"),
        elected(B1, epoch=1),
    ),
    "append_in_flight_at_election": (
        *B0_COORDINATES,
        append(B0, epoch=0, base=0),
        elected(B1, epoch=1),
    ),
    "elected_while_loading": (*B1_ELECTED, loading(B1, epoch=1), elected(B2, epoch=2)),
    "moved_three_times_in_a_session": (*B1_ELECTED, elected(B2, epoch=2), elected(B0, epoch=3)),
    "leader_came_back": (*B1_ELECTED, elected(B0, epoch=2)),
    "loaded_with_append_pending": (
        *B0_COORDINATES,
        append(B0, epoch=0, base=0),
        loaded(B1, epoch=1),
    ),
    "loaded_above_high_watermark": (
        *B0_COORDINATES,
        high_watermark(B1, offset=4),
        loaded(B1, epoch=1, end=5),
    ),
    "load_waited_long": (*B0_COORDINATES, loading(B1, epoch=1, wait_us=1_500_000)),
    "stale_load_refused": (order_ignored(TraceKind.LOAD_IGNORED, B0, epoch=1, cause=STALE),),
    "stale_unload_refused": (order_ignored(TraceKind.UNLOAD_IGNORED, B0, epoch=1, cause=STALE),),
    "led_again_without_unload": (
        *B0_COORDINATES,
        order_ignored(TraceKind.LOAD_IGNORED, B0, epoch=2, cause="already loaded or loading"),
    ),
    "unloaded_in_join_phase": (
        group_state(B0, "Stable", "PreparingRebalance"),
        group_state(B0, "PreparingRebalance", "Dead", "unloaded"),
    ),
    "unloaded_in_sync_phase": (
        group_state(B0, "PreparingRebalance", "CompletingRebalance"),
        group_state(B0, "CompletingRebalance", "Dead", "unloaded"),
    ),
    "unloaded_empty": (
        group_state(B0, "PreparingRebalance", "Empty"),
        group_state(B0, "Empty", "Dead", "unloaded"),
    ),
    "loaded_empty": (group_loaded(B0, generation=3, state="Empty"),),
    "generation_lost": (generation_started(B0, number=2), group_loaded(B1, "m0", generation=1)),
    "generation_begun_twice": (generation_started(B0, number=2), generation_started(B1, number=2)),
    "two_coordinators": (*B1_ELECTED, loaded(B1, epoch=1)),
    "assigned_beside_old_coordinator": (
        *B1_ELECTED,
        loaded(B1, epoch=1),
        partitions_assigned(C0, B1, "t-0"),
    ),
    "committed_beside_old_coordinator": (
        *B1_ELECTED,
        loaded(B1, epoch=1),
        commit(STORED, B1, offset=7),
    ),
    "zombie_appended_late": (*B1_ELECTED, *A_SESSION_PASSES, append(B0, epoch=0, base=3)),
    "zombie_acknowledged_nothing": (
        *B1_ELECTED,
        append(B0, epoch=0, base=3),
        append_completed(B0, epoch=0, base=3, error="REQUEST_TIMED_OUT"),
    ),
    "zombie_rebalanced": (*B1_ELECTED, rebalance(B0)),
    "rebalance_soon_after_load": (
        *B1_ELECTED,
        group_loaded(B1, generation=1),
        loaded(B1, epoch=1),
        rebalance(B1),
    ),
    "expired_after_load": (group_loaded(B1, "m0", generation=1), member_removed("m0", node=B1)),
    "assignment_not_stored": (rebalance(B0, RebalanceCause.ASSIGNMENT_NOT_STORED),),
    "log_truncated": (*B1_ELECTED, truncated(B0, end=3)),
    "unacknowledged_append_truncated": (
        append(B0, epoch=0, base=5),
        append_completed(B0, epoch=0, base=5, error="NOT_LEADER_OR_FOLLOWER"),
        truncated(B0, end=5),
    ),
    "truncated_below_what_was_loaded": (loaded(B0, epoch=1, end=9), truncated(B0, end=8)),
    "high_watermark_fell": (high_watermark(B0, offset=5), high_watermark(B0, offset=4)),
    "new_leader_behind": (*B0_COORDINATES, high_watermark(B1, offset=5), leads(B1, epoch=1, end=6)),
    "disk_lost_records": (
        (B0, TraceKind.LOG_RECOVERED, {"partition": OFFSETS_0, "cause": "power loss"}),
    ),
    "commit_under_min_isr": (
        elected(B0, epoch=0, isr=(0,)),
        commit(FAILED, C0, offset=5, error="COORDINATOR_NOT_AVAILABLE"),
    ),
    "no_leader": (*B0_COORDINATES, elected("", epoch=1)),
    "leader_after_none": (*B0_COORDINATES, elected("", epoch=1), elected(B0, epoch=2)),
    "coordinator_fenced_while_running": (*B0_COORDINATES, controller(TraceKind.BROKER_FENCED, B0)),
    "woke_up_deposed": (
        *B0_COORDINATES,
        driver(PAUSED, B0),
        elected(B1, epoch=1),
        driver(RESUMED, B0),
    ),
    "restarted_before_fenced": (driver(KILLED, B0), (B0, TraceKind.NODE_STARTED, {})),
    "two_brokers_out": (driver(KILLED, B0), driver(PAUSED, B1)),
    "controller_and_broker_out": (driver(PAUSED, B0), driver(KILLED, CONTROLLER)),
    "expired_while_paused": (
        member_state(C0, "m0", "STABLE"),
        driver(PAUSED, C0),
        member_removed("m0"),
    ),
    "woke_up_to_UNKNOWN_MEMBER_ID": (
        driver(PAUSED, C0),
        driver(RESUMED, C0),
        member_state(C0, "m0", "UNJOINED", MemberStateCause.ERROR, "UNKNOWN_MEMBER_ID"),
    ),
    "woke_up_to_ILLEGAL_GENERATION": (
        driver(PAUSED, C0),
        driver(RESUMED, C0),
        member_state(C0, "m0", "UNJOINED", MemberStateCause.ERROR, "ILLEGAL_GENERATION"),
    ),
    "missed_poll": (member_state(C0, "m0", "UNJOINED", MemberStateCause.MISSED_POLL),),
    "did_not_rejoin": (member_removed("m0", "did not rejoin"),),
    "did_not_sync": (member_removed("m0", "sync deadline"),),
    "out_while_joining": (member_state(C0, "m0", "COMPLETING_REBALANCE"), driver(PAUSED, C0)),
    "leader_out_before_sync": (
        *B0_COORDINATES,
        member_state(C0, "m0", "STABLE"),
        generation_started(B0, number=2, leader="m0"),
        group_state(B0, "PreparingRebalance", "CompletingRebalance"),
        driver(KILLED, C0),
    ),
    "static_member_replaced": (static_member_returns("m1"),),
    "static_member_replaced_in_sync_phase": (
        group_state(B0, "PreparingRebalance", "CompletingRebalance"),
        static_member_returns("m1"),
    ),
    "first_generation_among_faults": (driver(KILLED, B1), generation_started(B0, number=1)),
    "living_follower_left_the_isr": (*B0_COORDINATES, isr_changed(0, 1)),
    "lost_JoinGroup_MEMBER_ID_REQUIRED": (lost_response("JoinGroup", "MEMBER_ID_REQUIRED"),),
    "lost_JoinGroup": (lost_response("JoinGroup", "NONE"),),
    "lost_SyncGroup": (lost_response("SyncGroup", "NONE"),),
    "lost_AlterPartition": (lost_response("AlterPartition", "NONE"),),
    "lost_InitProducerId": (lost_response("InitProducerId", "NONE"),),
    "coordinator_named_two_elections_late": (
        *B1_ELECTED,
        elected(B2, epoch=2),
        found_coordinator(C0, peer=B0),
    ),
    "silent_coordinator_doubted": (
        gave_up_coordinator(C0, CoordinatorUnknownCause.SESSION_TIMEOUT),
    ),
    "partitions_lost": (
        (C0, TraceKind.PARTITIONS_LOST, {"group": "g", "detail": {"partitions": ["t-0"]}}),
    ),
    "two_owners": (partitions_assigned(C0, B0, "t-0"), partitions_assigned(C1, B0, "t-0")),
    "commit_of_the_dead_stored": (
        member_state(C0, "m0", "STABLE"),
        driver(KILLED, C0),
        commit(STORED, B0, offset=5, member="m0"),
    ),
    "timed_out_commit_came_true": (
        commit(FAILED, C0, offset=5, error="TIMED_OUT"),
        commit(TraceKind.OFFSETS_FETCHED, C1, offset=5),
    ),
    "transaction_timed_out": (
        transaction(B0, "Ongoing", "PrepareEpochFence", "transaction.timeout.ms passed"),
    ),
    "transaction_of_a_predecessor": (
        transaction(B0, "Ongoing", "PrepareEpochFence", "a new producer began"),
    ),
    "transaction_ended_by_the_next": (
        transaction(B0, "Ongoing", "PrepareCommit"),
        transaction(B1, "PrepareCommit", "CompleteCommit", "every marker is written"),
    ),
    "group_loaded_with_an_open_transaction": (offset_in_transaction(B0), loaded(B1, epoch=1)),
    "marker_after_the_group_moved": (offset_in_transaction(B0), marker_written(B1)),
    "offsets_of_a_transaction_aborted": (marker_written(B0, committed=False),),
    "members_taken_out": (rebalance(B0, RebalanceCause.LEAVE, "member was removed by an admin"),),
    "group_deleted": (admin_deletes_group(B0),),
    "group_deleted_in_a_transaction": (offset_in_transaction(B0), admin_deletes_group(B0)),
    "deleted_group_came_back": (admin_deletes_group(B0), generation_started(B0, number=1)),
    "offsets_deleted": (
        (
            B0,
            TraceKind.OFFSET_REMOVED,
            {"group": "g", "partition": "t-0", "cause": "deleted by an administrator"},
        ),
    ),
    "offsets_expired": (
        (B0, TraceKind.OFFSET_REMOVED, {"group": "g", "partition": "t-0", "cause": "expired"}),
    ),
    "metadata_too_large": (commit(FAILED, C0, offset=5, error="OFFSET_METADATA_TOO_LARGE"),),
    "refused_for_its_assignors": (
        (C0, TraceKind.MEMBER_STATE, {"group": "g", "error": "INCONSISTENT_GROUP_PROTOCOL"}),
    ),
    "topic_deleted": (topic_deleted("t"),),
    "deleted_topic_created_again": (topic_deleted("t"), creates_topic("t")),
    "topic_created_beside_a_fenced_broker": (
        controller(TraceKind.BROKER_FENCED, B1),
        creates_topic("t"),
    ),
    "offsets_reset": (admin_commit("NONE"),),
    "offsets_not_reset": (admin_commit("UNKNOWN_MEMBER_ID"),),
    "server_out_in_an_operation": (operation("rollout"), driver(KILLED, B0)),
    "coordinator_moved_in_an_operation": (operation("rollout"), group_loaded(B1, generation=1)),
    "static_member_replaced_in_an_operation": (operation("rollout"), static_member_returns("m1")),
    "session_ended_before_the_successor_came": (
        operation("scale"),
        member_state(C0, "m0", "STABLE"),
        driver(KILLED, C0),
        member_removed("m0"),
    ),
    "stopped_while_joining": (
        operation("rollout"),
        member_state(C0, "m0", "PREPARING_REBALANCE"),
        (C0, TraceKind.NODE_STOPPED, {}),
    ),
    "emptied_by_an_operation": (operation("scale"), group_state(B0, "Stable", "Empty")),
    "two_operations_on_one_group": (operation("rollout"), operation("scale")),
    "offsets_perhaps_reset": (admin_commit("TIMED_OUT"),),
    **{
        f"commit_failed_{error}": (commit(FAILED, C0, offset=5, error=error),)
        for error in (
            "COORDINATOR_LOAD_IN_PROGRESS",
            "COORDINATOR_NOT_AVAILABLE",
            "NOT_COORDINATOR",
            "REQUEST_TIMED_OUT",
            "UNKNOWN_MEMBER_ID",
            "ILLEGAL_GENERATION",
        )
    },
}
"""Mark -> the story whose last row reaches it."""


def reached(story: tuple[StoryRow, ...]) -> tuple[str, ...]:
    """Return the marks that a run with the rows of `story` reaches."""
    marks = CoverageMarks(CONTEXT)
    rows = Rows(marks.observe)
    for second, (node, kind, columns) in enumerate(story):
        rows.add(second, node, kind, **columns)
    return marks.reached()


def test_every_mark_has_a_story_and_a_description() -> None:
    """Marks of groups on ZooKeeper have no story here. They are tested in test_zookeeper_marks."""
    assert sorted(STORIES) == sorted(set(MARKS) - set(ZOOKEEPER_MARKS))
    assert len(MARKS) == len(ALL_MARKS)
    assert all(MARKS.values())


@pytest.mark.parametrize("name", sorted(STORIES))
def test_mark_is_reached_by_the_last_row_of_its_story(name: str) -> None:
    """The rows before the last do not reach the mark, so the last row is needed."""
    assert name in reached(STORIES[name])
    assert name not in reached(STORIES[name][:-1])


NEAR_MISSES: dict[str, tuple[StoryRow, ...]] = {
    # The rollout is over.
    "server_out_in_an_operation": (
        operation("rollout"),
        (DRIVER, TraceKind.FAULT_HEALED, {"cause": "rollout-0"}),
        driver(KILLED, B0),
    ),
    # A crash is no operation.
    "coordinator_moved_in_an_operation": (operation("crash"), group_loaded(B1, generation=1)),
    # The last election elects the leader that leads already.
    "moved_three_times_in_a_session": (*B1_ELECTED, elected(B2, epoch=2), elected(B2, epoch=3)),
    # The load waits for 0.5 s only.
    "load_waited_long": (*B0_COORDINATES, loading(B1, epoch=1, wait_us=500_000)),
    # The rebalance comes one second later than in the story, so it is not soon after the load.
    "rebalance_soon_after_load": (
        *B1_ELECTED,
        group_loaded(B1, generation=1),
        loaded(B1, epoch=1),
        high_watermark(B2, offset=1),
        rebalance(B1),
    ),
    # Only one election is missed.
    "coordinator_named_two_elections_late": (
        *B1_ELECTED,
        found_coordinator(C0, peer=B0),
    ),
    # The dead member is another one than the committer.
    "commit_of_the_dead_stored": (
        member_state(C0, "m0", "STABLE"),
        driver(KILLED, C1),
        commit(STORED, B0, offset=5, member="m0"),
    ),
    # The join phase is over.
    "elected_in_join_phase": (
        *B0_COORDINATES,
        group_state(B0, "Stable", "PreparingRebalance"),
        group_state(B0, "PreparingRebalance", "CompletingRebalance"),
        elected(B1, epoch=1),
    ),
    # The append is completed before the election.
    "append_in_flight_at_election": (
        *B0_COORDINATES,
        append(B0, epoch=0, base=0),
        append_completed(B0, epoch=0, base=0, error="NONE"),
        elected(B1, epoch=1),
    ),
    # The broker that would complete the append is dead.
    "loaded_with_append_pending": (
        *B0_COORDINATES,
        append(B0, epoch=0, base=0),
        driver(KILLED, B0),
        loaded(B1, epoch=1),
    ),
    # The old coordinator has unloaded the partition.
    "two_coordinators": (
        *B1_ELECTED,
        (B0, TraceKind.UNLOAD_COMPLETED, {"partition": OFFSETS_0, "leader_epoch": 1}),
        loaded(B1, epoch=1),
    ),
    # The old leader appends early. The late append is one of the new leader.
    "zombie_appended_late": (
        *B1_ELECTED,
        append(B0, epoch=0, base=3),
        *A_SESSION_PASSES,
        append(B1, epoch=1, base=3),
    ),
    # The append began before the election.
    "zombie_acknowledged_nothing": (
        *B0_COORDINATES,
        append(B0, epoch=0, base=3),
        elected(B1, epoch=1),
        append_completed(B0, epoch=0, base=3, error="NOT_LEADER_OR_FOLLOWER"),
    ),
    # B1 is fenced, but does not coordinate. B0 coordinates, but is paused when it is fenced.
    "coordinator_fenced_while_running": (
        *B0_COORDINATES,
        controller(TraceKind.BROKER_FENCED, B1),
        driver(PAUSED, B0),
        controller(TraceKind.BROKER_FENCED, B0),
    ),
    # The restart comes after the fencing.
    "restarted_before_fenced": (
        driver(KILLED, B0),
        controller(TraceKind.BROKER_FENCED, B0),
        (B0, TraceKind.NODE_STARTED, {}),
    ),
    # The sync phase is over.
    "static_member_replaced_in_sync_phase": (
        group_state(B0, "CompletingRebalance", "Stable"),
        static_member_returns("m1"),
    ),
    # Only a consumer is dead.
    "first_generation_among_faults": (driver(KILLED, C1), generation_started(B0, number=1)),
    # B2 is dead when it leaves the ISR. B1 is fenced when it leaves the ISR.
    "living_follower_left_the_isr": (
        *B0_COORDINATES,
        driver(KILLED, B2),
        isr_changed(0, 1),
        controller(TraceKind.BROKER_FENCED, B1),
        isr_changed(0),
    ),
    # The response has an error.
    "lost_JoinGroup": (lost_response("JoinGroup", "MEMBER_ID_REQUIRED"),),
    "lost_SyncGroup": (lost_response("SyncGroup", "REBALANCE_IN_PROGRESS"),),
    # No administrator has deleted the group.
    "group_deleted": (group_state(B0, "Empty", "Dead"),),
    # The transaction is over.
    "group_deleted_in_a_transaction": (
        offset_in_transaction(B0),
        marker_written(B0),
        admin_deletes_group(B0),
    ),
    # No administrator has deleted the group.
    "deleted_group_came_back": (group_state(B0, "Empty", "Dead"), generation_started(B0, number=1)),
    # The created topic is not the deleted topic.
    "deleted_topic_created_again": (topic_deleted("t"), creates_topic("u")),
    # The broker is no longer fenced.
    "topic_created_beside_a_fenced_broker": (
        controller(TraceKind.BROKER_FENCED, B1),
        controller(TraceKind.BROKER_UNFENCED, B1),
        creates_topic("t"),
    ),
    # The producer aborts.
    "transaction_timed_out": (transaction(B0, "Ongoing", "PrepareAbort"),),
    # Each coordinator completes the transaction whose end it has decided.
    "transaction_ended_by_the_next": (
        transaction(B0, "Ongoing", "PrepareCommit"),
        transaction(B0, "PrepareCommit", "CompleteCommit"),
        transaction(B1, "CompleteCommit", "Ongoing"),
        transaction(B1, "Ongoing", "PrepareCommit"),
        transaction(B1, "PrepareCommit", "CompleteCommit"),
    ),
    # The transaction is over.
    "group_loaded_with_an_open_transaction": (
        offset_in_transaction(B0),
        marker_written(B0),
        loaded(B1, epoch=1),
    ),
    # The offset and the marker are of different producers.
    "marker_after_the_group_moved": (offset_in_transaction(B0, producer_id=7), marker_written(B1)),
    # The transaction is committed.
    "offsets_of_a_transaction_aborted": (marker_written(B0),),
    # The first owner is dead.
    "two_owners": (
        partitions_assigned(C0, B0, "t-0"),
        driver(KILLED, C0),
        partitions_assigned(C1, B0, "t-0"),
    ),
    # A later commit of the same offset was stored.
    "timed_out_commit_came_true": (
        commit(FAILED, C0, offset=5, error="TIMED_OUT"),
        commit(STORED, B0, offset=5),
        commit(TraceKind.OFFSETS_FETCHED, C1, offset=5),
    ),
}
"""Mark -> a story that is similar to the story of the mark, but does not reach the mark."""


@pytest.mark.parametrize("name", sorted(NEAR_MISSES))
def test_mark_is_not_reached_by_a_similar_situation(name: str) -> None:
    """Each story of NEAR_MISSES is similar to a story that reaches the mark.

    The comment above a story of NEAR_MISSES says what is different in it.
    """
    assert name not in reached(NEAR_MISSES[name])


def test_row_of_another_partition_or_group_reaches_no_mark() -> None:
    """Leadership of t-0 moves from broker-0 to broker-1.

    That is no rare situation, because t-0 is a partition of an ordinary topic. No group has its
    state in t-0, so no coordinator moves.
    """
    first_election: Columns = {
        "partition": "t-0",
        "leader_epoch": 0,
        "peer": B0,
        "detail": {"isr": [0]},
    }
    second_election: Columns = {**first_election, "leader_epoch": 1, "peer": B1}
    story = (
        (CONTROLLER, TraceKind.LEADER_ELECTED, first_election),
        (CONTROLLER, TraceKind.LEADER_ELECTED, second_election),
    )
    assert reached(story) == ()
