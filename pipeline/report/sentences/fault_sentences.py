"""Questions about the nodes that faults hit: is it a client, are all of them servers?"""

from results_schema.journal import JournalEntry

_CONTROLLER = "controller-"
_SERVERS = ("broker-", _CONTROLLER)
"""Beginnings of the names of nodes that are not clients."""


def is_client(node: str) -> bool:
    """Return whether a node is a member of a group, by its name in the trace."""
    return node.startswith("consumer-")


def is_controller(node: str) -> bool:
    """Return whether a node is a controller, by its name in the trace."""
    return node.startswith(_CONTROLLER)


def between_servers(fault: JournalEntry) -> bool:
    """Return whether all links that a fault cuts are links between servers (brokers, controllers).

    In this case clients still reach both sides of the cut, so two brokers can serve one group.
    """
    return all(node.startswith(_SERVERS) for node in (*fault.from_nodes, *fault.to_nodes))
