"""An administrator of groups: list, describe, delete them, remove members, read and set offsets.

Each group is asked of the coordinator that the brokers name, and again while that one loads or is
not there; what else a coordinator answers is an answer. Listing asks every live broker, because
none knows the groups of another. DEVIATION: a group that two brokers claim is listed twice, where
Kafka's AdminClient keeps one of the two.
Source: Kafka KafkaAdminClient, DescribeConsumerGroupsHandler, DeleteConsumerGroupsHandler,
DeleteConsumerGroupOffsetsHandler, AlterConsumerGroupOffsetsHandler,
ListConsumerGroupOffsetsHandler, RemoveMembersFromConsumerGroupHandler.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

from cluster.client.admin.admin_calls import AdminCalls
from cluster.client.admin.admin_driver import Ask, Lookup
from cluster.client.admin.group_descriptions import (
    GroupDescription,
    GroupListings,
    commit_errors,
    committed,
    coordinators,
    deleted,
    described,
    failure,
    fetched,
    left,
    listing,
    removed,
)
from cluster.client.admin.partition_offsets import (
    EARLIEST,
    LATEST,
    by_topic,
    count_partitions,
    log_offsets,
)
from cluster.client.net.errors import ClientError
from cluster.host.host import Host
from cluster.spec import ClusterSpec
from protocol.api import AnyResponse
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, TopicPartition, broker_name
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
"""LeaveGroup's reason. Source: Kafka KafkaAdminClient.DEFAULT_LEAVE_GROUP_REASON."""

_COORDINATORS: Lookup[str, FindCoordinatorResponse] = Lookup(
    request=lambda keys: FindCoordinatorRequest(coordinator_keys=keys),
    response_type=FindCoordinatorResponse,
    places=coordinators,
)


class GroupAdmin:
    """The questions and orders of one administrative act; `close` ends its connections.

    Units: `timeout_ms` is for all of them together. A ClientError in an answer is that of its
    group or partition: a GaveUp where the time was over, else what the broker answered.
    `broker` is asked about every group, whoever the others name: what a coordinator believes that
    was replaced and does not know it.
    """

    def __init__(
        self, host: Host, cluster: ClusterSpec, *, timeout_ms: int, broker: BrokerId | None = None
    ) -> None:
        self._host = host
        self._calls = AdminCalls(host, cluster, timeout_ms=timeout_ms)
        self._broker = broker

    def close(self) -> None:
        """Close every connection."""
        self._calls.close()

    # -- groups ----------------------------------------------------------------------------------

    async def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = ()
    ) -> GroupListings:
        """Return the groups of every live broker, or of the one; no filter lets every one pass.

        A broker that loads is asked again, and at the end what it listed until then counts.
        Raises: TimeoutError if no broker says which there are.
        """
        known: dict[BrokerId, tuple[ListedGroup, ...]] = {}

        def listed(
            response: ListGroupsResponse, broker: BrokerId, keys: tuple[BrokerId, ...]
        ) -> Mapping[BrokerId, ClientError | None]:
            known[broker] = response.groups
            return dict.fromkeys(keys, failure(response.error_code))

        request = ListGroupsRequest(states_filter=tuple(states), types_filter=tuple(types))
        ask: Ask[BrokerId, None, ListGroupsResponse] = Ask(
            request=lambda _keys: request, response_type=ListGroupsResponse, outcomes=listed
        )
        brokers = await self._brokers()
        outcomes = await self._calls.ask_each(dict(zip(brokers, brokers, strict=True)), ask)
        return GroupListings(
            groups=tuple(
                sorted(
                    (
                        listing(group, broker)
                        for broker, groups in known.items()
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

    async def describe(self, group_ids: Sequence[str]) -> dict[str, GroupDescription | ClientError]:
        """Return each group as its coordinator has it."""
        ask: Ask[str, GroupDescription, DescribeGroupsResponse] = Ask(
            request=lambda keys: DescribeGroupsRequest(groups=keys),
            response_type=DescribeGroupsResponse,
            outcomes=described,
        )
        return await self._ask(group_ids, ask)

    async def delete_groups(self, group_ids: Sequence[str]) -> dict[str, ClientError | None]:
        """Delete groups with their offsets; None for each that went."""
        ask: Ask[str, None, DeleteGroupsResponse] = Ask(
            request=lambda keys: DeleteGroupsRequest(groups_names=keys),
            response_type=DeleteGroupsResponse,
            outcomes=removed,
        )
        return await self._ask(group_ids, ask)

    async def remove_members(
        self, group_id: str, *, reason: str = REMOVED_BY_AN_ADMIN
    ) -> dict[str, ErrorCode]:
        """Take every member out of a group, and return what became of each.

        Shape: a static member goes, and is named, by its `group.instance.id`, any other by its
        member id; empty if the group has none. One that lives learns it by UNKNOWN_MEMBER_ID, and
        joins again.
        Raises: ClientError if the group as a whole was refused, or nobody answered for it.
        Source: Kafka KafkaAdminClient.removeMembersFromConsumerGroup, all members.
        """
        (found,) = (await self.describe((group_id,))).values()
        if isinstance(found, ClientError):
            raise found
        if not found.members:
            return {}
        request = LeaveGroupRequest(
            group_id=group_id,
            members=tuple(
                MemberIdentity(
                    member_id="" if member.group_instance_id else member.member_id,
                    group_instance_id=member.group_instance_id,
                    reason=reason,
                )
                for member in found.members
            ),
        )
        ask: Ask[str, dict[str, ErrorCode], LeaveGroupResponse] = Ask(
            request=lambda _keys: request, response_type=LeaveGroupResponse, outcomes=left
        )
        outcomes = await self._ask((group_id,), ask)
        return _only(outcomes)

    # -- offsets ---------------------------------------------------------------------------------

    async def committed_offsets(
        self, group_ids: Sequence[str]
    ) -> dict[str, dict[TopicPartition, int] | ClientError]:
        """Return every offset that each group has committed."""
        ask: Ask[str, dict[TopicPartition, int], OffsetFetchResponse] = Ask(
            request=lambda keys: OffsetFetchRequest(
                groups=tuple(OffsetFetchRequestGroup(group_id=key) for key in keys)
            ),
            response_type=OffsetFetchResponse,
            outcomes=fetched,
        )
        return await self._ask(group_ids, ask)

    async def set_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ErrorCode]:
        """Commit offsets for a group without members, and return what became of each.

        Effects: traces an ADMIN_COMMIT of each, also where no answer came.
        Raises: ClientError if the group as a whole was refused, or nobody answered for it.
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

        def answered(
            response: OffsetCommitResponse, broker: BrokerId, keys: tuple[str, ...]
        ) -> Mapping[str, dict[TopicPartition, ErrorCode] | ClientError]:
            for partition, code in commit_errors(response).items():
                trace(partition, broker, code.name)
            return committed(response, broker, keys)

        def silent(broker: BrokerId, why: str) -> None:
            for partition in offsets:
                trace(partition, broker, why)

        ask: Ask[str, dict[TopicPartition, ErrorCode], OffsetCommitResponse] = Ask(
            request=lambda _keys: request,
            response_type=OffsetCommitResponse,
            outcomes=answered,
            on_silence=silent,
        )
        outcomes = await self._ask((group_id,), ask, waits=True)
        return _only(outcomes)

    async def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Delete committed offsets of a group, and return what became of each.

        Raises: as set_offsets.
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
            outcomes=deleted,
        )
        outcomes = await self._ask((group_id,), ask)
        return _only(outcomes)

    # -- partitions ------------------------------------------------------------------------------

    async def count_partitions(self, topics: Sequence[str]) -> dict[str, int | ClientError]:
        """Return how many partitions each topic has. Raises: TimeoutError."""
        return await count_partitions(self._calls, topics)

    async def earliest_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | ClientError]:
        """Return where each partition's log begins."""
        return await log_offsets(self._calls, partitions, EARLIEST)

    async def latest_offsets(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, int | ClientError]:
        """Return where each partition's log ends, as consumers see it."""
        return await log_offsets(self._calls, partitions, LATEST)

    async def _brokers(self) -> tuple[BrokerId, ...]:
        """Return the brokers whose groups are wanted. Raises: TimeoutError."""
        if self._broker is not None:
            return (self._broker,)
        metadata = await self._calls.ask_broker(MetadataRequest(topics=()), MetadataResponse)
        return tuple(BrokerId(each.node_id) for each in metadata.brokers)

    async def _ask(
        self, group_ids: Sequence[str], ask: Ask[str, V, R], *, waits: bool = False
    ) -> dict[str, V | ClientError]:
        """Ask each group's coordinator, or the one broker."""
        if self._broker is None:
            return await self._calls.ask_each(group_ids, ask, _COORDINATORS, waits=waits)
        places: dict[str, BrokerId | None] = dict.fromkeys(group_ids, self._broker)
        return await self._calls.ask_each(places, _asked_here(ask), waits=waits)


def _asked_here(ask: Ask[str, V, R]) -> Ask[str, V, R]:
    """Return `ask` for a broker that is asked whatever it is: NOT_COORDINATOR is its answer."""

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
    if isinstance(outcome, ClientError) and outcome.name == ErrorCode.NOT_COORDINATOR.name:
        return ClientError(outcome.name, retriable=False)
    return outcome


def _only(outcomes: Mapping[str, dict[K, ErrorCode] | ClientError]) -> dict[K, ErrorCode]:
    """Return the outcome of the one group. Raises: ClientError."""
    (outcome,) = outcomes.values()
    if isinstance(outcome, ClientError):
        raise outcome
    return outcome
