"""Play the runs whose reports are tested, in virtual time (with a simulated clock).

A recipe says how to play a run: it names an experiment, and changes some settings of it. Most runs
are small. In one run a promise of Kafka is violated, one run is interrupted, and one run has 1,000
members.
"""

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from chaos.checkers.registry import CheckSuite, context_of
from chaos.experiment.loader import load_experiment
from chaos.experiment.structs import to_cluster_spec
from chaos.results.manifest import run_command_line
from chaos.results.run_directory import EVENTS_FILE, create_run_directory
from chaos.run.plan import plan_of
from chaos.run.runner import ExperimentRun, Progress
from cluster.trace.digest import TraceDigest
from cluster.trace.parquet import ParquetTraceWriter
from cluster.virtual.runtime import VirtualRuntime

SEED = 7
THOUSAND_GROUPS, THOUSAND_MEMBERS_EACH = 10, 100
"""The number of groups of the run with 1,000 members, and of the members of each group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The instructions for playing a run."""

    # The name or the file of an experiment. None: the experiment with 1,000 members.
    experiment: str | None
    # Settings that replace those of the file.
    overrides: tuple[str, ...] = ()
    # The time at which the run is interrupted, counted from the steady state, in which all members
    # have joined. None: the run is not interrupted.
    interrupted_after_us: int | None = None


RECIPES: Mapping[str, Recipe] = {
    "three": Recipe(
        experiment="coordinator_crash",
        overrides=("groups.orders-readers.members=3", "producers[0].records_per_second=20"),
    ),
    "overlap": Recipe(
        experiment="split_brain_ownership",
        overrides=("producers[0].records_per_second=12",),
    ),
    "violated": Recipe(
        experiment="split_brain_ownership",
        overrides=(
            # Without this safety rule, a commit is acknowledged before it is replicated. So it can
            # be lost, which breaks a promise of Kafka.
            "cluster.guards.high_watermark_gate=false",
            "groups.orders-readers.commit_interval_ms=500",
            "producers[0].records_per_second=12",
        ),
    ),
    # A broker is killed 5 s after the steady state begins, and Ctrl-C comes 4 s later, at 9 s. At
    # this time no node has noticed yet that the broker is dead.
    "interrupted": Recipe(
        experiment="coordinator_crash",
        overrides=("groups.orders-readers.members=3", "producers[0].records_per_second=20"),
        interrupted_after_us=9_000_000,
    ),
    "thousand": Recipe(experiment=None),
}
"""The runs with which reports are tested. They have few records, so that they are played fast."""
SCHEDULES: Mapping[str, Recipe] = {
    "transactions": Recipe(experiment="tests/schedules/orders_about_groups_and_transactions.yaml"),
    "many": Recipe(experiment="tests/schedules/seventy_four_faults.yaml"),
}
"""More runs, whose pages are compared. They have many faults, which the search drew at random."""


def make_run(root: Path, recipe: Recipe) -> Path:
    """Play a recipe in virtual time, and return the run's directory, which is below `root`.

    The directory has the same files as a directory of the command `run`.

    Raises: ExperimentError; RuntimeError if coordlab itself failed.
    """
    name = recipe.experiment
    if name is None:
        name = str(write_thousand_members(root / "thousand_members.yaml"))
    loaded = load_experiment(name, recipe.overrides)
    experiment, plan = loaded.experiment, plan_of(loaded.experiment)
    directory = create_run_directory(
        root,
        experiment,
        plan,
        seed=SEED,
        runtime="virtual",
        replay=run_command_line(name, runtime="virtual", seed=SEED, overrides=recipe.overrides),
        experiment_file=str(loaded.path),
    )
    suite = CheckSuite(context_of(experiment, in_virtual_time=True), experiment.checks)
    digest = TraceDigest()
    writer = ParquetTraceWriter(directory.events / EVENTS_FILE)
    runtime = VirtualRuntime(
        to_cluster_spec(experiment),
        seed=SEED,
        run_id=directory.manifest.run,
        observers=[suite.observe, writer, digest],
    )
    played = ExperimentRun(
        experiment,
        plan,
        runtime,
        suite,
        seed=SEED,
        directory=directory,
        progress=CtrlC(recipe.interrupted_after_us),
    )
    try:
        with pause_garbage_collector():
            results = played.execute()
    finally:
        writer.close()
    passed, violated, unknown, interrupted = 0, 1, 2, 130
    # Any other exit code is an error of coordlab itself.
    if results.exit_code not in {passed, violated, unknown, interrupted}:
        raise RuntimeError(f"{name} ended with {results.exit_code}: {results.reasons}")
    directory.manifest.digest = digest.hexdigest()
    directory.write_manifest()
    return directory.path


@contextmanager
def pause_garbage_collector() -> Iterator[None]:
    """Switch the garbage collector off: it would take half the time of a run with 1,000 members."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class CtrlC:
    """Raises KeyboardInterrupt in a run, `after_us` microseconds after its steady state began.

    A run calls this object again and again with its progress. If `after_us` is None, the object
    never raises the exception.
    """

    def __init__(self, after_us: int | None) -> None:
        self._after_us = after_us

    def __call__(self, progress: Progress) -> None:
        if self._after_us is None or progress.steady_at_us is None:
            return
        if progress.time_us >= progress.steady_at_us + self._after_us:
            # Raise the exception only once, as if the user had pressed Ctrl-C once.
            self._after_us = None
            raise KeyboardInterrupt


def write_thousand_members(
    path: Path,
    *,
    groups: int = THOUSAND_GROUPS,
    members_each: int = THOUSAND_MEMBERS_EACH,
    overrides: Mapping[str, object] | None = None,
) -> Path:
    """Write the file of an experiment with many members, by default 1,000; return its path.

    This experiment shows whether the report copes with many members. So the members send few
    requests, and a run takes only seconds to play. Each member owns a partition. The experiment
    kills one broker, which coordinates a third of the groups. `overrides` replace top-level keys of
    the file.
    """
    group = {
        "members": members_each,
        "topics": ["orders"],
        "poll_timeout_ms": 1_000,
        "commit_interval_ms": 2_000,
        "config": {
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": ["range"],
            "fetch.max.wait.ms": 2_000,
            "retry.backoff.ms": 500,
        },
    }
    experiment: dict[str, object] = {
        "version": 1,
        "name": "thousand_members",
        "question": "What do 1,000 members of ten groups live through when a coordinator dies?",
        "expect": "The groups of that broker commit nothing for about 3 s; nobody rebalances.",
        "cluster": {
            "brokers": 3,
            "controllers": 1,
            "config": {
                "offsets.topic.num.partitions": 6,
                "min.insync.replicas": 2,
                "auto.leader.rebalance.enable": False,
                "group.initial.rebalance.delay.ms": 500,
                "broker.session.timeout.ms": 2_000,
                "broker.heartbeat.interval.ms": 500,
            },
        },
        "topics": {"orders": {"partitions": members_each, "replication.factor": 3}},
        "groups": {f"readers-{index}": group for index in range(groups)},
        "producers": [{"topic": "orders", "records_per_second": 10}],
        "faults": [
            {"at": "1s", "fault": "crash", "target": "coordinator-of(readers-0)", "duration": "4s"}
        ],
        "run": {"after_faults": "500ms"},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(experiment | dict(overrides or {}), sort_keys=False)
    path.write_text(text, encoding="utf-8")
    return path


def make_runs(root: Path) -> dict[str, Path]:
    """Play all recipes, and return the directories of the runs by the names of the recipes."""
    return {name: make_run(root, recipe) for name, recipe in {**RECIPES, **SCHEDULES}.items()}
