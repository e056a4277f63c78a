"""A replacement of `stamp` that refuses trace events with columns that their kind does not declare.

To stamp an event makes it a row of the trace: it adds the run, the times, the node, the incarnation
(the number of the node's restarts), and the number of the row among those of the node.
"""

from protocol.errors import SimulationError
from protocol.trace import TraceEvent, TraceRow, stamp
from protocol.trace_schema import nonconformity


def checked_stamp(
    event: TraceEvent,
    *,
    run: str,
    time_us: int,
    node_time_us: int,
    seq: int,
    node: str,
    incarnation: int,
) -> TraceRow:
    """Return the row of `event`.

    Raises: SimulationError for a column or a field of the detail that its kind does not declare.
    """
    row = stamp(
        event,
        run=run,
        time_us=time_us,
        node_time_us=node_time_us,
        seq=seq,
        node=node,
        incarnation=incarnation,
    )
    problem = nonconformity(row)
    if problem is not None:
        raise SimulationError(problem)
    return row
