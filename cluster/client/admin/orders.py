"""What an administrator does in a run, as functions for `Runtime.ask_as_admin`.

Most of these functions are *orders*: a run's plan contains them among its faults, for example the
deletion of a group at a certain time. `fetch_committed_offsets` is used at the end of a run, when
the checks need the committed offsets. The function reads the offsets as a consumer does: from the
coordinator that the brokers name, and only when no open transaction contains them.

Each function takes the administrator's host and the cluster, and opens and closes connections of
its own.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Literal

from cluster.client.admin.admin_client import AdminClient, OffsetSpec
from cluster.client.consumer.offset_fetches import CommittedOffsets, OffsetFetches
from cluster.client.net.coordinator_discovery import CoordinatorDiscovery
from cluster.client.net.errors import ClientError, error_from_code
from cluster.client.net.futures import Wakeup
from cluster.client.net.metadata import Metadata
from cluster.client.net.network_client import NetworkClient
from cluster.client.net.retries import MS, retry_backoff, with_retries
from cluster.host.host import Host
from cluster.spec import ClusterSpec
from protocol.causes import OffsetFetchCause
from protocol.config import ConsumerConfig
from protocol.errors import ErrorCode
from protocol.ids import UNKNOWN_MEMBER, BrokerId, GroupId, Offset, TopicPartition
from protocol.messages.admin import CreatableTopic, ElectionType

GROUP_ORDER_TIMEOUT_MS = 2_000
"""Time limit of an order about a group.

The limit is short, because the next faults of the plan wait for the end of the order."""

NOT_IN_RESPONSE = "NOT_IN_RESPONSE"
"""Stands for the error of a partition that is missing in the answer.

Source: Kafka DeleteConsumerGroupOffsetsResult."""

ResetTo = Literal["earliest", "latest"]
"""The end of each log to which `reset_offsets` resets."""


class ElectionFailed(Exception):
    """The controller refused an election; the message has the partition and Kafka's error."""


class TopicOrderFailed(Exception):
    """The controller refused an order about topics; the message has each topic and its error.

    `error` is the name of the first topic's error.
    """

    # On Ray the exception comes from another process. pickle restores it by a call with the message
    # only, so `error` needs a default.
    def __init__(self, message: str, error: str = "") -> None:
        super().__init__(message)
        self.error = error


class TopicCreationFailed(TopicOrderFailed):
    """The controller refused to create a topic."""


class TopicDeletionFailed(TopicOrderFailed):
    """The controller refused to delete a topic."""


class GroupOrderError(Exception):
    """An order about a group failed, or its outcome is unknown.

    `error` is the name of Kafka's error or of the client's; the message has the group, too.
    """

    # On Ray the exception comes from another process. pickle restores it by a call with the message
    # only, so `error` needs a default.
    def __init__(self, message: str, error: str = "") -> None:
        super().__init__(message)
        self.error = error


class GroupOrderRefused(GroupOrderError):
    """The coordinator refused the whole order."""


class GroupOrderUnanswered(GroupOrderError):
    """No final answer came in time. The order may be carried out, before or after this error."""


async def fetch_committed_offsets(
    host: Host,
    cluster: ClusterSpec,
    group_id: str,
    partitions: Sequence[TopicPartition] | None = None,
) -> dict[TopicPartition, Offset]:
    """Return the committed offsets of a group, from its coordinator.

    If `partitions` is None, the offsets of all partitions are fetched. Partitions without a
    committed offset are left out.
    Retriable errors are retried for `default.api.timeout.ms` (60 s). Each partition in the answer
    is traced (recorded in the run's trace) as OFFSETS_FETCHED, with the offset -1 if it has none.

    Raises: TimeoutError after 60 s without a final answer; ClientError if an error is not
    retriable.
    """
    config = ConsumerConfig()
    wakeup = Wakeup(host)
    # `()`: no topics, because only the brokers are needed.
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
        member_id=lambda: UNKNOWN_MEMBER,  # for the trace: an administrator is no member
        on_change=wakeup.set,
    )
    fetches = OffsetFetches(
        host,
        GroupId(group_id),
        discovery,
        member_id=lambda: UNKNOWN_MEMBER,
        cause=OffsetFetchCause.VERIFICATION,  # for the trace: the run verifies the offsets
    )
    deadline_us = host.now_us() + config.default_api_timeout_ms * MS

    # One attempt: find the coordinator, fetch from it, and wait for its answer.
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


# -- leaders and topics --------------------------------------------------------------------------


async def elect_preferred_leaders(
    host: Host, cluster: ClusterSpec, partitions: Sequence[TopicPartition] | None
) -> None:
    """Make the first replica of each of `partitions` its leader; None means all partitions.

    A partition whose first replica is the leader already (ELECTION_NOT_NEEDED) is no failure.
    Raises: TimeoutError after 60 s without an answer; ElectionFailed with each partition and
    Kafka's error, once all answers are known.
    """
    with AdminClient(host, cluster) as admin:
        await _elect_preferred(admin, partitions)


async def move_leader(
    host: Host, cluster: ClusterSpec, partition: TopicPartition, broker: BrokerId
) -> None:
    """Make `broker`, one of the replicas, the preferred leader of `partition`, and elect it.

    An administrator does the same with kafka-reassign-partitions and then kafka-leader-election.
    The three steps may take 60 s in all:
    1. ask a broker for the replicas;
    2. have the controller put `broker` first (this order stays, even if the election fails);
    3. have the controller elect it.
    Raises: as elect_preferred_leaders; ElectionFailed also for a `broker` that has no replica.
    """
    with AdminClient(host, cluster) as admin:
        # Partition index -> its replicas; an error or None if the topic is not known.
        replicas_by_index = (await admin.describe_topics((partition.topic,))).get(partition.topic)
        replicas = (
            replicas_by_index.get(partition.partition)
            if isinstance(replicas_by_index, dict)
            else None
        )
        if replicas is None:
            raise ElectionFailed(f"{partition}: {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name}")
        if broker not in replicas:
            raise ElectionFailed(
                f"{partition}: broker {broker} has no replica, {list(replicas)} have"
            )
        # The reassignment is sent even if `broker` seems to be the first replica already. The
        # broker that answered may not know the last reassignment yet. The controller knows the last
        # reassignment, and would elect its first replica.
        others = (other for other in replicas if other != broker)
        await _reassign(admin, partition, (broker, *others))
        await _elect_preferred(admin, (partition,))


async def create_topic(
    host: Host, cluster: ClusterSpec, *, name: str, partitions: int, replication_factor: int
) -> None:
    """Create a topic. The controller has created it when this returns; brokers learn it later.

    If `partitions` or `replication_factor` is -1, the brokers' setting num.partitions or
    default.replication.factor counts.
    Raises: TimeoutError after 60 s without an answer; TopicCreationFailed with Kafka's error.
    """
    topic = CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=replication_factor
    )
    with AdminClient(host, cluster) as admin:
        try:
            errors = await admin.create_topics((topic,))
        except ClientError as error:
            raise TopicCreationFailed(f"CreateTopics: {error.name}", error.name) from error
    _raise_failures(errors, TopicCreationFailed)


async def delete_topics(host: Host, cluster: ClusterSpec, names: Sequence[str]) -> None:
    """Delete topics. The controller has deleted them when this returns; brokers learn it later.

    Raises: TimeoutError after 60 s without an answer; TopicDeletionFailed with each topic and
    Kafka's error, once all answers are known.
    """
    with AdminClient(host, cluster) as admin:
        try:
            errors = await admin.delete_topics(names)
        except ClientError as error:
            raise TopicDeletionFailed(f"DeleteTopics: {error.name}", error.name) from error
    _raise_failures(errors, TopicDeletionFailed)


def _raise_failures(errors: Mapping[str, ErrorCode], failure: type[TopicOrderFailed]) -> None:
    """Raise `failure` with each topic that has an error, if there is one."""
    failed = {name: code.name for name, code in errors.items() if code is not ErrorCode.NONE}
    if failed:
        codes = tuple(failed.values())
        raise failure(", ".join(f"{name}: {code}" for name, code in failed.items()), codes[0])


async def _elect_preferred(admin: AdminClient, partitions: Sequence[TopicPartition] | None) -> None:
    """Elect the leaders with a given client; see elect_preferred_leaders."""
    try:
        errors = await admin.elect_leaders(ElectionType.PREFERRED, partitions)
    except ClientError as error:
        raise ElectionFailed(f"ElectLeaders: {error.name}") from error
    failed = [
        f"{partition}: {code.name}"
        for partition, code in errors.items()
        if code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
    ]
    if failed:
        raise ElectionFailed(", ".join(failed))


async def _reassign(
    admin: AdminClient, partition: TopicPartition, replicas: tuple[BrokerId, ...]
) -> None:
    """Set the replicas of a partition. Raises: TimeoutError; ElectionFailed."""
    try:
        answers = await admin.alter_partition_reassignments({partition: replicas})
    except ClientError as error:
        raise ElectionFailed(f"AlterPartitionReassignments: {error.name}") from error
    for answer in answers.values():
        if answer.error_code is not ErrorCode.NONE:
            why = f" ({answer.error_message})" if answer.error_message else ""
            raise ElectionFailed(f"{partition}: {answer.error_code.name}{why}")


# -- groups; results map each member or partition to the name of its error code -------------------


async def remove_members(host: Host, cluster: ClusterSpec, *, group_id: str) -> dict[str, str]:
    """Remove every member of the group. Raises: GroupOrderRefused, GroupOrderUnanswered."""
    with _group_order(host, cluster, group_id) as admin:
        errors = await admin.remove_members_from_consumer_group(group_id)
        return {member: code.name for member, code in errors.items()}


async def delete_group(host: Host, cluster: ClusterSpec, *, group_id: str) -> dict[str, str]:
    """Delete the group and its offsets. Raises: as remove_members."""
    with _group_order(host, cluster, group_id) as admin:
        error = (await admin.delete_groups((group_id,)))[group_id]
        if error is not None:
            raise error
        return {}  # the deletion of a group has no results of members or partitions


async def delete_offsets(
    host: Host,
    cluster: ClusterSpec,
    *,
    group_id: str,
    topics: Sequence[str],
    unknown_partitions: bool = False,
) -> dict[str, str]:
    """Delete the group's committed offsets of some topics. Raises: as remove_members.

    With `unknown_partitions` the order also names, for each topic, one partition that does not
    exist. The coordinator should answer UNKNOWN_TOPIC_OR_PARTITION for this partition. The result
    has the partition only if the answer is a different one.
    """
    with _group_order(host, cluster, group_id) as admin:
        partitions = await _partitions_of(admin, topics)
        counts = Counter(partition.topic for partition in partitions) if unknown_partitions else {}
        # Partitions are numbered from 0. So a topic with 3 partitions has no partition 3.
        unknown = [TopicPartition(topic, count) for topic, count in counts.items()]
        errors = await admin.delete_consumer_group_offsets(group_id, [*partitions, *unknown])
        answers = dict.fromkeys(map(str, partitions), NOT_IN_RESPONSE)
        for partition, code in errors.items():
            # Leave out the unknown partitions that got the expected answer.
            if partition not in unknown or code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                answers[str(partition)] = code.name
        return answers


async def reset_offsets(
    host: Host, cluster: ClusterSpec, *, group_id: str, topics: Sequence[str], to: ResetTo
) -> dict[str, str]:
    """Commit the first or the end offset of each partition's log. Raises: as remove_members."""
    with _group_order(host, cluster, group_id) as admin:
        partitions = await _partitions_of(admin, topics)
        spec = OffsetSpec.EARLIEST if to == "earliest" else OffsetSpec.LATEST
        offsets: dict[TopicPartition, int] = {}
        for partition, offset in (await admin.list_offsets(partitions, spec)).items():
            if isinstance(offset, ClientError):
                raise offset
            offsets[partition] = offset
        errors = await admin.alter_consumer_group_offsets(group_id, offsets)
        return {str(partition): code.name for partition, code in errors.items()}


async def _partitions_of(admin: AdminClient, topics: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions of topics. Raises: TimeoutError; ClientError for an unknown topic."""
    partitions = []
    for topic, replicas in (await admin.describe_topics(topics)).items():
        if isinstance(replicas, ClientError):
            raise replicas
        partitions += [TopicPartition(topic, index) for index in range(len(replicas))]
    return partitions


@contextmanager
def _group_order(host: Host, cluster: ClusterSpec, group_id: str) -> Iterator[AdminClient]:
    """Yield a client for one order; turn exceptions of the order into a GroupOrderError."""
    with AdminClient(host, cluster, timeout_ms=GROUP_ORDER_TIMEOUT_MS) as admin:
        try:
            yield admin
        except TimeoutError as error:
            timed_out = ErrorCode.REQUEST_TIMED_OUT.name
            raise GroupOrderUnanswered(f"{group_id}: {error}", timed_out) from error
        except ClientError as error:
            if not error.retriable:
                raise GroupOrderRefused(f"{group_id}: {error.name}", error.name) from error
            raise GroupOrderUnanswered(
                f"{group_id}: no answer that counts in {GROUP_ORDER_TIMEOUT_MS} ms: {error.name}",
                error.name,
            ) from error
