"""A static member joins in a situation that cannot arise, but of which Kafka has a test.

A static member has a `group.instance.id`, and keeps its place in the group when it restarts. The
situations that can arise are in scenarios/static.txt.

`bench` is a KafkaBench: a coordinator in the situations from which the tests of Kafka's
GroupCoordinatorTest begin. GC-054 is one of these tests (docs/kafka/BEHAVIOUR.md 10.1).
"""

import pytest

from coordinator.apis.join_group import handle_join_group
from coordinator.errors import UnknownServerError
from coordinator.shard import Shard
from coordinator.states import GroupState
from coordinator.turn import Turn
from protocol.errors import ErrorCode
from protocol.ids import RequestId
from protocol.messages.group import JoinGroupResponse
from tests.support.builders.requests import (
    GROUP,
    envelope,
    join_group,
)
from tests.support.harness.kafka_bench import (
    SESSION_MS,
    STATIC_PROTOCOLS,
    KafkaBench,
)


def refused(error: ErrorCode, member_id: str) -> JoinGroupResponse:
    """Return Kafka's answer to a JoinGroup that fails: no generation, no protocol, no leader."""
    return JoinGroupResponse(error_code=error, member_id=member_id)


def test_static_member_that_returns_to_an_empty_group_is_a_server_error() -> None:
    """Kafka throws an error whose message names the group and the instance id.

    The client gets UNKNOWN_SERVER_ERROR, without this message.

    GC-054: static member comes back while the group is Empty: a server error that names both
    """
    bench = KafkaBench()
    bench.static_members()  # the group is Stable, and has the static members L and F
    # In a real coordinator a group with members is never Empty. So the test sets the state by
    # force.
    bench.force(GroupState.PREPARING_REBALANCE, GroupState.EMPTY)

    # Call the handler of the request directly, to see the message of the error.
    shard = Shard(bench.group().partition)
    shard.groups[GROUP] = bench.group()
    turn = Turn(bench.coordinator._shared, bench.now_us)
    body = join_group(instance="F", offers=STATIC_PROTOCOLS, session_timeout_ms=SESSION_MS)
    with pytest.raises(UnknownServerError, match=rf"{GROUP} .* F$"):
        handle_join_group(turn, shard, RequestId(99), body, envelope(body))
    # The answer to the client has only the error code.
    assert bench.join_response(bench.add(instance="F")) == refused(
        ErrorCode.UNKNOWN_SERVER_ERROR, ""
    )
