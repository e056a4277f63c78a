"""Play an experiment on any runtime, and compute what a crash of the coordinator did to its group.

`play_virtual`, `play_ray` and `play_local` run any experiment.

`coordinator_failover` is for the experiment `coordinator_crash`, in which the coordinator of a
group is killed once. The controller then fences the dead broker: other brokers become leaders of
the dead broker's partitions. One of these brokers, the successor, becomes the group's coordinator
and loads the group. The acceptance tests and the soak (a set of very long tests) check how long
these steps take. The pipeline and the checkers compute such times, too. This module shares no code
with them, so that it does not repeat their errors.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chaos.checkers.context import detail_of
from chaos.checkers.registry import CheckSuite, context_of
from chaos.experiment.structs import (
    Experiment,
    consumer_name,
    group_partition,
    to_cluster_spec,
)
from chaos.run.plan import plan_of
from chaos.run.runner import ExperimentRun
from cluster.local.runtime import LocalRuntime
from cluster.runtime import RowObserver
from cluster.spec import ClusterSpec
from cluster.trace.digest import TraceDigest
from cluster.trace.parquet import read_parquet
from cluster.virtual.runtime import VirtualRuntime
from protocol.causes import OffsetFetchCause
from protocol.ids import offsets_partition
from protocol.trace import TraceKind, TraceRow
from results_schema.results import Results

DETECT_MIN_US, DETECT_MAX_US = 7_000_000, 9_500_000
"""The limits of the time from the kill until the controller fences the broker.

With Kafka's defaults, the session of a broker lasts 9 s after its last heartbeat. The last
heartbeat may be up to 2 s old when the broker is killed, so the shortest time is 9 s - 2 s. The
controller may be 0.5 s late, so the longest time is 9 s + 0.5 s.
"""
RESUME_MAX_US = 1_500_000
"""The limit of the time from the load until every member commits again.

A client may need 1.2 s of this time to wait for its next try (`retry.backoff.max.ms` with jitter).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFailover:
    """The failover as one member saw it.

    Times are those of the run's clock. A time is None if the member did not get that far.
    """

    node: str
    # When the member marked its coordinator unknown.
    noticed_us: int | None
    # The brokers that answers named as the group's coordinator between the kill and the fencing.
    answers_before_detection: tuple[str, ...]
    # The times of the member's last acknowledged commit before the kill, and of its first
    # acknowledged commit after the kill.
    last_commit_before_us: int | None
    first_commit_after_us: int | None
    # The (member id, generation) of the member's acknowledged commits in the whole run, each pair
    # once.
    identities: tuple[tuple[str | None, int | None], ...]

    @property
    def commit_gap_us(self) -> int:
        """The time around the kill in which the member had no acknowledged commit."""
        if self.last_commit_before_us is None or self.first_commit_after_us is None:
            raise ValueError(f"{self.node} never committed before the kill, or never after it")
        return self.first_commit_after_us - self.last_commit_before_us


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorFailover:
    """The failover after the coordinator of a group (the victim) was killed."""

    group: str
    victim: str
    # The broker that coordinates the group afterwards.
    successor: str
    # The times of the steps in their order: the victim is killed; the controller fences the victim;
    # the successor learns that it leads the partition; it begins to load the partition; it has
    # loaded the partition.
    killed_us: int
    fenced_us: int
    applied_us: int
    load_started_us: int
    loaded_us: int
    # The successor has loaded this number of records, and this generation and these members of the
    # group.
    records_loaded: int
    generation_loaded: int
    members_loaded: tuple[str, ...]
    # The number of rows after the kill that are written only in a rebalance.
    rebalances: int
    members: tuple[MemberFailover, ...]

    @property
    def detect_us(self) -> int:
        """The time from the kill until the controller fenced the broker."""
        return self.fenced_us - self.killed_us

    @property
    def publish_us(self) -> int:
        """The time from the fencing until the successor knew that it leads the partition."""
        return self.applied_us - self.fenced_us

    @property
    def load_us(self) -> int:
        """The time from the beginning of the load to its end."""
        return self.loaded_us - self.load_started_us

    def notices_us(self) -> list[int]:
        """Return the times from the kill until each member noticed it, in ascending order."""
        return sorted(
            member.noticed_us - self.killed_us
            for member in self.members
            if member.noticed_us is not None
        )

    def resumes_us(self) -> list[int]:
        """Return the times from the load until each member committed, in ascending order."""
        return sorted(
            member.first_commit_after_us - self.loaded_us
            for member in self.members
            if member.first_commit_after_us is not None
        )

    def commit_gaps_us(self) -> list[int]:
        """Return the commit gap of each member, in ascending order."""
        return sorted(member.commit_gap_us for member in self.members)


def coordinator_failover(
    rows: Sequence[TraceRow], experiment: Experiment, group: str
) -> CoordinatorFailover:
    """Return what happened after the only fault of a run, which killed the group's coordinator.

    The rows must be in the order of time.

    Raises: AssertionError if a step of the failover is missing. The message names the missing row.
    """
    partition = str(offsets_partition(group_partition(experiment, group)))
    # The only fault of the run is the kill.
    killed = _first(rows, TraceKind.FAULT_INJECTED, since_us=0)
    victim = killed.peer or ""
    killed_us = killed.time_us
    fenced = _first(rows, TraceKind.BROKER_FENCED, killed_us, peer=victim)
    applied = _first(rows, TraceKind.BECAME_LEADER, killed_us, partition=partition)
    started = _first(rows, TraceKind.LOAD_STARTED, killed_us, partition=partition)
    loaded = _first(rows, TraceKind.LOAD_COMPLETED, killed_us, partition=partition)
    group_loaded = _first(rows, TraceKind.GROUP_LOADED, killed_us, group=group)
    # One broker, the successor, has written all rows of the load.
    assert {applied.node, started.node, group_loaded.node} == {loaded.node}
    load_detail, group_detail = detail_of(loaded), detail_of(group_loaded)
    names = [str(consumer_name(group, index)) for index in range(experiment.groups[group].members)]
    return CoordinatorFailover(
        group=group,
        victim=victim,
        successor=loaded.node,
        killed_us=killed_us,
        fenced_us=fenced.time_us,
        applied_us=applied.time_us,
        load_started_us=started.time_us,
        loaded_us=loaded.time_us,
        records_loaded=int(str(load_detail["records"])),
        generation_loaded=group_loaded.generation or 0,
        members_loaded=tuple(str(member) for member in _listed(group_detail["members"])),
        rebalances=len(rebalances_after(rows, group, killed_us)),
        members=tuple(_member(rows, name, victim, killed_us, fenced.time_us) for name in names),
    )


def rebalances_after(rows: Sequence[TraceRow], group: str, since_us: int) -> list[TraceRow]:
    """Return the rows after `since_us` that are written only in a rebalance of the group."""
    kinds = {
        TraceKind.REBALANCE_STARTED,
        TraceKind.GENERATION_STARTED,
        TraceKind.MEMBER_ADDED,
        TraceKind.MEMBER_REMOVED,
        TraceKind.PARTITIONS_ASSIGNED,
        TraceKind.PARTITIONS_REVOKED,
        TraceKind.PARTITIONS_LOST,
    }
    return [
        row for row in rows if row.time_us > since_us and row.group == group and row.kind in kinds
    ]


def lost_commits(rows: Sequence[TraceRow], experiment: Experiment, group: str) -> list[str]:
    """Return a line for each partition whose committed offset was lost or not read at the end.

    Such a line is "orders-0: acknowledged 41, at the end 17".

    At the end of a run, in its stage "verifying", the committed offsets are read once more. As long
    as a group has no rebalance, its members commit increasing offsets. So the offset that is read
    must be at least the largest offset that was acknowledged before this stage. It may be larger,
    because members still commit during the stage.
    """
    reading_us = next(
        row.time_us
        for row in rows
        if row.kind == TraceKind.RUN_STAGE and detail_of(row)["stage"] == "verifying"
    )
    acknowledged: dict[str, int] = {}
    at_the_end: dict[str, int] = {}
    for row in rows:
        if row.group != group or row.partition is None or row.offset is None:
            continue
        if row.kind == TraceKind.OFFSETS_COMMITTED and row.time_us < reading_us:
            acknowledged[row.partition] = max(row.offset, acknowledged.get(row.partition, -1))
        elif row.kind == TraceKind.OFFSETS_FETCHED and row.cause == OffsetFetchCause.VERIFICATION:
            at_the_end[row.partition] = row.offset
    partitions = [
        f"{topic}-{index}"
        for topic in experiment.groups[group].topics
        for index in range(experiment.topics[topic].partitions)
    ]
    lost = []
    for partition in partitions:
        # An OffsetFetch answers -1 if nothing is committed.
        last_acknowledged = acknowledged.get(partition, -1)
        was_read = partition in at_the_end
        if not was_read or at_the_end[partition] < last_acknowledged:
            lost.append(
                f"{partition}: acknowledged {acknowledged.get(partition)}, "
                f"at the end {at_the_end.get(partition)}"
            )
    return lost


def _member(
    rows: Sequence[TraceRow], node: str, victim: str, killed_us: int, fenced_us: int
) -> MemberFailover:
    """Return the failover as the member `node` saw it, from the rows that it wrote."""
    member_rows = [row for row in rows if row.node == node]
    commits = [row for row in member_rows if row.kind == TraceKind.OFFSETS_COMMITTED]
    # A commit that the victim has acknowledged counts as one before the kill, even if the member
    # got the acknowledgement only after the kill.
    before_kill_us = [
        row.time_us for row in commits if row.time_us <= killed_us or row.peer == victim
    ]
    after_kill_us = [
        row.time_us for row in commits if row.time_us > killed_us and row.peer != victim
    ]
    marked_unknown_us = [
        row.time_us
        for row in member_rows
        if row.kind == TraceKind.COORDINATOR_UNKNOWN and row.time_us >= killed_us
    ]
    return MemberFailover(
        node=node,
        noticed_us=min(marked_unknown_us, default=None),
        answers_before_detection=tuple(
            row.peer or ""
            for row in member_rows
            if row.kind == TraceKind.COORDINATOR_FOUND and killed_us < row.time_us <= fenced_us
        ),
        last_commit_before_us=max(before_kill_us, default=None),
        first_commit_after_us=min(after_kill_us, default=None),
        # A dict has each pair once, in the order of the commits.
        identities=tuple(dict.fromkeys((row.member, row.generation) for row in commits)),
    )


def _first(
    rows: Sequence[TraceRow],
    kind: TraceKind,
    since_us: int,
    *,
    peer: str | None = None,
    partition: str | None = None,
    group: str | None = None,
) -> TraceRow:
    """Return the first row of this kind from `since_us` on.

    If `peer`, `partition` or `group` is given, the row must have this value in its column.

    Raises: AssertionError if there is no such row.
    """
    for row in rows:
        if (
            row.kind == kind
            and row.time_us >= since_us
            # A parameter that is None fits every row.
            and peer in {None, row.peer}
            and partition in {None, row.partition}
            and group in {None, row.group}
        ):
            return row
    raise AssertionError(f"no {kind} after {since_us} us (peer {peer}, partition {partition})")


def _listed(value: object) -> list[object]:
    """Return a value from the detail of a row if it is a list, otherwise an empty list."""
    return value if isinstance(value, list) else []


def percentile(ascending: Sequence[int], percent: int) -> int:
    """Return a percentile of sorted values by the nearest-rank method.

    The result is always one of the values. For example, the 90th percentile of twelve values has
    the rank 10.8, which is rounded up to 11.
    """
    rank = math.ceil(percent * len(ascending) / 100)
    return ascending[max(rank, 1) - 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualRun:
    """A finished run in virtual time (a simulated clock). The digest is a hash over all rows."""

    experiment: Experiment
    results: Results
    rows: list[TraceRow]
    digest: str


def play_virtual(
    experiment: Experiment,
    *,
    seed: int,
    trace_messages: bool = True,
    spec: ClusterSpec | None = None,
) -> VirtualRun:
    """Run an experiment in virtual time.

    By default it runs on the cluster that the experiment describes. `spec` is another cluster.
    """
    suite = CheckSuite(context_of(experiment, in_virtual_time=True), experiment.checks)
    rows: list[TraceRow] = []
    digest = TraceDigest()
    observers: list[RowObserver] = [rows.append, suite.observe, digest]
    runtime = VirtualRuntime(
        spec or to_cluster_spec(experiment),
        seed=seed,
        run_id="acceptance",
        observers=observers,
        trace_messages=trace_messages,
    )
    results = ExperimentRun(experiment, plan_of(experiment), runtime, suite, seed=seed).execute()
    return VirtualRun(experiment=experiment, results=results, rows=rows, digest=digest.hexdigest())


def play_ray(
    experiment: Experiment,
    run_dir: Path,
    *,
    seed: int,
    observers: Sequence[RowObserver],
    time_scale: float = 1.0,
) -> Results:
    """Run an experiment on Ray. If no fixture has started Ray, it is started on this machine.

    With a `time_scale` of 2 the clock of the run is twice as fast as that of the machine.
    """
    # This import is not at the top of the file, because importing Ray takes a second.
    from cluster.ray.runtime import RayRuntime

    suite = CheckSuite(context_of(experiment), experiment.checks)
    runtime = RayRuntime(
        to_cluster_spec(experiment),
        seed=seed,
        run_id=run_dir.name,
        run_dir=run_dir,
        time_scale=time_scale,
        observers=[*observers, suite.observe],
    )
    return ExperimentRun(experiment, plan_of(experiment), runtime, suite, seed=seed).execute()


def play_local(
    experiment: Experiment,
    run_dir: Path,
    *,
    seed: int,
    observers: Sequence[RowObserver],
    time_scale: float = 1.0,
) -> Results:
    """Run an experiment in this process, in real time. `time_scale` is as in `play_ray`."""
    suite = CheckSuite(context_of(experiment), experiment.checks)
    runtime = LocalRuntime(
        to_cluster_spec(experiment),
        seed=seed,
        run_id=run_dir.name,
        run_dir=run_dir,
        time_scale=time_scale,
        observers=[*observers, suite.observe],
    )
    return ExperimentRun(experiment, plan_of(experiment), runtime, suite, seed=seed).execute()


def rows_of_run(run_directory: Path) -> list[TraceRow]:
    """Return all rows of a finished run, in the order of the run's clock."""
    rows = [
        row
        for file in sorted((run_directory / "events").glob("*.parquet"))
        for row in read_parquet(file)
    ]
    return sorted(rows, key=lambda row: (row.time_us, row.node, row.incarnation, row.seq))
