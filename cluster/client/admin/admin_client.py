"""The administrator's client: groups, offsets, topics and elections, by Kafka's operations.

AdminClient has a method for each operation, for example `describe_groups`. The method describes its
request by an Ask object. The AdminDriver sends the request to the right brokers, and repeats it if
necessary:

- A request about a group goes to its coordinator, which is found by FindCoordinator. It is repeated
  while the coordinator is unknown, or is loading the group from its log.
- A request for the list of groups goes to every live broker, because each broker knows only its own
  groups.
- A request for the offsets of a log goes to the leader of the partition.
- Elections, reassignments, creations and deletions of topics go to the controllers.

DEVIATION: a group that two brokers claim is listed twice; Kafka's AdminClient keeps one.
DEVIATION: if the broker that was asked does not know a topic, this is the final answer; Kafka's
client asks again until its time limit.
Source: Kafka KafkaAdminClient, DescribeConsumerGroupsHandler, DeleteConsumerGroupsHandler,
DeleteConsumerGroupOffsetsHandler, AlterConsumerGroupOffsetsHandler,
ListConsumerGroupOffsetsHandler, RemoveMembersFromConsumerGroupHandler, PartitionLeaderStrategy.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Self, TypeVar

from cluster.client.admin.admin_driver import AdminDriver, Ask, Lookup
from cluster.client.admin.outcomes import (
    GroupDescription,
    GroupListings,
    by_topic,
    commit_errors,
    commit_outcomes,
    coordinators,
    described_groups,
    failure,
    fetched_offsets,
    group_deletion_outcomes,
    leaders,
    leave_outcomes,
    listing,
    log_offsets,
    offset_deletion_outcomes,
)
from cluster.client.net.errors import ClientError
from cluster.host.host import Host
from cluster.runtime import ClusterStatus
from cluster.spec import ClusterSpec
from protocol.api import AnyResponse
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, TopicPartition, broker_name
from protocol.messages.admin import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ElectionType,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersTopic,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
)
from protocol.messages.discovery import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from protocol.messages.group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from protocol.messages.log import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from protocol.trace import TraceEvent, TraceKind

V = TypeVar("V")
K = TypeVar("K")
R = TypeVar("R", bound=AnyResponse)

REMOVED_BY_AN_ADMIN = "member was removed by an admin"
"""Reason in LeaveGroup. Source: Kafka KafkaAdminClient.DEFAULT_LEAVE_GROUP_REASON."""

_COORDINATORS: Lookup[str, FindCoordinatorResponse] = Lookup(
    request=lambda keys: FindCoordinatorRequest(coordinator_keys=keys),
    response_type=FindCoordinatorResponse,
    places=coordinators,
)
"""Finds the coordinator of each group."""
_LEADERS: Lookup[TopicPartition, MetadataResponse] = Lookup(
    # `dict.fromkeys` drops repetitions: several partitions may have the same topic.
    request=lambda keys: MetadataRequest(topics=tuple(dict.fromkeys(key.topic for key in keys))),
    response_type=MetadataResponse,
    places=leaders,
)
"""Finds the leader of each partition."""


class OffsetSpec(IntEnum):
    """The offset of a log for which ListOffsets asks. The values are Kafka's special timestamps."""

    EARLIEST = EARLIEST_TIMESTAMP
    LATEST = LATEST_TIMESTAMP


class AdminClient:
    """An administrator's client. Use it in a `with` block, whose end closes the connections.

    The requests of one client together may take `timeout_ms`, by default `default.api.timeout.ms`
    (60 s).

    Many results have a value or a ClientError for each group, topic or partition. The ClientError
    is the error that the broker answered, or a GaveUp if the time was over.

    If `broker` is given, all requests about groups go to this broker instead of the coordinator. So
    one can ask a former coordinator that does not know yet that it was replaced.
    """

    def __init__(
        self,
        host: Host,
        cluster: ClusterSpec,
        *,
        timeout_ms: int | None = None,
        broker: BrokerId | None = None,
    ) -> None:
        self._host = host
        self._driver = AdminDriver(host, cluster, timeout_ms=timeout_ms)
        self._broker = broker

    def __enter__(self) -> Self:
        """Return the client."""
        return self

    def __exit__(self, *_error: object) -> None:
        """Close every connection."""
        self._driver.close()

    # -- groups ----------------------------------------------------------------------------------

    async def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> GroupListings:
        """Return the groups of every live broker, or only the groups of the client's `broker`.

        `states` and `types` select groups; an empty sequence selects all. A broker that is still
        loading groups is asked again until the time is over; then its last list is used.

        Raises: TimeoutError if no broker names the live brokers.
        """
        groups_by_broker: dict[BrokerId, tuple[ListedGroup, ...]] = {}

        def take_list(
            response: ListGroupsResponse, broker: BrokerId, keys: tuple[BrokerId, ...]
        ) -> Mapping[BrokerId, ClientError | None]:
            # A broker that is still loading answers with an error and the groups that it has so
            # far.
            groups_by_broker[broker] = response.groups
            return dict.fromkeys(keys, failure(response.error_code))

        request = ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))
        ask: Ask[BrokerId, None, ListGroupsResponse] = Ask(
            request=lambda _keys: request, response_type=ListGroupsResponse, outcomes=take_list
        )
        brokers = await self._brokers()
        # The keys of this request are brokers, and each is asked about itself.
        outcomes = await self._driver.ask_each(dict(zip(brokers, brokers, strict=True)), ask)
        return GroupListings(
            groups=tuple(
                sorted(
                    (
                        listing(group, broker)
                        for broker, groups in groups_by_broker.items()
                        for group in groups
                    ),
                    key=lambda each: (each.group_id, each.broker),
                )
            ),
            failures={
                broker: outcome
                for broker, outcome in sorted(outcomes.items())
                if outcome is not None
            },
        )

    async def describe_groups(
        self, group_ids: Sequence[str]
    ) -> dict[str, GroupDescription | ClientError]:
        """Return the description of each group by its coordinator."""
        ask: Ask[str, GroupDescription, DescribeGroupsResponse] = Ask(
            request=lambda keys: DescribeGroupsRequest(groups=keys),
            response_type=DescribeGroupsResponse,
            outcomes=described_groups,
        )
        return await self._ask(group_ids, ask)

    async def delete_groups(self, group_ids: Sequence[str]) -> dict[str, ClientError | None]:
        """Delete groups with their offsets; the result is None for each that was deleted."""
        ask: Ask[str, None, DeleteGroupsResponse] = Ask(
            request=lambda keys: DeleteGroupsRequest(groups_names=keys),
            response_type=DeleteGroupsResponse,
            outcomes=group_deletion_outcomes,
        )
        return await self._ask(group_ids, ask)

    async def remove_members_from_consumer_group(
        self, group_id: str, *, reason: str = REMOVED_BY_AN_ADMIN
    ) -> dict[str, ErrorCode]:
        """Remove every member from a group, and return the error code of each.

        The key of a static member is its `group.instance.id`, the key of any other member is its
        member id. The result is empty if the group has no member. A removed member that is alive
        gets UNKNOWN_MEMBER_ID and joins again.
        Raises: ClientError if the whole group was refused, or no answer came.
        Source: Kafka KafkaAdminClient.removeMembersFromConsumerGroup, all members.
        """
        # One group is described, so the result has one value.
        (description,) = (await self.describe_groups((group_id,))).values()
        if isinstance(description, ClientError):
            raise description
        if not description.members:
            return {}
        request = LeaveGroupRequest(
            group_id=group_id,
            members=tuple(
                # For a static member only the instance id is sent. If another consumer has taken
                # over the instance id since the group was described, the old member id would be
                # refused (FENCED_INSTANCE_ID).
                MemberIdentity(
                    member_id="" if member.group_instance_id else member.member_id,
                    group_instance_id=member.group_instance_id,
                    reason=reason,
                )
                for member in description.members
            ),
        )
        ask: Ask[str, dict[str, ErrorCode], LeaveGroupResponse] = Ask(
            request=lambda _keys: request, response_type=LeaveGroupResponse, outcomes=leave_outcomes
        )
        outcomes = await self._ask((group_id,), ask)
        return _only(outcomes)

    # -- offsets ---------------------------------------------------------------------------------

    async def list_consumer_group_offsets(
        self, group_ids: Sequence[str]
    ) -> dict[str, dict[TopicPartition, int] | ClientError]:
        """Return every offset that each group has committed."""
        ask: Ask[str, dict[TopicPartition, int], OffsetFetchResponse] = Ask(
            request=lambda keys: OffsetFetchRequest(
                groups=tuple(OffsetFetchRequestGroup(group_id=key) for key in keys)
            ),
            response_type=OffsetFetchResponse,
            outcomes=fetched_offsets,
        )
        return await self._ask(group_ids, ask)

    async def alter_consumer_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit offsets for a group without members, and return the error code of each.

        Effects: traces an ADMIN_COMMIT for each offset, even if no answer came.
        Raises: ClientError if the whole group was refused, or no answer came.
        """
        request = OffsetCommitRequest(
            group_id=group_id,
            topics=by_topic(
                tuple(offsets),
                topic=lambda name, entries: OffsetCommitRequestTopic(name=name, partitions=entries),
                entry=lambda partition: OffsetCommitRequestPartition(
                    partition_index=partition.partition, committed_offset=offsets[partition]
                ),
            ),
        )

        def trace(partition: TopicPartition, broker: BrokerId, error: str) -> None:
            self._host.trace(
                TraceEvent(
                    kind=TraceKind.ADMIN_COMMIT,
                    group=group_id,
                    member=request.member_id,
                    generation=request.generation_id_or_member_epoch,
                    partition=str(partition),
                    offset=offsets[partition],
                    peer=broker_name(broker),
                    error=error,
                )
            )

        def trace_answer(
            response: OffsetCommitResponse, broker: BrokerId, keys: tuple[str, ...]
        ) -> Mapping[str, dict[TopicPartition, ErrorCode] | ClientError]:
            for partition, code in commit_errors(response).items():
                trace(partition, broker, code.name)
            return commit_outcomes(response, broker, keys)

        def trace_silence(broker: BrokerId, why: str) -> None:
            for partition in offsets:
                trace(partition, broker, why)

        ask: Ask[str, dict[TopicPartition, ErrorCode], OffsetCommitResponse] = Ask(
            request=lambda _keys: request,
            response_type=OffsetCommitResponse,
            outcomes=trace_answer,
            on_silence=trace_silence,
        )
        # `waits`: the answer comes only when the commit is replicated, so it may take longer.
        outcomes = await self._ask((group_id,), ask, waits=True)
        return _only(outcomes)

    async def delete_consumer_group_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Delete committed offsets of a group, and return the error code of each partition.

        Raises: as alter_consumer_group_offsets.
        """
        request = OffsetDeleteRequest(
            group_id=group_id,
            topics=by_topic(
                partitions,
                topic=lambda name, entries: OffsetDeleteRequestTopic(name=name, partitions=entries),
                entry=lambda partition: OffsetDeleteRequestPartition(
                    partition_index=partition.partition
                ),
            ),
        )
        ask: Ask[str, dict[TopicPartition, ErrorCode], OffsetDeleteResponse] = Ask(
            request=lambda _keys: request,
            response_type=OffsetDeleteResponse,
            outcomes=offset_deletion_outcomes,
        )
        outcomes = await self._ask((group_id,), ask)
        return _only(outcomes)

    # -- topics and partitions -------------------------------------------------------------------

    async def describe_topics(
        self, topics: Sequence[str]
    ) -> dict[str, dict[int, tuple[BrokerId, ...]] | ClientError]:
        """Ask a broker for the replicas of each partition of `topics`, the preferred leader first.

        Raises: TimeoutError if no broker answers.
        """
        request = MetadataRequest(topics=tuple(topics))
        response = await self._driver.ask_broker(request, MetadataResponse)
        return {
            topic.name: {
                entry.partition_index: tuple(map(BrokerId, entry.replica_nodes))
                for entry in topic.partitions
            }
            if topic.error_code is ErrorCode.NONE
            else ClientError(topic.error_code.name, retriable=False)
            for topic in response.topics
        }

    async def list_offsets(
        self, partitions: Sequence[TopicPartition], spec: OffsetSpec
    ) -> dict[TopicPartition, int | ClientError]:
        """Return the first or the end offset of each partition's log, from its leader."""
        ask: Ask[TopicPartition, int, ListOffsetsResponse] = Ask(
            request=lambda keys: ListOffsetsRequest(
                topics=by_topic(
                    keys,
                    topic=lambda name, entries: ListOffsetsTopic(name=name, partitions=entries),
                    entry=lambda partition: ListOffsetsPartition(
                        partition_index=partition.partition, timestamp=spec
                    ),
                )
            ),
            response_type=ListOffsetsResponse,
            outcomes=log_offsets,
        )
        return await self._driver.ask_each(partitions, ask, _LEADERS)

    async def create_topics(self, topics: Sequence[CreatableTopic]) -> dict[str, ErrorCode]:
        """Create topics, and return the error code of each.

        If the answer was lost, the request is repeated, and may then get TOPIC_ALREADY_EXISTS
        because the first request has created the topic.
        Raises: as delete_topics.
        """
        response = await self._driver.ask_controller(
            CreateTopicsRequest(topics=tuple(topics)), CreateTopicsResponse, _not_controller
        )
        return {answer.name: answer.error_code for answer in response.topics}

    async def delete_topics(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        """Delete topics with all their data, and return the error code of each.

        If the answer was lost, the request is repeated, and may then get an error because the topic
        is deleted already.
        Raises: TimeoutError if no answer came; ClientError that no retry can help.
        """
        response = await self._driver.ask_controller(
            DeleteTopicsRequest(topic_names=tuple(names)), DeleteTopicsResponse, _not_controller
        )
        return {answer.name: answer.error_code for answer in response.responses}

    async def elect_leaders(
        self, election_type: ElectionType, partitions: Sequence[TopicPartition] | None
    ) -> dict[TopicPartition, ErrorCode]:
        """Elect leaders and return the error code of each partition.

        If `partitions` is None, leaders of all partitions are elected, and the result has only the
        partitions that needed it.
        Raises: as delete_topics.
        """
        request = ElectLeadersRequest(
            election_type=election_type,
            topic_partitions=None
            if partitions is None
            else by_topic(partitions, topic=ElectLeadersTopic, entry=lambda each: each.partition),
        )
        response = await self._driver.ask_controller(
            request, ElectLeadersResponse, lambda answer: answer.error_code
        )
        return {
            TopicPartition(result.topic, partition.partition_id): partition.error_code
            for result in response.replica_election_results
            for partition in result.partition_result
        }

    async def alter_partition_reassignments(
        self, replicas: Mapping[TopicPartition, Sequence[BrokerId]]
    ) -> dict[TopicPartition, ReassignablePartitionResponse]:
        """Change the replicas of partitions, or their order; return the answer for each.

        Raises: as delete_topics.
        """
        request = AlterPartitionReassignmentsRequest(
            topics=by_topic(
                tuple(replicas),
                topic=lambda name, entries: ReassignableTopic(name=name, partitions=entries),
                entry=lambda partition: ReassignablePartition(
                    partition_index=partition.partition, replicas=tuple(replicas[partition])
                ),
            )
        )
        response = await self._driver.ask_controller(
            request, AlterPartitionReassignmentsResponse, lambda answer: answer.error_code
        )
        return {
            TopicPartition(topic.name, answer.partition_index): answer
            for topic in response.responses
            for answer in topic.partitions
        }

    async def _brokers(self) -> tuple[BrokerId, ...]:
        """Return the brokers whose groups are requested. Raises: TimeoutError."""
        if self._broker is not None:
            return (self._broker,)
        metadata = await self._driver.ask_broker(MetadataRequest(topics=()), MetadataResponse)
        return tuple(BrokerId(each.node_id) for each in metadata.brokers)

    async def _ask(
        self, group_ids: Sequence[str], ask: Ask[str, V, R], *, waits: bool = False
    ) -> dict[str, V | ClientError]:
        """Send the request to each group's coordinator, or only to the client's `broker`."""
        if self._broker is None:
            return await self._driver.ask_each(group_ids, ask, _COORDINATORS, waits=waits)
        places: dict[str, BrokerId | None] = dict.fromkeys(group_ids, self._broker)
        return await self._driver.ask_each(places, _accept_not_coordinator(ask), waits=waits)


def _accept_not_coordinator(ask: Ask[str, V, R]) -> Ask[str, V, R]:
    """Return `ask`, changed so that NOT_COORDINATOR is the outcome and is not retried.

    This is for a broker that the caller chose, and that may not be the coordinator.
    """

    def outcomes(
        response: R, broker: BrokerId, keys: tuple[str, ...]
    ) -> Mapping[str, V | ClientError]:
        return {key: _final(each) for key, each in ask.outcomes(response, broker, keys).items()}

    return Ask(
        request=ask.request,
        response_type=ask.response_type,
        outcomes=outcomes,
        on_silence=ask.on_silence,
    )


def _final(outcome: V | ClientError) -> V | ClientError:
    """Return the outcome, with NOT_COORDINATOR as an error that is not retried."""
    if isinstance(outcome, ClientError) and outcome.name == ErrorCode.NOT_COORDINATOR.name:
        return ClientError(outcome.name, retriable=False)
    return outcome


def _only(outcomes: Mapping[str, dict[K, ErrorCode] | ClientError]) -> dict[K, ErrorCode]:
    """Return the outcome of the only group; raise it if it is a ClientError."""
    (outcome,) = outcomes.values()
    if isinstance(outcome, ClientError):
        raise outcome
    return outcome


def _not_controller(response: CreateTopicsResponse | DeleteTopicsResponse) -> ErrorCode:
    """Return NOT_CONTROLLER if a topic has this error: then the request changed no topic."""
    answers = response.topics if isinstance(response, CreateTopicsResponse) else response.responses
    codes = [answer.error_code for answer in answers]
    return ErrorCode.NOT_CONTROLLER if ErrorCode.NOT_CONTROLLER in codes else ErrorCode.NONE


class AdminNode:
    """The administrator's node. It does nothing by itself; AdminClients use its `host`."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def start(self) -> None:
        """Do nothing: the node acts only through an AdminClient."""

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop immediately."""
        on_done()

    def report(self, status: ClusterStatus) -> None:
        """Add nothing to `status`."""
