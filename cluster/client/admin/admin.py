"""What an administrator asks and does: committed offsets, elections, moves, topics that go.

Through the cluster's own network, as any client: a group's offsets are asked of the coordinator
that the brokers name, elections of the controllers themselves (KIP-919).
"""

from collections.abc import Sequence

from cluster.client.admin.admin_calls import AdminCalls
from cluster.client.consumer.offset_fetches import CommittedOffsets, OffsetFetches
from cluster.client.net.coordinator_discovery import CoordinatorDiscovery
from cluster.client.net.errors import ClientError, error_from_code
from cluster.client.net.futures import Wakeup
from cluster.client.net.metadata import Metadata
from cluster.client.net.network_client import NetworkClient
from cluster.client.net.retries import MS, retry_backoff, with_retries
from cluster.host.host import Host
from cluster.runtime import ElectionFailed, TopicDeletionFailed
from cluster.spec import ClusterSpec
from protocol.config import ConsumerConfig
from protocol.errors import ErrorCode
from protocol.ids import UNKNOWN_MEMBER, BrokerId, GroupId, Offset, TopicPartition
from protocol.messages.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReassignablePartition,
    ReassignableTopic,
    TopicPartitions,
)
from protocol.messages.discovery import MetadataRequest, MetadataResponse

VERIFICATION = "verification"
"""The cause under which OFFSETS_FETCHED is traced here."""


async def fetch_committed_offsets(
    host: Host,
    cluster: ClusterSpec,
    group_id: str,
    partitions: Sequence[TopicPartition] | None = None,
) -> dict[TopicPartition, Offset]:
    """Return what the group has committed, as its coordinator says: for `partitions`, or for all.

    Retries as clients do, for `default.api.timeout.ms` (60 s). Partitions without an offset are
    left out. Effects: opens connections and closes them; traces OFFSETS_FETCHED for each partition
    of the answer, with -1 for one of `partitions` that has no offset.
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
        fetch = fetches.fetch(None if partitions is None else tuple(partitions))
        fetch.add_listener(lambda _fetch: wakeup.set())
        if not await wakeup.wait_for(fetch, deadline_us):
            raise error_from_code(ErrorCode.REQUEST_TIMED_OUT)
        if fetch.error is not None:
            raise fetch.error
        return fetch.value

    metadata.start(network)
    try:
        committed: CommittedOffsets = await with_retries(host, backoff, deadline_us, fetch_once)
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


async def elect_preferred_leaders(
    host: Host, cluster: ClusterSpec, partitions: Sequence[TopicPartition] | None
) -> None:
    """Let the first replica of each partition's assignment lead it; None means every partition.

    A partition that it leads already (ELECTION_NOT_NEEDED) is a success. Effects: asks the active
    controller, with retries, for `default.api.timeout.ms` (60 s); connections are closed.
    Raises: TimeoutError after 60 s without an answer; ElectionFailed, naming each partition and
    Kafka's error, once every answer is in.
    Source: Kafka KafkaAdminClient.electLeaders.
    """
    calls = AdminCalls(host, cluster)
    try:
        await _elect_preferred(calls, partitions)
    finally:
        calls.close()


async def move_leader(
    host: Host, cluster: ClusterSpec, partition: TopicPartition, broker: BrokerId
) -> None:
    """Make `broker`, one of the replicas, the preferred leader of `partition`, and elect it.

    As kafka-reassign-partitions and kafka-leader-election do one after the other: a broker is asked
    for the replicas, the controller to put `broker` first, then to elect. Effects: as
    elect_preferred_leaders, 60 s for all together; an order that was changed stays, also if the
    election then fails. Raises: as elect_preferred_leaders; ElectionFailed also for a `broker` that
    has no replica.
    """
    calls = AdminCalls(host, cluster)
    try:
        replicas = await _replicas_of(calls, partition)
        if broker not in replicas:
            raise ElectionFailed(
                f"{partition}: broker {broker} has no replica, {list(replicas)} have"
            )
        if replicas[0] != broker:
            await _reorder(
                calls, partition, (broker, *(other for other in replicas if other != broker))
            )
        await _elect_preferred(calls, (partition,))
    finally:
        calls.close()


async def delete_topics(host: Host, cluster: ClusterSpec, names: Sequence[str]) -> None:
    """Delete topics, with everything in them.

    Effects: asks the active controller, with retries, for `default.api.timeout.ms` (60 s);
    connections are closed. A repetition after a lost answer may find a topic gone.
    Raises: TimeoutError after 60 s without an answer; TopicDeletionFailed, naming each topic and
    Kafka's error, once every answer is in.
    Source: Kafka KafkaAdminClient.deleteTopics.
    """
    calls = AdminCalls(host, cluster)
    try:
        response = await calls.ask_controller(
            DeleteTopicsRequest(topic_names=tuple(names)), DeleteTopicsResponse, _not_controller
        )
    except ClientError as error:
        raise TopicDeletionFailed(f"DeleteTopics: {error.name}") from error
    finally:
        calls.close()
    failed = [
        f"{answer.name}: {answer.error_code.name}"
        for answer in response.responses
        if answer.error_code is not ErrorCode.NONE
    ]
    if failed:
        raise TopicDeletionFailed(", ".join(failed))


def _not_controller(response: DeleteTopicsResponse) -> ErrorCode:
    """Return NOT_CONTROLLER if that was the answer for any topic: nobody was asked then."""
    codes = [answer.error_code for answer in response.responses]
    return ErrorCode.NOT_CONTROLLER if ErrorCode.NOT_CONTROLLER in codes else ErrorCode.NONE


async def _elect_preferred(calls: AdminCalls, partitions: Sequence[TopicPartition] | None) -> None:
    topic_partitions = None
    if partitions is not None:
        by_topic: dict[str, list[int]] = {}
        for name in partitions:
            by_topic.setdefault(name.topic, []).append(name.partition)
        topic_partitions = tuple(
            TopicPartitions(topic, tuple(indexes)) for topic, indexes in by_topic.items()
        )
    request = ElectLeadersRequest(
        election_type=ElectionType.PREFERRED, topic_partitions=topic_partitions
    )
    try:
        response = await calls.ask_controller(
            request, ElectLeadersResponse, lambda answer: answer.error_code
        )
    except ClientError as error:
        raise ElectionFailed(f"ElectLeaders: {error.name}") from error
    failed = [
        f"{TopicPartition(result.topic, partition.partition_id)}: {partition.error_code.name}"
        for result in response.replica_election_results
        for partition in result.partition_result
        if partition.error_code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    ]
    if failed:
        raise ElectionFailed(", ".join(failed))


async def _replicas_of(calls: AdminCalls, partition: TopicPartition) -> tuple[BrokerId, ...]:
    """Return the assignment, in its order, as a broker knows it."""
    topic, index = partition
    response = await calls.ask_broker(MetadataRequest(topics=(topic,)), MetadataResponse)
    for found in response.topics:
        for entry in found.partitions:
            if entry.partition_index == index:
                return tuple(map(BrokerId, entry.replica_nodes))
    raise ElectionFailed(f"{partition}: {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name}")


async def _reorder(
    calls: AdminCalls, partition: TopicPartition, replicas: tuple[BrokerId, ...]
) -> None:
    wanted = ReassignablePartition(partition_index=partition.partition, replicas=replicas)
    request = AlterPartitionReassignmentsRequest(
        topics=(ReassignableTopic(name=partition.topic, partitions=(wanted,)),)
    )
    try:
        response = await calls.ask_controller(
            request, AlterPartitionReassignmentsResponse, lambda answer: answer.error_code
        )
    except ClientError as error:
        raise ElectionFailed(f"AlterPartitionReassignments: {error.name}") from error
    for topic in response.responses:
        for answer in topic.partitions:
            if answer.error_code is not ErrorCode.NONE:
                why = f" ({answer.error_message})" if answer.error_message else ""
                raise ElectionFailed(f"{partition}: {answer.error_code.name}{why}")
