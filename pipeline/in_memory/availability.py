"""The table `availability` in plain Python: how long was service missing after each fault?

The table has a row for each fault and each member, data partition or group, with the gap that the
fault caused:

- a member had no acknowledged commit;
- no member worked on the records of a partition;
- a group had no active coordinator.

`pipeline.tables.availability` has the exact rules, and computes the same with Spark.
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
    """A time in which a member, partition or group was not served.

    Example: a member has a commit acknowledged at 10.0 s, and its next commit at 14.2 s.

    - `before_us`: the end of the last service before the gap (10.0 s).
    - `after_us`: the beginning of the first service after the gap (14.2 s). None in an *open gap*:
      no service came before the run ended.
    - `missed_us`: in an open gap, the moment at which something was first missing: a commit failed,
      for example. None if nothing was missing: perhaps the member just had nothing more to commit.
    - `back_at`: in a member's gap, the broker that acknowledged the commit at `after_us`.
    """

    before_us: int
    after_us: int | None
    missed_us: int | None = None
    back_at: str | None = None


@once_per_trace
def availability_of(trace: Trace) -> list[TableRow]:
    """Return the gap of each member, partition and group around each fault."""
    gaps_by_member = _commit_gaps(trace)
    gaps_by_partition = _processing_gaps(trace)
    tenures = coordinator_tenures_of(trace)

    table = []
    for failover in failovers_of(trace):  # there is a Failover for each fault and group
        group_tenures = [tenure for tenure in tenures if tenure["partition"] == failover.partition]
        group_gap = _coordinator_gap(trace, failover, group_tenures)
        table += _rows(failover, "group", failover.group, group_gap)
        for (group, consumer), gaps in gaps_by_member.items():
            if group == failover.group:
                member_gap = _member_gap(trace, failover, gaps)
                table += _rows(failover, "member", consumer, member_gap)
        for (group, partition), gaps in gaps_by_partition.items():
            if group == failover.group:
                partition_gap = _longest_around(trace, failover, gaps)
                table += _rows(failover, "partition", partition, partition_gap)
    return table


def _rows(failover: Failover, subject_kind: str, subject: str, gap: _Gap | None) -> list[TableRow]:
    """Return the row of the table about a gap; no row if there is no gap."""
    if gap is None:
        return []
    return [
        {
            "fault": failover.fault,
            "subject_kind": subject_kind,
            "group": failover.group,
            "subject": subject,
            "gap_us": None if gap.after_us is None else gap.after_us - gap.before_us,
            "before_us": gap.before_us,
            "after_us": gap.after_us,
        }
    ]


def _member_gap(trace: Trace, failover: Failover, gaps: list[_Gap]) -> _Gap | None:
    """Return the gap that the fault caused between two commits of a member; None if there is none.

    If the coordinator moved, this is the first gap that ended with a commit at a later coordinator.
    The old coordinator can still acknowledge a commit that was on its way during the move. Such a
    commit does not end the gap, because it does not mean that the member is served again.
    """
    coordinator_moved = failover.move is not None
    if not coordinator_moved:
        return _longest_around(trace, failover, gaps)
    for gap in gaps:
        if gap.after_us is None:
            # This is the open gap, which is the last one. It counts only if something was missing.
            # Otherwise the member just had no reason to commit any more.
            return gap if gap.missed_us is not None else None
        # If the old coordinator is elected again, it is a later coordinator from then on. Commits
        # that it acknowledged before its new start do not count.
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
        # `until_us` is the next fault of the group, or the end of the run.
        ended_before_fault = gap.after_us is not None and gap.after_us <= failover.fault_us
        began_after_next_fault = gap.before_us >= failover.until_us
        nothing_was_missing = gap.after_us is None and gap.missed_us is None
        if ended_before_fault or began_after_next_fault or nothing_was_missing:
            continue
        # A gap that lasts beyond the next fault belongs to the next fault. If the gap began before
        # this fault, it belongs to both faults. After the group's last fault, there is no next
        # fault to which a gap could belong.
        ended_before_next_fault = gap.after_us is not None and gap.after_us <= failover.until_us
        is_last_fault = failover.until_us >= trace.end_us
        began_before_fault = gap.before_us <= failover.fault_us
        if ended_before_next_fault or is_last_fault or began_before_fault:
            length_us = _length_us(trace, gap)
            if length_us > longest_us:
                longest, longest_us = gap, length_us
    return longest


def _length_us(trace: Trace, gap: _Gap) -> int:
    """Return the length of a gap. An open gap lasts from `missed_us` to the run's end."""
    if gap.after_us is not None:
        return gap.after_us - gap.before_us
    if gap.missed_us is None:
        return 0
    # A record can have been produced while a member still worked on the last batch. Then
    # `missed_us` is before `before_us`. And `before_us` can be after the run's end, because nodes
    # still write rows while they stop. Then the difference is negative, and the length 0.
    return max(0, trace.end_us - max(gap.missed_us, gap.before_us))


def _coordinator_gap(trace: Trace, failover: Failover, tenures: list[TableRow]) -> _Gap | None:
    """Return the longest time after the fault in which the group had no active coordinator.

    A tenure is a time in which a broker was the active coordinator. `tenures` are the tenures of
    the group's coordinators. Returns None if there was no tenure before the fault. If a coordinator
    was always active, the gap has length 0: it begins and ends at the fault.
    """
    spans = sorted((tenure["start_us"], tenure["end_us"]) for tenure in tenures)
    if not spans or spans[0][0] > failover.fault_us:
        return None
    # Two coordinators can be active at the same time. So a gap begins only when all earlier tenures
    # have ended. `covered_until_us` is the latest of their ends.
    gaps = []
    covered_until_us = spans[0][1]
    for start_us, end_us in spans[1:]:
        if start_us > covered_until_us:
            gaps.append(_Gap(before_us=covered_until_us, after_us=start_us))
        covered_until_us = max(covered_until_us, end_us)
    # If the run lasted longer than all tenures, there was no coordinator after the last tenure. But
    # a gap that begins after the next fault belongs to the next fault.
    if covered_until_us < trace.end_us and covered_until_us < failover.until_us:
        # This gap lasts to the end of the run, so it counts as the longest gap.
        return _Gap(before_us=covered_until_us, after_us=None)
    # The gaps that end after this fault, and begin before the next fault of the group.
    after_fault = [
        gap
        for gap in gaps
        if gap.after_us is not None
        and gap.after_us > failover.fault_us
        and gap.before_us < failover.until_us
    ]
    if after_fault:
        return max(after_fault, key=lambda gap: _length_us(trace, gap))
    return _Gap(before_us=failover.fault_us, after_us=failover.fault_us)


_COMMIT_APIS = frozenset({"OffsetCommit", "AddOffsetsToTxn", "TxnOffsetCommit"})
"""Requests with which a member begins to commit offsets, without or within a transaction."""


def _commit_gaps(trace: Trace) -> dict[tuple[str, str], list[_Gap]]:
    """Return the gaps between acknowledged commits, by group and consumer, in time order.

    The last gap is the open gap after a consumer's last acknowledged commit. Something is missing
    in the open gap if the consumer sent another commit, a commit failed, or the consumer gave its
    coordinator up.
    """
    # For each group and consumer: when a commit was acknowledged, and by which broker. A commit of
    # several partitions has a row for each partition, all with the same time, so it counts once.
    commits: dict[tuple[str, str], dict[int, str | None]] = {}
    for row in trace.of(TraceKind.OFFSETS_COMMITTED):
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
    for member, broker_by_time in commits.items():
        gaps = [
            _Gap(before_us=before_us, after_us=after_us, back_at=broker_by_time[after_us])
            for before_us, after_us in pairwise(sorted(broker_by_time))
        ]

        last_us = max(broker_by_time)
        attempts_after_last_us = [
            at_us for at_us in commit_attempts.get(member, []) if at_us > last_us
        ]
        missed_us = min(attempts_after_last_us, default=None)
        open_gap = _Gap(before_us=last_us, after_us=None, missed_us=missed_us)
        gaps_by_member[member] = [*gaps, open_gap]
    return gaps_by_member


def _processing_gaps(trace: Trace) -> dict[tuple[str, str], list[_Gap]]:
    """Return the gaps between the batches that a group worked on, by group and partition.

    A gap reaches from the end of the work on one batch to the beginning of the work on the next
    batch. After the last batch comes an open gap. Something is missing in the open gap if a record
    was produced that the group never read.
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
        unread_us = [
            row.time_us
            for row in produced.get(partition, ())
            if _last_produced_offset(row) > last_offset
        ]
        missed_us = min(unread_us, default=None)

        # When the work on a batch began, by the time at which it ended. If the work on several
        # batches ended at the same time, the earliest beginning counts.
        began_by_end: dict[int, int] = {}
        for row in rows:
            began_us = began_by_end.get(row.time_us, row.time_us)
            began_by_end[row.time_us] = min(begun_us(row), began_us)

        ends_us = sorted(began_by_end)
        gaps = [_Gap(before_us=ends_us[-1], after_us=None, missed_us=missed_us)]
        # Go backwards from the last batch. If two members work on the partition at the same time,
        # the work on a later batch may have begun before the work on this batch ended. Then there
        # is no time between the two, and `max` makes a gap of length 0.
        next_began_us = began_by_end[ends_us[-1]]
        for end_us in reversed(ends_us[:-1]):
            gaps.append(_Gap(before_us=end_us, after_us=max(end_us, next_began_us)))
            next_began_us = min(next_began_us, began_by_end[end_us])
        gaps.reverse()
        gaps_by_partition[group, partition] = gaps
    return gaps_by_partition


def _last_produced_offset(row: TraceRow) -> int:
    """Return the offset of a batch's last record; `row` is the producer's row about the batch."""
    # If the trace does not tell the batch's first offset, the smallest offset is assumed.
    first_offset = 0 if row.offset is None else row.offset
    return first_offset + int(detail_of(row)["count"]) - 1
