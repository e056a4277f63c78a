"""Faults of links: connections between two sets of nodes are cut, held, slowed or reset.

A fault of links has two ends, `from` and `to`. For example, `from: coordinator-of(readers)` and
`to: members(readers)` separate a group's members from their coordinator. Either end may be many
nodes.

Most of these faults last for a while. They put rules into the run's link table, and `heal` takes
the rules out again. A rule says what happens to frames (messages on a connection), for example that
they are held back. Its Selector says to which frames this applies: by source, destination, API, and
purpose. The purpose of a connection is what its two nodes use it for, such as heartbeats.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from chaos.experiment.problems import Problem, near_miss, one_of
from chaos.experiment.rules.semantic_checks import problem, too_long
from chaos.experiment.structs import (
    FIRST_CONTROLLER_ID,
    Duration,
    Experiment,
    FaultDefinition,
    microseconds,
)
from chaos.faults.base import (
    BROKER_TARGETS,
    CONTROLLER_TARGETS,
    KAFKA_CLIENT_TARGETS,
    MEMBER_TARGETS,
    SET_TARGETS,
    ZOOKEEPER_TARGETS,
    Aim,
    FaultKind,
    FaultTools,
)
from chaos.run.blast_radius import blast_radius_of
from chaos.run.link_table import rule
from chaos.run.plan import ends_of
from chaos.targets.base import Miss, Situation
from chaos.targets.registry import resolve_target, split_target
from cluster.host.connection_purposes import PURPOSES
from cluster.links import rules as link_rules
from cluster.links.rules import LinkEffect, Selector
from cluster.runtime import NodeState
from protocol.api import Api
from protocol.errors import ErrorCode
from protocol.ids import NodeName, controller_name
from results_schema.journal import BlastRadius, nodes_shown
from results_schema.manifest import PlannedFault

API_NAMES = tuple(api.label for api in Api)
ERROR_NAMES = tuple(code.name for code in ErrorCode)
# Roles that only one node has at a time. If both ends are the same such role, the fault has no link
# to hit. `any-broker` is not among them, because each end draws a broker of its own.
_ALWAYS_ONE_NODE = frozenset(
    {*BROKER_TARGETS, *CONTROLLER_TARGETS, *MEMBER_TARGETS, *ZOOKEEPER_TARGETS}
) - {"any-broker"}

# States of nodes that have a process, and so may have links.
_HAS_LINKS = frozenset({NodeState.UP, NodeState.PAUSED, NodeState.STOPPING})


class ResetConnectionsArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The selected connections."""

    purposes: tuple[str, ...] = ()
    """only connections of these purposes; default: all"""


class LinkArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The selected frames."""

    direction: Literal["both_ways", "one_way"] = "both_ways"
    """`one_way`: only what travels from `from` to `to`"""
    purposes: tuple[str, ...] = ()
    """only connections of these purposes; default: all"""
    apis: tuple[str, ...] = ()
    """only these requests, and the responses to them; default: all"""


class SlowArgs(LinkArgs, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The selected frames, and their delay."""

    delay: Duration
    """added to every frame, each way"""
    jitter: Duration = "0s"
    """the most that is added to `delay`, drawn evenly for each frame"""


class ResponseLossArgs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The selected responses, and their number."""

    apis: tuple[str, ...]
    """the responses to these requests"""
    errors: tuple[str, ...] = ()
    """only responses with one of these errors, `NONE` for success; default: all"""
    responses: Annotated[int, Meta(ge=1)] = 1
    """the number of lost responses at each server"""
    purposes: tuple[str, ...] = ()
    """only on connections of these purposes; default: all"""


SelectingArgs = LinkArgs | ResponseLossArgs
"""Arguments that select frames for a rule."""


class LinkFault(FaultKind):
    """A fault of the links between two sets of nodes."""

    targets = (
        *BROKER_TARGETS,
        *CONTROLLER_TARGETS,
        *MEMBER_TARGETS,
        *ZOOKEEPER_TARGETS,
        *SET_TARGETS,
        *KAFKA_CLIENT_TARGETS,
    )
    has_ends = True

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Report links of a node to itself, and unknown purposes, APIs and errors."""
        del experiment
        # A target may be written with spaces: `broker( 0 )`.
        targets = {
            "".join(target.split()) for target in (*ends_of(fault.from_), *ends_of(fault.to))
        }
        # If both ends have the same single target, which stands for one node, the fault would be
        # about a link of this node to itself. (`min` is only a way to get the one element.)
        only_target = min(targets) if len(targets) == 1 else ""
        role, _ = split_target(only_target) or ("", "")
        if role in _ALWAYS_ONE_NODE:
            yield problem(
                "to",
                "a node has no link to itself",
                expected="another target than `from`",
                found=f"`{only_target}`",
            )

        # No kind of fault has all three arguments. For a missing argument `get` returns ().
        for field, what, known in (
            ("purposes", "purpose", tuple(PURPOSES)),
            ("apis", "API", API_NAMES),
            ("errors", "error", ERROR_NAMES),
        ):
            for index, word in enumerate(fault.args.get(field, ())):
                if word not in known:
                    yield problem(
                        f"args.{field}[{index}]",
                        f"unknown {what} `{word}`",
                        expected=one_of(known, word),
                        near_miss=near_miss(word, known),
                    )

    def aim(self, planned: PlannedFault, situation: Situation) -> Aim | Miss:
        """Return the nodes at both ends."""
        source = _end(planned.from_, situation)
        if isinstance(source, Miss):
            return source
        destination = _end(planned.to, situation)
        if isinstance(destination, Miss):
            return destination

        # A node may be at both ends, for example from `brokers` to `brokers`.
        from_nodes = _linked_nodes(source, destination)
        to_nodes = _linked_nodes(destination, source)
        if not from_nodes or not to_nodes:
            return Miss(reason=f"a node has no link to itself: both ends are {source[0]} alone")
        for end, nodes in (("from", from_nodes), ("to", to_nodes)):
            if not any(_has_links(node, situation) for node in nodes):
                # The message shows at most three nodes.
                states = ", ".join(f"{node} is {situation.state_of(node)}" for node in nodes[:3])
                return Miss(reason=f"nobody at the end `{end}` is there: {states}")

        return Aim(
            nodes=from_nodes,
            to_nodes=to_nodes,
            blast_radius=_blast_radius(from_nodes, to_nodes, situation),
            detail=dict(planned.args),
        )


class _RuleFault(LinkFault):
    """A fault of links that lasts for a while: `inject` adds rules to the link table."""

    args_type: type[msgspec.Struct] = LinkArgs

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Add a rule for each direction to the link table, after the rules of other faults."""
        args = msgspec.convert(planned.args, self.args_type)
        if not isinstance(args, SelectingArgs):
            raise TypeError(f"{self.name} takes {type(args).__name__}, which selects no frames")
        # (direction, sources, destinations); the direction becomes a part of the rule's id
        directions = [("there", aim.nodes, aim.to_nodes)]
        # ResponseLossArgs have no `direction`: either end may be the server that sends a response.
        # So a loss of responses always gets both rules.
        if not isinstance(args, LinkArgs) or args.direction == "both_ways":
            directions.append(("back", aim.to_nodes, aim.nodes))
        rules = [
            rule(
                planned.fault_id,
                direction,
                Selector(
                    sources=sources,
                    destinations=destinations,
                    purposes=args.purposes,
                    apis=args.apis,
                ),
                self.effect(args),
            )
            for direction, sources, destinations in directions
        ]
        await tools.links.add(planned.fault_id, rules)
        return aim

    async def heal(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> str | None:
        """Remove the fault's rules."""
        del aim
        await tools.links.withdraw(planned.fault_id)
        return None

    @abstractmethod
    def effect(self, args: SelectingArgs) -> LinkEffect:
        """Return the effect of the fault on the selected frames."""


class CutLinks(_RuleFault):
    """Frames are held, and neither end of a connection notices that the other closes it."""

    name = "cut"
    doc = (
        "Cuts the links: bytes on open connections are held, new connections hang, and no end "
        "notices the other's death. At healing held bytes arrive in order; on a connection that "
        "one end has closed meanwhile, only the close arrives."
    )

    def effect(self, args: SelectingArgs) -> LinkEffect:
        """Return the cut."""
        del args
        return link_rules.Cut()


class ClogLinks(_RuleFault):
    """Frames are held until healing."""

    name = "clog"
    doc = "Holds all frames on the links until healing; then all of them arrive, in order."

    def effect(self, args: SelectingArgs) -> LinkEffect:
        """Return the clog."""
        del args
        return link_rules.Clog()


class SlowLinks(_RuleFault):
    """Frames are delayed."""

    name = "slow"
    doc = "Delays each frame on the links by `delay` and up to `jitter` more; their order stays."
    args_type = SlowArgs

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Report delays of zero, and delays longer than any run."""
        yield from super().check(fault, experiment)
        args = msgspec.convert(fault.args, SlowArgs)
        for field in ("delay", "jitter"):
            yield from too_long(getattr(args, field), f"args.{field}")
        if microseconds(args.delay) == microseconds(args.jitter) == 0:
            yield problem(
                "args.delay",
                "is not allowed",
                expected="more than nothing",
                found=f"`{args.delay}`",
            )

    def effect(self, args: SelectingArgs) -> LinkEffect:
        """Return the delay."""
        if not isinstance(args, SlowArgs):
            raise TypeError(f"slow takes SlowArgs, got {type(args).__name__}")
        return link_rules.Slow(
            delay_us=microseconds(args.delay), jitter_us=microseconds(args.jitter)
        )


class ResponseLoss(_RuleFault):
    """A request is carried out, and its connection is reset before the response leaves."""

    name = "response_loss"
    doc = (
        "Resets a connection instead of sending a response: the server has carried out the "
        "request, but its client cannot know this. At each server among the two ends the first "
        "`responses` responses to `apis` are lost, as long as the fault lasts."
    )
    args_type = ResponseLossArgs

    def check(self, fault: FaultDefinition, experiment: Experiment) -> Iterator[Problem]:
        """Report an empty list of APIs."""
        yield from super().check(fault, experiment)
        if not fault.args.get("apis"):
            yield problem("args.apis", "names no API", expected="at least one", found="`[]`")

    def effect(self, args: SelectingArgs) -> LinkEffect:
        """Return the loss."""
        if not isinstance(args, ResponseLossArgs):
            raise TypeError(f"response_loss takes ResponseLossArgs, got {type(args).__name__}")
        return link_rules.LoseResponses(count=args.responses, errors=args.errors)


class ResetConnections(LinkFault):
    """Open connections are reset."""

    name = "reset"
    doc = (
        "Resets the open connections between the two ends: frames in flight are lost, and both "
        "ends see the reset. Momentary."
    )
    args_type = ResetConnectionsArgs
    momentary = True

    async def inject(self, planned: PlannedFault, aim: Aim, tools: FaultTools) -> Aim | Miss:
        """Reset the connections; return a Miss if there is no open connection."""
        args = msgspec.convert(planned.args, ResetConnectionsArgs)
        count = await tools.runtime.reset_links(aim.nodes, aim.to_nodes, args.purposes)
        if count == 0:
            ends = f"{nodes_shown(aim.nodes)} and {nodes_shown(aim.to_nodes)}"
            return Miss(reason=f"no such connection was open between {ends}")
        return aim.with_detail(connections=count)


def _has_links(node: NodeName, situation: Situation) -> bool:
    """Return True if a node's process exists, or if the node is a connected client from outside."""
    status = situation.status
    return status.nodes.get(node) in _HAS_LINKS or node in status.kafka_clients


def _end(targets: Iterable[str], situation: Situation) -> tuple[NodeName, ...] | Miss:
    """Return the nodes of one end, each once; a Miss if one of its targets hits nothing."""
    nodes: dict[NodeName, None] = {}
    for target in targets:
        hit = resolve_target(target, situation)
        if isinstance(hit, Miss):
            return hit
        nodes.update(dict.fromkeys(hit.nodes))
    return tuple(nodes)


def _linked_nodes(
    end: tuple[NodeName, ...], opposite_end: tuple[NodeName, ...]
) -> tuple[NodeName, ...]:
    """Return the nodes of `end` that have at least one other node at the opposite end."""
    return tuple(node for node in end if any(peer != node for peer in opposite_end))


def _blast_radius(
    from_nodes: tuple[NodeName, ...], to_nodes: tuple[NodeName, ...], situation: Situation
) -> BlastRadius:
    """Return the groups and partitions that depend on the nodes of the `from` end.

    If this end has only controllers, which host no groups and no partitions of topics, return the
    groups and partitions that depend on the nodes of the `to` end.
    """
    controllers = {
        controller_name(FIRST_CONTROLLER_ID + index)
        for index in range(situation.experiment.cluster.controllers)
    }
    affected = to_nodes if controllers.issuperset(from_nodes) else from_nodes
    return blast_radius_of(affected, situation.experiment, situation.status)
