"""Faults of machines: all nodes of a machine end together, and return together.

An experiment file may place its nodes on machines. A fault of a machine then hits all nodes of this
machine.

A runtime runs the nodes of a cluster. Most tests play single faults on a runtime without nodes,
which only writes down what it is asked to do: `run.runtime.acts` has the calls as text. With
`run = injecting(fault_0, fault_1)`, `run.inject(1)` injects the second fault, and `run.heal(1)`
undoes ("heals") this fault. A fault that hits nothing is a "miss". The last two tests play whole
runs.
"""

from typing import Any

import pytest

from chaos.experiment.loader import load_experiment
from chaos.experiment.rules.all_rules import errors
from chaos.experiment.structs import Experiment
from cluster.runtime import NodeState
from protocol.ids import NodeName, broker_name
from protocol.trace import TraceKind
from results_schema.journal import FaultOutcome
from results_schema.results import CheckOutcome, Verdict
from tests.support.builders.experiments import experiment
from tests.support.builders.injecting import Injecting
from tests.support.builders.quick_experiment import QUICK_BROKERS, quick_experiment
from tests.support.worlds.acceptance import play_virtual

MACHINES = [
    ["broker-0", "consumer-readers-0", "consumer-readers-1"],
    ["broker-1", "controller-100"],
    ["broker-2"],
]
ON_MACHINE_0 = ("broker-0", "consumer-readers-0", "consumer-readers-1")
"""Nodes on machine 0. broker-0 is the coordinator of the group readers."""
ON_OTHER_MACHINES = ("controller-100", "broker-1", "broker-2")


def on_machines(*faults: dict[str, Any]) -> Experiment:
    """Return an experiment whose nodes are on MACHINES, and whose faults all begin at 1 s."""
    return experiment(
        cluster={
            "brokers": 3,
            "machines": MACHINES,
            "config": {"offsets.topic.num.partitions": 2, "min.insync.replicas": 2},
        },
        faults=[{"at": "1s", **fault} for fault in faults],
    )


def injecting(*faults: dict[str, Any]) -> Injecting:
    """Return a run in which these faults can be injected, on the cluster of `on_machines`."""
    return Injecting(own_experiment=on_machines(*faults))


def test_lost_machine_is_cut_off_and_then_all_its_nodes_end() -> None:
    """A machine without power cannot close its connections, so nobody notices its end at once.

    The injector imitates this: first it cuts the links of the machine, and then it ends the
    machine's nodes.
    """
    run = injecting({"fault": "machine_loss", "target": "machine-of(coordinator-of(readers))"})

    entry = run.inject()

    there, back = run.runtime.rules
    assert there.selector.sources == back.selector.destinations == ON_MACHINE_0
    assert there.selector.destinations == back.selector.sources == ON_OTHER_MACHINES
    # The first act sets the two rules, which cut the links there and back.
    assert run.runtime.acts[1:] == [f"power loss {node}" for node in ON_MACHINE_0]
    assert (entry.nodes, entry.resolved["machine"]) == (ON_MACHINE_0, 0)
    assert entry.resolved["machine_of"] == "broker-0"
    assert entry.blast_radius.groups == ("readers",)
    assert not entry.members_survive


@pytest.mark.parametrize(
    ("disk", "restart"), [("same", "restart {node}"), ("empty", "restart on an empty disk: {node}")]
)
def test_lost_machine_returns_with_its_disks_or_with_empty_ones(disk: str, restart: str) -> None:
    """First the nodes of the machine are restarted, and then its links are healed.

    In this order the other machines do not hear of the restarted nodes too early. When the links
    are healed, the first thing that the other machines hear is that the old connections are closed.
    """
    run = injecting({"fault": "machine_loss", "target": "machine(0)", "args": {"disk": disk}})

    run.inject()
    run.runtime.acts.clear()
    run.heal()

    restarts = [restart.format(node=node) for node in ON_MACHINE_0]
    assert run.runtime.acts == [*restarts, "rules none"]


def test_node_that_another_fault_stopped_returns_with_its_machine() -> None:
    """broker-0 crashes, and then its machine is lost. The crash is healed first.

    No process can be started on a lost machine, so broker-0 starts only when the machine returns.
    """
    run = injecting(
        {"fault": "crash", "target": "broker(0)"},
        {"fault": "machine_loss", "target": "machine(0)"},
    )
    crash, machine_loss = 0, 1
    run.inject(crash)
    # broker-0 is down already, so the loss of the machine hits only the two consumers.
    assert run.inject(machine_loss).nodes == ("consumer-readers-0", "consumer-readers-1")

    entry = run.heal(crash)
    assert run.runtime.nodes[broker_name(0)] is NodeState.DOWN
    assert entry.note == "machine 0 is lost: broker-0 starts again with it"

    run.heal(machine_loss)
    assert {run.runtime.nodes[NodeName(node)] for node in ON_MACHINE_0} == {NodeState.UP}


def test_node_with_a_fault_in_force_stays_down_when_its_machine_returns() -> None:
    """broker-0 crashes, and then its machine is lost. The machine returns first.

    At this time the crash is still in force, so broker-0 stays down until the crash is healed.
    """
    run = injecting(
        {"fault": "crash", "target": "broker(0)"},
        {"fault": "machine_loss", "target": "machine(0)"},
    )
    crash, machine_loss = 0, 1
    run.inject(crash)
    run.inject(machine_loss)

    run.heal(machine_loss)
    assert run.runtime.nodes[broker_name(0)] is NodeState.DOWN
    run.heal(crash)
    assert run.runtime.nodes[broker_name(0)] is NodeState.UP


def test_machine_without_a_node_that_is_up_is_a_miss() -> None:
    """A lost machine cannot be lost a second time, so the second fault hits nothing."""
    run = injecting(
        {"fault": "machine_loss", "target": "machine(2)"},
        {"fault": "machine_loss", "target": "machine(2)"},
    )
    run.inject(0)

    entry = run.inject(1)

    assert entry.outcome is FaultOutcome.MISSED
    assert entry.error == "no node of machine 2 is up: broker-2 is down"


def test_resumed_machine_resumes_the_nodes_that_are_still_paused() -> None:
    """broker-0 ends while its machine is paused, so only the machine's two consumers can resume."""
    run = injecting({"fault": "machine_pause", "target": "machine(0)"})

    run.inject()
    assert run.runtime.acts == [f"pause {node}" for node in ON_MACHINE_0]
    run.runtime.acts.clear()
    run.runtime.nodes[broker_name(0)] = NodeState.DOWN
    run.heal()

    assert run.runtime.acts == ["resume consumer-readers-0", "resume consumer-readers-1"]


def test_broker_whose_machine_is_paused_during_its_shutdown_is_restarted() -> None:
    """A broker can be restarted only when it is down, so the injector waits until it is down.

    1. broker-2 begins to stop, and its machine is paused.
    2. The machine resumes, and broker-2 continues to stop.
    3. broker-2 is down. The healing of the shutdown restarts it.
    """
    run = injecting(
        {"fault": "controlled_shutdown", "target": "broker(2)"},
        {"fault": "machine_pause", "target": "machine(2)"},
    )
    shutdown, pause = 0, 1
    run.runtime.stopping_takes_us = None  # the broker does not end by itself

    def must_wait() -> bool:
        return run.injector.must_wait(run.plan[shutdown], run.status())

    run.inject(shutdown)
    run.inject(pause)
    assert must_wait()
    run.heal(pause)
    assert must_wait()
    run.runtime.nodes[broker_name(2)] = NodeState.DOWN
    assert not must_wait()
    run.heal(shutdown)
    assert run.runtime.acts == [
        "shut down broker-2",
        "pause broker-2",
        "resume broker-2",
        "restart broker-2",
    ]


def test_shutdown_that_is_healed_on_a_paused_machine_is_waited_for() -> None:
    """At the end of a run all faults are healed, in an order that works.

    1. The machine is resumed. While it is paused, broker-2 cannot end its shutdown.
    2. broker-2 ends its shutdown, 5 s later.
    3. broker-2 is restarted, which heals the shutdown.
    """
    run = injecting(
        {"fault": "controlled_shutdown", "target": "broker(2)"},
        {"fault": "machine_pause", "target": "machine(2)"},
    )
    shutdown, pause = 0, 1
    run.runtime.stopping_takes_us = 5_000_000

    run.inject(shutdown)
    run.inject(pause)
    run.heal_everything()

    # The first two acts are the shutdown and the pause.
    assert run.runtime.acts[2:] == ["resume broker-2", "restart broker-2"]
    assert run.runtime.nodes[broker_name(2)] is NodeState.UP


@pytest.mark.parametrize(("direction", "rules"), [("both_ways", 2), ("one_way", 1)])
def test_machine_is_cut_off_in_both_directions_or_in_one(direction: str, rules: int) -> None:
    """The network gets a rule for each direction that is cut.

    A rule cuts only links to other machines, so the nodes of machine 0 still reach each other.
    """
    run = injecting(
        {"fault": "machine_cut", "target": "machine(0)", "args": {"direction": direction}}
    )

    entry = run.inject()

    assert len(run.runtime.rules) == rules
    assert run.runtime.rules[0].selector.sources == ON_MACHINE_0
    assert run.runtime.rules[0].selector.destinations == ON_OTHER_MACHINES
    assert (entry.from_nodes, entry.to_nodes) == (ON_MACHINE_0, ON_OTHER_MACHINES)
    assert entry.is_one_way == (rules == 1)
    run.heal()
    assert run.runtime.rules == ()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("machine(3)", "there is no machine `3`"),
        ("machine", "names no machine"),
        ("machine-of", "names no node"),
        ("machine-of(brokers)", "`brokers` is not a single node"),
        ("machine-of(machine(0))", "`machine(0)` is not a single node"),
        ("machine-of(broker(9))", "there is no broker `9`"),
        ("broker(0)", "`machine_loss` cannot be aimed at it"),
    ],
)
def test_target_that_is_no_machine_is_refused(target: str, message: str) -> None:
    """When a file with such a target is loaded, its only problem is the target."""
    problems = list(errors(on_machines({"fault": "machine_loss", "target": target})))

    assert [problem.message for problem in problems] == [message]


def test_file_without_machines_is_refused() -> None:
    """If a file does not place its nodes on machines, it cannot have a fault of a machine."""
    made = experiment(faults=[{"at": "1s", "fault": "machine_loss", "target": "machine(0)"}])

    (problem,) = errors(made)

    assert problem.message == "the file names no machines"


@pytest.mark.parametrize("target", ["machine(1)", "machine-of(controller)"])
def test_disk_of_the_only_controller_cannot_be_lost(target: str) -> None:
    """Machine 1 has the only controller. Without the controller's disk the cluster is lost."""
    fault = {"fault": "machine_loss", "target": target, "args": {"disk": "empty"}}

    (problem,) = errors(on_machines(fault))

    assert problem.path == "faults[0].args.disk"
    assert "controller-100" in problem.message


def test_role_on_the_controllers_machine_is_a_miss() -> None:
    """The only controller must not lose its disk, even if its machine is chosen during the run.

    The target `any-broker` (a role) stands for some broker that is up. The broker is chosen when
    the fault is injected, so the loader cannot refuse the fault. Here the other brokers are down,
    so broker-1 is chosen. The controller is on the machine of broker-1, so the fault is not carried
    out: it is a miss.
    """
    run = injecting(
        {"fault": "machine_loss", "target": "machine-of(any-broker)", "args": {"disk": "empty"}}
    )
    for node in ("broker-0", "broker-2"):  # so that only broker-1 is up
        run.runtime.nodes[NodeName(node)] = NodeState.DOWN

    entry = run.inject()

    assert entry.outcome is FaultOutcome.MISSED
    assert entry.error is not None
    assert entry.error.startswith("machine 1 has controller-100")


@pytest.mark.parametrize(
    ("machines", "message"),
    [
        ([["broker-0", "broker-7"]], "there is no node `broker-7`"),
        (
            [["broker-0"], ["broker-0"]],
            "`broker-0` has a machine already: cluster.machines[0][0]",
        ),
    ],
)
def test_machines_must_list_existing_nodes_once(machines: list[list[str]], message: str) -> None:
    """A file is refused if a machine has an unknown node, or if a node is listed twice."""
    (problem,) = errors(experiment(cluster={"brokers": 3, "machines": machines}))

    assert problem.message == message


@pytest.mark.parametrize("fault", ["machine_loss", "machine_pause", "machine_cut"])
@pytest.mark.parametrize("machine", [0, 1, 2])
def test_group_survives_each_fault_of_each_machine(fault: str, machine: int) -> None:
    """The nodes are spread over three machines, so the faults of the three machines hit every node.

    The nodes are the coordinator, the other brokers, the controller, the members and a producer.
    """
    made = quick_experiment(
        cluster={"brokers": 3, "config": QUICK_BROKERS, "machines": 3},
        faults=[
            {"at": "1s", "fault": fault, "target": f"machine({machine})", "duration": "4s"},
        ],
        run={"after_faults": "5s"},
    )

    run = play_virtual(made, seed=5)

    assert run.results.verdict is Verdict.PASS
    injected = [row for row in run.rows if row.kind == TraceKind.FAULT_INJECTED]
    assert len(injected) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("min_isr", "verdict", "durable"),
    [(2, Verdict.PASS, CheckOutcome.PASS), (1, Verdict.VIOLATED, CheckOutcome.VIOLATED)],
    ids=["min-isr-2", "min-isr-1"],
)
def test_machine_crash_loses_acknowledged_commits_only_without_a_second_machine(
    min_isr: int, verdict: Verdict, durable: CheckOutcome
) -> None:
    """The experiment machine_crash shows how a cluster loses acknowledged commits.

    1. faults[0] cuts a broker off from the other brokers. Soon this broker is alone in the ISR.
    2. With min.insync.replicas 1 the broker still acknowledges commits. With min.insync.replicas 2
       it acknowledges none.
    3. faults[1] is the loss of the broker's machine and its disk. The acknowledged commits were on
       this disk only, so they are lost.
    """
    made = load_experiment(
        "machine_crash",
        [
            f"cluster.config.min.insync.replicas={min_isr}",
            f"topics.orders.config.min.insync.replicas={min_isr}",
        ],
    ).experiment

    results = play_virtual(made, seed=1).results

    assert results.verdict is verdict
    outcomes = {report.check: report.outcome for report in results.checks}
    assert outcomes["durable_commits"] is durable
    # The file places these three nodes on one machine.
    assert set(results.faults[1].nodes) == {
        "broker-1",
        "consumer-readers-2",
        "consumer-readers-3",
    }
