"""The story of a run as milestones: events of one group, with their times after the fault.

Tests compare a run in real time with one in virtual time (a simulated clock) by their milestones.
This module computes the milestones from the rows of the trace (recorded events), without the
pipeline and the checkers. Some events happen once for each member. For example, each member marks
its coordinator unknown. The milestone of such events is the median of their times.

An offsets partition is a partition of `__consumer_offsets`; the broker that leads it coordinates
its groups. The leader epoch counts the partition's leaders. A tenure is the time of one broker as
coordinator in one leader epoch: it loads the groups into memory, and in the end unloads them. A
generation begins when the members of a group have rejoined in a rebalance.
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
"""Length from which a phase is compared; the lengths of shorter phases depend on the machine."""
TOLERANCE = 0.20
"""Largest difference of two lengths of a phase that counts as equal."""

Milestones = dict[str, int]
"""Name -> microseconds after the first fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """The time between two successive milestones, if it is at least PHASE_MIN_US."""

    start: str
    end: str
    length_us: int


def milestones_of(rows: Sequence[TraceRow], experiment: Experiment, group: str) -> Milestones:
    """Return the milestones of `group` after the first fault, in time order.

    The name of a milestone has the leader epoch of its tenure, counted from that of the tenure
    before the fault ("epoch +1" is the next one). If an event can happen several times in a tenure,
    the milestones are its first and its last time ("first rebalance in epoch +1").

    Raises: AssertionError if no fault was injected or the group had no coordinator before it.
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
    """Return the median of each milestone over several runs, in time order.

    A milestone that at most half of the runs reached is left out.
    """
    names = dict.fromkeys(name for run in runs for name in run)
    reached = {name: [run[name] for run in runs if name in run] for name in names}
    of_most_runs = {
        name: median_low(values) for name, values in reached.items() if 2 * len(values) > len(runs)
    }
    return dict(sorted(of_most_runs.items(), key=lambda item: item[1]))


def phases_of(runs: Sequence[Milestones]) -> list[Phase]:
    """Return the phases of at least a second, by the medians over several runs.

    A phase is the time between two successive milestones; its length is the median over the runs.
    """
    phases = []
    # The first phase begins at the fault, from which milestones count.
    before = "fault"
    for name in medians(runs):
        length_us = _length_us(runs, before, name)
        if length_us is not None and length_us >= PHASE_MIN_US:
            phases.append(Phase(start=before, end=name, length_us=length_us))
        before = name
    return phases


def differences(virtual_runs: Sequence[Milestones], real_runs: Sequence[Milestones]) -> list[str]:
    """Return the differences of two stories: in milestones, in their order, in lengths of phases.

    The order of milestones that are less than a second apart depends on the machine, and is not
    compared.
    """
    virtual, real = medians(virtual_runs), medians(real_runs)
    lines = [f"only in virtual time: {name}" for name in virtual if name not in real]
    lines += [f"only in real time: {name}" for name in real if name not in virtual]
    common = [name for name in virtual if name in real]
    # Two milestones far enough apart in virtual time must have the same order in real time.
    for index, first in enumerate(common):
        for second in common[index + 1 :]:
            if virtual[second] - virtual[first] >= PHASE_MIN_US and real[second] < real[first]:
                lines.append(f"in real time {second!r} comes before {first!r}")
    for phase in phases_of(virtual_runs):
        length_us = _length_us(real_runs, phase.start, phase.end)
        if length_us is None:
            continue  # a missing milestone was reported above
        if abs(length_us - phase.length_us) > TOLERANCE * phase.length_us:
            lines.append(
                f"{phase.start} -> {phase.end}: {phase.length_us / 1e6:.2f} s in virtual time, "
                f"{length_us / 1e6:.2f} s in real time"
            )
    return lines


def _length_us(runs: Sequence[Milestones], start: str, end: str) -> int | None:
    """Return the median length from `start` to `end` over the runs that reached both.

    "fault" as `start` is the moment from which milestones count.
    """
    lengths = [
        run[end] - (0 if start == "fault" else run[start])
        for run in runs
        if end in run and (start == "fault" or start in run)
    ]
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
        # The epoch of the tenure in which the fault came: "epoch +0" in names of milestones.
        self._first_epoch = max(epochs_before)
        self._after = [row for row in rows if row.time_us > self._fault_us]
        self._rows = rows

    def find_leaderships(self) -> Milestones:
        """Find the times at which each tenure was decided, became active, and ended."""
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
                # The broker was told to unload a partition that it had not loaded.
                continue
            # The row of an unload has the epoch in which another replica became leader.
            epoch = (row.leader_epoch or 0) - self._first_epoch
            found.setdefault(f"epoch +{epoch} {step}", self._since(row))
        return found

    def find_rebalances(self) -> Milestones:
        """Find the first and the last time of each step of rebalances, for each tenure."""
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
        """Find the median times of three events of members.

        They lose their coordinator, they lose their partitions, and they commit again after a gap.
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
            # If only one member has the event, it says nothing about "members".
            if len(first) > 1:
                found[milestone] = median_low(sorted(first.values()))
        # Each member's longest gap ends when it commits again.
        resumed = [end for start, end in self._commit_gaps() if end - start >= PHASE_MIN_US]
        if resumed:
            found["members commit again"] = median_low(sorted(resumed))
        return found

    def find_faults(self) -> Milestones:
        """Find the time at which each fault but the first begins, and at which each fault ends."""
        found: Milestones = {}
        for row in self._after:
            if row.kind == TraceKind.FAULT_INJECTED:
                found[f"{row.cause} begins"] = self._since(row)
            elif row.kind == TraceKind.FAULT_HEALED:
                # The row of a healing comes when a process has started again, which takes seconds
                # on Ray, and no time in virtual time. So the milestone is the beginning of the
                # healing.
                ended_us = detail_of(row).get("in_force_until_us")
                ended_us = ended_us if isinstance(ended_us, int) else row.time_us
                found[f"{row.cause} ends"] = ended_us - self._fault_us
        return found

    def _commit_gaps(self) -> list[tuple[int, int]]:
        """Return each member's longest time without an acknowledged commit after the fault."""
        commits: dict[str, list[int]] = {}
        for row in self._rows:
            if row.kind == TraceKind.OFFSETS_COMMITTED and row.group == self._group:
                commits.setdefault(row.node, []).append(self._since(row))
        gaps = []
        for times in commits.values():
            # A gap after the fault may have begun before it.
            pairs = [(start, end) for start, end in itertools.pairwise(times) if end > 0]
            if pairs:
                gaps.append(max(pairs, key=lambda pair: pair[1] - pair[0]))
        return gaps

    def _has_loaded(self, row: TraceRow) -> bool:
        """Return True if the process that wrote `row` loaded the partition before."""
        return any(
            (load.node, load.incarnation) == (row.node, row.incarnation)
            and load.time_us < row.time_us
            for load in self._loads
        )

    def _epoch_at(self, row: TraceRow) -> int:
        """Return the counted epoch of the tenure in which a broker wrote `row`."""
        epochs = [
            load.leader_epoch or 0
            for load in self._loads
            if load.node == row.node and load.time_us <= row.time_us
        ]
        return max(epochs, default=self._first_epoch) - self._first_epoch

    def _since(self, row: TraceRow) -> int:
        return row.time_us - self._fault_us
