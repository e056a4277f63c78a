"""Print messages, records, trace events and groups as the lines of a transcript.

A transcript is a text file with stories, which are tests. A story has commands and the results of
these commands. The lines of a result are short, because people review them. For example, this is
the answer to the third request:

    #3 JoinGroup generation_id=1 leader=m-1 member_id=m-1

Fields that have their defaults are left out. Times are milliseconds since the story began, such as
`@500`. The encoded subscription of a consumer is printed as a list of topics. All other bytes are
quoted.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

from coordinator.group import Group, InitialDelayedJoin
from coordinator.member import Member
from coordinator.storage.offsets import GroupOffsets
from protocol.effects import ACKS_ALL, Append
from protocol.errors import ErrorCode
from protocol.ids import NO_PRODUCER_ID
from protocol.records.batch import Record, RecordBatch, decode_records
from protocol.records.offsets import (
    GroupMetadataKey,
    OffsetCommitKey,
    decode_group_metadata_value,
    decode_key,
    decode_offset_commit_value,
)
from protocol.records.versioned import record_version
from protocol.trace import TraceEvent
from tests.support.builders.requests import GROUP
from tests.support.transcripts.words import bytes_text

EPOCH_MS = 1_700_000_000_000
"""The time at which every story begins, in milliseconds since 1970."""
WIDTH = 100
"""Number of characters in a line. A longer message is printed on several lines."""
INDENT = "  "


def message_lines(head: str, message: msgspec.Struct) -> list[str]:
    """Return the lines of a message: first `head`, then the message's error code and its fields.

    If possible, this is one line. Otherwise each struct within the message has a line of its own.
    """
    words = [head]
    error = getattr(message, "error_code", None)
    if isinstance(error, ErrorCode):
        words.append(error.name)
    plain, nested = _fields(message, leave_out=("error_code",))
    first_line = " ".join((*words, *plain))
    structs = [f"{name} {_struct_text(struct)}" for name, rows in nested for struct in rows]
    whole_line = " ".join((first_line, *structs))
    if len(whole_line) <= WIDTH:
        return [whole_line]
    return [first_line, *(INDENT + struct for struct in structs)]


def append_lines(append: Append, offset: int | None) -> list[str]:
    """Return a line about an append to the log, and the lines of each of its records.

    `offset` is the place of the append in the log. It is None if the append is held, and is not in
    the log yet.
    """
    words = [f"append to __consumer_offsets-{append.partition}"]
    words.append("held" if offset is None else f"at {offset}")
    if append.required_acks != ACKS_ALL:
        words.append(f"acks={append.required_acks}")
    if append.producer_id != NO_PRODUCER_ID:
        words.append(f"producer={append.producer_id}.{append.producer_epoch}")
    if append.is_transactional:
        words.append("transactional")
    if append.verification_guard is not None:
        words.append(f"guard={append.verification_guard}")
    if append.timeout_ms is not None:
        words.append(f"timeout_ms={append.timeout_ms}")
    lines = (line for record in append.records for line in record_lines(record))
    return [" ".join(words), *(INDENT + line for line in lines)]


def record_lines(record: Record) -> list[str]:
    """Return the lines of a record of `__consumer_offsets`.

    A record without a value is a tombstone: it deletes what was stored under its key. For every
    other record, the version of the value is printed.
    """
    key = decode_key(record.key or b"")
    match key:
        case GroupMetadataKey(group=group):
            name = group_name(group)
        case OffsetCommitKey(group=group, topic=topic, partition=partition):
            name = f"offset {topic}-{partition}"
            name += "" if group == GROUP else f" of {group!r}"
        case _:
            name = repr(key)
    # Only a record that is older than the story has its time in the line, with one exception: the
    # line of a tombstone always ends with its time.
    if record.timestamp_ms < EPOCH_MS:
        name += f" {time_text(record.timestamp_ms)}"
    if record.value is None:
        return [f"{name} tombstone of {time_text(record.timestamp_ms)}"]
    value: msgspec.Struct
    if isinstance(key, OffsetCommitKey):
        value = decode_offset_commit_value(record.value)
    else:
        # No story has a record with a value under an unknown key. So this is a group's record.
        value = decode_group_metadata_value(record.value)
    return message_lines(f"{name} v{record_version(record.value)}", value)


def batch_text(batch: RecordBatch) -> str:
    """Return a batch as text, such as `5 in epoch 0: 'a' 'b' of producer 7.0`.

    5 is the base offset of the batch. A batch without a producer id has no producer in its text.
    """
    values = " ".join(bytes_text(record.value or b"") for record in decode_records(batch.records))
    words = f"{batch.base_offset} in epoch {batch.partition_leader_epoch}: {values}"
    if batch.producer_id == NO_PRODUCER_ID:
        return words
    return f"{words} of producer {batch.producer_id}.{batch.producer_epoch}"


def trace_text(event: TraceEvent) -> str:
    """Return a trace event as text: its kind, the columns with a value, and the detail."""
    values = {name: getattr(event, name) for name in event.__struct_fields__}
    # These three columns are added to the text below, in another form than `name=value`.
    for name in ("kind", "detail", "cause_text"):
        del values[name]
    # Most stories have only the group GROUP. So its name is not printed.
    if values["group"] == GROUP:
        del values["group"]
    columns = [
        f"{name}={value_text(value, name)}" for name, value in values.items() if value is not None
    ]
    columns += [f"{name}={value_text(value, name)}" for name, value in (event.detail or {}).items()]
    if event.cause_text is not None:
        columns.append(f"({event.cause_text})")
    return " ".join(("trace", event.kind.value, *columns))


def group_lines(group: Group) -> dict[str, str]:
    """Return the lines of a group: one for the group itself, and one for each member and offset.

    The keys of the dict are names of the lines, such as `member m-1`. The line of the group itself
    has the name "". CoordinatorPlayer, which plays a story step by step, compares the lines of the
    same name before and after a step, and prints the lines that have changed.
    """
    words = [f"{group_name(group.group_id)} {group.state.value} generation={group.generation_id}"]
    topics = None
    if group.subscribed_topics is not None:
        topics = f"[{','.join(sorted(group.subscribed_topics))}]"
    columns = {
        "type": group.protocol_type,
        "protocol": group.protocol_name,
        "leader": group.leader_id,
        "pending": ",".join(group.pending_members) or None,
        "pending_sync": ",".join(group.pending_sync_members) or None,
        "topics": topics,
        "new_member_added": "yes" if group.new_member_added else None,
        "delayed_join": _delayed_join(group),
        "since": time_text(group.current_state_timestamp_ms),
    }
    words += [f"{name}={value}" for name, value in columns.items() if value is not None]
    lines = {"": " ".join(words)}
    for member in group.members.values():
        lines[f"member {member.member_id}"] = _member_text(group, member)
    return lines | dict(_offsets(group.offsets))


def group_name(group_id: str) -> str:
    """Return the name of a group for a line. The group of most stories is called just "group"."""
    return "group" if group_id == GROUP else f"group {group_id!r}"


def time_text(time_ms: float | None) -> str:
    """Return a time as milliseconds since the story began, such as `@500`.

    A time before the story is printed as it is, and None as "none".
    """
    if time_ms is None:
        return "none"
    if time_ms < EPOCH_MS:
        return f"{time_ms:g}"
    return f"@{time_ms - EPOCH_MS:g}"


def value_text(value: object, name: str = "") -> str:
    """Return a value as text.

    `name` is the name of the value's field. It shows whether a number is a time.
    """
    match value:
        case ErrorCode():
            return value.name
        case int() if name.endswith("timestamp_ms") and not isinstance(value, bool):
            return time_text(value)
        case bytes():
            return bytes_text(value)
        case RecordBatch():
            return batch_text(value)
        case msgspec.Struct():
            return _struct_text(value)
        case tuple() | list():
            return f"[{', '.join(value_text(item) for item in value)}]"
        case dict():
            pairs = (f"{key}: {value_text(item)}" for key, item in value.items())
            return "{" + ", ".join(pairs) + "}"
        case str() if re.fullmatch(r"[^\s'=,]+", value):
            return value
        case _ if hasattr(value, "name"):
            # Only a member of an Enum has a name here. Its `str`, such as `GroupState.STABLE`, is
            # shorter than its `repr`, `<GroupState.STABLE: 'Stable'>`.
            return str(value)
        case _:
            return repr(value)


def _struct_text(message: msgspec.Struct) -> str:
    """Return a struct as a part of a line: its fields in braces."""
    plain, nested = _fields(message)
    lists = [f"{name}={value_text(rows)}" for name, rows in nested]
    return "{" + " ".join((*plain, *lists)) + "}"


def _fields(
    message: msgspec.Struct, *, leave_out: Iterable[str] = ()
) -> tuple[list[str], list[tuple[str, tuple[msgspec.Struct, ...]]]]:
    """Return the fields of a message that do not have their defaults, in two lists.

    The first list has the texts of ordinary fields, such as "generation_id=1". The second list has
    the name and the value of each field that is itself a list of structs.
    """
    plain: list[str] = []
    nested: list[tuple[str, tuple[msgspec.Struct, ...]]] = []
    for field in msgspec.structs.fields(message):
        value = getattr(message, field.name)
        if field.name in leave_out or value == field.default:
            continue
        if isinstance(value, tuple) and value and isinstance(value[0], msgspec.Struct):
            nested.append((field.name, value))
        else:
            plain.append(f"{field.name}={value_text(value, field.name)}")
    return plain, nested


def _delayed_join(group: Group) -> str | None:
    """Return how a group waits for members in its join phase; None if it does not wait.

    A new group waits for an initial delay. If a member joins during the delay, another delay
    follows, and so on, for at most 60 s in all. `initial(3000,57000)` means: the running delay
    takes 3,000 ms, and all delays that follow may take 57,000 ms together.
    """
    match group.delayed_join:
        case None:
            return None
        case InitialDelayedJoin(delay_ms=delay_ms, remaining_ms=remaining_ms):
            return f"initial({delay_ms},{remaining_ms})"
        case _:
            return "yes"


def _member_text(group: Group, member: Member) -> str:
    """Return the line of a member, without values that are the same in most stories."""
    words = [f"member {member.member_id}"]
    if member.group_instance_id is not None:
        words.append(f"instance={member.group_instance_id}")
        # A static member that comes back gets a new member id. If the group still has a member with
        # the old id, the line of this old member names the new id.
        current_id = group.static_members.get(member.group_instance_id)
        if current_id != member.member_id:
            words.append(f"mapped_to={current_id}")
    if (member.client_id, member.client_host) != ("client", "consumer-0"):
        words.append(f"client={member.client_id}@{member.client_host}")
    words.append(f"session={member.session_timeout_ms} rebalance={member.rebalance_timeout_ms}")
    protocols = (
        f"{protocol.name}:{bytes_text(protocol.metadata)}"
        for protocol in member.supported_protocols
    )
    words.append(f"protocols={','.join(protocols)}")
    if member.protocol_type != group.protocol_type:
        words.append(f"type={member.protocol_type}")
    if member.assignment:
        words.append(f"assignment={bytes_text(member.assignment)}")
    if member.is_new:
        words.append("new")
    if member.awaiting_join is not None:
        answered = " answered" if member.awaiting_join.answered else ""
        words.append(f"awaits_join=#{member.awaiting_join.request_id}{answered}")
    if member.awaiting_sync is not None:
        words.append(f"awaits_sync=#{member.awaiting_sync}")
    return " ".join(words)


def _offsets(offsets: GroupOffsets) -> Iterator[tuple[str, str]]:
    """Yield the name and the line of each offset that is committed, or that is being committed."""
    for partition, stored in offsets.committed().items():
        name = f"offset {partition}"
        yield name, f"{name} {value_text(stored.value)} batch={stored.appended_batch_offset}"
    for partition in offsets.being_appended():
        name = f"commit of {partition}"
        yield name, f"{name} is being appended"
    for producer_id, partition in offsets.being_appended_in_transactions():
        name = f"commit of {partition} by producer {producer_id}"
        yield name, f"{name} is being appended"
    for producer_id in offsets.producers():
        name = f"transaction of producer {producer_id}"
        yield name, f"{name} is open"
    for partition in offsets.latest_partitions():
        # The latest offset is either the committed offset (`get`), or a newer one: an offset that
        # is in the log, but whose append is not acknowledged yet. A newer offset has its own line.
        latest = offsets.latest(partition)
        if latest is not None and latest != offsets.get(partition):
            yield f"written {partition}", f"written {partition} {value_text(latest)}"
