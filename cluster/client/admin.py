"""An admin's question: what has a group committed?

Asked as any client asks: through the network, of the coordinator that the brokers name.
"""

from cluster.client.coordinator_discovery import CoordinatorDiscovery
from cluster.client.errors import ClientError, error_from_code
from cluster.client.futures import Wakeup
from cluster.client.metadata import Metadata
from cluster.client.network_client import NetworkClient
from cluster.client.offset_fetches import CommittedOffsets, OffsetFetches
from cluster.client.retries import MS, retry_backoff, retrying
from cluster.host import Host
from cluster.spec import ClusterSpec
from protocol.config import ConsumerConfig
from protocol.errors import ErrorCode
from protocol.ids import UNKNOWN_MEMBER, GroupId, Offset, TopicPartition

VERIFICATION = "verification"
"""The cause under which OFFSETS_FETCHED is traced here."""


async def fetch_committed_offsets(
    host: Host, cluster: ClusterSpec, group_id: str
) -> dict[TopicPartition, Offset]:
    """Return every offset that the group has committed, as its coordinator says.

    Retries as clients do, for `default.api.timeout.ms` (60 s). Partitions without an offset are
    left out. Effects: opens connections and closes them; traces OFFSETS_FETCHED per partition.
    Raises: TimeoutError after 60 s without a definite answer; ClientError that no retry can help.
    """
    config = ConsumerConfig()
    wakeup = Wakeup(host)
    metadata = Metadata(host, cluster, config, (), on_update=wakeup.set)
    network = NetworkClient(host, config, known_nodes=metadata.nodes, on_disconnect=wakeup.set)
    backoff = retry_backoff(host, config)
    discovery = CoordinatorDiscovery(
        host,
        GroupId(group_id),
        network,
        metadata,
        backoff,
        request_timeout_us=config.request_timeout_ms * MS,
        wakeup=wakeup,
        member_id=lambda: UNKNOWN_MEMBER,
        on_change=wakeup.set,
    )
    fetches = OffsetFetches(
        host,
        GroupId(group_id),
        discovery,
        member_id=lambda: UNKNOWN_MEMBER,
        cause=VERIFICATION,
    )
    deadline_us = host.now_us() + config.default_api_timeout_ms * MS

    async def fetch_once() -> CommittedOffsets:
        if not await discovery.ensure_known(deadline_us):
            raise error_from_code(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        fetch = fetches.fetch(None)
        fetch.add_listener(lambda _fetch: wakeup.set())
        if not await wakeup.wait_for(fetch, deadline_us):
            raise error_from_code(ErrorCode.REQUEST_TIMED_OUT)
        if fetch.error is not None:
            raise fetch.error
        return fetch.value

    metadata.start(network)
    try:
        committed: CommittedOffsets = await retrying(host, backoff, deadline_us)(fetch_once)
    except ClientError as error:
        if not error.retriable:
            raise
        raise TimeoutError(
            f"no answer for the offsets of {group_id} in {config.default_api_timeout_ms} ms: "
            f"{error.name}"
        ) from error
    finally:
        metadata.close()
        network.close()
    return {
        partition: Offset(position.offset)
        for partition, position in committed.items()
        if position is not None
    }
