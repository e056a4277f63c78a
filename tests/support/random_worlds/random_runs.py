"""Random traces and a few real ones, for tests of the tables that Spark makes from traces.

A trace has the recorded events of a run. For each table the tests have an oracle: plain Python that
computes the same table from the trace's rows, independently of Spark.
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
"""Seeds of traces of a whole cluster: `random_run`."""
OWNER_SEEDS = range(16)
"""Seeds of traces of members without brokers, which own and process partitions: `random_owners`.

Without a coordinator, several members often own a partition at once.
"""
ZOOKEEPER_SEEDS = range(10)
"""Seeds of traces of ZooKeeper's servers and their consumers: `random_zookeeper_run`."""
_FEW = ("groups.orders-readers.members=3", "topics.orders.partitions=3")
"""Overrides (settings that replace those of an experiment's file) for a small group."""
# Packaged experiments that are played in virtual time, with overrides that make them small. Each
# comment says what happens in the run although it is small.
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
_REAL_SEED = 7
"""The seed of each real run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalysedRun:
    """The trace of one run, and the tables that Spark makes from it later.

    - `run`: the run's name; in the tables it stands in the column "run".
    - `rows`: the trace.
    - `directory`: the run's files. Spark adds the tables.
    - `is_random`: False for a run of `_REAL`.
    - `_tables`: the tables that were read already.
    """

    run: str
    rows: tuple[TraceRow, ...]
    directory: Path
    is_random: bool
    _tables: dict[str, list[TableRow]] = field(default_factory=dict)

    def table(self, name: str) -> list[TableRow]:
        """Return the rows of a table that Spark wrote, each with all of its columns."""
        if name not in self._tables:
            self._tables[name] = read_table(self.directory, name)
        return self._tables[name]


def write_random_runs(base: Path) -> tuple[AnalysedRun, ...]:
    """Write all random traces and real runs as run directories under `base`.

    The caller then lets Spark analyse `base`. The name of a run is its path under `base`.
    """
    traces = {f"random/{seed}": random_run(seed) for seed in SEEDS}
    traces |= {f"owners/{seed}": random_owners(seed) for seed in OWNER_SEEDS}
    traces |= {f"zookeeper/{seed}": random_zookeeper_run(seed) for seed in ZOOKEEPER_SEEDS}
    for name, overrides in _REAL.items():
        experiment = load_experiment(name, overrides).experiment
        traces[f"{name}/1"] = play_virtual(experiment, seed=_REAL_SEED).rows  # its only run: 1

    runs = []
    for number, (name, rows) in enumerate(traces.items()):
        directory = write_run(base / name, rows)
        # An analysis also reads the manifest and the results of a run. Here they have random
        # contents, also for real runs.
        write_documents(directory, seed=number)
        is_random = name.split("/")[0] not in _REAL
        runs.append(
            AnalysedRun(run=name, rows=tuple(rows), directory=directory, is_random=is_random)
        )
    return tuple(runs)
