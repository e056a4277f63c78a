"""The table `availability` in plain Python: the longest gap of each subject around each fault.

A subject is a member, a partition of data, or a group. A member's gap is a time without an
acknowledged commit, a partition's gap a time without work on its records, and a group's gap a time
without a coordinator. `pipeline.tables.availability` has the rules, and computes the same with
Spark.

A `Failover` is a pair of a fault and a group:

- `move` is None if the fault did not move the group's coordinator;
- `later_coordinators` are the coordinators after a move, with the time at which each became active;
- `until_us` is the time of the next fault of the group, or the run's end.

An offsets partition is a partition of `__consumer_offsets`; the broker that leads it coordinates
its groups. A tenure is the time in which a broker is the active coordinator of one offsets
partition.
"""

from dataclasses import dataclass
from itertools import pairwise

from pipeline.in_memory.coordinator_tenures import coordinator_tenures_of
from pipeline.in_memory.failovers import Failover, failovers_of
from pipeline.in_memory.processing import begun_us
from pipeline.in_memory.trace import TableRow, Trace, detail_of, once_per_trace
from protocol.trace import TraceKind, TraceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gap:
    """A time without service to a subject.

    - `before_us`: when the last service before the gap ended.
    - `after_us`: when the first service after the gap began; None in an *open gap*, after which no
      service came.
    - `missed_us`: in an open gap, when the subject first missed something; None if it missed
      nothing.
    - `back_at`: in a member's gap, the broker that acknowledged the commit at `after_us`.
    """

    before_us: int
    after_us: int | None
    missed_us: int | None = None
    back_at: str | None = None


@once_per_trace
def availability_of(trace: Trace) -> list[TableRow]:
    """Return the time without service that each fault caused for each subject."""
    gaps_by_member = _commit_gaps(trace)
    gaps_by_partition = _processing_gaps(trace)
    tenures = coordinator_tenures_of(trace)

    table = []
    for failover in failovers_of(trace):
        group_tenures = [tenure for tenure in tenures if tenure["partition"] == failover.partition]
        gaps_of_fault = [
            ("group", failover.group, _coordinator_gap(trace, failover, group_tenures))
        ]
        for (group, consumer), gaps in gaps_by_member.items():
            if group == failover.group:
                gaps_of_fault.append(("member", consumer, _member_gap(trace, failover, gaps)))
        for (group, partition), gaps in gaps_by_partition.items():
            if group == failover.group:
                longest = _longest_around(trace, failover, gaps)
                gaps_of_fault.append(("partition", partition, longest))

        for kind, subject, gap in gaps_of_fault:
            if gap is not None:
                table.append(
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
    return table


def _member_gap(trace: Trace, failover: Failover, gaps: list[_Gap]) -> _Gap | None:
    """Return the gap that the fault caused between two commits of a member; None if it caused none.

    If the coordinator moved, this is the first gap that ended with a commit at a later coordinator.
    A commit that was in flight during the move can still be acknowledged by the old coordinator.
    Service has not come back then, so such a commit does not end the gap.
    """
    coordinator_moved = failover.move is not None
    if not coordinator_moved:
        return _longest_around(trace, failover, gaps)
    for gap in gaps:
        if gap.after_us is None:
            # This is the open gap, which is the last gap. If the member missed nothing, it had no
            # reason to commit, and the gap is no time without service.
            return gap if gap.missed_us is not None else None
        # The old coordinator can be elected again. The comparison of times leaves out what it
        # acknowledged before its new tenure.
        ended_by_later_coordinator = any(
            broker == gap.back_at and start_us <= gap.after_us
            for broker, start_us in failover.later_coordinators
        )
        if gap.after_us > failover.fault_us and ended_by_later_coordinator:
            return gap
    return None


def _longest_around(trace: Trace, failover: Failover, gaps: list[_Gap]) -> _Gap | None:
    """Return the longest gap that belongs to this fault, by the rules of `tables.availability`."""
    longest: _Gap | None = None
    longest_us = -1  # less than any length, so that even a gap of length 0 replaces it
    for gap in gaps:
        ended_before_fault = gap.after_us is not None and gap.after_us <= failover.fault_us
        began_with_next_fault = gap.before_us >= failover.until_us
        missed_nothing = gap.after_us is None and gap.missed_us is None
        if ended_before_fault or began_with_next_fault or missed_nothing:
            continue
        # A gap that lasts beyond the next fault belongs to that fault. It belongs to this fault,
        # too, only if it began before this fault.
        ended_before_next_fault = gap.after_us is not None and gap.after_us <= failover.until_us
        is_last_fault = failover.until_us >= trace.end_us
        began_before_fault = gap.before_us <= failover.fault_us
        if ended_before_next_fault or is_last_fault or began_before_fault:
            length_us = _length_us(trace, gap)
            if length_us > longest_us:
                longest, longest_us = gap, length_us
    return longest


def _length_us(trace: Trace, gap: _Gap) -> int:
    """Return the length of a gap; an open gap lasts from `missed_us` to the run's end."""
    if gap.after_us is not None:
        return gap.after_us - gap.before_us
    if gap.missed_us is None:
        return 0
    # `missed_us` is before `before_us` if a record was produced during the work on the last batch.
    # `before_us` can be after the run's end, because nodes still write rows while they stop.
    return max(0, trace.end_us - max(gap.missed_us, gap.before_us))


def _coordinator_gap(trace: Trace, failover: Failover, tenures: list[TableRow]) -> _Gap | None:
    """Return the longest time without an active coordinator after the fault.

    `tenures` are the tenures of the group's offsets partition. Returns None if no coordinator was
    active before the fault. If a coordinator was always active, the gap begins and ends at the
    fault.
    """
    spans = sorted((tenure["start_us"], tenure["end_us"]) for tenure in tenures)
    if not spans or spans[0][0] > failover.fault_us:
        return None
    # Two coordinators can be active at a time. So a gap begins when all earlier tenures have ended.
    gaps = []
    covered_until_us = spans[0][1]
    for start_us, end_us in spans[1:]:
        if start_us > covered_until_us:
            gaps.append(_Gap(before_us=covered_until_us, after_us=start_us))
        covered_until_us = max(covered_until_us, end_us)
    # `covered_until_us` is now the latest end of all tenures. If the run lasted longer, there was
    # no coordinator from then on. A gap that begins after the next fault belongs to that fault.
    if covered_until_us < trace.end_us and covered_until_us < failover.until_us:
        # This gap lasts to the end of the run, so it counts as the longest.
        return _Gap(before_us=covered_until_us, after_us=None)
    after_fault = [
        gap
        for gap in gaps
        # `after_us` is never None here; `or 0` only satisfies the type checker.
        if (gap.after_us or 0) > failover.fault_us and gap.before_us < failover.until_us
    ]
    if after_fault:
        return max(after_fault, key=lambda gap: _length_us(trace, gap))
    return _Gap(before_us=failover.fault_us, after_us=failover.fault_us)


_COMMIT_APIS = frozenset({"OffsetCommit", "AddOffsetsToTxn", "TxnOffsetCommit"})
"""Requests with which a member begins to commit offsets, alone or in a transaction."""


def _commit_gaps(trace: Trace) -> dict[tuple[str, str], list[_Gap]]:
    """Return the gaps between acknowledged commits, by group and consumer, in time order.

    The last one is the open gap after a consumer's last acknowledged commit. It has a `missed_us`
    if the consumer then requested another commit, a commit failed, or the consumer marked its
    coordinator unknown.
    """
    # For each group and consumer, the broker that acknowledged a commit, by the time of the commit.
    commits: dict[tuple[str, str], dict[int, str | None]] = {}
    for row in trace.of(TraceKind.OFFSETS_COMMITTED):
        # A commit of several partitions has a row for each partition, all with the same time and
        # broker. The time as the key makes them one commit.
        commits.setdefault((str(row.group), row.node), {})[row.time_us] = row.peer

    commit_attempts: dict[tuple[str, str], list[int]] = {}
    for row in trace.of(
        TraceKind.REQUEST_SENT, TraceKind.COMMIT_FAILED, TraceKind.COORDINATOR_UNKNOWN
    ):
        # A request counts only if it commits. Every row of the other two kinds counts.
        if row.kind != TraceKind.REQUEST_SENT or row.api in _COMMIT_APIS:
            member = (str(row.group), row.node)
            commit_attempts.setdefault(member, []).append(row.time_us)

    gaps_by_member = {}
    for member, acknowledged in commits.items():
        last_us = max(acknowledged)
        attempts_after_last = [
            at_us for at_us in commit_attempts.get(member, []) if at_us > last_us
        ]
        gaps = [
            _Gap(before_us=before, after_us=after, back_at=acknowledged[after])
            for before, after in pairwise(sorted(acknowledged))
        ]

        # The open gap after the last commit.
        missed_us = min(attempts_after_last, default=None)
        gaps.append(_Gap(before_us=last_us, after_us=None, missed_us=missed_us))
        gaps_by_member[member] = gaps
    return gaps_by_member


def _processing_gaps(trace: Trace) -> dict[tuple[str, str], list[_Gap]]:
    """Return the gaps between the batches that a group worked on, by group and partition.

    A gap reaches from the end of the work on one batch to the beginning of the work on the next.
    The open gap, after the last batch, has a `missed_us` if a record was produced that the group
    never read.
    """
    batches: dict[tuple[str, str], list[TraceRow]] = {}
    for row in trace.of(TraceKind.RECORDS_CONSUMED):
        batches.setdefault((str(row.group), str(row.partition)), []).append(row)
    produced: dict[str, list[TraceRow]] = {}
    for row in trace.of(TraceKind.RECORDS_PRODUCED):
        produced.setdefault(str(row.partition), []).append(row)

    gaps_by_partition = {}
    for (group, partition), rows in batches.items():
        last_offset = max(int(detail_of(row)["last"]) for row in rows)
        unread = [
            row.time_us
            for row in produced.get(partition, ())
            # `offset` is the offset of the batch's first record; the sum is that of its last.
            if (row.offset or 0) + int(detail_of(row)["count"]) - 1 > last_offset
        ]

        # For each time at which batches ended, the earliest beginning of the work on these batches.
        began_by_end: dict[int, int] = {}
        for row in rows:
            began_us = began_by_end.get(row.time_us, row.time_us)
            began_by_end[row.time_us] = min(begun_us(row), began_us)

        ends = sorted(began_by_end)
        gaps = [_Gap(before_us=ends[-1], after_us=None, missed_us=min(unread, default=None))]
        # Go backwards from the last batch. If two members work on the partition at the same time,
        # the batch that ends later can have begun before the other one ended. Then `max` makes a
        # gap of length 0 between the two.
        next_began_us = began_by_end[ends[-1]]
        for end_us in reversed(ends[:-1]):
            gaps.append(_Gap(before_us=end_us, after_us=max(end_us, next_began_us)))
            next_began_us = min(next_began_us, began_by_end[end_us])
        gaps.reverse()
        gaps_by_partition[group, partition] = gaps
    return gaps_by_partition
