"""The table `commits` in plain Python: how many commits of each member succeeded or failed.

Commits are counted by fault: a commit belongs to the latest fault before it.
`pipeline.tables.commits` computes the same with Spark.
"""

from pipeline.in_memory.faults import faults_of
from pipeline.in_memory.trace import TableRow, Trace, last_fault_before
from protocol.trace import TraceKind


def commits_of(trace: Trace) -> list[TableRow]:
    """Count the commits by fault, member, coordinator and error."""
    # A commit of several partitions has a row for each partition, all with the same time. If one of
    # the partitions failed, the commit failed. The error of an acknowledged partition is "" here,
    # so `max` picks an error if there is one. Of several errors, `max` picks the last in
    # alphabetical order.
    error_of_commit: dict[tuple[int, str | None, str, int, str | None], str] = {}
    for row in trace.of(TraceKind.OFFSETS_COMMITTED, TraceKind.COMMIT_FAILED):
        commit = (row.time_us, row.group, row.node, row.incarnation, row.peer)
        error_of_commit[commit] = max(error_of_commit.get(commit, ""), row.error or "")

    faults = faults_of(trace)
    table: dict[tuple[object, ...], TableRow] = {}
    for (time_us, group, consumer, _incarnation, coordinator), error in error_of_commit.items():
        error_name = error or "NONE"
        fault = last_fault_before(faults, time_us)
        counts = table.setdefault(
            (fault, group, consumer, coordinator, error_name),
            {
                "fault": fault,
                "group": group,
                "consumer": consumer,
                "coordinator": coordinator,
                "error": error_name,
                "commits": 0,
                "first_us": time_us,
            },
        )
        counts["commits"] += 1
        counts["last_us"] = time_us
    return list(table.values())
