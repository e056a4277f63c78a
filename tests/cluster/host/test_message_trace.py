"""The recorded event of a request says which group, member and generation it is about.

The events of a run are the rows of a table, the trace. When a client sends a request, the row of
this event has the columns `group`, `member` and `generation`, among others. For example, the row of
a Heartbeat of member "m" of group "g" in generation 3 has ("g", "m", 3) in these columns. A column
has None if the request does not have the value.
"""

import pytest

from cluster.host.message_trace import client_event
from protocol.api import API_OF_REQUEST, AnyRequest
from protocol.envelope import RequestEnvelope
from protocol.ids import broker_name
from protocol.messages.discovery import FindCoordinatorRequest
from protocol.messages.group import (
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
)
from protocol.messages.group_admin import OffsetDeleteRequest
from protocol.messages.log import FetchRequest
from protocol.messages.offset import (
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from protocol.messages.transaction import AddOffsetsToTxnRequest, TxnOffsetCommitRequest
from protocol.trace import TraceKind

SECOND_GROUP = OffsetFetchRequestGroup(group_id="other", member_id="n", member_epoch=8)
"""A second group in a request. The row of the request leaves it out."""


@pytest.mark.parametrize(
    ("request_body", "columns"),
    [
        (HeartbeatRequest(group_id="g", generation_id=3, member_id="m"), ("g", "m", 3)),
        (SyncGroupRequest(group_id="g", generation_id=3, member_id="m"), ("g", "m", 3)),
        (
            OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=3, member_id="m"),
            ("g", "m", 3),
        ),
        (
            TxnOffsetCommitRequest(
                transactional_id="t",
                group_id="g",
                producer_id=1,
                producer_epoch=0,
                generation_id=3,
                member_id="m",
                topics=(),
            ),
            ("g", "m", 3),
        ),
        (
            JoinGroupRequest(group_id="g", session_timeout_ms=1, member_id="m", protocols=()),
            ("g", "m", None),
        ),
        (
            LeaveGroupRequest(
                group_id="g",
                members=(MemberIdentity(member_id="m"), MemberIdentity(member_id="n")),
            ),
            ("g", "m", None),
        ),
        (LeaveGroupRequest(group_id="g", members=()), ("g", None, None)),
        (
            OffsetFetchRequest(
                groups=(
                    OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=3),
                    SECOND_GROUP,
                )
            ),
            ("g", "m", 3),
        ),
        (OffsetFetchRequest(groups=()), (None, None, None)),
        (
            AddOffsetsToTxnRequest(
                transactional_id="t", producer_id=1, producer_epoch=0, group_id="g"
            ),
            ("g", None, None),
        ),
        (FindCoordinatorRequest(coordinator_keys=("g", "h")), ("g", None, None)),
        (FindCoordinatorRequest(), (None, None, None)),
        (OffsetDeleteRequest(group_id="g", topics=()), (None, None, None)),
        (FetchRequest(max_wait_ms=1, topics=()), (None, None, None)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_row_of_a_request_has_the_group_columns_of_its_api(
    request_body: AnyRequest, columns: tuple[str | None, str | None, int | None]
) -> None:
    """If a request has several groups or members, the row has the first of them.

    Newer requests have a member epoch, which is in the column `generation`. An OffsetDelete is
    special: it has a group, but its row leaves the three columns out.
    """
    api = API_OF_REQUEST[type(request_body)]
    envelope = RequestEnvelope(
        api_key=api,
        api_version=api.latest_version,
        correlation_id=1,
        client_id="c",
        client_host="c",
        body=request_body,
    )
    row = client_event(TraceKind.REQUEST_SENT, envelope, peer=broker_name(1), purpose="client")
    assert (row.group, row.member, row.generation) == columns
    assert row.api == api.label
