"""Link resets: ending the connections between two sets of nodes that live in several processes.

Both ends are ended by their own processes, and nothing of it travels between them. The clients' go
first: whatever a client opens anew has another name, and the servers are told the names of what
ended, so that they spare it. The control plane carries the order (`cluster.ray.fleet`).
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from cluster.host.base_host import BaseHost
from cluster.host.connections import connection_named_by
from protocol.ids import NodeName

ConnectionName = tuple[NodeName, int]
"""A connection of the whole run: its client and the id that the client gave it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReset:
    """Which connections end: those between the two sets, of `purposes` if any are named."""

    sources: tuple[NodeName, ...]
    destinations: tuple[NodeName, ...]
    purposes: tuple[str, ...] = ()

    def peers_of(self, node: NodeName) -> tuple[NodeName, ...]:
        """Return whose connections with `node` end."""
        peers: list[NodeName] = []
        if node in self.sources:
            peers.extend(self.destinations)
        if node in self.destinations:
            peers.extend(self.sources)
        return tuple(peer for peer in dict.fromkeys(peers) if peer != node)


def reset_client_ends(hosts: Iterable[BaseHost], reset: LinkReset) -> tuple[ConnectionName, ...]:
    """End the connections whose clients are among `hosts`; return their names."""
    names: list[ConnectionName] = []
    for host in hosts:
        ends = host.endpoint.resets(reset.peers_of(host.name), reset.purposes)
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
    """End the connections whose servers are among `hosts`, if they are named or their client is.

    `silent_clients` could not be asked, as their process is stopped. Returns how many connections
    of those there were.
    """
    of_silent = 0
    for host in hosts:
        ends = host.endpoint.resets(reset.peers_of(host.name), reset.purposes)
        closes = [
            close
            for close in ends
            if close.by_client
            and (close.source in silent_clients or connection_named_by(close) in names)
        ]
        of_silent += sum(close.source in silent_clients for close in closes)
        host.reset(closes)
    return of_silent
