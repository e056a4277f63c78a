"""Orders about one group, as an administrator gives them: each a function of a host and a cluster.

A dictionary names what the coordinator was asked about, one by one, and what became of each.
"""

from collections.abc import Sequence
from typing import Literal

from cluster.client.admin.group_admin import GroupAdmin
from cluster.client.net.errors import ClientError
from cluster.host.host import Host
from cluster.spec import ClusterSpec
from protocol.ids import TopicPartition

ORDER_TIMEOUT_MS = 2_000
"""How long an order is repeated: a plan waits for it, and other faults of it are due."""

ResetTo = Literal["earliest", "latest"]


class GroupOrderRefused(Exception):
    """The coordinator refused an order, all of it; names the group and Kafka's error."""


class GroupOrderUnanswered(Exception):
    """Nobody answered in time: the order may have been carried out, or may yet be."""


async def remove_members(host: Host, cluster: ClusterSpec, *, group_id: str) -> dict[str, str]:
    """Take every member out of the group. Raises: GroupOrderRefused, GroupOrderUnanswered."""
    async with _Order(host, cluster, group_id) as admin:
        errors = await admin.remove_members(group_id)
        return {member: code.name for member, code in errors.items()}


async def delete_group(host: Host, cluster: ClusterSpec, *, group_id: str) -> dict[str, str]:
    """Delete the group, and its offsets. Raises: as remove_members."""
    async with _Order(host, cluster, group_id) as admin:
        error = (await admin.delete_groups((group_id,)))[group_id]
        if error is not None:
            raise error
        return {}


async def delete_offsets(
    host: Host, cluster: ClusterSpec, *, group_id: str, topics: Sequence[str]
) -> dict[str, str]:
    """Delete what the group has committed of some topics. Raises: as remove_members."""
    async with _Order(host, cluster, group_id) as admin:
        partitions = await _partitions_of(admin, topics)
        errors = await admin.delete_offsets(group_id, partitions)
        return {str(partition): code.name for partition, code in errors.items()}


async def reset_offsets(
    host: Host, cluster: ClusterSpec, *, group_id: str, topics: Sequence[str], to: ResetTo
) -> dict[str, str]:
    """Commit the begin or the end of each partition's log. Raises: as remove_members."""
    async with _Order(host, cluster, group_id) as admin:
        partitions = await _partitions_of(admin, topics)
        find = admin.earliest_offsets if to == "earliest" else admin.latest_offsets
        offsets: dict[TopicPartition, int] = {}
        for partition, found in (await find(partitions)).items():
            if isinstance(found, ClientError):
                raise found
            offsets[partition] = found
        errors = await admin.set_offsets(group_id, offsets)
        return {str(partition): code.name for partition, code in errors.items()}


async def _partitions_of(admin: GroupAdmin, topics: Sequence[str]) -> list[TopicPartition]:
    """Return the partitions of topics. Raises: TimeoutError; ClientError for one without any."""
    counts = await admin.count_partitions(topics)
    partitions = []
    for topic, count in counts.items():
        if isinstance(count, ClientError):
            raise count
        partitions += [TopicPartition(topic, index) for index in range(count)]
    return partitions


class _Order:
    """The administrator of one order; says how it ended in the words of this module."""

    def __init__(self, host: Host, cluster: ClusterSpec, group_id: str) -> None:
        self._admin = GroupAdmin(host, cluster, timeout_ms=ORDER_TIMEOUT_MS)
        self._group_id = group_id

    async def __aenter__(self) -> GroupAdmin:
        return self._admin

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._admin.close()
        if isinstance(error, TimeoutError):
            raise GroupOrderUnanswered(f"{self._group_id}: {error}") from error
        if isinstance(error, ClientError) and error.retriable:
            raise GroupOrderUnanswered(
                f"{self._group_id}: no answer that counts in {ORDER_TIMEOUT_MS} ms: {error.name}"
            ) from error
        if isinstance(error, ClientError):
            raise GroupOrderRefused(f"{self._group_id}: {error.name}") from error
