"""Small runs in virtual time (a simulated clock) into which a test plants a bug.

A checker reads the rows of a run, and judges whether the run keeps one promise of Kafka. To test a
checker, a test plants a bug that breaks this promise. Then the checker must report a finding. There
are three ways to plant a bug:

- The test passes a function `build`, which builds a node with the bug in it.
- The test replaces a part of our code (monkeypatch).
- The test switches a guard off: one of Kafka's safety rules that an experiment can switch off.
"""

from collections.abc import Callable
from dataclasses import dataclass

from chaos.checkers.registry import CheckSuite, context_of
from chaos.experiment.structs import Experiment, to_cluster_spec
from chaos.run.plan import plan_of
from chaos.run.runner import ExperimentRun
from cluster.lives import NodeBuilder
from cluster.node_factory import build_node
from cluster.virtual.runtime import VirtualRuntime
from protocol.trace import TraceRow
from results_schema.results import CheckOutcome, CheckReport, Results
from tests.support.builders.experiments import experiment

GROUP = "readers"
"""The only group. Its offsets are in `__consumer_offsets-0`: this topic has only one partition."""
SESSION_MS = 10_000
SEED = 7
"""The seed of a run, unless a test passes another seed.

The soak (a set of very long tests) replaces this constant, to try many seeds.
"""
CUT: dict[str, object] = {
    "at": "2s",
    "fault": "cut",
    "from": "coordinator-of(readers)",
    "to": ["controller", "brokers"],
    "duration": "30s",
}
"""A fault, as an experiment's file has it.

For 30 s the coordinator is cut off from the controller and the other brokers. It can still reach
the members of the group.
"""

RowHook = Callable[[VirtualRuntime, TraceRow], None]
"""A function that `play` calls with the cluster and with each row of the trace."""


def readers(config: dict[str, object] | None = None, **changes: object) -> dict[str, object]:
    """Return a group of two members that commit every 200 ms, as an experiment's file has it.

    `config` adds settings of the members. `changes` replace keys of the group.
    """
    return {
        "members": 2,
        "topics": ["orders"],
        "commit_interval_ms": 200,
        "config": {
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": 2_000,
            **(config or {}),
        },
        **changes,
    }


def small(
    *faults: dict[str, object],
    group: dict[str, object] | None = None,
    guards: dict[str, bool] | None = None,
    after_faults: str = "8s",
    config: dict[str, object] | None = None,
) -> Experiment:
    """Return an experiment with three brokers, a topic of two partitions, and a group.

    group: the group, as in an experiment's file; by default `readers()`.
    after_faults: how long the run goes on after the last fault was injected or healed.
    config: more settings of the brokers.
    """
    return experiment(
        cluster={
            "brokers": 3,
            "config": {
                "offsets.topic.num.partitions": 1,
                "min.insync.replicas": 2,
                "group.initial.rebalance.delay.ms": 500,
                "auto.leader.rebalance.enable": False,
                **(config or {}),
            },
            "guards": guards or {},
        },
        groups={GROUP: readers() if group is None else group},
        producers=[{"topic": "orders", "records_per_second": 20}],
        faults=list(faults),
        run={"after_faults": after_faults, "liveness_timeout": "20s"},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A finished run."""

    results: Results
    rows: list[TraceRow]

    def report(self, check: str) -> CheckReport:
        """Return the report of one checker."""
        return next(report for report in self.results.checks if report.check == check)

    @property
    def violated(self) -> list[str]:
        """The names of the checkers that have found a violation."""
        return [
            report.check
            for report in self.results.checks
            if report.outcome is CheckOutcome.VIOLATED
        ]


def play(
    experiment: Experiment,
    *,
    seed: int | None = None,
    build: NodeBuilder = build_node,
    on_row: RowHook | None = None,
) -> Played:
    """Run an experiment to its end.

    build: builds each node. A test may pass a function that builds a node with a bug.
    on_row: is called with each row of the trace, after the checkers have read it. It may inject
        faults at this moment.
    """
    if seed is None:
        # SEED is no default of the parameter, because the soak changes SEED later.
        seed = SEED
    suite = CheckSuite(context_of(experiment, in_virtual_time=True), experiment.checks)
    rows: list[TraceRow] = []

    def observe(row: TraceRow) -> None:
        rows.append(row)
        suite.observe(row)
        if on_row is not None:
            # `runtime` is created below, but before the first row is written.
            on_row(runtime, row)

    runtime = VirtualRuntime(
        to_cluster_spec(experiment),
        seed=seed,
        run_id="planted",
        observers=[observe],
        trace_messages=False,
        build=build,
    )
    plan = plan_of(experiment)
    results = ExperimentRun(experiment, plan, runtime, suite, seed=seed).execute()
    return Played(results=results, rows=rows)
