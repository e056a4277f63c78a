"""The checks that cannot be trusted if the trace files of some nodes are lost.

In a run on several machines, each node writes a trace file on its own machine. If a machine is lost
in the run, so are these files. The verdict of a check is then unreliable if the check needs rows
that the lost nodes may have written. For example, a check that reads only rows of coordinators does
not need the files of consumers. `needs_rows_of` compares the kinds of rows that a check reads with
the roles of the lost nodes, because most kinds are written by nodes of one role only.

Rows that the run itself writes are never lost. They are on the machine of the driver, the process
that conducts the run.
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
"""Kinds of rows that the run writes itself."""
_LIVES = frozenset({TraceKind.NODE_STARTED, TraceKind.NODE_STOPPED})
"""Kinds that nodes of every role write when their processes start and stop.

Checks read these kinds to see whether a fault is over, for example because a broker has started
again. For this they need the rows of servers, but not those of consumers and producers. A check
about consumers also reads kinds that only consumers write, and so needs their rows anyway.
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
    """Return the lost nodes that may have written rows of `kinds`.

    `nodes` are the nodes whose trace files are lost, and `kinds` are the kinds of rows that a check
    reads. The check is reliable if the result is empty.
    """
    node_kinds = kinds - _BY_THE_RUN
    roles = set(_SERVERS) if node_kinds & _LIVES else set()
    node_kinds -= _LIVES
    for section, schemas in TRACE_SECTIONS.items():
        if node_kinds.isdisjoint(schemas):
            continue
        if section not in _ROLE_OF_SECTION:
            return tuple(nodes)  # nodes of every role write rows of this section
        roles.add(_ROLE_OF_SECTION[section])
    return tuple(node for node in nodes if node.partition("-")[0] in roles)
