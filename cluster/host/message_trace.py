"""What the trace says of a message: its API, and the group, member and generation it names."""

from protocol.api import AnyRequest
from protocol.envelope import RequestEnvelope
from protocol.ids import NodeName
from protocol.messages.discovery import FindCoordinatorRequest
from protocol.messages.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    SyncGroupRequest,
)
from protocol.messages.log import FetchRequest, ProduceRequest
from protocol.messages.offset import OffsetCommitRequest, OffsetFetchRequest
from protocol.messages.transaction import AddOffsetsToTxnRequest, TxnOffsetCommitRequest
from protocol.trace import TraceEvent, TraceKind


def client_event(
    kind: TraceKind,
    envelope: RequestEnvelope,
    *,
    peer: NodeName,
    purpose: str,
    error: str | None = None,
) -> TraceEvent:
    """Return what a client says of its request: sent, answered or failed."""
    group, member, generation = _group_columns(envelope.body)
    return TraceEvent(
        kind=kind,
        peer=peer,
        api=envelope.api_key.label,
        correlation_id=envelope.correlation_id,
        group=group,
        member=member,
        generation=generation,
        cause=purpose,
        error=error,
    )


def server_event(
    kind: TraceKind, envelope: RequestEnvelope, *, peer: NodeName, error: str | None = None
) -> TraceEvent:
    """Return what a server says of a request: received or answered."""
    return TraceEvent(
        kind=kind,
        peer=peer,
        api=envelope.api_key.label,
        correlation_id=envelope.correlation_id,
        error=error,
    )


def _group_columns(request: AnyRequest) -> tuple[str | None, str | None, int | None]:
    """Return group, member and generation that a request names, None where it names none."""
    match request:
        case FetchRequest() | ProduceRequest():  # first, because most requests are
            return None, None, None
        case HeartbeatRequest() | SyncGroupRequest():
            return request.group_id, request.member_id, request.generation_id
        case OffsetCommitRequest():
            return request.group_id, request.member_id, request.generation_id_or_member_epoch
        case TxnOffsetCommitRequest():
            return request.group_id, request.member_id, request.generation_id
        case AddOffsetsToTxnRequest():
            return request.group_id, None, None
        case JoinGroupRequest():
            return request.group_id, request.member_id, None
        case LeaveGroupRequest():
            member = request.members[0].member_id if request.members else None
            return request.group_id, member, None
        case OffsetFetchRequest() if request.groups:
            group = request.groups[0]
            return group.group_id, group.member_id, group.member_epoch
        case FindCoordinatorRequest():
            return request.coordinator_keys[0] if request.coordinator_keys else None, None, None
        case _:
            return None, None, None
