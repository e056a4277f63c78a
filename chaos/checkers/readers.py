"""Readers: while members live, every partition of their group has a reader, and is read.

The reader of a partition is the member that owns it, if its process is running. Two rules are
judged, from the steady state of the run on, in which every group is Stable with all its members.
They are judged only for the time in which nothing disturbs the group (`undisturbed`). A dead member
that stays dead does not count as a disturbance: the others must take over its partitions.

1. A partition without a reader gets a reader soon. The longest allowed time is the sum of

   - two session timeouts. One is for the member that had the partition and died. The other is for a
     second member, which may die just after it has joined the next generation;
   - `request.timeout.ms`, because members may wait for an answer that never comes;
   - two rebalances, because a member that misses the first rebalance causes a second. A rebalance
     lasts until all living members have joined. A member learns of the rebalance by its next
     heartbeat, and joins with its next poll;
   - SLACK_US.

2. While unread records wait, the reader makes progress. It may take two request timeouts, the time
   between two polls and SLACK_US until it reads on. In a group that commits in transactions it may
   take longer: the reader must not begin before the transaction of a dead member has ended. This
   rule is judged only while all replicas of the partition are in sync, because otherwise new
   records may be invisible to readers.

Two exceptions are excused, each counted once for each partition:

- Stranded: the reader knows only brokers that are lost for good, so it can find no living broker
  (`stranded_clients`). If the partition has no reader, all running members must be stranded.
- Lost transaction: a partition that stores the group or its transactions lost data (`lost_data`),
  and with it perhaps the end of a transaction. A reader that waits for an offset of this
  transaction may wait for ever.

A run with a `recovery_timeout` continues until each partition has a reader. The run also waits for
each partition with unread records until it was read after the healing (the end of all faults).
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.checkers.base import Checker
from chaos.checkers.consumed import decode_consumed
from chaos.checkers.context import CheckContext, GroupExpectation, detail_of, topic_of
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.evidence.lost_data import LOSS_KINDS, LOST_TRANSACTION
from chaos.checkers.evidence.owners import OWNER_KINDS
from chaos.checkers.evidence.stranded_clients import STRANDED, STRANDING_KINDS
from chaos.checkers.evidence.undisturbed import DISTURBING_KINDS
from protocol.causes import MemberStateCause
from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import seconds
from results_schema.results import CheckReport

SLACK_US = 10_000_000
"""Time for appends, loads, retries and coordinator lookups in a healthy cluster."""
_PROCESS_KINDS = frozenset(
    {
        TraceKind.NODE_STARTED,
        TraceKind.NODE_KILLED,
        TraceKind.NODE_STOPPED,
        TraceKind.NODE_PAUSED,
        TraceKind.NODE_RESUMED,
    }
)
_PROGRESS_KINDS = (
    TraceKind.OFFSETS_FETCHED,
    TraceKind.RECORDS_PRODUCED,
    TraceKind.RECORDS_CONSUMED,
    TraceKind.POSITION_RESET,
    TraceKind.TOPIC_DELETED,
    TraceKind.RUN_STAGE,
)


@dataclass(slots=True)
class _Read:
    """The progress of one group in one partition."""

    lost: TraceRow | None = None  # the row since which there is no reader; None: there is a reader
    reached: int = 0  # the next offset to read
    # The row since which the reader should have read on. This is the latest of three: the
    # acknowledgement of the first unread record, the reader's last progress, and its assignment.
    # None if there is no unread record.
    unread: TraceRow | None = None
    read_since_healing: bool = False
    # True if the reader knows where to begin: it has fetched a committed offset, or has set its
    # position. If this is False, the reader may be waiting for the end of a transaction.
    has_position: bool = False
    reported: bool = False  # True if the present wait was reported or excused


class Readers(Checker):
    """Every partition of a group with living members is owned, and read."""

    name = "readers"
    promise = (
        "while members of a group live and nothing disturbs it, every partition of its topics has "
        "a reader within two sessions and two rebalances, and what is written is read"
    )
    kinds = frozenset(
        {*OWNER_KINDS, *DISTURBING_KINDS, *_PROGRESS_KINDS, *LOSS_KINDS, *STRANDING_KINDS}
    )

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._owners = self.evidence.owners
        self._replicas = self.evidence.replicas
        self._lost_data = self.evidence.lost_data
        self._stranded = self.evidence.stranded_clients
        self._undisturbed = self.evidence.undisturbed
        self._reads = {  # group -> partition
            group_id: {partition: _Read() for partition in expected.partitions}
            for group_id, expected in context.groups.items()
            if expected.consumers
        }
        # group -> the time since which the group is undisturbed; None while it is disturbed. These
        # values are from before the present row. `self._undisturbed` has the values after the row.
        self._quiet_us: dict[str, int | None] = dict.fromkeys(context.groups)
        self._written: dict[str, int] = {}  # partition -> end of its acknowledged records
        self._began = False  # True from the steady state on
        self._healed = False  # True when all faults have ended
        self._over = False  # from the stage "stopping" on, the driver stops every node
        self._gaps = 0  # how often a partition without a reader got one
        self._excused: Counter[str] = Counter()
        self._notes: dict[str, None] = {}  # sentences for the report, each once
        self._longest_us = 0  # the longest undisturbed time without a reader

    def judge(self, row: TraceRow) -> None:
        """Judge changes of owners, progress of readers, and disturbances."""
        if self._over:
            return
        match row.kind:
            case TraceKind.RECORDS_PRODUCED:
                self._observe_produced(row)
                return
            case TraceKind.RECORDS_CONSUMED:
                self._observe_progress(
                    row, decode_consumed(row.detail or b"").last + 1, has_read=True
                )
                return
            case TraceKind.POSITION_RESET:
                self._observe_progress(row, row.offset or 0, has_read=False)
                return
            case TraceKind.OFFSETS_FETCHED:
                self._observe_fetched_offset(row)
                return
            case TraceKind.RUN_STAGE:
                self._observe_stage(row)
                return
            case _:
                pass
        if row.kind == TraceKind.MEMBER_STATE and row.cause != MemberStateCause.LEFT:
            return  # of a member's state changes, only its leaving matters here
        # First judge the time up to this row, and only then apply the row.
        if row.kind in DISTURBING_KINDS:
            self._judge_all(row)
        if row.kind in OWNER_KINDS or row.kind in _PROCESS_KINDS:
            self._update_owners(row)
        if row.kind in (TraceKind.LEADER_ELECTED, TraceKind.ISR_CHANGED):
            self._discard_unread(row)
        if row.kind == TraceKind.TOPIC_DELETED:
            self._remove_topic(row)

    # -- owners -------------------------------------------------------------------------------

    def _update_owners(self, row: TraceRow) -> None:
        """Note which partitions have got or lost a reader with this row."""
        # The driver of the run writes rows such as NODE_KILLED, with the node as `peer`. A row that
        # an owner writes has its coordinator as `peer`.
        node = (row.peer or row.node) if row.kind in _PROCESS_KINDS else row.node
        ended = [(group, partition) for group, partition, _ in self._owners.ended]
        owned = self._owners.partitions_of(node)
        for group_id, partition in dict.fromkeys((*ended, *owned)):  # each partition once
            read = self._reads.get(group_id, {}).get(partition)
            if read is None:
                continue
            if self._has_reader(group_id, partition):
                self._end_gap(group_id, read, row)
            elif read.lost is None and self._began:
                read.lost = row

    def _has_reader(self, group_id: str, partition: str) -> bool:
        """Return True if an owner's process is alive and not paused."""
        owners = self._owners.of(group_id, partition)
        return any(self._undisturbed.reads(node) for node, _ in owners)

    def _end_gap(self, group_id: str, read: _Read, row: TraceRow) -> None:
        """Note that a partition has a reader again. The reader's time for reading begins now."""
        if read.lost is None:
            return
        quiet_us = self._quiet_us[group_id]
        self._gaps += 1
        if quiet_us is not None:
            lasted_us = row.time_us - max(read.lost.time_us, quiet_us)
            self._longest_us = max(self._longest_us, lasted_us)
        read.lost = None
        read.has_position = False
        read.reported = False
        if read.unread is not None:
            read.unread = row

    def _judge_all(self, row: TraceRow, *, is_last: bool = False) -> None:
        """Judge the groups that this row disturbs, for the time up to the row.

        This is the last moment to judge these groups, because their undisturbed time ends now. For
        all other groups the undisturbed time continues. They are judged later, at the end of the
        run at the latest (`is_last`).
        """
        for group_id, reads in self._reads.items():
            quiet_us = self._quiet_us[group_id]
            now_quiet_us = self._undisturbed.since_us(group_id)
            # If the value is the same as before, the row does not disturb this group.
            if now_quiet_us == quiet_us and not is_last:
                continue
            self._quiet_us[group_id] = now_quiet_us
            if quiet_us is None or not self._began:
                continue
            for partition, read in reads.items():
                if not read.reported:
                    self._judge_partition(group_id, partition, read, quiet_us, row)

    def _judge_partition(
        self, group_id: str, partition: str, read: _Read, quiet_us: int, now: TraceRow
    ) -> None:
        """Report a partition that has had no reader, or was not read, for too long before `now`."""
        expected = self.context.groups[group_id]
        if expected.application_us >= expected.max_poll_interval_us:
            return  # the application is so slow that its member leaves the group again and again
        margin_us = self.context.clock_error_us
        if read.lost is not None:
            since_us = max(read.lost.time_us, quiet_us)
            bound_us = _reader_bound_us(expected)
            what = f"{partition} of {group_id} has had no reader"
            evidence = [read.lost, now]
        elif read.unread is not None and self._is_whole(partition):
            since_us = max(read.unread.time_us, quiet_us)
            bound_us = self._reading_bound_us(expected)
            what = f"{partition}: no member of {group_id} has read on from {read.reached}"
            evidence = [*self._owners.of(group_id, partition).values(), read.unread, now]
        else:
            return
        lasted_us = now.time_us - since_us
        if lasted_us <= bound_us + margin_us:
            return
        read.reported = True
        if read.lost is None and self._may_wait_for_lost_transaction(expected, read):
            self._excused[LOST_TRANSACTION] += 1
            return
        if self._are_stranded(group_id, partition, since_us, now.time_us):
            self._excused[STRANDED] += 1
            return
        self.report_finding(
            f"{what} for {seconds(lasted_us)}, undisturbed; it may take {seconds(bound_us)}",
            evidence,
            group=group_id,
            partition=partition,
        )

    def _may_wait_for_lost_transaction(self, expected: GroupExpectation, read: _Read) -> bool:
        """Return True if the reader may be waiting for the end of a transaction that was lost."""
        if read.has_position or not expected.transaction_partitions:
            return False
        return any(self._lost_data.of(partition) for partition in expected.coordinator_partitions)

    def _are_stranded(self, group_id: str, partition: str, since_us: int, until_us: int) -> bool:
        """Return True if all readers of a partition were stranded from `since_us` to `until_us`.

        If the partition has no reader, all running members of the group must have been stranded.
        """
        owners = [node for node, _ in self._owners.of(group_id, partition)]
        readers = [node for node in owners if self._undisturbed.reads(node)]
        members = self.context.groups[group_id].consumers
        running = [node for node in members if self._undisturbed.reads(node)]
        # All lookups of a stranded member fail. The first failure may come a while after
        # `since_us`, and the last failure a while before `until_us`. So SLACK_US is cut off at both
        # ends of the time in which all lookups must have failed.
        stranded = {
            node: self._stranded.lost_brokers(
                node, since_us=since_us + SLACK_US, until_us=until_us - SLACK_US
            )
            for node in readers or running
        }
        if not stranded or not all(stranded.values()):
            return False
        for node, brokers in stranded.items():
            self._notes[f"excused: {node} {STRANDED}: {', '.join(sorted(brokers))}"] = None
        return True

    def _reading_bound_us(self, expected: GroupExpectation) -> int:
        """Return the longest allowed time without progress (rule 2)."""
        bound_us = 2 * expected.request_timeout_us + expected.application_us + SLACK_US
        if expected.transaction_partitions:
            bound_us += self.context.transaction_timeout_us
            # The interval counts twice, because a new transaction coordinator restarts it.
            bound_us += 2 * self.context.transaction_cleanup_us
        return bound_us

    # -- progress -----------------------------------------------------------------------------

    def _observe_produced(self, row: TraceRow) -> None:
        """Note new records in a partition. A reader that had read everything must now read on."""
        partition = row.partition or ""
        end = (row.offset or 0) + detail_of(row).get("count", 1)
        self._written[partition] = max(end, self._written.get(partition, 0))
        for reads in self._reads.values():
            read = reads.get(partition)
            if read is not None and read.unread is None and end > read.reached:
                read.unread = row

    def _observe_progress(self, row: TraceRow, offset: int, *, has_read: bool) -> None:
        """Note a group's next offset; restart the reader's time if more records wait."""
        read = self._reads.get(row.group or "", {}).get(row.partition or "")
        if read is None:
            return
        read.reached = offset
        read.has_position = True
        # The reset of a position is progress, too, but does not show that records are read.
        read.read_since_healing = read.read_since_healing or (self._healed and has_read)
        read.reported = False  # a later wait is a violation of its own
        has_unread = self._written.get(row.partition or "", 0) > offset
        read.unread = row if has_unread else None

    def _observe_fetched_offset(self, row: TraceRow) -> None:
        """Note that a reader has got its committed offset; ignore fetches of administrators."""
        read = self._reads.get(row.group or "", {}).get(row.partition or "")
        owners = self._owners.of(row.group or "", row.partition or "")
        if read is not None and any(node == row.node for node, _ in owners):
            read.has_position = True

    def _discard_unread(self, row: TraceRow) -> None:
        """Give the reader new time, because a partition has another leader or another ISR.

        After an election, unread records may be lost, so no record is known to wait. After a change
        of the ISR, records that were invisible may have become visible, so the time for reading
        begins now.
        """
        partition = row.partition or ""
        if row.kind == TraceKind.LEADER_ELECTED:
            # The new leader's log may be shorter. The next acknowledgement shows where it ends.
            self._written.pop(partition, None)
        for reads in self._reads.values():
            read = reads.get(partition)
            if read is None:
                continue
            if row.kind == TraceKind.LEADER_ELECTED:
                read.unread = None
            elif read.unread is not None:
                read.unread = row

    def _is_whole(self, partition: str) -> bool:
        """Return True if a partition has a leader and all replicas in sync, or has no row yet."""
        known = self._replicas.of(partition)
        return known is None or (known.leader != "" and len(known.in_sync) == len(known.replicas))

    def _remove_topic(self, row: TraceRow) -> None:
        topic = detail_of(row).get("topic")
        for reads in self._reads.values():
            of_topic = [name for name in reads if topic_of(name) == topic]
            for partition in of_topic:
                del reads[partition]

    # -- the run ------------------------------------------------------------------------------

    def _observe_stage(self, row: TraceRow) -> None:
        """Begin to judge at the steady state, note the healing, end before the nodes stop."""
        # The stage "liveness" begins with the healing, and "stopping" before the nodes stop.
        match detail_of(row).get("stage"):
            case "steady":
                self._began = True
                self._judge_all(row)
                for group_id, partition, read in self._all_reads():
                    if not self._has_reader(group_id, partition):
                        read.lost = row
            case "liveness":
                self._judge_all(row)
                self._healed = True
            case "stopping":
                self._judge_all(row, is_last=True)
                self._over = True
            case _:
                pass

    def _all_reads(self) -> Iterator[tuple[str, str, _Read]]:
        for group_id, reads in self._reads.items():
            for partition, read in reads.items():
                yield group_id, partition, read

    def unsettled(self, now_us: int) -> tuple[str, ...]:
        """Return a sentence for each partition without a reader, or not read since healing."""
        if not self._healed or self._over:
            return ()
        waiting = []
        for group_id, partition, read in self._all_reads():
            expected = self.context.groups[group_id]
            quiet_us = self._undisturbed.since_us(group_id)
            if quiet_us is None or read.reported:
                continue
            if read.lost is not None:
                until_us = max(read.lost.time_us, quiet_us) + _reader_bound_us(expected)
                if now_us <= until_us + self.context.clock_error_us:
                    waiting.append(f"{partition} of {group_id} has no reader")
            elif read.unread is not None and not read.read_since_healing:
                until_us = max(read.unread.time_us, quiet_us) + self._reading_bound_us(expected)
                if now_us <= until_us + self.context.clock_error_us:
                    waiting.append(f"{group_id} has not read {partition} since healing")
        return tuple(waiting)

    def finish(self) -> CheckReport:
        """Report the findings, figures of the times without a reader, and stranded members."""
        partitions = sum(map(len, self._reads.values()))
        return self.report(
            judged=partitions if self._began else 0,
            excused=dict(self._excused),
            seen={
                "partitions": partitions,
                "times_without_a_reader": self._gaps,
                "longest_undisturbed_us": self._longest_us,
            },
            note="; ".join(self._notes)
            if self._began
            else "the run never came to its steady state",
        )


def _reader_bound_us(expected: GroupExpectation) -> int:
    """Return the longest allowed time without a reader (rule 1)."""
    return (
        2 * expected.session_timeout_us
        + expected.request_timeout_us
        + 2 * (expected.heartbeat_interval_us + expected.application_us)
        + SLACK_US
    )
