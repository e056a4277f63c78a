"""The table `commits` in plain Python: the outcomes of each member's commits.

With a commit, a member of a group stores how far it has read its partitions. A commit belongs to
the latest fault before the commit. `pipeline.tables.commits` computes the same with Spark.
"""

from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.trace import TableRow, Trace, last_fault_before
from protocol.trace import TraceKind


def commits_of(trace: Trace) -> list[TableRow]:
    """Return the number of commits per fault, member, coordinator and outcome."""
    # A commit of several partitions has a row for each partition, all with the same time. A
    # partition that was acknowledged has no error and counts as "", which sorts before every error.
    # So `max` picks an error if a partition failed; of several errors, the last one by name.
    outcomes: dict[tuple[int, str | None, str, int, str | None], str] = {}
    for row in trace.of(TraceKind.OFFSETS_COMMITTED, TraceKind.COMMIT_FAILED):
        commit = (row.time_us, row.group, row.node, row.incarnation, row.peer)
        outcomes[commit] = max(outcomes.get(commit, ""), row.error or "")

    faults = faults_of(trace)
    table: dict[tuple[object, ...], TableRow] = {}
    for (time_us, group, consumer, _, coordinator), error_or_empty in outcomes.items():
        error = error_or_empty or "NONE"
        fault = last_fault_before(faults, time_us)
        counts = table.setdefault(
            (fault, group, consumer, coordinator, error),
            {
                "fault": fault,
                "group": group,
                "consumer": consumer,
                "coordinator": coordinator,
                "error": error,
                "commits": 0,
                "first_us": time_us,
            },
        )
        counts["commits"] += 1
        counts["last_us"] = time_us
    return list(table.values())
