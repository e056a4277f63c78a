"""Random traces and a few real ones, to compare Spark's tables with those of the oracles.

A trace has the recorded events of a run. An oracle computes a table from the trace's rows in plain
Python, independently of Spark.
"""

from dataclasses import dataclass, field
from pathlib import Path

from chaos.experiment.loader import load_experiment
from pipeline.in_memory.trace import TableRow
from protocol.trace import TraceRow
from tests.support.builders.trace_builder import read_table, write_run
from tests.support.random_worlds.random_files import write_documents
from tests.support.random_worlds.random_trace import random_run
from tests.support.random_worlds.random_zookeeper import random_zookeeper_run
from tests.support.reference.ownership_model import random_owners
from tests.support.worlds.acceptance import play_virtual

SEEDS = range(24)
OWNER_SEEDS = range(16)
"""Seeds of traces with only members that own, revoke and process partitions."""
ZOOKEEPER_SEEDS = range(10)
"""Seeds of traces with an ensemble (servers of ZooKeeper) and consumers on it."""
_FEW = ("groups.orders-readers.members=3", "topics.orders.partitions=3")
_REAL = {
    # Two coordinators number the group's rebalances at the same time, partitions have two owners,
    # and appends time out. There are no commits.
    "split_brain_generations": (*_FEW, "producers[0].records_per_second=4"),
    # Three brokers are shut down in order, one after the other, while members commit.
    "rolling_restart": (
        *_FEW,
        "producers[0].records_per_second=2",
        "groups.orders-readers.poll_timeout_ms=500",
        "groups.orders-readers.commit_interval_ms=500",
    ),
    # A member's late release deletes the claim of the next owner; members give up, and committed
    # offsets decrease.
    "zookeeper_late_release": (
        "topics.orders.partitions=16",
        "groups.old.members=2",
        "groups.new.members=1",
        "faults[0].args.delay=190ms",
        "producers[0].records_per_second=16",
    ),
}
"""Experiments that are played in virtual time, with the overrides that make them small."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysedRun:
    """The trace of one run, and the tables that Spark made from it.

    In the tables the run is named `run`.
    """

    run: str
    rows: tuple[TraceRow, ...]
    directory: Path
    is_random: bool
    _read: dict[str, list[TableRow]] = field(default_factory=dict)

    def table(self, name: str) -> list[TableRow]:
        """Return the rows of a table that Spark wrote, each with all of its columns."""
        if name not in self._read:
            self._read[name] = read_table(self.directory, name)
        return self._read[name]


def write_random_runs(base: Path) -> tuple[AnalysedRun, ...]:
    """Make random traces and small real runs, and write them under `base` for an analysis."""
    traces = {f"random/{seed}": random_run(seed) for seed in SEEDS}
    traces |= {f"owners/{seed}": random_owners(seed) for seed in OWNER_SEEDS}
    traces |= {f"zookeeper/{seed}": random_zookeeper_run(seed) for seed in ZOOKEEPER_SEEDS}
    for name, overrides in _REAL.items():
        traces[f"{name}/1"] = play_virtual(load_experiment(name, overrides).experiment, seed=7).rows
    return tuple(
        AnalysedRun(
            run=name,
            rows=tuple(rows),
            directory=write_documents(write_run(base / name, rows), seed=seed),
            is_random=name.split("/")[0] not in _REAL,
        )
        for seed, (name, rows) in enumerate(traces.items())
    )
