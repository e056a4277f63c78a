"""Frames between the nodes `a` and `b`, and link rules about them.

A frame is one message on a connection. There are four kinds: a frame opens the connection, is a
request, is a response, or closes the connection. A link rule has a selector, which matches some of
the frames, and an effect on the matched frames: it delays or drops them, for example. By default
`a` is the client, `b` is the server, and the frame is on connection 1.
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
    """Return the frame of a request.

    The request is a Heartbeat, or a FindCoordinator if `find` is True. `number` is its correlation
    id, by which a test recognizes the request.
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
    """Return the frame that answers request `number`.

    `find` has to be the same as for the request.
    """
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
    """Return the frame that opens a connection. `purpose` says what the client needs it for."""
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
    """Return the frame that closes a connection.

    The client of the connection has sent it, or the server if `by_client` is False.
    """
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
    """Return a rule, by default about all frames from `a` to `b`.

    Without `purposes` the rule matches connections of every purpose, and without `apis` requests of
    every API.
    """
    selector = Selector(sources=sources, destinations=destinations, purposes=purposes, apis=apis)
    return LinkRule(rule_id=rule_id, selector=selector, effect=effect)


def both_ways(
    effect: LinkEffect, *, purposes: tuple[str, ...] = (), apis: tuple[str, ...] = ()
) -> LinkRule:
    """Return a rule about the frames between `a` and `b`, in both directions."""
    return rule(effect, sources=(A, B), destinations=(A, B), purposes=purposes, apis=apis)
