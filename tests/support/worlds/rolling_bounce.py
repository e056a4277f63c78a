"""Compute the figures of a rolling bounce, as in docs/kafka/MEASURED_BOUNCE.md, from a run's trace.

In a rolling bounce, the members of a group are restarted one after the other. In an experiment, the
fault `rollout` does this. On a real Kafka, the figures were measured in the callbacks by which a
consumer learns which partitions it gets and loses. A trace has a row for each such callback, and
this module computes the figures from these rows. It shares no code with the pipeline and the
checkers, which compute such figures, too. So tests can compare the two.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.checkers.context import detail_of
from protocol.trace import TraceKind, TraceRow

CALLBACKS = (TraceKind.PARTITIONS_ASSIGNED, TraceKind.PARTITIONS_REVOKED)
"""The kinds of the rows that are written in the callbacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """The cost for a group when one of its members left or joined."""

    # The time from the close or the creation of the member until the last partition was assigned.
    settled_us: int
    # The time in which a partition had no owner, added up over all partitions.
    unowned_us: int
    # The number of partitions that were assigned to members.
    handed_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingBounce:
    """All leaves and joins of a run in their order, and some totals."""

    leaves: tuple[Change, ...]
    joins: tuple[Change, ...]
    # The numbers of callbacks in which a member got partitions, and in which it lost partitions.
    assigned: int
    revoked: int
    # For each member that was not restarted: its longest time between two acknowledged commits.
    pauses_us: tuple[int, ...]
    # Error -> the number of failed commits.
    commit_errors: dict[str, int]


def rolling_bounce_of(rows: Sequence[TraceRow], group: str) -> RollingBounce:
    """Return what the rollout in a run cost its group.

    A member leaves when its node gets a SIGTERM, because the application then closes its consumer.
    The member joins when its node is started again.
    """
    injected_us = next(row.time_us for row in rows if row.kind == TraceKind.FAULT_INJECTED)
    healed_us = next(row.time_us for row in rows if row.kind == TraceKind.FAULT_HEALED)
    group_rows = [
        row for row in rows if row.group == group or row.node.startswith(f"consumer-{group}-")
    ]
    bounce = [row for row in group_rows if injected_us <= row.time_us <= healed_us]
    starts = [row for row in bounce if row.kind == TraceKind.NODE_STARTED]
    # `bounce` has the rows during the rollout, and `bounced` the nodes that were restarted in it.
    bounced = {row.node for row in starts}
    # The driver, which conducts the run, writes the rows about stopping nodes. They name the member
    # only as the peer. So these rows are not in `group_rows`.
    closed_us = [
        row.time_us
        for row in rows
        if row.kind == TraceKind.NODE_STOPPING
        and row.peer is not None
        and row.peer.startswith(f"consumer-{group}-")
        and injected_us <= row.time_us <= healed_us
    ]
    # A leave or join lasts until the next leave or join begins, or until the rollout ends.
    moments = sorted(
        [(time_us, "leave") for time_us in closed_us] + [(row.time_us, "join") for row in starts]
    )
    ends_us = [time_us for time_us, _ in moments[1:]] + [healed_us]
    changes: dict[str, list[Change]] = {"leave": [], "join": []}
    for (began_us, kind), end_us in zip(moments, ends_us, strict=True):
        changes[kind].append(_change(group_rows, began_us, end_us))
    errors: dict[str, int] = {}
    for row in bounce:
        if row.kind == TraceKind.COMMIT_FAILED:
            errors[row.error or ""] = errors.get(row.error or "", 0) + 1
    return RollingBounce(
        leaves=tuple(changes["leave"]),
        joins=tuple(changes["join"]),
        assigned=sum(row.kind == TraceKind.PARTITIONS_ASSIGNED for row in bounce),
        revoked=sum(row.kind == TraceKind.PARTITIONS_REVOKED for row in bounce),
        pauses_us=_pauses(bounce, bounced),
        commit_errors=errors,
    )


def _change(rows: Sequence[TraceRow], began_us: int, end_us: int) -> Change:
    """Return the cost of one leave or join, from the callbacks between `began_us` and `end_us`.

    At least one partition must have been assigned in this time. Otherwise `settled_us` is negative.
    """
    callbacks = [row for row in rows if row.kind in CALLBACKS and began_us <= row.time_us < end_us]
    # Partition without an owner -> the time at which it was revoked. A partition that is still
    # without an owner at `end_us` adds nothing to `unowned_us`.
    revoked_at_us: dict[str, int] = {}
    unowned_us = handed_out = last_us = 0
    for row in callbacks:
        for partition in detail_of(row)["partitions"]:
            if row.kind == TraceKind.PARTITIONS_REVOKED:
                revoked_at_us[partition] = row.time_us
            else:
                # If no member had revoked the partition, 0 us are added.
                unowned_us += row.time_us - revoked_at_us.pop(partition, row.time_us)
                handed_out += 1
                last_us = row.time_us
    return Change(settled_us=last_us - began_us, unowned_us=unowned_us, handed_out=handed_out)


def _pauses(rows: Sequence[TraceRow], bounced: set[str]) -> tuple[int, ...]:
    """Return for each member that was not restarted its longest time between two commits.

    Members with fewer than two commits are left out.
    """
    commits: dict[str, list[int]] = {}
    for row in rows:
        if row.kind == TraceKind.OFFSETS_COMMITTED and row.node.startswith("consumer-"):
            commits.setdefault(row.node, []).append(row.time_us)
    return tuple(
        max(end - start for start, end in itertools.pairwise(times))
        for node, times in sorted(commits.items())
        if node not in bounced and len(times) > 1
    )
