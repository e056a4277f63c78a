"""Compare runs by their stories: by the milestones of a group after a fault.

A milestone is an event with its time after the first fault. For example, these are three milestones
of a run in which the coordinator of the group crashes:

    epoch +1 elected            8.2 s
    epoch +1 active             8.3 s
    members commit again        9.1 s

Tests compare runs in real time with runs in virtual time (a simulated clock) in this way. The
milestones are computed from the rows of the trace (the recorded events), without the code of the
pipeline and the checkers.

Some events happen once for each member. For example, each member marks its coordinator unknown. The
time of such a milestone is the median over the members. Other events belong to a tenure, which is
the time in which one broker coordinates the group. A tenure is one leader epoch of the group's
partition of `__consumer_offsets`.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median_low

from chaos.checkers.context import detail_of
from chaos.experiment.structs import Experiment, group_partition
from protocol.ids import offsets_partition
from protocol.trace import TraceKind, TraceRow

PHASE_MIN_US = 1_000_000
"""Only phases of at least this length are compared. Shorter phases depend on the machine."""
TOLERANCE = 0.20
"""The share by which the length of a phase in real time may differ from that in virtual time."""

Milestones = dict[str, int]
"""The name of a milestone -> its time in microseconds after the first fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The time from one milestone to the next milestone, which is at least PHASE_MIN_US later."""

    start: str
    end: str
    length_us: int


def milestones_of(rows: Sequence[TraceRow], experiment: Experiment, group: str) -> Milestones:
    """Return the milestones of a group after the first fault, in the order of time.

    Leader epochs are counted from the epoch in which the fault came. So "epoch +1" is the epoch of
    the next coordinator. An event that can happen several times in a tenure has two milestones, one
    for the first time and one for the last time: "first rebalance in epoch +1".

    Raises: AssertionError if no fault was injected, or if the group had no coordinator before.
    """
    finder = _MilestoneFinder(
        rows, str(offsets_partition(group_partition(experiment, group))), group
    )
    milestones = {
        **finder.find_leaderships(),
        **finder.find_rebalances(),
        **finder.find_members(),
        **finder.find_faults(),
    }
    return dict(sorted(milestones.items(), key=lambda item: item[1]))


def medians(runs: Sequence[Milestones]) -> Milestones:
    """Return the median time of each milestone over several runs, in the order of time.

    Milestones that at most half of the runs have reached are left out.
    """
    times: dict[str, list[int]] = {}
    for run in runs:
        for name, time_us in run.items():
            times.setdefault(name, []).append(time_us)
    median_times = {
        name: median_low(values) for name, values in times.items() if len(values) > len(runs) / 2
    }
    return dict(sorted(median_times.items(), key=lambda item: item[1]))


def phases_of(runs: Sequence[Milestones]) -> list[Phase]:
    """Return the phases that last at least a second. Their lengths are medians over the runs.

    The first phase begins with the fault.
    """
    phases = []
    start = "fault"
    for end in medians(runs):
        length_us = _length_us(runs, start, end)
        if length_us is not None and length_us >= PHASE_MIN_US:
            phases.append(Phase(start=start, end=end, length_us=length_us))
        start = end
    return phases


def differences(virtual_runs: Sequence[Milestones], real_runs: Sequence[Milestones]) -> list[str]:
    """Return how runs in virtual time differ from runs in real time.

    The runs may differ in their milestones, in the order of the milestones, and in the lengths of
    phases. Each difference is a line such as "only in real time: members lose their partitions" or
    "epoch +1 active -> members commit again: 1.10 s in virtual time, 1.60 s in real time".

    The order of two milestones that are less than a second apart depends on the machine. So this
    order is not compared.
    """
    virtual, real = medians(virtual_runs), medians(real_runs)
    lines = [f"only in virtual time: {name}" for name in virtual if name not in real]
    lines += [f"only in real time: {name}" for name in real if name not in virtual]
    common = [name for name in virtual if name in real]
    # `common` is in the order of virtual time.
    for first, second in itertools.combinations(common, 2):
        is_far_apart = virtual[second] - virtual[first] >= PHASE_MIN_US
        if is_far_apart and real[second] < real[first]:
            lines.append(f"in real time {second!r} comes before {first!r}")
    for phase in phases_of(virtual_runs):
        length_us = _length_us(real_runs, phase.start, phase.end)
        if length_us is None:
            # One of the two milestones is missing in real time. A line above already says so.
            continue
        if abs(length_us - phase.length_us) > TOLERANCE * phase.length_us:
            lines.append(
                f"{phase.start} -> {phase.end}: {phase.length_us / 1e6:.2f} s in virtual time, "
                f"{length_us / 1e6:.2f} s in real time"
            )
    return lines


def _length_us(runs: Sequence[Milestones], start: str, end: str) -> int | None:
    """Return the median time from `start` to `end`, over the runs that have reached both.

    `start` may also be "fault", which is no milestone.
    """
    # The times of milestones count from the fault. So the time of the fault is 0.
    with_fault = [{"fault": 0} | run for run in runs]
    lengths = [run[end] - run[start] for run in with_fault if start in run and end in run]
    return median_low(sorted(lengths)) if lengths else None


class _MilestoneFinder:
    """Finds the milestones of one group in the rows of a run."""

    def __init__(self, rows: Sequence[TraceRow], partition: str, group: str) -> None:
        faults = [row for row in rows if row.kind == TraceKind.FAULT_INJECTED]
        assert faults, "no fault was injected"
        self._fault_us = faults[0].time_us
        self._group = group
        self._of_partition = [row for row in rows if row.partition == partition]
        self._loads = [row for row in self._of_partition if row.kind == TraceKind.LOAD_COMPLETED]
        epochs_before = [
            load.leader_epoch or 0 for load in self._loads if load.time_us <= self._fault_us
        ]
        assert epochs_before, f"{partition} had no coordinator before the fault"
        # The leader epoch in which the fault came, which milestones call "epoch +0".
        self._first_epoch = max(epochs_before)
        self._after = [row for row in rows if row.time_us > self._fault_us]
        self._rows = rows

    def find_leaderships(self) -> Milestones:
        """Find when each new coordinator was elected, was active, and had unloaded the groups."""
        names = {
            TraceKind.LEADER_ELECTED: "elected",
            TraceKind.LOAD_COMPLETED: "active",
            TraceKind.UNLOAD_COMPLETED: "unloaded",
        }
        found: Milestones = {}
        for row in self._of_partition:
            step = names.get(TraceKind(row.kind))
            if step is None or row.time_us <= self._fault_us:
                continue
            if row.kind == TraceKind.UNLOAD_COMPLETED and not self._has_loaded(row):
                # This broker never was the coordinator, and had nothing to unload.
                continue
            # A broker unloads because another broker leads the partition in a newer epoch. The row
            # about the unload has this newer epoch.
            epoch = (row.leader_epoch or 0) - self._first_epoch
            found.setdefault(f"epoch +{epoch} {step}", self._since(row))
        return found

    def find_rebalances(self) -> Milestones:
        """Find for each tenure when the steps of rebalances came first, and when last."""
        names = {
            TraceKind.REBALANCE_STARTED: "rebalance",
            TraceKind.GENERATION_STARTED: "generation",
            TraceKind.MEMBER_REMOVED: "member removed",
        }
        found: Milestones = {}
        for row in self._after:
            step = names.get(TraceKind(row.kind))
            if step is None or row.group != self._group:
                continue
            tenure = f"in epoch +{self._epoch_at(row)}"
            found.setdefault(f"first {step} {tenure}", self._since(row))
            found[f"last {step} {tenure}"] = self._since(row)
        return found

    def find_members(self) -> Milestones:
        """Find when the members lost their coordinator and their partitions, and went on.

        Each of these times is the median over the members.
        """
        found: Milestones = {}
        for kind, milestone in (
            (TraceKind.COORDINATOR_UNKNOWN, "members mark the coordinator unknown"),
            (TraceKind.PARTITIONS_LOST, "members lose their partitions"),
        ):
            first: dict[str, int] = {}
            for row in self._after:
                if row.kind == kind and row.group == self._group:
                    first.setdefault(row.node, self._since(row))
            # An event of a single member says nothing about "members".
            if len(first) > 1:
                found[milestone] = median_low(sorted(first.values()))
        # A member's longest gap without a commit ends when the member goes on.
        resumed = [end for start, end in self._commit_gaps() if end - start >= PHASE_MIN_US]
        if resumed:
            found["members commit again"] = median_low(sorted(resumed))
        return found

    def find_faults(self) -> Milestones:
        """Find when each later fault begins, and when each fault ends."""
        found: Milestones = {}
        for row in self._after:
            if row.kind == TraceKind.FAULT_INJECTED:
                found[f"{row.cause} begins"] = self._since(row)
            elif row.kind == TraceKind.FAULT_HEALED:
                # This row is written when the process has started again. A real process takes
                # seconds to start, and a node in virtual time takes no time at all. So the
                # milestone is the time at which the healing began, if the row has this time.
                healing_began_us = detail_of(row).get("in_force_until_us")
                ended_us = healing_began_us if isinstance(healing_began_us, int) else row.time_us
                found[f"{row.cause} ends"] = ended_us - self._fault_us
        return found

    def _commit_gaps(self) -> list[tuple[int, int]]:
        """Return for each member its longest gap without an acknowledged commit after the fault.

        A gap is given by its start and its end.
        """
        commits: dict[str, list[int]] = {}
        for row in self._rows:
            if row.kind == TraceKind.OFFSETS_COMMITTED and row.group == self._group:
                commits.setdefault(row.node, []).append(self._since(row))
        gaps = []
        for times in commits.values():
            # The fault is at 0. A gap counts if it ends after the fault, wherever it began.
            pairs = [(start, end) for start, end in itertools.pairwise(times) if end > 0]
            if pairs:
                gaps.append(max(pairs, key=lambda pair: pair[1] - pair[0]))
        return gaps

    def _has_loaded(self, row: TraceRow) -> bool:
        """Return True if the process that wrote `row` had loaded the partition before."""
        return any(
            (load.node, load.incarnation) == (row.node, row.incarnation)
            and load.time_us < row.time_us
            for load in self._loads
        )

    def _epoch_at(self, row: TraceRow) -> int:
        """Return the epoch in which the writer of `row` was coordinator: 1 for "epoch +1"."""
        epochs = [
            load.leader_epoch or 0
            for load in self._loads
            if load.node == row.node and load.time_us <= row.time_us
        ]
        return max(epochs, default=self._first_epoch) - self._first_epoch

    def _since(self, row: TraceRow) -> int:
        """Return the time from the first fault to a row."""
        return row.time_us - self._fault_us
