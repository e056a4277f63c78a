"""`draw_faults`: draws the plan of a seed.

1. A space lists kinds of faults, and patterns, which are combinations of faults (`patterns`). The
   seed keeps some of them by chance.
2. The seed draws one kind or pattern after the other. Each begins some time after the one before.
   The last begins before the end of the window. The window is the period of a run in which faults
   may begin.
3. For each fault the seed draws what its kind needs: a target such as `broker(0)`, a duration,
   arguments. A fault of links, such as a cut, has two ends instead of a target.

Each of these values is drawn from a random generator of its own (`fault_draw`). So if a change of
the code gives one fault another duration, the other faults stay the same. Every drawn fault is
valid in an experiment file.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, TypeVar, get_args

from chaos.experiment.structs import (
    Experiment,
    FaultDefinition,
    microseconds,
    topics_with_clients,
    zookeeper_groups,
    zookeeper_ids,
)
from chaos.exploration.draw.fault_draw import MS, FaultDraw
from chaos.exploration.draw.losses import draw_losses
from chaos.exploration.draw.operations import draw_operation
from chaos.exploration.draw.patterns import PATTERNS
from chaos.exploration.draw.response_losses import draw_response_loss
from chaos.exploration.space_definition import FaultSpace
from chaos.faults.base import BROKER_TARGETS, FaultKind
from chaos.faults.groups import DeleteOffsetsArgs, ResetOffsetsArgs, TopicArgs
from chaos.faults.leadership import MoveArgs
from chaos.faults.links import ResponseLoss
from chaos.faults.machines import MachineCutArgs
from chaos.faults.processes import DiskArgs
from chaos.faults.registry import FAULT_KINDS
from chaos.faults.topics import CreateTopic, DeleteTopic
from chaos.targets.partitions import parse_partition, replicas_at_start
from chaos.targets.registry import split_target
from cluster.client.admin.orders import ResetTo
from cluster.host import connection_purposes
from cluster.host.randomness import stream
from protocol.api import Api

_Word = TypeVar("_Word")
MAX_FAULTS = 200
"""Number of faults at which a draw ends, even if the window of the space is longer."""
ONE_WAY = 0.3
"""Share of the faults of links that affect only one direction."""
SOME_PURPOSES = 0.2
"""Share of the faults of links that affect only connections with one or two purposes."""
SOME_APIS = 0.15
"""Share of the faults of links that affect only requests of one or two APIs.

Only faults that are not limited to some purposes already (`SOME_PURPOSES`) have this share.
"""
BETWEEN_ZOOKEEPERS = 0.25
"""Share of the faults of links that are between ZooKeeper servers, if there are such servers."""
TO_ZOOKEEPER = 0.4
"""Share of the faults of links that are between ZooKeeper servers and clients.

In an experiment without ZooKeeper servers there are no such faults.
"""
_NEW_TOPICS = ("new-0", "new-1")
"""Names of topics that the fault `create_topic` creates, and that no experiment defines."""
_NEW_PARTITIONS = (None, None, 0, 1, 2, 5, 9)
"""Numbers of partitions that the fault `create_topic` requests.

None leaves the number out. It stands twice in the tuple, so it is drawn twice as often. A broker
refuses a topic with 0 partitions. This refusal is one of the cases to test.
"""
# The fault `slow` delays messages by one of these delays, and by a random time in addition. The
# jitter is the maximum of this random time.
_DELAYS = ("2ms", "20ms", "200ms", "1s", "3s")
_JITTERS = ("0s", "5ms", "500ms")
# A fault of links may be limited to the connections with some purposes, or to the requests of some
# APIs. Each constant below is a pair for the links between two kinds of nodes. First come the
# purposes of these connections, then the APIs of the requests on them.
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
        # The gap since the last fault is drawn evenly from 1 ms to twice the mean gap `gap_ms`.
        at_ms += stream(seed, "fault", index, "at").randrange(1, 2 * gap_ms + 1)
        if at_ms >= window_ms:
            break
        draw = FaultDraw(experiment=experiment, space=space, seed=seed, index=index, at_ms=at_ms)
        faults += draw_one(draw, weights)
        index += 1
    # The draw of losses adds kills of nodes that never restart.
    faults += draw_losses(space, experiment, seed)
    return tuple(sorted(faults, key=lambda fault: microseconds(fault.at)))


def draw_one(draw: FaultDraw, weights: dict[str, int]) -> tuple[FaultDefinition, ...]:
    """Draw a kind of fault or a pattern by the weights of their names; return its faults."""
    # `choices` returns a list, here with one name.
    name = draw.rng("kind").choices(list(weights), list(weights.values()))[0]
    if name in PATTERNS:
        return PATTERNS[name].draw(draw)
    return _single(draw, FAULT_KINDS[name])


def _kept(space: FaultSpace, seed: int) -> dict[str, int]:
    """Return the faults and patterns that this seed keeps, with their weights.

    A seed keeps only some of the space's names, so that it draws each of these often. Whether a
    name is kept does not depend on the other names. So if the space gets a new name, each seed
    keeps the same old names as before. If a seed would keep no name at all, it draws one.
    """
    weights = {**space.kinds, **space.patterns}
    kept = {
        name: weight
        for name, weight in weights.items()
        if stream(seed, "kept", name).random() < space.kept
    }
    # If `kept` is empty, the mapping after `or` is returned. It has one drawn name (`only`) as its
    # key, and the weight of this name as the value.
    return kept or {(only := stream(seed, "kept").choice(list(weights))): weights[only]}


def _single(draw: FaultDraw, kind: FaultKind) -> tuple[FaultDefinition, ...]:
    """Draw one fault of a kind; no fault if the experiment has no target for it."""
    if kind.name == ResponseLoss.name:
        return (draw_response_loss(draw),)
    if kind.name == CreateTopic.name:
        return _topic_creation(draw)
    if kind.name == DeleteTopic.name:
        return _topic_deletion(draw)
    if kind.is_gradual:
        operation = draw_operation(draw, kind)
        return () if operation is None else (operation,)
    if kind.has_ends:
        return (_link_fault(draw, kind),)
    target = draw.target(kind.targets)
    if target is None:  # the experiment has no node that this kind can hit
        return ()
    return (
        FaultDefinition(
            at=f"{draw.at_ms}ms",
            fault=kind.name,
            target=target,
            duration=None if kind.momentary else draw.duration(),
            args=_args(draw, kind, target),
        ),
    )


def _topic_creation(draw: FaultDraw) -> tuple[FaultDefinition, ...]:
    """Draw the creation of a topic; no fault if a group would read the new topic.

    If the experiment defines topics without clients, half of the draws name one of these topics.
    The topic exists already, so the creation is refused, unless another fault has deleted the
    topic.
    """
    experiment = draw.experiment
    # A group with a black list reads all topics that are not on the list. So the group would also
    # read the new topic.
    if any(group.topic_filter == "black_list" for group in experiment.groups.values()):
        return ()
    rng = draw.rng("topic")
    used = topics_with_clients(experiment)
    existing = [topic for topic in experiment.topics if topic not in used]
    names = existing if existing and rng.random() < 0.5 else _NEW_TOPICS
    args: dict[str, Any] = {"topic": rng.choice(names)}
    # If an argument is left out, the brokers take their default.
    partitions = draw.rng("partitions").choice(_NEW_PARTITIONS)
    if partitions is not None:
        args["partitions"] = partitions
    brokers = experiment.cluster.brokers
    replication_factor = draw.rng("replication factor").choice(
        (None, 1, 2, 3, brokers, brokers + 1)
    )
    if replication_factor is not None:
        args["replication_factor"] = replication_factor
    return (draw.fault(CreateTopic.name, "controller", args=args),)


def _topic_deletion(draw: FaultDraw) -> tuple[FaultDefinition, ...]:
    """Draw the deletion of a topic without clients; no fault if every topic has clients."""
    used = topics_with_clients(draw.experiment)
    unused = [topic for topic in draw.experiment.topics if topic not in used]
    if not unused:
        return ()
    topic = draw.rng("topic").choice(unused)
    return (draw.fault(DeleteTopic.name, "controller", args={"topic": topic}),)


def _args(draw: FaultDraw, kind: FaultKind, target: str) -> dict[str, Any]:
    """Draw the arguments of a fault with a target.

    Arguments that are missing in the result have their defaults.
    """
    # A target such as `leader-of(orders-3)` is split into its role `leader-of` and its argument
    # `orders-3`. The fallback is only for the type checker, because every drawn target has a role.
    role, argument = split_target(target) or ("", "")
    if kind.args_type is DiskArgs and role in BROKER_TARGETS:
        return draw.disk()
    if kind.args_type is MachineCutArgs and draw.chance("one_way", ONE_WAY):
        return {"direction": "one_way"}
    # The argument `to` of a leadership move names the new leader, which must be a replica of the
    # partition. So `to` is drawn only if the target names a single partition. The other targets are
    # a coordinator or all partitions.
    if kind.args_type is MoveArgs and role == "leader-of" and draw.chance("to", 0.3):
        partition = parse_partition(argument)
        if partition is not None:
            replica = draw.rng("to").choice(replicas_at_start(partition, draw.experiment))
            return {"to": f"broker({replica})"}
    # The kinds with TopicArgs delete or reset the offsets of a group. Their target is always
    # `coordinator-of(<group>)`, so `argument` is the name of this group.
    if issubclass(kind.args_type, TopicArgs):
        return _offsets_args(draw, kind, argument)
    return {}


def _offsets_args(draw: FaultDraw, kind: FaultKind, group: str) -> dict[str, Any]:
    """Draw the arguments of an administrator's order to delete or to reset a group's offsets."""
    args: dict[str, Any] = {}
    if draw.chance("one topic", 0.3):
        args["topic"] = draw.rng("topic").choice(draw.experiment.groups[group].topics)
    if kind.args_type is DeleteOffsetsArgs and draw.chance("unknown partitions", 0.3):
        args["unknown_partitions"] = True
    if kind.args_type is ResetOffsetsArgs:
        args["to"] = draw.rng("to").choice(get_args(ResetTo))
    return args


# -- links --


def _link_fault(draw: FaultDraw, kind: FaultKind) -> FaultDefinition:
    """Draw a fault of links: its ends, its duration and its arguments."""
    from_, to, links = _ends(draw)
    # The ends are swapped in half of the draws, because a fault may affect only the direction from
    # the first end to the second.
    if draw.chance("swapped", 0.5):
        from_, to = to, from_
    return FaultDefinition(
        at=f"{draw.at_ms}ms",
        fault=kind.name,
        from_=from_,
        to=to,
        duration=None if kind.momentary else draw.duration(),
        args=_link_args(draw, kind, links),
    )


_Links = tuple[tuple[str, ...], tuple[Api, ...]]
"""The purposes of the connections between two nodes, and the APIs of their requests."""


def _ends(draw: FaultDraw) -> tuple[str, str, _Links]:
    """Draw two ends of links; return them, with the purposes and APIs that exist between them."""
    rng = draw.rng("ends")
    if zookeeper_ids(draw.experiment):
        ends = _ends_at_zookeeper(draw)
        if ends is not None:
            return ends
    # A value that occurs twice in a tuple below is drawn twice as often.
    server = draw.target(BROKER_TARGETS, "from") or draw.coordinator()
    between = rng.choice(("controller", "brokers", "clients", "clients"))
    if between == "controller":
        return rng.choice((server, server, "brokers")), "controller", _CONTROLLER_LINKS
    if between == "brokers":
        # A node has no link to itself, so the ends must differ.
        others = [
            other
            for other in ("brokers", draw.broker("to"), draw.target(("follower-of",), "to"))
            if other is not None and other != server
        ]
        return server, rng.choice(others), _BROKER_LINKS
    group = draw.group()
    clients = ["clients"]
    member = draw.member("to")
    if member is not None:
        clients += [f"members({group})", member]
        # In a group on ZooKeeper each member computes its own share, so no member is the leader.
        if group not in zookeeper_groups(draw.experiment):
            clients.append(f"leader-member-of({group})")
    return rng.choice((server, server, "brokers")), rng.choice(clients), _CLIENT_LINKS


def _ends_at_zookeeper(draw: FaultDraw) -> tuple[str, str, _Links] | None:
    """Draw two ends, one of which is a ZooKeeper server or all ZooKeeper servers.

    Some of the draws return None. The caller then draws a link between other nodes.
    """
    rng = draw.rng("ensemble")
    # `drawn`, a number between 0 and 1, decides about the link:
    # - below BETWEEN_ZOOKEEPERS: a link between two servers,
    # - in the next part of the range, which has the length TO_ZOOKEEPER: a link to clients,
    # - in the rest of the range: None.
    drawn = rng.random()
    # `or "zookeepers"` below has no effect and is only for the type checker. The method
    # `zookeeper_server` returns None only if the experiment has no ZooKeeper servers, and the
    # caller has checked that there are some.
    server = rng.choice(("zookeeper-leader", draw.zookeeper_server() or "zookeepers"))
    if drawn < BETWEEN_ZOOKEEPERS:
        other = rng.choice(("zookeepers", draw.zookeeper_server("other server") or "zookeepers"))
        # If both ends are the same, or there is only one server, the code below draws a link to
        # clients instead.
        if other != server and len(zookeeper_ids(draw.experiment)) > 1:
            return server, other, _ENSEMBLE_LINKS
    if drawn < BETWEEN_ZOOKEEPERS + TO_ZOOKEEPER:
        group = draw.zookeeper_group()
        member = draw.zookeeper_member("to")
        # A single member is drawn three times as often as all clients, or all members of the group.
        clients = ["clients", f"members({group})", *([] if member is None else [member] * 3)]
        return rng.choice((server, "zookeepers")), rng.choice(clients), _ZOOKEEPER_LINKS
    return None


def _link_args(draw: FaultDraw, kind: FaultKind, links: _Links) -> dict[str, Any]:
    """Draw the arguments of a fault of links."""
    known_purposes, apis = links
    args: dict[str, Any] = {}
    if kind.name == "slow":
        args["delay"] = draw.rng("delay").choice(_DELAYS)
        args["jitter"] = draw.rng("jitter").choice(_JITTERS)
    if draw.chance("purposes", SOME_PURPOSES):
        args["purposes"] = _one_or_two(known_purposes, draw.rng("purpose"))
    # The only momentary fault of links is `reset`. It ends whole connections, so it has neither a
    # direction nor APIs.
    if kind.momentary:
        return args
    if draw.chance("one_way", ONE_WAY):
        args["direction"] = "one_way"
    if "purposes" not in args and draw.chance("apis", SOME_APIS):
        args["apis"] = [api.label for api in _one_or_two(apis, draw.rng("api"))]
    return args


def _one_or_two(words: Sequence[_Word], rng: Random) -> list[_Word]:
    """Draw one or two different words."""
    count = rng.randint(1, min(2, len(words)))
    return rng.sample(list(words), count)
