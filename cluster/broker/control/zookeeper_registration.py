"""The broker's znode in ZooKeeper, for old consumers, which rebalance through ZooKeeper.

Old consumers look for brokers in ZooKeeper. So each broker creates the znode `/brokers/ids/<broker
id>` there, besides its registration with the controller. The znode is ephemeral, which means that
ZooKeeper deletes it when the broker's session ends. In a new session the broker creates it again.
Nothing else in a broker uses ZooKeeper.

Source: Kafka 1.1 `KafkaHealthcheck`, `ZkUtils.registerBrokerInZk`; docs/kafka, ZK-40.
DEVIATION: a broker whose earlier session still has the znode waits for that session's end. In
Kafka such a broker ends with an error, and its process manager starts it again.
"""

from collections.abc import Callable, Sequence

from cluster.host.host import Host
from cluster.zookeeper.bootstrap import broker_znode
from cluster.zookeeper.client import KeeperException
from cluster.zookeeper.zk_client import ZkClient
from protocol.ids import BrokerId, NodeName
from protocol.messages.zookeeper import KeeperError

SESSION_TIMEOUT_MS = 6_000
"""`zookeeper.session.timeout.ms` of brokers. Source: Kafka 1.1 KafkaConfig."""
RETRY_US = 500_000
"""Pause between two attempts to create the znode, while an earlier session still has it."""


class ZooKeeperRegistration:
    """One broker's registration in ZooKeeper, from the start of the broker to its stop."""

    def __init__(self, host: Host, broker_id: BrokerId, servers: Sequence[NodeName]) -> None:
        self._host = host
        self._path, self._data = broker_znode(broker_id)
        self._servers = servers
        self._zk: ZkClient | None = None
        """The client with the session; None before `start`."""
        self._is_closed = False

    def start(self) -> None:
        """Open the session and register."""
        self._zk = ZkClient(self._host, self._servers, SESSION_TIMEOUT_MS)
        # The client opens a new session when one has expired; the znode is then created again.
        self._zk.on_new_session = self._register
        self._host.spawn(self._register(), name="zookeeper-registration")

    def close(self, on_closed: Callable[[], None]) -> None:
        """Close the session, so that the servers delete the znode immediately."""
        self._is_closed = True
        if self._zk is None:
            on_closed()
        else:
            self._zk.close(on_closed)

    async def _register(self) -> None:
        """Create the znode; first wait until the znode of an earlier session is deleted."""
        zk = self._zk
        while zk is not None and not self._is_closed:  # the test for None is only for mypy
            try:
                await zk.create(self._path, self._data, ephemeral=True)
            except KeeperException as error:
                # NodeExists: the znode is that of an earlier session. Or it is this session's own,
                # if the answer to an earlier `create` was lost. Any other error means that this
                # session was closed, so there is nothing to register any more.
                if error.code is not KeeperError.NodeExists or await self._is_own(zk):
                    return
                await self._host.sleep(RETRY_US)
            else:
                return

    async def _is_own(self, zk: ZkClient) -> bool:
        """Return True if the znode belongs to this session, or if the session is closed."""
        try:
            stat = (await zk.read(self._path)).stat
        except KeeperException as error:
            # NoNode: the other session has ended, and the znode can be created. Any other error
            # means that this session was closed.
            return error.code is not KeeperError.NoNode
        return stat is not None and stat.ephemeral_owner == zk.session_id
