"""The faults of one seed: when each begins, what it is, whom it hits, how long it lasts.

Each fault has its own random streams (`fault_draw`), so that a smaller window or another length of
one leaves the others as they were. Whatever is drawn here is a fault that the loader would accept.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar, get_args

from chaos.experiment.structs import (
    Experiment,
    FaultDefinition,
    microseconds,
    zookeeper_groups,
    zookeeper_ids,
)
from chaos.exploration.draw.fault_draw import MS, Hand
from chaos.exploration.draw.losses import draw_losses
from chaos.exploration.draw.operations import draw_operation
from chaos.exploration.draw.patterns import PATTERNS
from chaos.exploration.draw.response_losses import draw_response_loss
from chaos.exploration.space_definition import FaultSpace
from chaos.faults.base import BROKER_TARGETS, FaultKind
from chaos.faults.groups import ResetOffsetsArgs, TopicArgs
from chaos.faults.leadership import MoveArgs
from chaos.faults.links import ResponseLoss
from chaos.faults.machines import MachineCutArgs
from chaos.faults.processes import DiskArgs
from chaos.faults.registry import FAULT_KINDS
from chaos.targets.partitions import parse_partition, replicas_at_start
from chaos.targets.registry import split_target
from cluster.client.admin.orders import ResetTo
from cluster.host import connection_purposes
from cluster.host.randomness import stream
from protocol.api import Api

_Word = TypeVar("_Word")
MAX_FAULTS = 200
"""A window so long, with gaps so short, is a slip."""
ONE_WAY = 0.3
"""How many of the faults of links are one way."""
SOME_PURPOSES = 0.2
SOME_APIS = 0.15
"""How many of them concern some connections, or some requests, only."""
BETWEEN_ZOOKEEPERS = 0.25
TO_ZOOKEEPER = 0.4
"""How many concern the servers of the ensemble among themselves, or them and their clients."""
_DELAYS = ("2ms", "20ms", "200ms", "1s", "3s")
_JITTERS = ("0s", "5ms", "500ms")
_CONTROLLER_LINKS = (
    (
        connection_purposes.BROKER_HEARTBEAT,
        connection_purposes.METADATA,
        connection_purposes.ALTER_PARTITION,
    ),
    (Api.BROKER_HEARTBEAT, Api.FETCH, Api.ALTER_PARTITION),
)
_BROKER_LINKS = ((connection_purposes.REPLICA_FETCHER,), (Api.FETCH,))
_CLIENT_LINKS = (
    (connection_purposes.GENERAL, connection_purposes.COORDINATOR, connection_purposes.BOOTSTRAP),
    (
        Api.HEARTBEAT,
        Api.JOIN_GROUP,
        Api.SYNC_GROUP,
        Api.OFFSET_COMMIT,
        Api.OFFSET_FETCH,
        Api.FIND_COORDINATOR,
        Api.METADATA,
        Api.PRODUCE,
    ),
)
"""Which purposes and requests there are between brokers and the controller, themselves, clients."""
_ENSEMBLE_LINKS = (
    (connection_purposes.ZOOKEEPER_QUORUM, connection_purposes.ZOOKEEPER_ELECTION),
    (Api.ACK, Api.SUBMIT, Api.TOUCH, Api.REVALIDATE, Api.VOTE),
)
_ZOOKEEPER_LINKS = (
    (connection_purposes.ZOOKEEPER,),
    (
        Api.CONNECT,
        Api.CREATE,
        Api.DELETE,
        Api.SET_DATA,
        Api.GET_DATA,
        Api.GET_CHILDREN,
        Api.EXISTS,
        Api.PING,
        Api.SET_WATCHES,
    ),
)
"""The same of an ensemble: among its servers, and with their clients."""


def draw_faults(
    space: FaultSpace, experiment: Experiment, seed: int
) -> tuple[FaultDefinition, ...]:
    """Return the faults of a seed, in the order in which they begin."""
    weights = _kept(space, seed)
    window_ms = microseconds(space.window) // MS
    gap_ms = microseconds(stream(seed, "gap").choice(space.gaps)) // MS
    faults: list[FaultDefinition] = []
    index, at_ms = 0, 0
    while len(faults) < MAX_FAULTS:
        at_ms += stream(seed, "fault", index, "at").randrange(1, 2 * gap_ms + 1)
        if at_ms >= window_ms:
            break
        hand = Hand(experiment=experiment, space=space, seed=seed, index=index, at_ms=at_ms)
        faults += draw_one(hand, weights)
        index += 1
    faults += draw_losses(space, experiment, seed)
    return tuple(sorted(faults, key=lambda fault: microseconds(fault.at)))


def draw_one(hand: Hand, weights: dict[str, int]) -> tuple[FaultDefinition, ...]:
    """Return a fault, or the faults of a pattern, whichever is drawn by their weights."""
    name = hand.rng("kind").choices(list(weights), list(weights.values()))[0]
    if name in PATTERNS:
        return PATTERNS[name].draw(hand)
    return _single(hand, FAULT_KINDS[name])


def _kept(space: FaultSpace, seed: int) -> dict[str, int]:
    """Return the faults and patterns that this seed keeps, with their weights.

    Each has its own stream: one that is added to the space leaves the others kept or not.
    """
    weights = {**space.kinds, **space.patterns}
    kept = {
        name: weight
        for name, weight in weights.items()
        if stream(seed, "kept", name).random() < space.kept
    }
    return kept or {(only := stream(seed, "kept").choice(list(weights))): weights[only]}


def _single(hand: Hand, kind: FaultKind) -> tuple[FaultDefinition, ...]:
    if kind.name == ResponseLoss.name:
        return (draw_response_loss(hand),)
    if kind.is_gradual:
        operation = draw_operation(hand, kind)
        return () if operation is None else (operation,)
    if kind.has_ends:
        return (_of_links(hand, kind),)
    target = hand.target(kind.targets)
    if target is None:
        return ()
    return (
        FaultDefinition(
            at=f"{hand.at_ms}ms",
            fault=kind.name,
            target=target,
            duration=None if kind.momentary else hand.duration(),
            args=_args(hand, kind, target),
        ),
    )


def _args(hand: Hand, kind: FaultKind, target: str) -> dict[str, Any]:
    role, argument = split_target(target) or ("", "")
    if kind.args_type is DiskArgs and role in BROKER_TARGETS:
        return hand.disk()
    if kind.args_type is MachineCutArgs and hand.chance("one_way", ONE_WAY):
        return {"direction": "one_way"}
    if kind.args_type is MoveArgs and role == "leader-of" and hand.chance("to", 0.3):
        partition = parse_partition(argument)
        if partition is not None:
            replica = hand.rng("to").choice(replicas_at_start(partition, hand.experiment))
            return {"to": f"broker({replica})"}
    if issubclass(kind.args_type, TopicArgs):
        return _offsets_args(hand, kind, argument)
    return {}


def _offsets_args(hand: Hand, kind: FaultKind, group: str) -> dict[str, Any]:
    """Draw the topic, one of the group's, and where its offsets go."""
    args: dict[str, Any] = {}
    if hand.chance("one topic", 0.3):
        args["topic"] = hand.rng("topic").choice(hand.experiment.groups[group].topics)
    if kind.args_type is ResetOffsetsArgs:
        args["to"] = hand.rng("to").choice(get_args(ResetTo))
    return args


# -- links --


def _of_links(hand: Hand, kind: FaultKind) -> FaultDefinition:
    from_, to, links = _ends(hand)
    if hand.chance("swapped", 0.5):
        from_, to = to, from_
    return FaultDefinition(
        at=f"{hand.at_ms}ms",
        fault=kind.name,
        from_=from_,
        to=to,
        duration=None if kind.momentary else hand.duration(),
        args=_link_args(hand, kind, links),
    )


_Links = tuple[tuple[str, ...], tuple[Api, ...]]


def _ends(hand: Hand) -> tuple[str, str, _Links]:
    """Draw two ends, and say what passes between them."""
    rng = hand.rng("ends")
    if zookeeper_ids(hand.experiment):
        ends = _ends_at_zookeeper(hand)
        if ends is not None:
            return ends
    server = hand.target(BROKER_TARGETS, "from") or hand.coordinator()
    between = rng.choice(("controller", "brokers", "clients", "clients"))
    if between == "controller":
        return rng.choice((server, server, "brokers")), "controller", _CONTROLLER_LINKS
    if between == "brokers":
        others = [
            other
            for other in ("brokers", hand.broker("to"), hand.target(("follower-of",), "to"))
            if other is not None and other != server
        ]
        return server, rng.choice(others), _BROKER_LINKS
    group = hand.group()
    clients = ["clients"]
    member = hand.member("to")
    if member is not None:
        clients += [f"members({group})", member]
        if group not in zookeeper_groups(hand.experiment):
            clients.append(f"leader-member-of({group})")
    return rng.choice((server, server, "brokers")), rng.choice(clients), _CLIENT_LINKS


def _ends_at_zookeeper(hand: Hand) -> tuple[str, str, _Links] | None:
    """Draw two ends of which one is the ensemble, or a part of it; None: another link is drawn."""
    rng = hand.rng("ensemble")
    drawn = rng.random()
    server = rng.choice(("zookeeper-leader", hand.zookeeper_server() or "zookeepers"))
    if drawn < BETWEEN_ZOOKEEPERS:
        other = rng.choice(("zookeepers", hand.zookeeper_server("other server") or "zookeepers"))
        if other != server and len(zookeeper_ids(hand.experiment)) > 1:
            return server, other, _ENSEMBLE_LINKS
    if drawn < BETWEEN_ZOOKEEPERS + TO_ZOOKEEPER:
        group = hand.zookeeper_group()
        member = hand.zookeeper_member("to")
        clients = ["clients", f"members({group})", *([] if member is None else [member] * 3)]
        return rng.choice((server, "zookeepers")), rng.choice(clients), _ZOOKEEPER_LINKS
    return None


def _link_args(hand: Hand, kind: FaultKind, links: _Links) -> dict[str, Any]:
    known_purposes, apis = links
    args: dict[str, Any] = {}
    if kind.name == "slow":
        args["delay"] = hand.rng("delay").choice(_DELAYS)
        args["jitter"] = hand.rng("jitter").choice(_JITTERS)
    if hand.chance("purposes", SOME_PURPOSES):
        args["purposes"] = _some(known_purposes, hand.rng("purpose"))
    if kind.momentary:  # a reset ends connections: it has neither direction nor requests
        return args
    if hand.chance("one_way", ONE_WAY):
        args["direction"] = "one_way"
    if "purposes" not in args and hand.chance("apis", SOME_APIS):
        args["apis"] = [api.label for api in _some(apis, hand.rng("api"))]
    return args


def _some(all_of_them: Sequence[_Word], rng: Random) -> list[_Word]:
    count = rng.randint(1, min(2, len(all_of_them)))
    return rng.sample(list(all_of_them), count)
