"""Figures of a rolling bounce, as in docs/kafka/MEASURED_BOUNCE.md, from the trace's rows.

A rolling bounce restarts the members of a group one after the other, here by the fault `rollout` of
the experiment. On a real Kafka the figures were measured in the callbacks by which a consumer
learns which partitions it gets and loses. This module computes them from the rows of the same
events, and shares no code with the pipeline and the checkers.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.checkers.context import detail_of
from protocol.trace import TraceKind, TraceRow

CALLBACKS = (TraceKind.PARTITIONS_ASSIGNED, TraceKind.PARTITIONS_REVOKED)
"""Kinds of the rows that stand for the callbacks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One leave or join of a member.

    - `settled_us`: the time from the member's close or creation until each member owns its final
      partitions.
    - `unowned_us`: the time in which a partition had no owner, summed over the partitions.
    - `handed_out`: how many partitions were assigned to members.
    """

    settled_us: int
    unowned_us: int
    handed_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingBounce:
    """The leaves and joins of a run in their order, and totals of the whole bounce.

    - `assigned`, `revoked`: number of callbacks.
    - `pauses_us`: for each member that was not restarted, the longest time between two acknowledged
      commits, in microseconds.
    """

    leaves: tuple[Change, ...]
    joins: tuple[Change, ...]
    assigned: int
    revoked: int
    pauses_us: tuple[int, ...]
    commit_errors: dict[str, int]


def rolling_bounce_of(rows: Sequence[TraceRow], group: str) -> RollingBounce:
    """Return what a run's rollout cost its group.

    The close of a member begins with the SIGTERM, at which the application closes its consumer. Its
    creation is the start of the node.
    """
    injected_us = next(row.time_us for row in rows if row.kind == TraceKind.FAULT_INJECTED)
    healed_us = next(row.time_us for row in rows if row.kind == TraceKind.FAULT_HEALED)
    group_rows = [
        row for row in rows if row.group == group or row.node.startswith(f"consumer-{group}-")
    ]
    bounce = [row for row in group_rows if injected_us <= row.time_us <= healed_us]
    starts = [row for row in bounce if row.kind == TraceKind.NODE_STARTED]
    bounced = {row.node for row in starts}
    # The driver writes these rows, so they are not in `group_rows`; the member is their peer.
    closed_us = [
        row.time_us
        for row in rows
        if row.kind == TraceKind.NODE_STOPPING
        and (row.peer or row.node).startswith(f"consumer-{group}-")
        and injected_us <= row.time_us <= healed_us
    ]
    # Each leave or join lasts until the next one begins; the last one lasts until the rollout ends.
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
    """Return the cost of one leave or join, from the callbacks between `began_us` and `end_us`."""
    callbacks = [row for row in rows if row.kind in CALLBACKS and began_us <= row.time_us < end_us]
    given_up: dict[str, int] = {}  # partition -> time of its revocation
    unowned_us = handed_out = last_us = 0
    for row in callbacks:
        for partition in detail_of(row)["partitions"]:
            if row.kind == TraceKind.PARTITIONS_REVOKED:
                given_up[partition] = row.time_us
            else:
                # A partition that no member revoked, as in a group's first assignment, counts as
                # unowned for 0 us.
                unowned_us += row.time_us - given_up.pop(partition, row.time_us)
                handed_out += 1
                last_us = row.time_us
    return Change(settled_us=last_us - began_us, unowned_us=unowned_us, handed_out=handed_out)


def _pauses(rows: Sequence[TraceRow], bounced: set[str]) -> tuple[int, ...]:
    """Return the longest time between two commits of each member that was not restarted."""
    commits: dict[str, list[int]] = {}
    for row in rows:
        if row.kind == TraceKind.OFFSETS_COMMITTED and row.node.startswith("consumer-"):
            commits.setdefault(row.node, []).append(row.time_us)
    return tuple(
        max(end - start for start, end in itertools.pairwise(times))
        for node, times in sorted(commits.items())
        if node not in bounced and len(times) > 1
    )
