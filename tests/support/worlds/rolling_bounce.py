"""A rolling bounce in the figures of docs/kafka/MEASURED_BOUNCE.md, from the rows alone.

Independent of the pipeline and of the checkers, as `failover` is: the figures are those that the
measurement's harness saw in its rebalance callbacks.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from protocol.trace import TraceKind, TraceRow
from tests.support.harness.zookeeper_group import detail_of

CALLBACKS = (TraceKind.PARTITIONS_ASSIGNED, TraceKind.PARTITIONS_REVOKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One leave or join.

    Units: microseconds. `settled_us` counts from the close or the creation until each remaining
    member owns its final partitions; `unowned_us` is the sum over the partitions.
    Shape: `handed_out` are the assigned partitions.
    """

    settled_us: int
    unowned_us: int
    handed_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingBounce:
    """Each leave and join of a run in their order.

    Units: microseconds; `pauses_us` is the longest time between two acknowledged commits of each
    member that stayed.
    """

    leaves: tuple[Change, ...]
    joins: tuple[Change, ...]
    assigned: int
    revoked: int
    pauses_us: tuple[int, ...]
    commit_errors: dict[str, int]


def rolling_bounce_of(rows: Sequence[TraceRow], group: str) -> RollingBounce:
    """Return the cost of a run's rollout for its group.

    A close begins with the SIGTERM, upon which the application closes its consumer at once; a
    creation is the start of the node.
    """
    injected = next(row.time_us for row in rows if row.kind == TraceKind.FAULT_INJECTED)
    healed = next(row.time_us for row in rows if row.kind == TraceKind.FAULT_HEALED)
    own = [row for row in rows if row.group == group or row.node.startswith(f"consumer-{group}-")]
    bounce = [row for row in own if injected <= row.time_us <= healed]
    starts = [row for row in bounce if row.kind == TraceKind.NODE_STARTED]
    bounced = {row.node for row in starts}
    closes = [
        row.time_us
        for row in rows
        if row.kind == TraceKind.NODE_STOPPING
        and (row.peer or row.node).startswith(f"consumer-{group}-")
        and injected <= row.time_us <= healed
    ]
    moments = sorted([(at, "leave") for at in closes] + [(row.time_us, "join") for row in starts])
    ends = [at for at, _ in moments[1:]] + [healed]
    changes: dict[str, list[Change]] = {"leave": [], "join": []}
    for (at_us, what), end_us in zip(moments, ends, strict=True):
        changes[what].append(_change(own, at_us, end_us))
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


def _change(rows: Sequence[TraceRow], at_us: int, end_us: int) -> Change:
    callbacks = [row for row in rows if row.kind in CALLBACKS and at_us <= row.time_us < end_us]
    given_up: dict[str, int] = {}
    unowned_us = handed_out = last_us = 0
    for row in callbacks:
        for partition in detail_of(row)["partitions"]:
            if row.kind == TraceKind.PARTITIONS_REVOKED:
                given_up[partition] = row.time_us
            else:
                unowned_us += row.time_us - given_up.pop(partition, row.time_us)
                handed_out += 1
                last_us = row.time_us
    return Change(settled_us=last_us - at_us, unowned_us=unowned_us, handed_out=handed_out)


def _pauses(rows: Sequence[TraceRow], bounced: set[str]) -> tuple[int, ...]:
    commits: dict[str, list[int]] = {}
    for row in rows:
        if row.kind == TraceKind.OFFSETS_COMMITTED and row.node.startswith("consumer-"):
            commits.setdefault(row.node, []).append(row.time_us)
    return tuple(
        max(end - start for start, end in itertools.pairwise(times))
        for node, times in sorted(commits.items())
        if node not in bounced and len(times) > 1
    )
