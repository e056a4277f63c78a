"""Facts about the nodes that faults hit."""

from results_schema.journal import JournalEntry

_SERVERS = ("broker-", "controller-")
"""How the names of nodes begin that are no clients."""


def is_client(node: str) -> bool:
    """Whether a node is a member of a group, by its name in the trace."""
    return node.startswith("consumer-")


def between_servers(fault: JournalEntry) -> bool:
    """Whether only servers are cut off: that clients still reach both makes split brains."""
    return all(node.startswith(_SERVERS) for node in (*fault.from_nodes, *fault.to_nodes))
