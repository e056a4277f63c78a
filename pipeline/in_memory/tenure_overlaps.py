"""The table `tenure_overlaps` in plain Python: times with two coordinators of one partition.

A tenure is the time in which a broker is the active coordinator of an offsets partition (a
partition of `__consumer_offsets`). Of two overlapping tenures, the older one has the lower leader
epoch (the number of the partition's leadership). `pipeline.tables.tenure_overlaps` computes the
same with Spark.
"""

from pipeline.in_memory.broker_phases import broker_phases_of
from pipeline.in_memory.coordinator_tenures import coordinator_tenures_of
from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.trace import Span, TableRow, Trace, length_us, within
from protocol.trace import TraceKind, TraceRow


def tenure_overlaps_of(trace: Trace) -> list[TableRow]:
    """Return each pair of overlapping tenures, with the answers of both coordinators."""
    # By leader epoch first, so that in each pair below the older tenure comes first.
    tenures = sorted(
        coordinator_tenures_of(trace),
        key=lambda tenure: (
            tenure["leader_epoch"],
            tenure["start_us"],
            tenure["broker"],
            tenure["incarnation"],
        ),
    )
    # The fault that moved a partition to the coordinator with this leader epoch.
    fault_of_move = {
        (phases["partition"], phases["leader_epoch"]): phases["fault"]
        for phases in broker_phases_of(trace)
    }
    faults = faults_of(trace)
    table = []
    for index, older in enumerate(tenures):
        for newer in tenures[index + 1 :]:
            shared = _span(older).shared_with(_span(newer))
            if shared is None or older["partition"] != newer["partition"]:
                continue
            partition = older["partition"]
            # `trace.groups()` maps each group to its offsets partition.
            groups = [
                group
                for group, offsets_partition in trace.groups().items()
                if offsets_partition == partition
            ]
            broker = older["broker"]
            row = {
                "partition": partition,
                "groups": sorted(groups),
                "fault": fault_of_move.get((partition, newer["leader_epoch"])),
                "from_us": shared.from_us,
                "to_us": shared.to_us,
                "length_us": shared.to_us - shared.from_us,
                "older_end": older["end_reason"],
                "older_paused_us": length_us(within(trace.pauses(broker), shared)),
                "older_cut_us": length_us(within(trace.cuts(broker, faults), shared)),
                "older_last_commit_us": older["last_commit_us"],
                "newer_first_commit_us": newer["first_commit_us"],
            }
            for side, tenure in (("older", older), ("newer", newer)):
                row[f"{side}_broker"] = tenure["broker"]
                row[f"{side}_epoch"] = tenure["leader_epoch"]
                row[f"{side}_incarnation"] = tenure["incarnation"]
                # Commits in the whole tenure. The other counts are of answers within the overlap.
                row[f"{side}_commits_in_all"] = tenure["commits"]
                heartbeats = [
                    answer
                    for answer in _heartbeats(trace)
                    if _is_from(answer, tenure, groups, shared)
                ]
                # A set, because a commit of several partitions has a row for each partition, all
                # with the same time, and counts once.
                commits = {
                    (answer.group, answer.node, answer.time_us)
                    for answer in trace.of(TraceKind.OFFSETS_COMMITTED)
                    if _is_from(answer, tenure, groups, shared)
                }
                row[f"{side}_heartbeats"] = len(heartbeats)
                row[f"{side}_commits"] = len(commits)
            table.append(row)
    return table


def _span(tenure: TableRow) -> Span:
    """Return the time of a tenure."""
    return Span(from_us=tenure["start_us"], to_us=tenure["end_us"])


def _is_from(row: TraceRow, tenure: TableRow, groups: list[str], shared: Span) -> bool:
    """Return whether an answer came from the tenure's broker, for these groups, in a time.

    `row` is the client's row about the answer; `shared` is the time.
    """
    is_in_time = shared.from_us <= row.time_us < shared.to_us
    return is_in_time and row.peer == tenure["broker"] and row.group in groups


def _heartbeats(trace: Trace) -> list[TraceRow]:
    """Return the successful answers to heartbeats."""
    answers = trace.of(TraceKind.RESPONSE_RECEIVED)
    return [row for row in answers if row.api == "Heartbeat" and row.error == "NONE"]
