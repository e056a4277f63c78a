"""Faults of links cut, slow down or disturb the network between two sets of nodes.

An experiment file names the two sets as `from` and `to`, the two ends of the fault. The fault gives
the network one rule for each direction. A rule says which messages are affected (its selector), and
what happens to these messages (its effect). The rule `cut-0:there` is about messages from the end
`from` to the end `to`, and `cut-0:back` is about the other direction. The 0 is the fault's place in
the file.

`Injecting` plays single faults of an experiment on a runtime that only writes down what it is asked
to do: `run.runtime.acts` has the calls as text, and `run.runtime.rules` the rules in force. In the
cluster of this runtime broker 0 leads every partition, and coordinates the group readers, which has
two members. Unless a test names a fault, `run.inject()` injects the first fault.
"""

from typing import Any

import pytest

from chaos.experiment.structs import FaultDefinition
from chaos.faults.links import ResponseLoss
from cluster.links.rules import (
    Clog,
    Cut,
    LinkEffect,
    LinkRule,
    LoseResponses,
    Selector,
    Slow,
)
from cluster.runtime import NodeState
from protocol.ids import NodeName, broker_name
from protocol.trace import TraceKind
from results_schema.journal import BlastRadius, FaultOutcome, LinkEnds
from tests.support.builders.experiments import experiment
from tests.support.builders.injecting import Injecting


def fault(kind: str, source: object, destination: object, **args: object) -> dict[str, Any]:
    """Return a fault as an experiment file has it.

    `source` and `destination` are the two ends of the fault. Each is a target such as "broker(1)",
    or a list of targets.
    """
    return {"at": "1s", "fault": kind, "from": source, "to": destination, "args": args}


def names(*nodes: str) -> tuple[NodeName, ...]:
    """Return the texts as names of nodes, which is the type that rules need."""
    return tuple(map(NodeName, nodes))


def test_coordinator_is_cut_from_the_controller_and_all_other_brokers() -> None:
    """The coordinator is broker-0. The target `brokers` means the other two brokers here.

    A node is not cut off from itself.
    """
    run = Injecting(fault("cut", "coordinator-of(readers)", ["controller", "brokers"]))

    entry = run.inject()

    coordinator = names("broker-0")
    others = names("controller-100", "broker-1", "broker-2")
    there = Selector(sources=coordinator, destinations=others)
    back = Selector(sources=others, destinations=coordinator)
    assert run.runtime.rules == (
        LinkRule(rule_id="cut-0:there", selector=there, effect=Cut()),
        LinkRule(rule_id="cut-0:back", selector=back, effect=Cut()),
    )
    assert entry.links == LinkEnds(
        from_=("broker-0",), to=("controller-100", "broker-1", "broker-2")
    )
    assert entry.hit == "broker-0 <-> controller-100, broker-1, broker-2"


def test_one_way_cut_has_one_rule() -> None:
    """The rule cuts messages from broker-1 to the controller. The answers are not cut.

    Two nodes have a separate connection for each purpose, such as heartbeats. Here `purposes`
    limits the rule to the connection for heartbeats.
    """
    run = Injecting(
        fault("cut", "broker(1)", "controller", direction="one_way", purposes=["heartbeat"])
    )

    entry = run.inject()

    (rule,) = run.runtime.rules
    assert rule.selector == Selector(
        sources=names("broker-1"), destinations=names("controller-100"), purposes=("heartbeat",)
    )
    assert entry.hit == "broker-1 -> controller-100"


@pytest.mark.parametrize(
    ("kind", "args", "effect"),
    [
        ("clog", {}, Clog()),
        ("slow", {"delay": "200ms"}, Slow(delay_us=200_000)),
        ("slow", {"delay": "1s", "jitter": "50ms"}, Slow(delay_us=1_000_000, jitter_us=50_000)),
    ],
    ids=["clog", "slow", "slow-with-jitter"],
)
def test_rule_holds_or_delays_frames_as_the_fault_asks(
    kind: str, args: dict[str, str], effect: LinkEffect
) -> None:
    """The rules of both directions have the effect that the fault asks for.

    The argument `apis` limits both rules to Fetch requests.
    """
    run = Injecting(fault(kind, "broker(1)", "broker(2)", apis=["Fetch"], **args))

    run.inject()

    assert [rule.effect for rule in run.runtime.rules] == [effect, effect]
    assert run.runtime.rules[0].selector.apis == ("Fetch",)


def test_rules_of_several_faults_apply_together_in_order_of_injection() -> None:
    """The network applies the rules in their order, so the order must be the same in each run.

    Fault 0 of the file is the slow link, and fault 1 is the cut. The cut is injected first, so its
    rule comes first. When a fault is healed, only the rules of this fault are removed.
    """
    run = Injecting(
        fault("slow", "broker(1)", "broker(2)", delay="1s"),
        fault("cut", "broker(1)", "controller", direction="one_way"),
    )

    run.inject(1)
    run.inject(0)
    run.heal(1)
    run.heal(0)

    assert run.runtime.acts == [
        "rules cut-1:there",
        "rules cut-1:there slow-0:there slow-0:back",
        "rules slow-0:there slow-0:back",
        "rules none",
    ]


def test_reset_closes_connections_of_the_named_purposes_and_is_momentary() -> None:
    """A reset closes connections once and leaves no rule, so there is nothing to heal.

    Here the reset closes the connections through which both members talk to their coordinator,
    broker-0.
    """
    run = Injecting(
        {
            "at": "1s",
            "fault": "reset",
            "from": "clients",
            "to": "coordinator-of(readers)",
            "args": {"purposes": ["coordinator"]},
        }
    )

    entry = run.inject()
    run.heal_everything()

    assert run.runtime.acts == [
        "reset consumer-readers-0 consumer-readers-1 - broker-0 (coordinator)"
    ]
    assert entry.outcome is FaultOutcome.HIT
    # The runtime of the test has no connections. By default it reports that it has closed three.
    assert entry.resolved["connections"] == 3
    assert [kind for kind, _, _ in run.traced()] == [TraceKind.FAULT_INJECTED]


def test_reset_of_no_connection_is_a_miss() -> None:
    """A fault that hits nothing is a miss, because a run without a fault proves nothing.

    The row FAULT_INJECTED is written before the reset is carried out. Only then does it turn out
    that there is no connection. So a second row, FAULT_MISSED, takes the first row back.
    """
    run = Injecting({"at": "1s", "fault": "reset", "from": "broker(0)", "to": "broker(1)"})
    run.runtime.open_connections = 0

    entry = run.inject()

    assert entry.outcome is FaultOutcome.MISSED
    assert entry.error == "no such connection was open between broker-0 and broker-1"
    assert (entry.nodes, entry.links, entry.blast_radius) == ((), None, BlastRadius())
    assert [kind for kind, _, _ in run.traced()] == [
        TraceKind.FAULT_INJECTED,
        TraceKind.FAULT_MISSED,
    ]


def test_cut_between_a_node_and_itself_is_a_miss() -> None:
    """The coordinator of readers also leads orders-0, so both ends of the cut are broker-0.

    A node has no link to itself.
    """
    run = Injecting(fault("cut", "coordinator-of(readers)", ["leader-of(orders-0)"]))

    assert run.inject().error == "a node has no link to itself: both ends are broker-0 alone"
    assert run.runtime.acts == []


def test_end_without_a_live_node_is_a_miss() -> None:
    """broker-1 is the only node of the end `from`. broker-1 is down, so it has no links."""
    run = Injecting(fault("cut", "broker(1)", "controller"))
    run.runtime.nodes[broker_name(1)] = NodeState.DOWN

    assert run.inject().error == "nobody at the end `from` is there: broker-1 is down"


def test_end_with_a_live_node_includes_its_dead_and_late_nodes() -> None:
    """broker-1 is dead, and the second member joins only at 9 s. The rule names them nevertheless.

    So the rule applies to these two nodes as soon as they start.
    """
    made = experiment(
        groups={
            "readers": {
                "members": 1,
                "topics": ["orders"],
                "late_members": [{"at": "9s", "members": 1}],
            }
        },
        faults=[fault("cut", "members(readers)", "brokers")],
    )
    run = Injecting(own_experiment=made)
    run.runtime.nodes[broker_name(1)] = NodeState.DOWN

    run.inject()

    assert run.runtime.rules[0].selector == Selector(
        sources=names("consumer-readers-0", "consumer-readers-1"),
        destinations=names("broker-0", "broker-1", "broker-2"),
    )


@pytest.mark.parametrize(
    ("source", "destination", "members_survive"),
    [
        ("coordinator-of(readers)", ["controller", "brokers"], True),
        ("coordinator-of(readers)", ["controller", "member(readers, 0)"], False),
        ("clients", "broker(0)", False),
        ("controller", "brokers", True),
    ],
)
def test_members_survive_unless_a_link_of_theirs_is_affected(
    source: object, destination: object, members_survive: bool
) -> None:
    """`members_survive` in the row of the fault is True if the fault leaves all members connected.

    After such a fault a rebalance is needless. A check looks for needless rebalances, and relies on
    this value.
    """
    run = Injecting(fault("cut", source, destination))

    run.inject()

    assert run.detail_of(TraceKind.FAULT_INJECTED)["members_survive"] is members_survive


def test_blast_radius_is_that_of_the_isolated_end() -> None:
    """The blast radius of a fault is the set of groups and partitions that it may affect.

    A cut isolates the end `from`, so its blast radius is that of the nodes of this end. Here this
    is member 1 of readers, which owns orders-1.
    """
    run = Injecting(fault("cut", "member(readers, 1)", "brokers"))

    assert run.inject().blast_radius == BlastRadius(groups=("readers",), partitions=("orders-1",))


def test_blast_radius_of_a_broker_that_leads_nothing_is_empty() -> None:
    """broker-2 leads no partition and coordinates no group, so cutting it off affects nobody."""
    run = Injecting(fault("cut", "broker(2)", ["controller", "brokers", "clients"]))

    assert run.inject().blast_radius == BlastRadius()


def test_blast_radius_of_a_controller_is_that_of_the_other_end() -> None:
    """The controller leads no partition itself, but broker-0 at the other end leads all of them."""
    run = Injecting(fault("cut", "controller", "broker(0)"))

    radius = run.inject().blast_radius

    assert radius.groups == ("readers",)
    assert "orders-0" in radius.partitions


def test_response_loss_is_a_rule_for_each_direction() -> None:
    """The server that responds may be at either end, so both rules have the effect.

    Here the first two responses to JoinGroup with the error MEMBER_ID_REQUIRED are lost.
    """
    run = Injecting(
        fault(
            "response_loss",
            "coordinator-of(readers)",
            "members(readers)",
            apis=["JoinGroup"],
            errors=["MEMBER_ID_REQUIRED"],
            responses=2,
        )
    )

    assert run.inject().outcome is FaultOutcome.HIT

    there, back = run.runtime.rules
    effect = LoseResponses(count=2, errors=("MEMBER_ID_REQUIRED",))
    assert (there.effect, back.effect) == (effect, effect)
    coordinator = names("broker-0")
    members = names("consumer-readers-0", "consumer-readers-1")
    assert there.selector == Selector(
        sources=coordinator, destinations=members, apis=("JoinGroup",)
    )
    assert (back.selector.sources, back.selector.destinations) == (members, coordinator)
    run.heal()
    assert run.runtime.rules == ()


@pytest.mark.parametrize(
    ("args", "path", "message"),
    [
        ({"apis": []}, "args.apis", "names no API"),
        ({"apis": ["JoinGroups"]}, "args.apis[0]", "unknown API `JoinGroups`"),
        (
            {"apis": ["JoinGroup"], "errors": ["MEMBER_ID_REQIRED"]},
            "args.errors[0]",
            "unknown error `MEMBER_ID_REQIRED`",
        ),
    ],
)
def test_response_loss_of_an_unknown_api_or_error_is_refused(
    args: dict[str, Any], path: str, message: str
) -> None:
    """A misspelt API or error would match no response. Neither would an empty list of APIs.

    So no response would be lost, and nobody would notice.
    """
    definition = FaultDefinition(
        at="1s",
        fault="response_loss",
        from_="coordinator-of(readers)",
        to="clients",
        args=args,
    )

    (problem,) = ResponseLoss().check(definition, experiment())

    assert (problem.path, problem.message) == (path, message)
