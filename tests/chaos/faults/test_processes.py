"""Faults of processes: the acts on the node, and its return.

`Injecting(fault, ...)` injects and heals (undoes) the faults of an experiment on a runtime without
nodes. `run.runtime.acts` has each call that changes the cluster, as text, and `run.runtime.rules`
the rules of the links in force. Brokers are broker-0 to broker-2; broker-0 leads every partition.
`stopping_takes_us` is the duration of a controlled shutdown; None: it never ends. A miss is a fault
that hit nothing.
"""

import pytest

from chaos.run.injection import ToolFailed
from cluster.links.rules import Cut, Selector
from cluster.runtime import NodeState
from protocol.ids import NodeName, broker_name
from protocol.trace import TraceKind
from results_schema.journal import FaultOutcome
from tests.support.builders.injecting import Injecting

S = 1_000_000
"""Microseconds of a second."""


@pytest.mark.parametrize(
    ("fault", "target", "acts"),
    [
        ("crash", "broker(1)", ["crash broker-1", "restart broker-1"]),
        ("crash", "controller", ["crash controller-100", "restart controller-100"]),
        (
            "crash",
            "member(readers, 1)",
            ["crash consumer-readers-1", "restart consumer-readers-1"],
        ),
        (
            "power_loss",
            "broker(1)",
            [
                "rules power_loss-0:there power_loss-0:back",
                "power loss broker-1",
                "restart broker-1",
                "rules none",
            ],
        ),
        ("pause", "broker(1)", ["pause broker-1", "resume broker-1"]),
        (
            "pause",
            "leader-member-of(readers)",
            ["pause consumer-readers-0", "resume consumer-readers-0"],
        ),
    ],
)
def test_fault_of_a_process_is_injected_and_undone(
    fault: str, target: str, acts: list[str]
) -> None:
    """A crash is undone by a restart, a pause by resuming. A power loss cuts the links first."""
    run = Injecting({"at": "1s", "fault": fault, "target": target})

    assert run.inject().outcome is FaultOutcome.HIT
    assert run.heal().healed_by == "plan"
    assert run.runtime.acts == acts


@pytest.mark.parametrize("fault", ["crash", "power_loss"])
def test_disk_can_be_lost_with_the_process(fault: str) -> None:
    """A replaced machine returns without its data."""
    run = Injecting({"at": "1s", "fault": fault, "target": "broker(1)", "args": {"disk": "empty"}})

    run.inject()
    run.heal()

    assert "restart on an empty disk: broker-1" in run.runtime.acts


def test_machine_without_power_is_cut_off_from_all_nodes() -> None:
    """A machine without power cannot close its connections, so at the peers they stay open.

    The cut of all its links has the same effect.
    """
    run = Injecting({"at": "1s", "fault": "power_loss", "target": "broker(1)"})

    run.inject()

    there, back = run.runtime.rules
    others = tuple(name for name in run.runtime.nodes if name != broker_name(1))
    assert there.selector == Selector(sources=(broker_name(1),), destinations=others)
    assert back.selector == Selector(sources=others, destinations=(broker_name(1),))
    assert (there.effect, back.effect) == (Cut(), Cut())


def test_failed_power_loss_leaves_no_rule() -> None:
    """The cut comes before the power loss, which fails. So healing must remove the cut's rules."""
    run = Injecting({"at": "1s", "fault": "power_loss", "target": "broker(1)"})
    run.runtime.power_fails_with = OSError("no such process")

    with pytest.raises(ToolFailed):
        run.inject()
    run.heal_everything()

    assert run.runtime.rules == ()


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (NodeState.DOWN, "broker-0, which leads __consumer_offsets-0, is down"),
        (NodeState.PAUSED, "broker-0, which leads __consumer_offsets-0, is paused"),
        (NodeState.STOPPING, "broker-0, which leads __consumer_offsets-0, is stopping"),
    ],
)
def test_process_that_is_not_up_is_a_miss_with_the_reason(state: NodeState, reason: str) -> None:
    """Two faults on one process would undo each other, so the second one is a miss."""
    run = Injecting({"at": "1s", "fault": "crash", "target": "coordinator-of(readers)"})
    run.runtime.nodes[broker_name(0)] = state

    entry = run.inject()

    assert (entry.outcome, entry.error) == (FaultOutcome.MISSED, reason)
    assert [row.kind for row in run.rows] == [TraceKind.FAULT_MISSED]
    assert run.runtime.acts == []


def test_member_that_has_not_joined_yet_is_a_miss() -> None:
    """A process cannot be paused before its start."""
    run = Injecting({"at": "1s", "fault": "pause", "target": "member(readers, 1)"})
    run.runtime.nodes[NodeName("consumer-readers-1")] = NodeState.NOT_STARTED

    assert run.inject().error == "consumer-readers-1 is not started"


def test_node_of_a_controlled_shutdown_is_restarted_when_it_is_down() -> None:
    """The restart waits until the leaderships have moved and the process has ended."""
    run = Injecting({"at": "1s", "fault": "controlled_shutdown", "target": "broker(2)"})
    run.runtime.stopping_takes_us = 3 * S

    run.inject()
    entry = run.heal()

    assert run.runtime.acts == ["shut down broker-2", "restart broker-2"]
    assert entry.healed_at_us == 3 * S
    assert entry.note is None


def test_controlled_shutdown_that_never_ends_is_killed_and_reported() -> None:
    """Without a controller a broker may wait for minutes; it is killed after 30 s."""
    run = Injecting({"at": "1s", "fault": "controlled_shutdown", "target": "broker(2)"})
    run.runtime.stopping_takes_us = None

    run.inject()
    entry = run.heal()

    assert run.runtime.acts == ["shut down broker-2", "crash broker-2", "restart broker-2"]
    assert entry.note == "broker-2 was still stopping 30 s later, and was killed"
    assert entry.healed_at_us == 30 * S


def test_fault_that_the_runtime_cannot_inject_is_a_failure_of_the_tool() -> None:
    """A fault that finds no target is a miss. This fault finds broker-2, so the tool has failed."""
    run = Injecting({"at": "1s", "fault": "crash", "target": "broker(2)"})
    run.runtime.crash_fails_with = OSError("no such process")

    with pytest.raises(ToolFailed, match="crash-0 could not be injected: no such process"):
        run.inject()
    assert run.entry().outcome is FaultOutcome.FAILED


@pytest.mark.parametrize(
    ("target", "node"), [("broker(1)", "broker-1"), ("member(readers, 1)", "consumer-readers-1")]
)
def test_lost_node_is_killed_and_never_restarted(target: str, node: str) -> None:
    """The healing of another fault, and the healing at the end of the run, leave the node down."""
    run = Injecting(
        {"at": "1s", "fault": "pause", "target": target, "duration": "9s"},
        {"at": "2s", "fault": "node_loss", "target": target},
        {"at": "3s", "fault": "crash", "target": target, "duration": "9s"},
    )

    run.inject(0)
    run.heal(0)
    run.inject(1)
    assert run.inject(2).error == f"{node} is down"
    run.heal_everything()

    assert run.runtime.acts == [f"pause {node}", f"resume {node}", f"crash {node}"]
    assert run.injector.lost_nodes == (NodeName(node),)
    assert not run.injector.may_need_healing
