"""Drawn losses of responses: the APIs, the errors, and the two ends of the link.

If a response is lost on its way, the server has carried out the request, but the client does not
know this. The client sends the request again, and the server carries out the second request on a
state that the first request has changed. This is interesting only if the request changes the
server's state. So nearly all APIs in this module belong to requests that change the server's state.

A fault loses either all responses of an API, or only the responses with certain errors.
"""

from typing import Any

from chaos.experiment.structs import FaultDefinition
from chaos.exploration.draw.fault_draw import FaultDraw
from protocol.api import Api
from protocol.errors import ErrorCode

_NONE = ErrorCode.NONE.name
_MEMBER_ID_REQUIRED = ErrorCode.MEMBER_ID_REQUIRED.name
_Response = tuple[Api, tuple[str, ...]]
"""An API, and the errors of the responses to lose.

The error NONE stands for a success. If the tuple of errors is empty, all responses are lost.
"""
# A response that occurs twice in a tuple is drawn twice as often.
_OF_A_REBALANCE: tuple[_Response, ...] = (
    (Api.JOIN_GROUP, (_MEMBER_ID_REQUIRED,)),
    (Api.JOIN_GROUP, (_NONE,)),
    (Api.SYNC_GROUP, (_NONE,)),
    (Api.SYNC_GROUP, (_NONE,)),
)
# Responses to the members of a group, during a rebalance and at other times.
_OF_MEMBERS: tuple[_Response, ...] = (
    *_OF_A_REBALANCE,
    (Api.OFFSET_COMMIT, ()),
    (Api.LEAVE_GROUP, ()),
    (Api.HEARTBEAT, ()),
    (Api.OFFSET_FETCH, ()),
)
# Responses to the members of a transactional group.
_OF_TRANSACTIONS: tuple[_Response, ...] = (
    (Api.INIT_PRODUCER_ID, ()),
    (Api.ADD_OFFSETS_TO_TXN, ()),
    (Api.TXN_OFFSET_COMMIT, ()),
    (Api.END_TXN, ()),
)
# Responses of the controller to brokers.
_OF_THE_CONTROLLER: tuple[_Response, ...] = (
    (Api.ALTER_PARTITION, ()),
    (Api.ALTER_PARTITION, ()),
    (Api.BROKER_HEARTBEAT, ()),
    (Api.BROKER_REGISTRATION, ()),
    (Api.ALLOCATE_PRODUCER_IDS, ()),
)
# Responses of brokers to other brokers.
_OF_BROKERS: tuple[_Response, ...] = ((Api.FETCH, ()), (Api.WRITE_TXN_MARKERS, ()))
_COUNTS = (1, 1, 1, 2, 5)
"""Numbers of responses that one fault loses."""
_LEAST_MS = 2_000
"""Shortest duration of a loss. A shorter loss might end before any request of the API is sent."""
_REBALANCE_MS = 10_000
"""Shortest duration of a loss in a rebalance.

This time is longer than _LEAST_MS, because the requests of one rebalance are sent some seconds
apart.
"""


def draw_response_loss(draw: FaultDraw) -> FaultDefinition:
    """Return the loss of a response between clients, brokers and the controller."""
    rng = draw.rng("response")
    # "members" is drawn with the weight 5, "controller" with 3 and "brokers" with 1.
    between = rng.choices(("members", "controller", "brokers"), (5, 3, 1))[0]
    if between == "controller":
        return _loss(draw, rng.choice(_OF_THE_CONTROLLER), "brokers", "controller")
    if between == "brokers":
        return _loss(draw, rng.choice(_OF_BROKERS), "brokers", "brokers")
    group = draw.group()
    # For a transactional group, half of the draws lose a response of a transaction.
    if draw.experiment.groups[group].transactional and rng.random() < 0.5:
        return _loss(draw, rng.choice(_OF_TRANSACTIONS), "brokers", f"members({group})")
    return _loss(draw, rng.choice(_OF_MEMBERS), draw.coordinator(), f"members({group})")


def loss_in_a_rebalance(draw: FaultDraw) -> FaultDefinition:
    """Return the loss of a response that a member needs to get its assignment."""
    rng = draw.rng("response")
    group = draw.group()
    if draw.experiment.groups[group].transactional and rng.random() < 0.3:
        response: _Response = (Api.INIT_PRODUCER_ID, ())
    else:
        response = rng.choice(_OF_A_REBALANCE)
    return _loss(draw, response, "brokers", f"members({group})", least_ms=_REBALANCE_MS)


def _loss(
    draw: FaultDraw, response: _Response, from_: str, to: str, *, least_ms: int = _LEAST_MS
) -> FaultDefinition:
    """Return a fault that loses responses between the nodes `from_` and `to`.

    The number of lost responses is drawn.
    """
    api, errors = response
    args: dict[str, Any] = {"apis": [api.label]}
    if errors:
        args["errors"] = list(errors)
    count = draw.rng("count").choice(_COUNTS)
    if count > 1:
        args["responses"] = count
    return draw.link_fault(
        "response_loss", from_, to, lasts_ms=max(least_ms, draw.length_ms("loss")), args=args
    )
