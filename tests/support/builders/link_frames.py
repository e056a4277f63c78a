"""Frames between nodes `a` and `b`, and link rules for them.

A frame is one message on a connection: open, request, response or close. A link rule says what
happens to the frames that its selector matches (cut, slow, ...). Unless a test says otherwise, `a`
is the client and `b` the server of connection 1.
"""

from cluster.host.frames import CloseFrame, OpenFrame, RequestFrame, ResponseFrame
from cluster.links.rules import LinkEffect, LinkRule, Selector
from protocol.api import AnyRequest, AnyResponse, Api
from protocol.envelope import RequestEnvelope, ResponseEnvelope
from protocol.ids import Incarnation, NodeName
from protocol.messages.discovery import FindCoordinatorRequest, FindCoordinatorResponse
from protocol.messages.group import HeartbeatRequest, HeartbeatResponse

A, B, C = NodeName("a"), NodeName("b"), NodeName("c")


def request(
    number: int = 0,
    *,
    connection: int = 1,
    source: NodeName = A,
    destination: NodeName = B,
    find: bool = False,
) -> RequestFrame:
    """Return the frame of a Heartbeat, or with `find` of a FindCoordinator.

    `number` is the correlation id, by which the tests recognize the request.
    """
    body: AnyRequest = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    if find:
        body = FindCoordinatorRequest(coordinator_keys=("g",))
    envelope = RequestEnvelope(
        api_key=Api.FIND_COORDINATOR if find else Api.HEARTBEAT,
        api_version=1,
        correlation_id=number,
        client_id=source,
        client_host=source,
        body=body,
    )
    return RequestFrame(
        source=source, destination=destination, connection_id=connection, envelope=envelope
    )


def response(
    number: int = 0,
    *,
    connection: int = 1,
    source: NodeName = B,
    destination: NodeName = A,
    find: bool = False,
) -> ResponseFrame:
    """Return the frame of the answer to request `number`; `find`: to a FindCoordinator."""
    body: AnyResponse = HeartbeatResponse()
    if find:
        body = FindCoordinatorResponse(coordinators=())
    return ResponseFrame(
        source=source,
        destination=destination,
        connection_id=connection,
        envelope=ResponseEnvelope(correlation_id=number, body=body),
    )


def open_frame(
    connection: int = 1,
    *,
    purpose: str = "coordinator",
    source: NodeName = A,
    destination: NodeName = B,
) -> OpenFrame:
    """Return the frame that opens a connection; `purpose` names what the connection is for."""
    return OpenFrame(
        source=source,
        destination=destination,
        connection_id=connection,
        source_incarnation=Incarnation(0),
        purpose=purpose,
    )


def close(
    connection: int = 1,
    *,
    by_client: bool = True,
    source: NodeName = A,
    destination: NodeName = B,
) -> CloseFrame:
    """Return the frame by which the client or the server closes a connection."""
    return CloseFrame(
        source=source, destination=destination, connection_id=connection, by_client=by_client
    )


def rule(
    effect: LinkEffect,
    *,
    sources: tuple[NodeName, ...] = (A,),
    destinations: tuple[NodeName, ...] = (B,),
    purposes: tuple[str, ...] = (),
    apis: tuple[str, ...] = (),
    rule_id: str = "r",
) -> LinkRule:
    """Return a rule, by default for all frames from `a` to `b`.

    Empty `purposes` or `apis` match every purpose, or every API.
    """
    selector = Selector(sources=sources, destinations=destinations, purposes=purposes, apis=apis)
    return LinkRule(rule_id=rule_id, selector=selector, effect=effect)


def both_ways(
    effect: LinkEffect, *, purposes: tuple[str, ...] = (), apis: tuple[str, ...] = ()
) -> LinkRule:
    """Return a rule for all frames between `a` and `b`."""
    return rule(effect, sources=(A, B), destinations=(A, B), purposes=purposes, apis=apis)
