"""Small runs of the real code in virtual time, with a bug planted in it.

Virtual time is the run's own simulated clock. A checker reads the rows of a run, and judges whether
the run keeps one promise of Kafka. A test plants a bug that breaks a promise. The checker of this
promise must report a finding. There are three ways to plant a bug:

- The test builds a node of its own (`build`).
- The test replaces a part of our code.
- The test switches a guard off. A guard is a check that Kafka makes.
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

GROUP = "readers"  # its offsets partition is __consumer_offsets-0
SESSION_MS = 10_000
SEED = 7
"""Seed of a run for which the test gives none; the soak (a test of hours) tries other seeds."""
CUT: dict[str, object] = {
    "at": "2s",
    "fault": "cut",
    "from": "coordinator-of(readers)",
    "to": ["controller", "brokers"],
    "duration": "30s",
}
"""A fault: the coordinator is isolated from the cluster for 30 s, but not from its members."""

RowHook = Callable[[VirtualRuntime, TraceRow], None]


def readers(config: dict[str, object] | None = None, **changes: object) -> dict[str, object]:
    """Return a group of two members that commit every 200 ms.

    `config` adds settings of the members; `changes` replace keys of the group.
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
    """Return an experiment with three brokers, one topic with two partitions, and one group.

    config: adds settings of the brokers.
    after_faults: how long the run goes on after the last fault was injected or healed.
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
        """The checkers with a finding."""
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
    """Run the experiment to its end.

    build: builds each node; a test may plant a bug in it.
    on_row: gets each row after the checkers have observed it; it may inject faults.
    """
    seed = SEED if seed is None else seed
    suite = CheckSuite(context_of(experiment, in_virtual_time=True), experiment.checks)
    rows: list[TraceRow] = []

    def observe(row: TraceRow) -> None:
        rows.append(row)
        suite.observe(row)
        if on_row is not None:
            on_row(runtime, row)  # `runtime` is created below

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
