"""Load: builds the groups of one partition of `__consumer_offsets` from its log.

The broker passes the log to `read`, in chunks of any size and in the order of offsets, and then
calls `finish`, which returns the groups. As in Kafka, the whole log is read, also the records above
the high watermark.

A record is about a committed offset, about a group with its members, or about something that only
newer coordinators know. The first two bytes of the record's key say which of the three. A record
without a value deletes its key. If several records have the same key, the last record counts. So
`read` does not decode the values of offsets: it keeps the newest bytes of each key, and `finish`
decodes only these. This makes a log with many commits of a few partitions cheap to load.

The offsets of a transaction count only if the transaction commits. They are kept apart until `read`
meets the marker, the control batch that ends the transaction.

Source: Kafka `GroupMetadataManager.doLoadGroupsAndOffsets`, `GroupMetadata.loadGroup`;
docs/kafka/BEHAVIOUR.md 5.4.
"""

from dataclasses import dataclass

from coordinator.errors import UnknownServerError
from coordinator.group import Group
from coordinator.member import Member
from coordinator.states import GroupState
from coordinator.storage.offsets import CommittedOffset
from protocol.compression import NO_CODECS, Codecs
from protocol.ids import TopicPartition
from protocol.messages.group import JoinGroupRequestProtocol
from protocol.records.batch import RecordBatch, fields_of
from protocol.records.control import decode_marker
from protocol.records.offsets import (
    OFFSET_COMMIT_KEY_VERSION,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    decode_group_metadata_value,
    decode_key,
    decode_offset_commit_value,
)
from protocol.records.versioned import CorruptRecord

_OFFSET_KEY_PREFIX = OFFSET_COMMIT_KEY_VERSION.to_bytes(2, "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadReport:
    """Outcome of a load."""

    error: str | None = None
    """Why the load failed, None if the load did not fail. A load that the broker stopped before the
    end of the log counts as failed only with the switch `failed_load_refuses`."""
    unknown_records: int = 0
    """Number of records that were ignored, because only newer coordinators know what they are
    about."""


class Load:
    """An unfinished load of one partition."""

    def __init__(self, partition: int, leader_epoch: int, codecs: Codecs = NO_CODECS) -> None:
        self._codecs = codecs  # to decompress batches
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.error: str | None = None  # why the load has failed, None so far
        self.unknown_records = 0
        # Key of an offset -> (base offset of a batch, the newest value, which is in this batch).
        self._offsets: dict[bytes, tuple[int, bytes]] = {}
        # Producer id -> a map like `_offsets`, for a transaction whose marker was not read yet.
        self._transactional: dict[int, dict[bytes, tuple[int, bytes]]] = {}
        self._groups: dict[str, GroupMetadataValue] = {}

    def read(self, batches: tuple[RecordBatch, ...]) -> None:
        """Read the next batches.

        An unreadable record makes the load fail: `error` describes it, and all that was read is
        dropped. Kafka does the same, because it creates groups only at the end of a load.
        """
        if self.error is not None:
            return
        try:
            for batch in batches:
                self._read_batch(batch)
        except ValueError as error:  # CorruptRecord and the errors of msgspec are ValueErrors
            self._fail(str(error))

    def finish(self, now_us: int) -> tuple[Group, ...]:
        """Return the groups: first those with a group record, then those with offsets only.

        If a stored value cannot be decoded, the load fails, and there are no groups.
        """
        groups: dict[str, Group] = {}
        try:
            # The groups with records must be created first. `_offset` creates a group that is
            # missing, and such a group has no members.
            for group_id, value in self._groups.items():
                groups[group_id] = group_from_record(group_id, self.partition, value, now_us)
            for key_bytes, written in self._offsets.items():
                group, name, stored = self._offset(groups, key_bytes, written, now_us)
                group.offsets.load(name, stored)
            for producer_id, pending in self._transactional.items():
                for key_bytes, written in pending.items():
                    group, name, stored = self._offset(groups, key_bytes, written, now_us)
                    group.offsets.load_transactional(producer_id, name, stored)
        except (ValueError, UnknownServerError) as error:
            self._fail(str(error))
            return ()
        return tuple(groups.values())

    def _offset(
        self, groups: dict[str, Group], key_bytes: bytes, written: tuple[int, bytes], now_us: int
    ) -> tuple[Group, TopicPartition, CommittedOffset]:
        """Decode an offset, and return it with its group and its partition.

        `written` is a pair: the base offset of the offset's batch, and the bytes of the value. If
        the log has no record of the group, the group never had members. Such a group is created
        here.
        """
        key = decode_key(key_bytes)
        if not isinstance(key, OffsetCommitKey):
            raise CorruptRecord(f"{key} is no key of an offset")
        group = groups.get(key.group)
        if group is None:
            group = Group(key.group, self.partition, GroupState.EMPTY, now_us)
            groups[key.group] = group
        base_offset, value_bytes = written
        stored = CommittedOffset(base_offset, decode_offset_commit_value(value_bytes))
        return group, key.topic_partition, stored

    def _read_batch(self, batch: RecordBatch) -> None:
        """Keep the newest value of each key in a batch."""
        if batch.is_transactional or batch.is_control:
            self._read_transactional(batch)
            return
        offsets = self._offsets
        base_offset = batch.base_offset
        # This loop takes most of the time of a load with many commits, so it does as little as
        # possible. Most keys are keys of offsets in the newest version. `_offset_key` is called
        # only for other keys.
        for key_bytes, value, _ in fields_of(batch, self._codecs):
            key: bytes | None = key_bytes
            if key is None or key[:2] != _OFFSET_KEY_PREFIX:
                key = _offset_key(key_bytes, base_offset)
                if key is None:
                    # `key_bytes` is not None here. The `or` is for the type checker.
                    self._read_other(key_bytes or b"", value)
                    continue
            if value is None:
                offsets.pop(key, None)
            else:
                offsets[key] = (base_offset, value)

    def _read_transactional(self, batch: RecordBatch) -> None:
        """Keep the records of a transaction, or end the transaction if the batch is its marker.

        If there are two commits of a partition, the commit whose record is later in the log is the
        newer one. The place of the marker does not matter. For example:

            offset 7: commit in a transaction
            offset 8: commit outside transactions
            offset 9: marker that commits the transaction

        Here the commit at 8 stays.
        """
        if not batch.is_control:
            pending = self._transactional.setdefault(batch.producer_id, {})
            for key_bytes, value, _ in fields_of(batch, self._codecs):
                key = _offset_key(key_bytes, batch.base_offset)
                if key is None:
                    self._read_other(key_bytes or b"", value)
                elif value is None:
                    pending.pop(key, None)
                else:
                    pending[key] = (batch.base_offset, value)
            return

        marker = decode_marker(batch)
        if marker is None:
            return  # a control batch of another kind
        pending = self._transactional.pop(batch.producer_id, {})
        if marker.is_commit:
            for key, written in pending.items():
                current = self._offsets.get(key)
                if current is None or current[0] < written[0]:  # compares the base offsets
                    self._offsets[key] = written

    def _read_other(self, key_bytes: bytes, value: bytes | None) -> None:
        """Keep a group's record, or count a record of an unknown kind."""
        key = decode_key(key_bytes)
        if not isinstance(key, GroupMetadataKey):
            self.unknown_records += 1  # written by a newer coordinator; ignored, as in Kafka
            return
        # The groups must be in the order of their newest records. A key that is overwritten keeps
        # its old place in the dict, so the key is removed first.
        self._groups.pop(key.group, None)
        if value is not None:
            self._groups[key.group] = decode_group_metadata_value(value)

    def _fail(self, error: str) -> None:
        """Make the load fail: note why, and drop all that was read."""
        self.error = error
        self._offsets.clear()
        self._transactional.clear()
        self._groups.clear()


def _offset_key(key: bytes | None, base_offset: int) -> bytes | None:
    """Return an offset's key in the newest version, None if the key is not that of an offset.

    So the keys of one offset in different versions become equal bytes.

    Raises: CorruptRecord if there is no key, or the key is too short for a version.
    """
    # The first two bytes are the version. An offset's key has a version up to
    # OFFSET_COMMIT_KEY_VERSION. All these versions have the same fields, so it is enough to replace
    # the two bytes.
    if key is None or len(key) < 2:
        raise CorruptRecord(f"record without key in batch {base_offset}")
    # The first byte is the high byte of the version. If it is not 0, the version is 256 or more.
    if key[0] or key[1] > OFFSET_COMMIT_KEY_VERSION:
        return None
    return key if key[1] == OFFSET_COMMIT_KEY_VERSION else _OFFSET_KEY_PREFIX + key[2:]


def group_from_record(
    group_id: str, partition: int, value: GroupMetadataValue, now_us: int
) -> Group:
    """Return the group of a stored record: Stable if it has members, otherwise Empty.

    Raises: CorruptRecord if the record has members but no protocol, or a leader that is no member;
        UnknownServerError if a member's subscription cannot be parsed.
    """
    state = GroupState.STABLE if value.members else GroupState.EMPTY
    group = Group(group_id, partition, state, now_us)
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None  # "" in the record of a group without type
    group.protocol_name = value.protocol
    timestamp = value.current_state_timestamp_ms
    group.current_state_timestamp_ms = None if timestamp == -1 else timestamp  # -1: unknown
    for stored in value.members:
        if value.protocol is None:  # only a group without members may have no protocol
            raise CorruptRecord(f"group {group_id} has members and no protocol")
        # -1: the record has an old version without this field. The session timeout takes its place.
        rebalance_timeout_ms = stored.rebalance_timeout_ms
        group.add(
            Member(
                member_id=stored.member_id,
                group_instance_id=stored.group_instance_id,
                client_id=stored.client_id,
                client_host=stored.client_host,
                rebalance_timeout_ms=stored.session_timeout_ms
                if rebalance_timeout_ms == -1
                else rebalance_timeout_ms,
                session_timeout_ms=stored.session_timeout_ms,
                protocol_type=value.protocol_type,
                supported_protocols=(
                    JoinGroupRequestProtocol(value.protocol, stored.subscription),
                ),
                assignment=stored.assignment,
            )
        )

    # `add` has made the first member the leader. The record says who really is the leader.
    if value.leader is not None:
        if value.leader not in group.members:
            raise CorruptRecord(f"group {group_id}: leader {value.leader} is no member")
        group.leader_id = value.leader
    # Normally the topics are computed when a generation begins. This generation began long ago, but
    # an expiry of offsets or an OffsetDelete may need its topics.
    group.subscribed_topics = group.compute_subscribed_topics()
    return group
