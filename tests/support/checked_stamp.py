"""A stricter `stamp`, which tests use in place of the usual function.

`stamp` turns an event into a row of the trace: it adds the run, the time, the node and so on. For
each kind of event there is a schema, which says which columns a row of this kind may have.
`checked_stamp` also checks that the row has no other columns.
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
    """Return the row of an event.

    Raises: SimulationError if the schema of the event's kind lacks a column or a field of the
        detail that the event has.
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
