"""The table `broker_phases` in plain Python: how each fault moved the coordinators of groups.

A fault, such as the crash of a broker, can give a partition of `__consumer_offsets` a new leader.
The new leader is the new coordinator of the groups in the partition. Until the new coordinator is
active, four phases follow one another:

1. detect: from the fault to the election of a new leader;
2. publish: until the elected broker knows that it is the leader;
3. load wait: until this broker begins to load the partition (to read its groups into memory);
4. load: until this broker is the active coordinator.

The table has a row for each fault and each partition that the fault moved. An election belongs to
the latest fault before it that affected the partition, or that hit the old leader. If a fault
caused several elections of a partition, the first election that found a leader counts.
`pipeline.tables.broker_phases` computes the same with Spark.
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
    """Return the phases of each move of an offsets partition by a fault."""
    faults = faults_of(trace)
    elections = [row for row in trace.of(TraceKind.LEADER_ELECTED) if is_offsets_partition(row)]
    elections.sort(key=lambda row: (row.time_us, row.leader_epoch))
    last_leaders: dict[str, str] = {}  # by partition
    first_moves: dict[tuple[str, str], TableRow] = {}  # by fault and partition
    for election in elections:
        new_leader = election.peer
        if not new_leader:
            # No broker could become the leader. The next election still belongs to the fault that
            # hit the last leader.
            continue
        partition = str(election.partition)
        old_leader = last_leaders.get(partition)
        last_leaders[partition] = new_leader

        # The faults before the election that affected the partition, or hit its old leader.
        possible_causes = [
            fault
            for fault in faults
            if fault["injected_us"] <= election.time_us
            and (partition in fault["partitions"] or old_leader in fault["nodes"])
        ]
        if possible_causes:
            fault = possible_causes[-1]  # the latest, because faults are sorted by time
            move = (fault["fault"], partition)
            # `setdefault` keeps the first election if the fault causes another one.
            first_moves.setdefault(move, _phases(trace, fault, election, old_leader))
    return list(first_moves.values())


def _phases(trace: Trace, fault: TableRow, election: TraceRow, old_leader: str | None) -> TableRow:
    """Return the row of the table about one election."""
    became_leader = _first_by_new_leader(trace, TraceKind.BECAME_LEADER, election)
    load_started = _first_by_new_leader(trace, TraceKind.LOAD_STARTED, election)
    load_completed = _first_by_new_leader(trace, TraceKind.LOAD_COMPLETED, election)
    moments_us = {
        "fault_us": fault["injected_us"],
        "decided_us": election.time_us,
        "applied_us": became_leader.time_us if became_leader else None,
        "load_started_us": load_started.time_us if load_started else None,
        "active_us": load_completed.time_us if load_completed else None,
    }
    # Each phase reaches from one moment to the next. Its length is None if one of the two moments
    # is not known.
    lengths_us = [
        None if begin_us is None or end_us is None else end_us - begin_us
        for begin_us, end_us in pairwise(moments_us.values())
    ]
    detect_us, publish_us, load_wait_us, load_us = lengths_us
    # How much was loaded; not known if the load did not end.
    loaded = detail_of(load_completed) if load_completed else {}
    groups = [
        group for group, partition in trace.groups().items() if partition == election.partition
    ]
    return {
        "fault": fault["fault"],
        "partition": election.partition,
        "old_leader": old_leader,
        "new_leader": election.peer,
        "leader_epoch": election.leader_epoch,
        "groups": sorted(groups),
        **moments_us,
        "detect_us": detect_us,
        "publish_us": publish_us,
        "load_wait_us": load_wait_us,
        "load_us": load_us,
        "records": loaded.get("records"),
        "bytes": loaded.get("bytes"),
    }


def _first_by_new_leader(trace: Trace, kind: TraceKind, election: TraceRow) -> TraceRow | None:
    """Return the first row of a kind that the elected leader wrote about this leadership."""
    leadership = (election.peer, election.partition, election.leader_epoch)
    for row in trace.of(kind):
        if (row.node, row.partition, row.leader_epoch) == leadership:
            return row
    return None
