"""The table `tenure_overlaps` in plain Python: times in which groups had two coordinators.

The table `coordinator_tenures` has the times (tenures) in which a broker was the active coordinator
of the groups in a partition of `__consumer_offsets`. Here the tenures are compared: a row is a pair
of two tenures of a partition that overlap. The older tenure is the one with the lower leader epoch.
`pipeline.tables.tenure_overlaps` computes the same with Spark.
"""

from pipeline.in_memory.broker_phases import broker_phases_of
from pipeline.in_memory.coordinator_tenures import coordinator_tenures_of
from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.trace import Span, TableRow, Trace, length_us, within
from protocol.trace import TraceKind, TraceRow


def tenure_overlaps_of(trace: Trace) -> list[TableRow]:
    """Return each pair of overlapping tenures, with the numbers of answers in the overlap."""
    # Tenures are sorted by leader epoch. So the older tenure comes first in each pair below.
    tenures = sorted(
        coordinator_tenures_of(trace),
        key=lambda tenure: (
            tenure["leader_epoch"],
            tenure["start_us"],
            tenure["broker"],
            tenure["incarnation"],
        ),
    )
    # Which fault gave a partition the leader with this leader epoch.
    fault_of_move = {
        (move["partition"], move["leader_epoch"]): move["fault"] for move in broker_phases_of(trace)
    }
    faults = faults_of(trace)
    table = []
    for index, older in enumerate(tenures):
        for newer in tenures[index + 1 :]:
            shared = _span(older).shared_with(_span(newer))
            if shared is None or older["partition"] != newer["partition"]:
                continue
            partition = older["partition"]
            groups = [
                group
                for group, partition_of_group in trace.groups().items()
                if partition_of_group == partition
            ]
            older_pauses = trace.pauses(older["broker"])
            older_cuts = trace.cuts(older["broker"], faults)
            row = {
                "partition": partition,
                "groups": sorted(groups),
                "fault": fault_of_move.get((partition, newer["leader_epoch"])),
                "from_us": shared.from_us,
                "to_us": shared.to_us,
                "length_us": shared.to_us - shared.from_us,
                "older_end": older["end_reason"],
                "older_paused_us": length_us(within(older_pauses, shared)),
                "older_cut_us": length_us(within(older_cuts, shared)),
                "older_last_commit_us": older["last_commit_us"],
                "newer_first_commit_us": newer["first_commit_us"],
            }
            for side, tenure in (("older", older), ("newer", newer)):
                row[f"{side}_broker"] = tenure["broker"]
                row[f"{side}_epoch"] = tenure["leader_epoch"]
                row[f"{side}_incarnation"] = tenure["incarnation"]
                # These are the commits of the whole tenure. The numbers below count only answers
                # from the time in which the tenures overlapped.
                row[f"{side}_commits_in_all"] = tenure["commits"]
                heartbeats = [
                    answer
                    for answer in _heartbeat_answers(trace)
                    if _is_from(tenure["broker"], answer, groups, shared)
                ]
                # A commit of several partitions has a row for each partition, all with the same
                # time. The set counts it once.
                commits = {
                    (answer.group, answer.node, answer.time_us)
                    for answer in trace.of(TraceKind.OFFSETS_COMMITTED)
                    if _is_from(tenure["broker"], answer, groups, shared)
                }
                row[f"{side}_heartbeats"] = len(heartbeats)
                row[f"{side}_commits"] = len(commits)
            table.append(row)
    return table


def _span(tenure: TableRow) -> Span:
    """Return the time of a tenure."""
    return Span(from_us=tenure["start_us"], to_us=tenure["end_us"])


def _is_from(broker: str, answer: TraceRow, groups: list[str], time: Span) -> bool:
    """Return whether a member of these groups got this answer from a broker within a time."""
    is_in_time = time.from_us <= answer.time_us < time.to_us
    return is_in_time and answer.peer == broker and answer.group in groups


def _heartbeat_answers(trace: Trace) -> list[TraceRow]:
    """Return the members' rows about heartbeats that were answered with success."""
    answers = trace.of(TraceKind.RESPONSE_RECEIVED)
    return [row for row in answers if row.api == "Heartbeat" and row.error == "NONE"]
