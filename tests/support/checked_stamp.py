"""A stricter `stamp`, which tests use in place of the usual one.

`stamp` makes a trace event a row of the trace: it adds the run, the time, the node and so on. For
each kind of event there is a schema, which says which columns it has. This `stamp` also checks that
an event has no other columns.
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

    Raises: SimulationError for a column, or a field of the detail, that the kind does not have.
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
