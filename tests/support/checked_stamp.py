"""The stamp of a host that refuses rows which the table of trace kinds does not declare."""

from typing import TypedDict, Unpack

from protocol.errors import SimulationError
from protocol.trace import TraceEvent, TraceRow, stamp
from protocol.trace_schema import nonconformity


class Stamp(TypedDict):
    """What a host adds to an event."""

    run: str
    time_us: int
    node_time_us: int
    seq: int
    node: str
    incarnation: int


def checked_stamp(event: TraceEvent, **stamped: Unpack[Stamp]) -> TraceRow:
    """Return the row of `event`. Raises: SimulationError for what its kind does not declare."""
    row = stamp(event, **stamped)
    problem = nonconformity(row)
    if problem is not None:
        raise SimulationError(problem)
    return row
