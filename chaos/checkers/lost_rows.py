"""Checks whose evidence is incomplete when the rows of some nodes are lost with their machine.

A check depends on the kinds of rows that it judges, and on those of the shared evidence that it
reads. A kind is written by nodes of one role, by nodes of every role, or by the run itself, whose
rows are never lost.
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
"""Kinds written by every role. A check that reads them needs those of servers, because a fault ends
with a server's start, and those of the roles whose other rows it reads."""
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
"""Role that writes a section's rows; node names begin with it. Missing sections: every role."""


def needs_rows_of(nodes: Iterable[NodeName], kinds: frozenset[TraceKind]) -> tuple[NodeName, ...]:
    """Return those of `nodes` that may have written a row of `kinds`."""
    of_nodes = kinds - _BY_THE_RUN
    roles = set(_SERVERS) if of_nodes & _LIVES else set()
    of_nodes -= _LIVES
    for section, schemas in TRACE_SECTIONS.items():
        if of_nodes.isdisjoint(schemas):
            continue
        if section not in _ROLE_OF_SECTION:
            return tuple(nodes)
        roles.add(_ROLE_OF_SECTION[section])
    return tuple(node for node in nodes if node.partition("-")[0] in roles)
