"""Records of groups and offsets, as they are written to `__consumer_offsets`.

A tombstone is a record without a value, which deletes the group or offset of its key. In all
functions below, `now_ms` is the record's timestamp, and `versions` says in which versions of the
format the values are written.

Source: Kafka `GroupMetadataManager.storeGroup`, `storeOffsets`; docs/kafka/BEHAVIOUR.md 5.1, 5.2.
"""

from coordinator.group import Group
from protocol.errors import SimulationError
from protocol.ids import TopicPartition
from protocol.metadata_version import ValueVersions
from protocol.records.batch import Record
from protocol.records.offsets import (
    GroupMetadataValue,
    MemberMetadataValue,
    OffsetCommitValue,
    encode_group_metadata_key,
    encode_group_metadata_value,
    encode_offset_commit_key,
    encode_offset_commit_value,
)


def group_record(
    group: Group, assignments: dict[str, bytes], now_ms: int, versions: ValueVersions
) -> Record:
    """Return the record of `group` with its members and their assignments.

    `assignments` has an entry for the id of every member. A member may support several protocols.
    Only the protocol that the group has selected is stored, with the member's metadata for this
    protocol.

    Raises: SimulationError if a member has no assignment, or if there are members but no protocol.
    """
    name = group.protocol_name
    members = []
    for member in group.members.values():
        if name is None or member.member_id not in assignments:
            raise SimulationError(
                f"group {group.group_id}: cannot store {member.member_id} with protocol {name} "
                f"and assignments for {tuple(assignments)}"
            )
        members.append(
            MemberMetadataValue(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                session_timeout_ms=member.session_timeout_ms,
                subscription=member.metadata(name),
                assignment=assignments[member.member_id],
            )
        )

    # The format has no null for the protocol type and the timestamp: "" and -1 stand for None.
    timestamp = group.current_state_timestamp_ms
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=name,
        leader=group.leader_id,
        current_state_timestamp_ms=-1 if timestamp is None else timestamp,
        members=tuple(members),
    )
    return Record(
        encode_group_metadata_key(group.group_id),
        encode_group_metadata_value(value, versions.group),
        now_ms,
    )


def group_tombstone(group_id: str, now_ms: int) -> Record:
    """Return the record that deletes a group."""
    return Record(encode_group_metadata_key(group_id), None, now_ms)


def offset_tombstone(group_id: str, partition: TopicPartition, now_ms: int) -> Record:
    """Return the record that deletes a committed offset."""
    return Record(encode_offset_commit_key(group_id, partition), None, now_ms)


def offset_record(
    group_id: str,
    partition: TopicPartition,
    value: OffsetCommitValue,
    now_ms: int,
    versions: ValueVersions,
) -> Record:
    """Return the record of one committed offset."""
    return Record(
        encode_offset_commit_key(group_id, partition),
        encode_offset_commit_value(value, versions.offset),
        now_ms,
    )
