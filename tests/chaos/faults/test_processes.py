"""Faults that crash, pause or shut down a process, and how the process comes back.

The tests need no cluster. `run = Injecting(fault, ...)` is for a runtime without processes, in
which broker-0 of three brokers leads every partition. `run.inject()` injects the first fault, and
`run.heal()` undoes ("heals") it.

- `run.inject()` returns the entry that the journal of the run has about the fault.
- `run.runtime.acts` lists what was done to the cluster, as text: "crash broker-1".
- `run.runtime.rules` are the rules that cut or slow links at present.

A fault that finds nothing to hit is called a miss.
"""

import pytest

from chaos.run.injection import ToolFailed
from cluster.links.rules import Cut, Selector
from cluster.runtime import NodeState
from protocol.ids import NodeName, broker_name
from protocol.trace import TraceKind
from results_schema.journal import FaultOutcome
from tests.support.builders.injecting import Injecting

SECOND_US = 1_000_000


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
    """A crash is undone by a restart, and a pause by a resume.

    A power loss first cuts the links of the machine, with one rule for each direction ("there" and
    "back"). When it is undone, the process is restarted, and then the links are restored.
    """
    run = Injecting({"at": "1s", "fault": fault, "target": target})

    assert run.inject().outcome is FaultOutcome.HIT
    assert run.heal().healed_by == "plan"  # and not by the end of the run
    assert run.runtime.acts == acts


@pytest.mark.parametrize("fault", ["crash", "power_loss"])
def test_disk_can_be_lost_with_the_process(fault: str) -> None:
    """With `disk: empty` the process returns without its data, as on a new machine."""
    run = Injecting({"at": "1s", "fault": fault, "target": "broker(1)", "args": {"disk": "empty"}})

    run.inject()
    run.heal()

    assert "restart on an empty disk: broker-1" in run.runtime.acts


def test_machine_without_power_is_cut_off_from_all_nodes() -> None:
    """A machine without power cannot close its connections, so the other nodes keep theirs open.

    The lab only kills a process, and the connections of a killed process are closed. Because of the
    cut, the other nodes do not learn that the connections were closed.
    """
    run = Injecting({"at": "1s", "fault": "power_loss", "target": "broker(1)"})

    run.inject()

    there, back = run.runtime.rules
    others = tuple(name for name in run.runtime.nodes if name != broker_name(1))
    assert there.selector == Selector(sources=(broker_name(1),), destinations=others)
    assert back.selector == Selector(sources=others, destinations=(broker_name(1),))
    assert (there.effect, back.effect) == (Cut(), Cut())


def test_failed_power_loss_leaves_no_rule() -> None:
    """The links are already cut when the power loss fails, so healing must restore them."""
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
    """A process that another fault has hit cannot be hit again.

    If it could, the end of one fault would undo the other fault too soon. For example, the restart
    after this crash would end an earlier crash.
    """
    run = Injecting({"at": "1s", "fault": "crash", "target": "coordinator-of(readers)"})
    run.runtime.nodes[broker_name(0)] = state

    entry = run.inject()

    assert (entry.outcome, entry.error) == (FaultOutcome.MISSED, reason)
    assert [row.kind for row in run.rows] == [TraceKind.FAULT_MISSED]
    assert run.runtime.acts == []


def test_member_that_has_not_joined_yet_is_a_miss() -> None:
    """The member starts later in the run, so it has no process yet that could be paused."""
    run = Injecting({"at": "1s", "fault": "pause", "target": "member(readers, 1)"})
    run.runtime.nodes[NodeName("consumer-readers-1")] = NodeState.NOT_STARTED

    assert run.inject().error == "consumer-readers-1 is not started"


def test_node_of_a_controlled_shutdown_is_restarted_when_it_is_down() -> None:
    """The broker needs 3 s to hand over its leaderships, and is restarted only after that."""
    run = Injecting({"at": "1s", "fault": "controlled_shutdown", "target": "broker(2)"})
    run.runtime.stopping_takes_us = 3 * SECOND_US

    run.inject()
    entry = run.heal()

    assert run.runtime.acts == ["shut down broker-2", "restart broker-2"]
    assert entry.healed_at_us == 3 * SECOND_US
    assert entry.note is None


def test_controlled_shutdown_that_never_ends_is_killed_and_reported() -> None:
    """The shutdown of a broker may take minutes if there is no controller.

    So when the fault is to be healed, the lab waits for 30 s, and then kills the broker.
    """
    run = Injecting({"at": "1s", "fault": "controlled_shutdown", "target": "broker(2)"})
    run.runtime.stopping_takes_us = None  # never ends

    run.inject()
    entry = run.heal()

    assert run.runtime.acts == ["shut down broker-2", "crash broker-2", "restart broker-2"]
    assert entry.note == "broker-2 was still stopping 30 s later, and was killed"
    assert entry.healed_at_us == 30 * SECOND_US


def test_fault_that_the_runtime_cannot_inject_is_a_failure_of_the_tool() -> None:
    """The fault has found broker-2, so it is no miss: the lab itself could not do its work."""
    run = Injecting({"at": "1s", "fault": "crash", "target": "broker(2)"})
    run.runtime.crash_fails_with = OSError("no such process")

    with pytest.raises(ToolFailed, match="crash-0 could not be injected: no such process"):
        run.inject()
    assert run.entry().outcome is FaultOutcome.FAILED


@pytest.mark.parametrize(
    ("target", "node"), [("broker(1)", "broker-1"), ("member(readers, 1)", "consumer-readers-1")]
)
def test_lost_node_is_killed_and_never_restarted(target: str, node: str) -> None:
    """A lost node stays down, even when another fault is healed, and at the end of the run.

    A pause (fault 0) is healed before the node is lost (fault 1). A crash (fault 2) then misses,
    because the node is down for good.
    """
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
