"""Of the nodes whose trace files were lost with a machine: those whose rows a check depends on.

A check depends on the kinds of rows that it judges, and on the kinds that its evidence reads. Rows
of a kind are written by nodes of one role, by nodes of every role, or by the run itself. The run
writes on the driver's machine, so its rows are never lost.
"""

from collections.abc import Iterable

from protocol.ids import NodeName
from protocol.trace import TraceKind
from protocol.trace_schema import TRACE_SECTIONS

_BY_THE_RUN = frozenset(
    {
        *TRACE_SECTIONS['the run (node "driver")'],
        *TRACE_SECTIONS["checkers"],
        TraceKind.NODE_KILLED,
        TraceKind.NODE_STOPPING,
        TraceKind.NODE_PAUSED,
        TraceKind.NODE_RESUMED,
    }
)
_LIVES = frozenset({TraceKind.NODE_STARTED, TraceKind.NODE_STOPPED})
"""Kinds that nodes of every role write. A check that reads them depends on the rows of servers,
because a fault ends when a server has started again. It depends on another role only if it also
reads other kinds of that role's rows."""
_SERVERS = frozenset({"broker", "controller", "zookeeper"})
_ROLE_OF_SECTION = {
    "controller": "controller",
    "broker: leadership and log": "broker",
    "broker: coordinator tasks": "broker",
    "coordinator": "broker",
    "transaction coordinator": "broker",
    "ZooKeeper": "zookeeper",
    "consumer on ZooKeeper": "consumer",
    "consumer": "consumer",
    "producer": "producer",
}
"""Role that writes the rows of a section of the trace schema. Node names begin with the role. Rows
of a section that is missing here are written by every role."""


def needs_rows_of(nodes: Iterable[NodeName], kinds: frozenset[TraceKind]) -> tuple[NodeName, ...]:
    """Return those of `nodes` that may have written a row of `kinds`."""
    node_kinds = kinds - _BY_THE_RUN
    roles = set(_SERVERS) if node_kinds & _LIVES else set()
    node_kinds -= _LIVES
    for section, schemas in TRACE_SECTIONS.items():
        if node_kinds.isdisjoint(schemas):
            continue
        if section not in _ROLE_OF_SECTION:
            return tuple(nodes)
        roles.add(_ROLE_OF_SECTION[section])
    return tuple(node for node in nodes if node.partition("-")[0] in roles)
