"""Figures of one failover, as in docs/kafka/MEASURED_FAILOVER.md, computed from the trace's rows.

This module shares no code with the pipeline and the checkers, so that tests can compare their
figures with these. The module `acceptance` computes more facts, but only of the experiment
`coordinator_crash`.

An offsets partition is a partition of `__consumer_offsets`; the broker that leads it coordinates
its groups. The leader epoch counts the partition's leaders. A tenure is the time of one broker as
coordinator in one leader epoch: it loads the groups into memory, and in the end unloads them. An
incarnation is the number of a node's restarts.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from chaos.experiment.structs import Experiment, consumer_name, group_partition
from protocol.ids import offsets_partition
from protocol.trace import TraceKind, TraceRow

COMMIT_PAUSE_US = 400_000
"""A longer time without a commit is a gap. It is twice the interval of the commits, 200 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """The first failover of a group's coordinator after a fault.

    All figures are microseconds. `publish_us`, `load_us` and `commit_gaps_us` are durations.
    `resumes_us` and `unloaded_after_active_us` count from the time at which the new coordinator is
    active. All other times count from the fault.

    - `decided_us`: when the controller elected the new coordinator.
    - `publish_us`: how long it took until the new coordinator applied its election.
    - `unloaded_after_active_us`: when the old coordinator had unloaded the groups.
    - `notices_us`: when each member first marked its coordinator unknown.
    - `first_commit_us`, `last_commit_us`: when the first and the last member committed again.
    - `resumes_us`: when each member committed again.

    Lists are in ascending order. None or an empty list means that the step was not reached.
    """

    decided_us: int | None
    publish_us: int | None
    load_us: int | None
    active_us: int | None
    unloaded_after_active_us: int | None
    notices_us: tuple[int, ...]
    first_commit_us: int | None
    last_commit_us: int | None
    commit_gaps_us: tuple[int, ...]
    resumes_us: tuple[int, ...]
    rebalances: int
    commit_errors: dict[str, int]


def failover_of(
    rows: Sequence[TraceRow], experiment: Experiment, group: str, *, fault: int = 0
) -> Failover:
    """Return the effects of fault number `fault` of the run on `group`, up to the next fault.

    A member's gap is its first long time without an acknowledged commit after the fault. A later
    gap has another cause: the fault was undone, or the machine was busy.
    """
    injected = [row for row in rows if row.kind == TraceKind.FAULT_INJECTED]
    since_us = injected[fault].time_us
    until_us = injected[fault + 1].time_us if fault + 1 < len(injected) else rows[-1].time_us

    # The steps of the new coordinator: it is elected, leads, loads, and is active.
    partition = str(offsets_partition(group_partition(experiment, group)))
    partition_rows = [
        row for row in rows if row.partition == partition and since_us <= row.time_us < until_us
    ]
    elected = _first(partition_rows, TraceKind.LEADER_ELECTED)
    epoch = None if elected is None else elected.leader_epoch
    tenure = [row for row in partition_rows if row.leader_epoch == epoch]
    applied = _first(tenure, TraceKind.BECAME_LEADER)
    started = _first(tenure, TraceKind.LOAD_STARTED)
    active = _first(tenure, TraceKind.LOAD_COMPLETED)

    # The old coordinator: the last one that was active before the fault.
    earlier_coordinators = [
        (row.node, row.incarnation)
        for row in rows
        if row.partition == partition
        and row.kind == TraceKind.LOAD_COMPLETED
        and row.time_us < since_us
    ]
    # The old coordinator unloads because of the new tenure, so the row of the unload has the epoch
    # of the new tenure. The slice [-1:] is empty if there was no earlier coordinator.
    unloaded = _first(
        [row for row in tenure if (row.node, row.incarnation) in earlier_coordinators[-1:]],
        TraceKind.UNLOAD_COMPLETED,
    )

    members = range(experiment.groups[group].members)
    gaps = _gaps(rows, [str(consumer_name(group, index)) for index in members], since_us, until_us)
    # A member resumes with the commit that ends its gap.
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
    """Return the first row of a kind; None if there is none."""
    return next((row for row in rows if row.kind == kind), None)


def _between(since_us: int, row: TraceRow | None) -> int | None:
    """Return the time from a moment to a row; None without the row."""
    return None if row is None else row.time_us - since_us


def _notices(rows: Sequence[TraceRow], since_us: int) -> tuple[int, ...]:
    """Return the times at which the members first marked their coordinator unknown, sorted."""
    first: dict[str, int] = {}
    for row in rows:
        if row.kind == TraceKind.COORDINATOR_UNKNOWN:
            first.setdefault(row.node, row.time_us - since_us)
    return tuple(sorted(first.values()))


def _commit_errors(rows: Sequence[TraceRow]) -> dict[str, int]:
    """Return the number of failed commits by error; a commit of several partitions counts once."""
    # The rows of one commit, one for each partition, have the same node and time.
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
    """Return for each node the first pause between two commits that overlaps the given time."""
    commits: dict[str, list[int]] = {node: [] for node in nodes}
    for row in rows:
        if row.kind == TraceKind.OFFSETS_COMMITTED and row.node in commits:
            commits[row.node].append(row.time_us)
    gaps = []
    for times in commits.values():
        pairs = [
            (start, end)
            for start, end in itertools.pairwise(times)
            if since_us < end and start < until_us and end - start > COMMIT_PAUSE_US
        ]
        if pairs:
            gaps.append(pairs[0])
    return gaps
