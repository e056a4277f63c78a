"""Tells by the names of nodes whether a fault hit clients or servers.

A node has the name that it has in the trace: `broker-0`, `controller-2` or `consumer-orders-1`.
"""

from results_schema.journal import JournalEntry

_CONTROLLER = "controller-"
_SERVERS = ("broker-", _CONTROLLER)


def is_client(node: str) -> bool:
    """Return whether a node is a member of a group."""
    return node.startswith("consumer-")


def is_controller(node: str) -> bool:
    """Return whether a node is a controller."""
    return node.startswith(_CONTROLLER)


def between_servers(fault: JournalEntry) -> bool:
    """Return whether a fault cuts only links between servers, which are brokers and controllers.

    In this case clients still reach both sides of the cut, so two brokers can serve one group.
    """
    return all(node.startswith(_SERVERS) for node in (*fault.from_nodes, *fault.to_nodes))
