"""The table `broker_phases` in plain Python: how each fault moved each offsets partition.

A failover is the move of an offsets partition (a partition of `__consumer_offsets`) to a new
leader. The leader is the coordinator of the partition's groups, so the coordinator moves, too. A
leader epoch is the number of a partition's leadership; each election increases it.
`pipeline.tables.broker_phases` computes the same with Spark. Four phases follow one another:

1. detect: from the fault to the election of a new leader;
2. publish: until the elected broker knows that it is the leader;
3. load wait: until this broker begins to load the partition (to read its groups into memory);
4. load: until this broker is the active coordinator.

An election of a partition's leader belongs to the latest earlier fault that lists the partition as
affected, or that hit the partition's old leader. If a fault caused several elections, the first one
that found a leader counts.
"""

from itertools import pairwise

from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.trace import (
    TableRow,
    Trace,
    detail_of,
    is_offsets_partition,
    once_per_trace,
)
from protocol.trace import TraceKind, TraceRow


@once_per_trace
def broker_phases_of(trace: Trace) -> list[TableRow]:
    """Return the phases of each fault's failover, for each offsets partition that it moved."""
    faults = faults_of(trace)
    elections = [row for row in trace.of(TraceKind.LEADER_ELECTED) if is_offsets_partition(row)]
    elections.sort(key=lambda row: (row.time_us, row.leader_epoch))
    leaders: dict[str, str] = {}  # by partition, the leader that was elected last
    first_moves: dict[tuple[str, str], TableRow] = {}  # by fault and partition
    for row in elections:
        partition = str(row.partition)
        old_leader = leaders.get(partition)
        # `peer` is the elected leader. It is empty if no broker could become leader. Then the old
        # leader stays in `leaders`, because the next election still belongs to the fault that hit
        # this leader.
        if row.peer:
            leaders[partition] = row.peer

        possible_causes = [
            fault
            for fault in faults
            if fault["injected_us"] <= row.time_us
            and (partition in fault["partitions"] or old_leader in fault["nodes"])
        ]
        if possible_causes and row.peer:
            fault = possible_causes[-1]  # faults are in the order of their injection
            move = (fault["fault"], partition)
            # A later election of the same fault and partition does not replace the first one.
            first_moves.setdefault(move, _phases(trace, fault, row, old_leader))
    return list(first_moves.values())


def _phases(trace: Trace, fault: TableRow, election: TraceRow, old_leader: str | None) -> TableRow:
    """Return the moments of one election's failover, and the phases between them."""
    applied = _first_by_new_leader(trace, TraceKind.BECAME_LEADER, election)
    started = _first_by_new_leader(trace, TraceKind.LOAD_STARTED, election)
    active = _first_by_new_leader(trace, TraceKind.LOAD_COMPLETED, election)
    moments = [
        fault["injected_us"],
        election.time_us,
        *(row.time_us if row else None for row in (applied, started, active)),
    ]
    # Each phase reaches from one moment to the next; None if one of the two is unknown.
    phases = [
        None if begin is None or end is None else end - begin for begin, end in pairwise(moments)
    ]
    # The row about the completed load has its size. Without the row, the size is unknown.
    loaded = detail_of(active) if active else {}
    partition_by_group = trace.groups()
    groups = [
        group for group, partition in partition_by_group.items() if partition == election.partition
    ]
    return {
        "fault": fault["fault"],
        "partition": election.partition,
        "old_leader": old_leader,
        "new_leader": election.peer,
        "leader_epoch": election.leader_epoch,
        "groups": sorted(groups),
        **dict(
            zip(
                ("fault_us", "decided_us", "applied_us", "load_started_us", "active_us"),
                moments,
                strict=True,
            )
        ),
        **dict(zip(("detect_us", "publish_us", "load_wait_us", "load_us"), phases, strict=True)),
        "records": loaded.get("records"),
        "bytes": loaded.get("bytes"),
    }


def _first_by_new_leader(trace: Trace, kind: TraceKind, election: TraceRow) -> TraceRow | None:
    """Return the first row of a kind that the elected leader wrote about its new epoch."""
    leader_epoch = (election.peer, election.partition, election.leader_epoch)
    for row in trace.of(kind):
        if (row.node, row.partition, row.leader_epoch) == leader_epoch:
            return row
    return None
