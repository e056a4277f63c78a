"""Compute the figures of a failover, as in docs/kafka/MEASURED_FAILOVER.md, from a run's trace.

The coordinator of a group is the broker that leads the group's partition of `__consumer_offsets`.
When a fault hits this broker, another broker is elected, loads the groups of the partition, and
coordinates them from then on. This module finds these steps in the rows of the trace (the recorded
events). It shares no code with the pipeline and the checkers, which also compute such figures. So
tests can compare the two.

(`acceptance` computes more facts, but only about the experiment `coordinator_crash`.)
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.experiment.structs import Experiment, consumer_name, group_partition
from protocol.ids import offsets_partition
from protocol.trace import TraceKind, TraceRow

COMMIT_PAUSE_US = 400_000
"""A time without a commit is a gap if it is longer than this.

The members commit every 200 ms. So they have missed at least one commit in this time.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """The first failover of a group's coordinator after a fault.

    If the run did not get that far, a single time is None, and a tuple of times is empty. The times
    of a tuple are in ascending order.
    """

    # From the fault until the controller elected the new coordinator.
    decided_us: int | None
    # From the election until the new coordinator learned that it leads the partition.
    publish_us: int | None
    # From the beginning of the load to its end.
    load_us: int | None
    # From the fault to the end of the load, when the new coordinator is active.
    active_us: int | None
    # From the end of the load until the old coordinator had unloaded the groups. The time is
    # negative if the unload came first.
    unloaded_after_active_us: int | None
    # For each member: from the fault until it first marked its coordinator unknown.
    notices_us: tuple[int, ...]
    # From the fault until the first member committed again, and until the last member did.
    first_commit_us: int | None
    last_commit_us: int | None
    # For each member: how long it had no acknowledged commit.
    commit_gaps_us: tuple[int, ...]
    # For each member: from the end of the load until the member committed.
    resumes_us: tuple[int, ...]
    rebalances: int
    # Error -> the number of commits that failed with it.
    commit_errors: dict[str, int]


def failover_of(
    rows: Sequence[TraceRow], experiment: Experiment, group: str, *, fault: int = 0
) -> Failover:
    """Return what the fault with the index `fault` did to a group, until the next fault came.

    For each member, only its first gap in the commits counts. A later gap has another cause: the
    fault was undone, or the machine was busy.
    """
    injected = [row for row in rows if row.kind == TraceKind.FAULT_INJECTED]
    is_last_fault = fault + 1 == len(injected)
    since_us = injected[fault].time_us
    until_us = rows[-1].time_us if is_last_fault else injected[fault + 1].time_us

    # The steps of the new coordinator: it is elected, it learns of its election, it begins to load
    # the groups, and it has loaded them.
    partition = str(offsets_partition(group_partition(experiment, group)))
    partition_rows = [
        row for row in rows if row.partition == partition and since_us <= row.time_us < until_us
    ]
    elected = _first(partition_rows, TraceKind.LEADER_ELECTED)
    new_epoch = None if elected is None else elected.leader_epoch
    new_epoch_rows = [row for row in partition_rows if row.leader_epoch == new_epoch]
    applied = _first(new_epoch_rows, TraceKind.BECAME_LEADER)
    started = _first(new_epoch_rows, TraceKind.LOAD_STARTED)
    active = _first(new_epoch_rows, TraceKind.LOAD_COMPLETED)

    # The old coordinator is the last broker that loaded the groups before the fault. A broker that
    # was restarted since does not count as the same broker. So compare its incarnation (the number
    # of its restarts), too.
    earlier_coordinators = [
        (row.node, row.incarnation)
        for row in rows
        if row.partition == partition
        and row.kind == TraceKind.LOAD_COMPLETED
        and row.time_us < since_us
    ]
    # This list is empty if the group had no coordinator before the fault.
    last_coordinator = earlier_coordinators[-1:]
    # The old coordinator unloads the groups because another broker leads the partition in a new
    # epoch. So its row about the unload has the new epoch.
    unloaded = _first(
        [row for row in new_epoch_rows if (row.node, row.incarnation) in last_coordinator],
        TraceKind.UNLOAD_COMPLETED,
    )

    members = range(experiment.groups[group].members)
    gaps = _gaps(rows, [str(consumer_name(group, index)) for index in members], since_us, until_us)
    # The end of a gap is the time of the commit with which the member goes on.
    resumed_us = sorted(end for _, end in gaps)
    group_rows = [row for row in rows if row.group == group and since_us <= row.time_us < until_us]
    return Failover(
        decided_us=_between(since_us, elected),
        publish_us=None if elected is None else _between(elected.time_us, applied),
        load_us=None if started is None else _between(started.time_us, active),
        active_us=_between(since_us, active),
        unloaded_after_active_us=None if active is None else _between(active.time_us, unloaded),
        notices_us=_notices(group_rows, since_us),
        first_commit_us=resumed_us[0] - since_us if resumed_us else None,
        last_commit_us=resumed_us[-1] - since_us if resumed_us else None,
        commit_gaps_us=tuple(sorted(end - start for start, end in gaps)),
        resumes_us=() if active is None else tuple(end - active.time_us for end in resumed_us),
        rebalances=sum(row.kind == TraceKind.REBALANCE_STARTED for row in group_rows),
        commit_errors=_commit_errors(group_rows),
    )


def _first(rows: Sequence[TraceRow], kind: TraceKind) -> TraceRow | None:
    """Return the first row of this kind; None if there is no such row."""
    return next((row for row in rows if row.kind == kind), None)


def _between(since_us: int, row: TraceRow | None) -> int | None:
    """Return the time from `since_us` to a row; None if there is no row."""
    return None if row is None else row.time_us - since_us


def _notices(rows: Sequence[TraceRow], since_us: int) -> tuple[int, ...]:
    """Return when each member first marked its coordinator unknown, in ascending order.

    Times count from `since_us`.
    """
    first: dict[str, int] = {}
    for row in rows:
        if row.kind == TraceKind.COORDINATOR_UNKNOWN:
            first.setdefault(row.node, row.time_us - since_us)
    return tuple(sorted(first.values()))


def _commit_errors(rows: Sequence[TraceRow]) -> dict[str, int]:
    """Return for each error how many commits failed with it: {"NOT_COORDINATOR": 3}."""
    # A commit has a row for each of its partitions. These rows have the same node, time and error,
    # so they become a single entry of the set.
    failed = {
        (row.node, row.time_us, row.error or "")
        for row in rows
        if row.kind == TraceKind.COMMIT_FAILED
    }
    counts: dict[str, int] = {}
    for _, _, error in sorted(failed):
        counts[error] = counts.get(error, 0) + 1
    return counts


def _gaps(
    rows: Sequence[TraceRow], nodes: Sequence[str], since_us: int, until_us: int
) -> list[tuple[int, int]]:
    """Return for each node its first gap in the commits that overlaps the given time.

    A gap is given by its start and its end. Nodes without a gap are left out.
    """
    commits: dict[str, list[int]] = {node: [] for node in nodes}
    for row in rows:
        if row.kind == TraceKind.OFFSETS_COMMITTED and row.node in commits:
            commits[row.node].append(row.time_us)
    gaps = []
    for times in commits.values():
        for start, end in itertools.pairwise(times):
            overlaps = since_us < end and start < until_us
            if overlaps and end - start > COMMIT_PAUSE_US:
                gaps.append((start, end))
                break
    return gaps
