"""Traces of random and of real runs, for the tests of the tables that Spark makes from traces.

A trace has the recorded events of a run, one row each. For each table the tests have an oracle:
plain Python that computes the same table from the same rows. Spark's table must be equal to the
table of the oracle.
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
"""With these seeds `random_run` makes traces of a whole cluster."""
OWNER_SEEDS = range(16)
"""With these seeds `random_owners` makes traces of members that own and process partitions.

These traces have no coordinator. So several members often own a partition at the same time.
"""
ZOOKEEPER_SEEDS = range(10)
"""With these seeds `random_zookeeper_run` makes traces of ZooKeeper's servers and consumers."""
_SMALL_GROUP = ("groups.orders-readers.members=3", "topics.orders.partitions=3")
"""Settings that replace those of an experiment's file, to make its group small."""
# Real runs: packaged experiments that are played in virtual time. Their settings make them small
# and quick. The comments say what must still happen in each run.
_REAL = {
    # Two coordinators number the group's rebalances at the same time, partitions have two owners,
    # and appends time out. There are no commits.
    "split_brain_generations": (*_SMALL_GROUP, "producers[0].records_per_second=4"),
    # Three brokers are shut down in order, one after the other, while members commit.
    "rolling_restart": (
        *_SMALL_GROUP,
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
    """The trace of one run, and the tables that Spark has made from it."""

    # The run's name, such as "random/3". The tables have it in their column "run".
    run: str
    # The trace.
    rows: tuple[TraceRow, ...]
    # The directory with the run's files. Spark writes the tables into this directory.
    directory: Path
    # False for a run of `_REAL`.
    is_random: bool
    # The tables that were read so far, by name.
    _tables: dict[str, list[TableRow]] = field(default_factory=dict)

    def table(self, name: str) -> list[TableRow]:
        """Return the rows of a table that Spark wrote, each with all of its columns."""
        if name not in self._tables:
            self._tables[name] = read_table(self.directory, name)
        return self._tables[name]


def write_random_runs(base: Path) -> tuple[AnalysedRun, ...]:
    """Write every random and every real run as a directory under `base`.

    The caller then lets Spark analyse `base`. The name of a run is the path of its directory under
    `base`, such as "random/3".
    """
    traces = {f"random/{seed}": random_run(seed) for seed in SEEDS}
    traces |= {f"owners/{seed}": random_owners(seed) for seed in OWNER_SEEDS}
    traces |= {f"zookeeper/{seed}": random_zookeeper_run(seed) for seed in ZOOKEEPER_SEEDS}
    for name, overrides in _REAL.items():
        experiment = load_experiment(name, overrides).experiment
        # A run is named after its experiment and has a number. Here each experiment has one run.
        traces[f"{name}/1"] = play_virtual(experiment, seed=_REAL_SEED).rows

    runs = []
    for number, (name, rows) in enumerate(traces.items()):
        directory = write_run(base / name, rows)
        # The analysis also reads the manifest and the results of a run. They are random, even for a
        # real run.
        write_documents(directory, seed=number)
        is_random = name.partition("/")[0] not in _REAL
        runs.append(
            AnalysedRun(run=name, rows=tuple(rows), directory=directory, is_random=is_random)
        )
    return tuple(runs)
