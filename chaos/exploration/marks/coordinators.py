"""Coverage marks of coordinators: moves, loads, unloads, and two coordinators at once.

A mark is a rare situation of a run (see `base`). Each function below is the condition of one mark:

    @mark("loaded_empty", "a coordinator loaded a group ...", TraceKind.GROUP_LOADED)
    def _(seen: SeenCluster, row: TraceRow) -> bool:

This function is called for each GROUP_LOADED row of a run. It returns True if the row shows the
situation. `seen` is the state of the cluster as the rows before this row have shown it. The
function is called `_`, because nothing else calls it. A function that needs only the row begins
with `del seen`.

In this module all partitions are partitions of `__consumer_offsets`. The leader of such a partition
is the coordinator of the groups in the partition. When a broker becomes leader, it loads these
groups into its memory. When another broker becomes leader, the former leader unloads them. A zombie
is a broker that has been replaced as leader but does not know this yet.
"""

from itertools import pairwise

import msgspec

from chaos.exploration.marks.base import MarkList
from chaos.exploration.marks.seen_cluster import (
    MAX_KEPT_ELECTIONS,
    SUCCEEDED,
    SeenCluster,
    detail_of,
)
from protocol.causes import GroupStateCause, IgnoredCause, RemovalCause
from protocol.trace import TraceKind, TraceRow

LONG_WAIT_US = 1_000_000
"""A load has waited long if other tasks of the broker have delayed it by at least this time."""
SOON_AFTER_A_LOAD_US = 1_000_000
"""A rebalance is soon after a load if it begins within this time.

Within this time, most members have not noticed yet that their coordinator has changed.
"""


class _LoadStartedDetail(msgspec.Struct):
    """The part of a LOAD_STARTED row's detail that a mark needs: how long the load has waited."""

    wait_us: int = 0


_decode_wait = msgspec.json.Decoder(_LoadStartedDetail).decode

COORDINATORS = MarkList()
mark = COORDINATORS.add


# -- leadership moves -----------------------------------------------------------------------------
# In a LEADER_ELECTED row, `peer` is the new leader, or "" if there is none. `seen.election` returns
# the row of the partition's election before this row. At the first election of a partition
# `seen.election` returns None. The first election does not move the leadership, because there was
# no leader before.


@mark(
    "elected_in_join_phase",
    "a second leader was elected while a join phase was open at the first",
    TraceKind.LEADER_ELECTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    before = seen.election(row.partition)
    return before is not None and seen.groups_with(before.peer, row.partition, "PreparingRebalance")


@mark(
    "elected_in_sync_phase",
    "a second leader was elected while members waited for their assignment at the first",
    TraceKind.LEADER_ELECTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    before = seen.election(row.partition)
    return before is not None and seen.groups_with(
        before.peer, row.partition, "CompletingRebalance"
    )


@mark(
    "append_in_flight_at_election",
    "leadership moved while a commit or an assignment was in flight",
    TraceKind.LEADER_ELECTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # `in_flight` has the appends without a result, by (node, partition).
    before = seen.election(row.partition)
    return before is not None and bool(seen.in_flight.get((before.peer or "", row.partition or "")))


@mark(
    "elected_while_loading",
    "leadership moved on while its new coordinator was still loading",
    TraceKind.LEADER_ELECTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    return any(partition == row.partition and node != row.peer for node, partition in seen.loading)


@mark(
    "moved_three_times_in_a_session",
    "a coordinator moved three times within one session timeout",
    TraceKind.LEADER_ELECTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    elections = seen.elections.get(row.partition or "")
    if elections is None or len(elections) < MAX_KEPT_ELECTIONS:
        return False
    # `seen` has kept the last three elections (MAX_KEPT_ELECTIONS): A, B and C. The election D is
    # this row. If each election gave another leader than the election before it, the leadership has
    # moved three times. The first of these moves was the election B, so the time counts from B.
    leaders = [*(election.peer for election in elections), row.peer]
    all_moved = all(leader != next_leader for leader, next_leader in pairwise(leaders))
    first_move = elections[1]
    return all_moved and row.time_us - first_move.time_us < seen.session_us(row.partition)


@mark(
    "leader_came_back",
    "a broker led again within a session timeout of another's election",
    TraceKind.LEADER_ELECTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # The last two elections and this row must have the leaders A, B and A again.
    elections = seen.elections.get(row.partition or "")
    return (
        elections is not None
        and len(elections) > 1
        and elections[-1].peer not in ("", row.peer)
        and elections[-2].peer == row.peer
        and row.time_us - elections[-1].time_us < seen.session_us(row.partition)
    )


# -- loads and unloads ----------------------------------------------------------------------------


@mark(
    "loaded_with_append_pending",
    "a coordinator loaded a partition while an append to it was still unanswered at another",
    TraceKind.LOAD_COMPLETED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    return any(
        partition == row.partition and node != row.node and bool(appends)
        for (node, partition), appends in seen.in_flight.items()
    )


@mark(
    "loaded_above_high_watermark",
    "a coordinator loaded records that were not committed yet",
    TraceKind.LOAD_COMPLETED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # `offset` is the end of the loaded records. Records above the high watermark may be lost later.
    high_watermark = seen.high_watermarks.get((row.node, row.partition or ""))
    return high_watermark is not None and (row.offset or 0) > high_watermark


@mark(
    "load_waited_long",
    "a load waited for the tasks before it for a second",
    TraceKind.LOAD_STARTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    del seen
    return row.detail is not None and _decode_wait(row.detail).wait_us >= LONG_WAIT_US


@mark(
    "led_again_without_unload",
    "a broker was made leader again, in a newer epoch, of a partition that it still had loaded",
    TraceKind.LOAD_IGNORED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # `served_since` returns the row of the load since which the broker serves the partition.
    load = seen.coordinators.served_since(row.node, row.partition or "")
    return (
        row.cause == IgnoredCause.ALREADY_LOADED
        and load is not None
        and (row.leader_epoch or 0) > (load.leader_epoch or 0)
    )


@mark(
    "unloaded_in_join_phase",
    "a coordinator unloaded a group while members waited in JoinGroup",
    TraceKind.GROUP_STATE,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    return _unloaded_from(seen, row, "PreparingRebalance")


@mark(
    "unloaded_in_sync_phase",
    "a coordinator unloaded a group while members waited in SyncGroup",
    TraceKind.GROUP_STATE,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    return _unloaded_from(seen, row, "CompletingRebalance")


@mark("unloaded_empty", "a coordinator unloaded a group without members", TraceKind.GROUP_STATE)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    return _unloaded_from(seen, row, "Empty")


def _unloaded_from(seen: SeenCluster, row: TraceRow, state: str) -> bool:
    """Return True if a row shows that a coordinator unloaded a group, which was in `state` before.

    An unload changes the state of the group to Dead.
    """
    # `state_at` returns the state of a group in the memory of a broker, before this row.
    return (
        detail_of(row).to == "Dead"
        and row.cause == GroupStateCause.UNLOADED
        and seen.coordinators.state_at(row.node, row.group or "") == state
    )


@mark(
    "loaded_empty",
    "a coordinator loaded a group that had lost all its members",
    TraceKind.GROUP_LOADED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # Each rebalance increases the generation. So a group with generation 0 has never had members.
    del seen
    return detail_of(row).state == "Empty" and (row.generation or 0) > 0


# -- two coordinators of one group ----------------------------------------------------------------


@mark(
    "generation_lost",
    "a coordinator loaded an older generation than the newest that another coordinator had begun",
    TraceKind.GROUP_LOADED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # The keys of `generations[group]` are the numbers of all generations that were begun.
    return max(seen.generations.get(row.group or "", ()), default=0) > (row.generation or 0)


@mark(
    "generation_begun_twice",
    "two coordinators began a generation of the same number",
    TraceKind.GENERATION_STARTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # (node, incarnation) that began the generation first
    first = seen.generations.get(row.group or "", {}).get(row.generation or 0)
    return first is not None and first != (row.node, row.incarnation)


@mark(
    "two_coordinators",
    "two living brokers were coordinators of one partition at once",
    TraceKind.LOAD_COMPLETED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # `is_served_by_another` looks only at brokers that are alive.
    return seen.coordinators.is_served_by_another(row.node, row.partition or "")


@mark(
    "assigned_beside_old_coordinator",
    "a member rejoined at a new coordinator before the old one had unloaded",
    TraceKind.PARTITIONS_ASSIGNED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # `row.peer` is the coordinator from which the member got its assignment.
    partition = seen.partition_of(row.group)
    newest = seen.election(partition)
    return (
        newest is not None
        and newest.peer == row.peer
        and seen.coordinators.is_served_by_another(row.peer or "", partition)
    )


@mark(
    "committed_beside_old_coordinator",
    "a new coordinator stored a commit before the old one had unloaded",
    TraceKind.COMMIT_STORED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    partition = seen.partition_of(row.group)
    newest = seen.election(partition)
    return (
        newest is not None
        and newest.peer == row.node
        and seen.coordinators.is_served_by_another(row.node, partition)
    )


@mark(
    "zombie_appended_late",
    "a coordinator appended a session timeout after another leader had been elected",
    TraceKind.APPEND_STARTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # `is_deposed` is True if the broker led in this leader epoch, and was replaced since.
    newest = seen.election(row.partition)
    return (
        newest is not None
        and seen.is_deposed(row.node, row.partition, row.leader_epoch)
        and row.time_us - newest.time_us >= seen.session_us(row.partition)
    )


@mark(
    "zombie_acknowledged_nothing",
    "an append failed that a coordinator had begun after another leader had been elected",
    TraceKind.APPEND_COMPLETED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # `attempts` has the appends that zombies have begun. Each append has an id (`correlation_id`),
    # which is unique within the process of the broker.
    attempt = (row.node, row.incarnation, row.correlation_id or 0)
    return row.error not in SUCCEEDED and attempt in seen.attempts


@mark(
    "zombie_rebalanced",
    "a coordinator began a rebalance after another leader had been elected",
    TraceKind.REBALANCE_STARTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    # `believes` has the leader epoch in which the broker itself believes to be the leader.
    partition = seen.partition_of(row.group)
    return seen.is_deposed(row.node, partition, seen.believes.get((row.node, partition)))


# -- rebalances around a failover -----------------------------------------------------------------


@mark(
    "rebalance_soon_after_load",
    "a rebalance began within a second of its coordinator's load",
    TraceKind.REBALANCE_STARTED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    partition = seen.partition_of(row.group)
    load = seen.coordinators.served_since(row.node, partition)
    # If the broker never loaded the group, the group is new. Its first rebalance is then no effect
    # of a load.
    return (
        load is not None
        and seen.coordinators.loaded(row.node, row.group or "") is not None
        and row.time_us - load.time_us <= SOON_AFTER_A_LOAD_US
    )


@mark(
    "expired_after_load",
    "a member that a coordinator had loaded with its group never sent a request, and expired",
    TraceKind.MEMBER_REMOVED,
)
def _(seen: SeenCluster, row: TraceRow) -> bool:
    if row.cause != RemovalCause.SESSION_EXPIRY:
        return False
    # `loaded` returns the GROUP_LOADED row of the group at this broker, which lists its members.
    load = seen.coordinators.loaded(row.node, row.group or "")
    return load is not None and row.member in detail_of(load).members
