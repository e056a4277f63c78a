"""The table `availability` in plain Python."""

from dataclasses import dataclass
from itertools import pairwise

from pipeline.in_memory.coordinator_tenures import coordinator_tenures_of
from pipeline.in_memory.failovers import Failover, failovers_of
from pipeline.in_memory.processing import begun_us
from pipeline.in_memory.trace import TableRow, Trace, detail_of, once_per_trace
from protocol.trace import TraceKind, TraceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    """A time without service. `back_at` is the broker whose answer ended it.

    `after_us` None: it never ended. `since_us` is then the moment of the first attempt without
    success, None if there was none.
    """

    before_us: int
    after_us: int | None
    since_us: int | None = None
    back_at: str | None = None


@once_per_trace
def availability_of(trace: Trace) -> list[TableRow]:
    """Return the time without service that each fault caused for each subject."""
    members = _commit_gaps(trace)
    partitions = _processing_gaps(trace)
    tenures = coordinator_tenures_of(trace)
    found = []
    for failover in failovers_of(trace):
        served = [each for each in tenures if each["partition"] == failover.partition]
        picked = [("group", failover.group, _without_coordinator(trace, failover, served))]
        for (group, consumer), gaps in members.items():
            if group == failover.group:
                picked.append(("member", consumer, _of_member(trace, failover, gaps)))
        for (group, partition), gaps in partitions.items():
            if group == failover.group:
                longest = _longest_around(trace, failover, gaps)
                picked.append(("partition", partition, longest))
        for kind, subject, gap in picked:
            if gap is not None:
                found.append(
                    {
                        "fault": failover.fault,
                        "subject_kind": kind,
                        "group": failover.group,
                        "subject": subject,
                        "gap_us": None if gap.after_us is None else gap.after_us - gap.before_us,
                        "before_us": gap.before_us,
                        "after_us": gap.after_us,
                    }
                )
    return found


def _of_member(trace: Trace, failover: Failover, gaps: list[_Gap]) -> _Gap | None:
    """Return the gap up to the first commit at a later coordinator, or else the longest one."""
    if failover.phases is None:
        return _longest_around(trace, failover, gaps)
    for gap in gaps:
        if gap.after_us is None:
            return gap if gap.since_us is not None else None
        at_later = any(
            broker == gap.back_at and start_us <= gap.after_us
            for broker, start_us in failover.later
        )
        if gap.after_us > failover.fault_us and at_later:
            return gap
    return None


def _longest_around(trace: Trace, failover: Failover, gaps: list[_Gap]) -> _Gap | None:
    """Return the longest gap of this fault, by the rules of `tables.availability`."""
    best: _Gap | None = None
    best_us = -1
    for gap in gaps:
        over = gap.after_us is not None and gap.after_us <= failover.fault_us
        too_late = gap.before_us >= failover.until_us
        nothing_missed = gap.after_us is None and gap.since_us is None
        if over or too_late or nothing_missed:
            continue
        ends_in_time = gap.after_us is not None and gap.after_us <= failover.until_us
        is_last = failover.until_us >= trace.end_us
        fell_into_it = gap.before_us <= failover.fault_us
        if ends_in_time or is_last or fell_into_it:
            length = _length_us(trace, gap)
            if length > best_us:
                best, best_us = gap, length
    return best


def _length_us(trace: Trace, gap: _Gap) -> int:
    """Return the length of a gap; an open gap lasts from `since_us` to the run's end."""
    if gap.after_us is not None:
        return gap.after_us - gap.before_us
    if gap.since_us is None:
        return 0
    return max(0, trace.end_us - max(gap.since_us, gap.before_us))


def _without_coordinator(trace: Trace, failover: Failover, tenures: list[TableRow]) -> _Gap | None:
    """Return the longest time without an active coordinator; its length is 0 if there was none."""
    spans = sorted((tenure["start_us"], tenure["end_us"]) for tenure in tenures)
    if not spans or spans[0][0] > failover.fault_us:
        return None
    holes = []
    covered_us = spans[0][1]
    for start_us, end_us in spans[1:]:
        if start_us > covered_us:
            holes.append(_Gap(before_us=covered_us, after_us=start_us))
        covered_us = max(covered_us, end_us)
    mine = [
        hole
        for hole in holes
        if (hole.after_us or 0) > failover.fault_us and hole.before_us < failover.until_us
    ]
    if covered_us < trace.end_us and covered_us < failover.until_us:
        return _Gap(before_us=covered_us, after_us=None)  # never over: the longest of all
    if mine:
        return max(mine, key=lambda hole: _length_us(trace, hole))
    return _Gap(before_us=failover.fault_us, after_us=failover.fault_us)


_COMMIT_APIS = frozenset({"OffsetCommit", "AddOffsetsToTxn", "TxnOffsetCommit"})
"""A request of these, a failed commit or an unknown coordinator shows a pending commit."""


def _commit_gaps(trace: Trace) -> dict[tuple[str, str], list[_Gap]]:
    """Return the gaps between the acknowledged commits of each consumer of each group."""
    commits: dict[tuple[str, str], dict[int, str | None]] = {}
    for row in trace.of(TraceKind.OFFSETS_COMMITTED):
        commits.setdefault((str(row.group), row.node), {})[row.time_us] = row.peer
    vain: dict[tuple[str, str], list[int]] = {}
    for row in trace.of(
        TraceKind.REQUEST_SENT, TraceKind.COMMIT_FAILED, TraceKind.COORDINATOR_UNKNOWN
    ):
        if row.kind != TraceKind.REQUEST_SENT or row.api in _COMMIT_APIS:
            vain.setdefault((str(row.group), row.node), []).append(row.time_us)
    found = {}
    for member, acknowledged in commits.items():
        last_us = max(acknowledged)
        since = [at_us for at_us in vain.get(member, []) if at_us > last_us]
        gaps = [
            _Gap(before_us=before, after_us=after, back_at=acknowledged[after])
            for before, after in pairwise(sorted(acknowledged))
        ]
        gaps.append(_Gap(before_us=last_us, after_us=None, since_us=min(since, default=None)))
        found[member] = gaps
    return found


def _processing_gaps(trace: Trace) -> dict[tuple[str, str], list[_Gap]]:
    """Return the gaps between the batches that each group worked on, of each partition.

    If two members process a partition at once, the one that finishes later may have begun earlier.
    """
    batches: dict[tuple[str, str], list[TraceRow]] = {}
    for row in trace.of(TraceKind.RECORDS_CONSUMED):
        batches.setdefault((str(row.group), str(row.partition)), []).append(row)
    produced: dict[str, list[TraceRow]] = {}
    for row in trace.of(TraceKind.RECORDS_PRODUCED):
        produced.setdefault(str(row.partition), []).append(row)
    found = {}
    for (group, partition), rows in batches.items():
        reached = max(int(detail_of(row)["last"]) for row in rows)
        unread = [
            row.time_us
            for row in produced.get(partition, ())
            if (row.offset or 0) + int(detail_of(row)["count"]) - 1 > reached
        ]
        begun: dict[int, int] = {}
        for row in rows:
            begun[row.time_us] = min(begun_us(row), begun.get(row.time_us, row.time_us))
        since_us = min(unread, default=None)
        gaps = [_Gap(before_us=max(begun), after_us=None, since_us=since_us)]
        next_us = begun[max(begun)]
        for _, at_us in pairwise(sorted(begun, reverse=True)):
            gaps.append(_Gap(before_us=at_us, after_us=max(at_us, next_us)))
            next_us = min(next_us, begun[at_us])
        gaps.reverse()
        found[group, partition] = gaps
    return found
