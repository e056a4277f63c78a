"""Report of a starting node about the logs on its disk that lost data."""

from cluster.host.host import Host
from protocol.trace import TraceEvent, TraceKind


def report_recoveries(host: Host) -> None:
    """Trace and log each log on the host's disk that a crash or power loss has cut."""
    for recovery in host.storage.take_recoveries():
        host.trace(
            TraceEvent(
                kind=TraceKind.LOG_RECOVERED,
                partition=str(recovery.partition),
                offset=recovery.log_end_offset,
                cause=recovery.cause.value,
                detail={"cut_bytes": recovery.cut_bytes, "cut_batches": recovery.cut_batches},
            )
        )
        batches = "" if recovery.cut_batches is None else f" in {recovery.cut_batches} batches"
        host.log(
            f"{recovery.partition}: recovered to offset {recovery.log_end_offset}; "
            f"{recovery.cut_bytes} bytes{batches} were cut off ({recovery.cause.value})"
        )
