"""Load: builds the groups of one offsets partition from its log.

The broker feeds the log in chunks of any size, in offset order, up to the log's end, and then calls
`finish`. As in Kafka, a load also reads the records above the high watermark, which may not be on
every in-sync replica yet. Of several records with one key, the last one counts. So `read` only
keeps the newest bytes of each key, and `finish` decodes one value for each key. This makes a log
with many commits of few partitions cheap to load.

A record is about a committed offset, about a group with its members, or about something that only
newer coordinators know. The first two bytes of a record's key are the version of the key, which
tells these three apart. A record without a value (a tombstone) deletes its key. A marker is the
control batch that ends a producer's transaction.

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
    """Why the load failed, None if it did not. A load that the broker stopped before the end of the
    log counts as failed only with the switch `failed_load_refuses`."""
    unknown_records: int = 0
    """Number of records of kinds that only newer coordinators know; they were ignored."""


class Load:
    """An unfinished load of one partition."""

    def __init__(self, partition: int, leader_epoch: int, codecs: Codecs = NO_CODECS) -> None:
        self._codecs = codecs
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.error: str | None = None  # why reading stopped early
        self.unknown_records = 0
        # Key of an offset -> the newest value with this key, and the base offset of that value's
        # batch. As in Kafka, the position of a commit is the base offset of its batch.
        self._offsets: dict[bytes, tuple[int, bytes]] = {}
        # Producer id -> a map like `_offsets` for its open transaction, whose marker was not read
        # yet.
        self._transactional: dict[int, dict[bytes, tuple[int, bytes]]] = {}
        self._groups: dict[str, GroupMetadataValue] = {}

    def read(self, batches: tuple[RecordBatch, ...]) -> None:
        """Read the next batches. An unreadable record ends the load, and `error` describes it.

        All groups and offsets read before the error are dropped, as in Kafka, which adds groups to
        its cache only at the end of a load.
        """
        if self.error is not None:
            return
        try:
            for batch in batches:
                self._read_batch(batch)
        except ValueError as error:  # CorruptRecord and the errors of msgspec are ValueErrors
            self._fail(str(error))

    def finish(self, now_us: int) -> tuple[Group, ...]:
        """Return the groups: first those with a group record, then those with offsets only."""
        groups: dict[str, Group] = {}
        try:
            # Groups with records come first, since `_offset` creates every group that is missing.
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
        """Decode an offset record, and return it with its group; create a group that is missing.

        A group is missing if the log has no group record of it. This is a simple group, which never
        had members.
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
        # This loop takes most of the time of a load with many commits. So it decodes nothing. It
        # calls `_offset_key` only for an unusual key: one of another kind, or in an older version.
        for key_bytes, value, _ in fields_of(batch, self._codecs):
            key: bytes | None = key_bytes
            if key is None or key[:2] != _OFFSET_KEY_PREFIX:
                key = _offset_key(key_bytes, base_offset)
                if key is None:
                    # `key_bytes` is not None here; `or` is for the type checker.
                    self._read_other(key_bytes or b"", value)
                    continue
            if value is None:
                offsets.pop(key, None)
            else:
                offsets[key] = (base_offset, value)

    def _read_transactional(self, batch: RecordBatch) -> None:
        """Keep the records of a transaction, or end the transaction if the batch is its marker.

        The position of a commit in a transaction is the position of its own record in the log, not
        the position of the marker. For example, a commit outside the transaction may follow the
        record and precede the marker. It is then newer than the commit in the transaction, and
        stays.
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
            return  # the control batch has no marker, so it ends no transaction
        pending = self._transactional.pop(batch.producer_id, {})
        if marker.is_commit:
            for key, written in pending.items():
                current = self._offsets.get(key)
                if current is None or current[0] < written[0]:
                    self._offsets[key] = written

    def _read_other(self, key_bytes: bytes, value: bytes | None) -> None:
        """Keep a group's record, or count a record of an unknown kind."""
        key = decode_key(key_bytes)
        if not isinstance(key, GroupMetadataKey):
            self.unknown_records += 1  # written by a newer coordinator; ignored, as in Kafka
            return
        # A dict keeps the position of a key that is overwritten. The key is removed first, so that
        # groups are in the order of their newest records.
        self._groups.pop(key.group, None)
        if value is not None:
            self._groups[key.group] = decode_group_metadata_value(value)

    def _fail(self, error: str) -> None:
        """Note why the load has failed, and drop all that it has read."""
        self.error = error
        self._offsets.clear()
        self._transactional.clear()
        self._groups.clear()


def _offset_key(key: bytes | None, base_offset: int) -> bytes | None:
    """Return an offset's key in the newest version, None if the key is not that of an offset.

    Raises: CorruptRecord if there is no key.
    """
    # The first two bytes are the version. A version up to OFFSET_COMMIT_KEY_VERSION marks the key
    # of an offset, a higher version a key of another kind. All versions of an offset's key have the
    # same fields. So two keys of one offset become equal bytes when both have the newest version.
    # Neither key must be decoded for this.
    if key is None or len(key) < 2:
        raise CorruptRecord(f"record without key in batch {base_offset}")
    # The first byte is the high byte of the version. If it is not 0, the version is 256 or more.
    if key[0] or key[1] > OFFSET_COMMIT_KEY_VERSION:
        return None
    return key if key[1] == OFFSET_COMMIT_KEY_VERSION else _OFFSET_KEY_PREFIX + key[2:]


def group_from_record(
    group_id: str, partition: int, value: GroupMetadataValue, now_us: int
) -> Group:
    """Return the group of a stored record: Stable with members, Empty without.

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
        if value.protocol is None:  # only a group without members may lack it
            raise CorruptRecord(f"group {group_id} has members and no protocol")
        rebalance_timeout_ms = stored.rebalance_timeout_ms  # -1: an old record lacks the field
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

    # `add` has made the first member the leader. The stored leader takes its place.
    if value.leader is not None:
        if value.leader not in group.members:
            raise CorruptRecord(f"group {group_id}: leader {value.leader} is no member")
        group.leader_id = value.leader
    # The topics are normally computed when a generation begins. Before the next one begins, an
    # expiry of offsets or an OffsetDelete may need them.
    group.subscribed_topics = group.compute_subscribed_topics()
    return group
