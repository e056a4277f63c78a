"""ZooKeeperMember: the consumer's id, settings and ZooKeeper client, which its modules share.

Ids such as ZK-25 are rules in docs/kafka/ZOOKEEPER_CONSUMER.md.

Source: Kafka 1.1 `ZookeeperConsumerConnector`.
"""

from cluster.client.zookeeper_consumer.paths import GroupPaths
from cluster.host.host import Host
from cluster.spec import ZooKeeperConsumerSpec
from cluster.zookeeper.bootstrap import BROKER_IDS
from cluster.zookeeper.zk_client import ZkClient
from protocol.causes import PositionCause
from protocol.ids import BrokerId, TopicPartition
from protocol.trace import TraceEvent, TraceKind

_MEMBER_INDEX = "{index}"
"""Text that may occur in the setting `consumer.id`. The consumer's index takes its place."""
_UUID_BITS = 32
"""Number of random bits in a consumer id, written as eight hexadecimal digits. Kafka takes the
digits from a UUID."""


class ZooKeeperMember:
    """One consumer of a group, from its start to its end.

    After a restart it has a new id, unless the setting `consumer.id` fixes the id.
    """

    def __init__(self, host: Host, spec: ZooKeeperConsumerSpec, zk: ZkClient) -> None:
        self.host = host
        self.spec = spec
        self.config = spec.config
        self.zk = zk
        self.paths = GroupPaths(spec.group_id)
        self.consumer_id = _consumer_id(host, spec)

    async def read_brokers(self) -> list[BrokerId]:
        """Return the registered brokers, by one getChildren and a getData for each broker."""
        names = await self.zk.children(BROKER_IDS)
        for name in names:
            # The data is not used. But as in Kafka, the read takes time, and fails with NoNode if
            # the broker has vanished since.
            await self.zk.read(f"{BROKER_IDS}/{name}")
        return [BrokerId(int(name)) for name in names]

    def trace(
        self,
        kind: TraceKind,
        detail: dict[str, object] | None = None,
        *,
        partition: TopicPartition | None = None,
        offset: int | None = None,
        cause_text: str | None = None,
    ) -> None:
        """Record a trace row about this consumer."""
        self.host.trace(
            TraceEvent(
                kind=kind,
                group=self.spec.group_id,
                member=self.consumer_id,
                partition=None if partition is None else str(partition),
                offset=offset,
                detail=detail,
                cause_text=cause_text,
            )
        )

    def trace_position(self, partition: TopicPartition, offset: int, cause: PositionCause) -> None:
        """Record that this consumer begins to read a partition at `offset`."""
        self.host.trace(
            TraceEvent(
                kind=TraceKind.POSITION_RESET,
                group=self.spec.group_id,
                member=self.consumer_id,
                partition=str(partition),
                offset=offset,
                cause=cause,
            )
        )


def _consumer_id(host: Host, spec: ZooKeeperConsumerSpec) -> str:
    """Return a consumer id, such as "group-a_consumer-a-0-1700000000000-5f3c1a2b" (ZK-25).

    With a setting `consumer.id`, the id is "group-a_" and the text of the setting. `{index}` in the
    text is replaced, so that consumers with the same setting get different ids.
    """
    fixed = spec.config.consumer_id
    if fixed is not None:
        return f"{spec.group_id}_{fixed.replace(_MEMBER_INDEX, str(spec.index))}"
    random_part = f"{host.rng.getrandbits(_UUID_BITS):08x}"
    return f"{spec.group_id}_{host.name}-{host.wall_us() // 1_000}-{random_part}"
