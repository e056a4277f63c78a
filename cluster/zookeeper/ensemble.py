"""Number, peers and settings of one server of an ensemble.

An ensemble is a set of ZooKeeper servers, which elect one of them as their leader. Ids such as
ZK-06 are rules in docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

from dataclasses import dataclass

from protocol.config import ZooKeeperConfig
from protocol.messages.zookeeper_quorum import ServerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Ensemble:
    """One server's number, and the settings that all servers share.

    `servers` has every server, including this one. `initial` has the persistent znodes (path, data)
    that are in every server's tree from the beginning, parents first.
    """

    server_id: ServerId
    servers: tuple[ServerId, ...]
    config: ZooKeeperConfig
    initial: tuple[tuple[str, str], ...] = ()

    @property
    def peers(self) -> tuple[ServerId, ...]:
        """All servers but this one."""
        return tuple(server for server in self.servers if server != self.server_id)

    @property
    def tick_us(self) -> int:
        """Length of a tick, ZooKeeper's unit of time limits, in microseconds."""
        return self.config.tick_time * 1_000

    @property
    def sync_limit_us(self) -> int:
        """Longest silence between a leader and a server that follows it (ZK-06)."""
        return self.config.sync_limit * self.tick_us

    @property
    def init_limit_us(self) -> int:
        """Longest time until a server that follows a new leader must be up to date."""
        return self.config.init_limit * self.tick_us

    def is_majority(self, count: int) -> bool:
        """Return True if `count` servers are a majority of the ensemble."""
        return count * 2 > len(self.servers)

    def negotiated_timeout_ms(self, wanted_ms: int) -> int:
        """Return the session timeout that the servers grant to a client (ZK-10)."""
        return self.config.negotiated_timeout_ms(wanted_ms)
