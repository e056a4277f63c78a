"""Nodes whose lost trace files make a check unreliable.

Each node writes a trace file on its machine. If a machine is lost, so are the files of its nodes.
A check depends on the kinds of rows that it judges, and on the kinds that its evidence reads. Some
kinds are written by nodes of one role, some by nodes of every role, and some by the run itself. The
run's rows are never lost, because they are on the machine of the driver (the process that conducts
the run).
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
"""Kinds of rows that the run writes, also those about the node that it kills, stops or pauses."""
_LIVES = frozenset({TraceKind.NODE_STARTED, TraceKind.NODE_STOPPED})
"""Kinds that nodes of every role write.

A check that reads these kinds depends on the rows of servers, because a fault ends when a server
has started again. It depends on the rows of consumers or producers only if it also reads other
kinds that they write.
"""
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
"""Section of the trace schema -> the role of the nodes that write its rows.

A node's name begins with its role. Nodes of every role write the rows of sections that are missing
here.
"""


def needs_rows_of(nodes: Iterable[NodeName], kinds: frozenset[TraceKind]) -> tuple[NodeName, ...]:
    """Return the nodes among `nodes` that may have written a row of `kinds`."""
    node_kinds = kinds - _BY_THE_RUN
    roles = set(_SERVERS) if node_kinds & _LIVES else set()
    node_kinds -= _LIVES
    for section, schemas in TRACE_SECTIONS.items():
        if node_kinds.isdisjoint(schemas):
            continue
        if section not in _ROLE_OF_SECTION:
            return tuple(nodes)  # nodes of every role write these rows
        roles.add(_ROLE_OF_SECTION[section])
    return tuple(node for node in nodes if node.partition("-")[0] in roles)
