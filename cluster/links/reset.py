"""Link resets: close connections between two sets of nodes, which may be in several processes.

A link reset is a fault that closes both ends of each connection. The run calls the processes of the
nodes, in two steps:

1. The processes of the clients close the clients' ends, and return the names of these connections.
2. The processes of the servers close the connections with these names. A connection that a client
   has opened after step 1 has another name, and stays.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from cluster.host.base_host import BaseHost
from cluster.host.connections import connection_named_by
from protocol.ids import NodeName

ConnectionName = tuple[NodeName, int]
"""Identifies a connection in the whole run: its client, and the id that the client chose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReset:
    """An order to end all connections between a node of `sources` and a node of `destinations`.

    If `purposes` is not empty, only connections with one of these purposes end.
    """

    sources: tuple[NodeName, ...]
    destinations: tuple[NodeName, ...]
    purposes: tuple[str, ...] = ()

    def peers_of(self, node: NodeName) -> tuple[NodeName, ...]:
        """Return the nodes whose connections with `node` end."""
        peers: list[NodeName] = []
        if node in self.sources:
            peers.extend(self.destinations)
        if node in self.destinations:
            peers.extend(self.sources)
        # A node may be a source and a destination, so `peers` may have a name twice.
        return tuple(peer for peer in dict.fromkeys(peers) if peer != node)


def reset_client_ends(hosts: Iterable[BaseHost], reset: LinkReset) -> tuple[ConnectionName, ...]:
    """End the connections whose clients are among `hosts`; return their names."""
    names: list[ConnectionName] = []
    for host in hosts:
        ends = host.endpoint.close_frames_of_reset(reset.peers_of(host.name), reset.purposes)
        # A close frame for one end of a connection names the other end as its sender. So the frame
        # for a client's end comes from the server, and is not `by_client`.
        closes = [close for close in ends if not close.by_client]
        host.reset(closes)
        names.extend(connection_named_by(close) for close in closes)
    return tuple(names)


def reset_server_ends(
    hosts: Iterable[BaseHost],
    reset: LinkReset,
    *,
    names: Collection[ConnectionName],
    silent_clients: Sequence[NodeName],
) -> int:
    """End the connections that `names` has and whose servers are among `hosts`.

    All connections of `silent_clients` end, too: these clients did not report names, because their
    process is paused. Returns the number of connections of `silent_clients` that ended.
    """
    ended_of_silent_clients = 0
    for host in hosts:
        ends = host.endpoint.close_frames_of_reset(reset.peers_of(host.name), reset.purposes)
        closes = [
            close
            for close in ends
            if close.by_client  # closes the server's end
            and (close.source in silent_clients or connection_named_by(close) in names)
        ]
        ended_of_silent_clients += sum(close.source in silent_clients for close in closes)
        host.reset(closes)
    return ended_of_silent_clients
