"""Two properties that no design of a consumer group promises, but that an application may need.

There are two designs of consumer groups. In the newer one a broker, the coordinator, assigns
partitions to the members. In the older one each member computes its own share from data in
ZooKeeper. Each checker of this module is about one property, which is also the checker's name:

- `one_owner_processes`: no two members process records of a partition while both believe that it is
  assigned to them. Neither design can promise this. A coordinator refuses the commits of a member
  that has lost a partition, but cannot stop its processing (ZK-67). On ZooKeeper a member goes on
  processing after its session has ended (ZK-58).
- `positions_never_go_back`: the committed offset of a partition never falls. On ZooKeeper it may,
  because a slow former owner can overwrite the offset of the new one: the last writer wins (ZK-60,
  ZK-63, ZK-66).

If an application needs such a property, its experiment says so, for example with
`groups.payments.must_hold: [one_owner_processes]`. Then the checker reports a finding whenever
the property does not hold. For all other groups on ZooKeeper the checkers only measure how often
and for how long the property did not hold. This shows what the design costs. Ids such as ZK-58 name
the rules in docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

import re
from dataclasses import dataclass

from chaos.checkers.base import Checker
from chaos.checkers.consumed import decode_consumed
from chaos.checkers.context import CheckContext, detail_of
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.evidence.owners import OWNER_KINDS, Owner
from protocol.trace import TraceKind, TraceRow
from results_schema.results import CheckReport

_OFFSET_PATH = re.compile(r"/consumers/([^/]+)/offsets/([^/]+)/([0-9]+)")
"""Path of the znode with a committed offset: group, topic and number of the partition."""


class _Unpromised(Checker):
    """What the two checkers share: they judge some groups, and measure all groups on ZooKeeper.

    A checker judges a group if the group's `must_hold` has the name of the checker.
    """

    @classmethod
    def concerns(cls, context: CheckContext) -> bool:
        """Return True if any group demands the property or is on ZooKeeper."""
        return bool(context.zookeeper_groups) or bool(cls._demanding_groups(context))

    @classmethod
    def _demanding_groups(cls, context: CheckContext) -> tuple[str, ...]:
        """Return the groups whose `must_hold` names this check."""
        return tuple(group for group, checks in context.must_hold.items() if cls.name in checks)

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._judged_groups = self._demanding_groups(context)
        self._groups = {*context.zookeeper_groups, *self._judged_groups}
        self._over = False

    def _end_with_the_run(self, row: TraceRow) -> None:
        """Stop judging if `row` says that the run has entered its last stage, "stopping"."""
        # In that stage the driver (the process that conducts the run) stops every node. From then
        # on, rows show the effects of the stops, and not of the group's design.
        self._over = self._over or detail_of(row).get("stage") == "stopping"

    def _report(self, *, judged: int, seen: dict[str, int], cost: str) -> CheckReport:
        """Return the report. If no group demands the property, nothing was judged.

        `cost` is a sentence about what was measured, such as `positions went back 3 times, by 40
        records`.
        """
        if not self._judged_groups:
            return self.report(judged=0, seen=seen, note=f"{cost}; no group asks for it")
        return self.report(judged=judged, seen=seen, note="" if self.findings_total else cost)


@dataclass(slots=True)
class _Overlap:
    """A time in which a partition is assigned to two members at once.

    This alone does no harm. Only if both of them process records in this time, the property
    `one_owner_processes` does not hold.
    """

    older: TraceRow  # PARTITIONS_ASSIGNED of the first owner
    newer: TraceRow  # PARTITIONS_ASSIGNED of the second owner
    first_of: dict[Owner, TraceRow]  # each owner's first RECORDS_CONSUMED during the overlap
    records: int = 0  # number of records that both owners together processed during the overlap
    both_us: int | None = None  # time from which on both owners have processed records


class OneOwnerProcesses(_Unpromised):
    """A partition is processed by one member at a time."""

    name = "one_owner_processes"
    promise = (
        "no two members process a partition while both believe that they own it; promised by "
        "neither design, judged for groups that ask for it (must_hold)"
    )
    kinds = frozenset({*OWNER_KINDS, TraceKind.RECORDS_CONSUMED, TraceKind.RUN_STAGE})

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._owners = self.evidence.owners
        # (group, partition) -> (older owner, newer owner) -> overlap. An Owner is a process of a
        # member: its node's name and its incarnation, as in ("consumer-a-1", 2) after 2 restarts.
        self._open: dict[tuple[str, str], dict[tuple[Owner, Owner], _Overlap]] = {}
        self._assignments = 0
        self._overlaps = 0
        # Figures of the overlaps that have ended and in which both owners processed records
        self._records = 0
        self._both_us = 0
        self._longest_us = 0
        self._reported: dict[tuple[str, str, str], None] = {}  # (group, older node, newer node)

    def judge(self, row: TraceRow) -> None:
        """Follow the overlaps of owners, and judge the records processed during an overlap."""
        if self._over:
            return
        if row.kind == TraceKind.RUN_STAGE:
            self._end_with_the_run(row)
            if self._over:
                self._close_all(row.time_us)
            return
        if row.kind == TraceKind.RECORDS_CONSUMED:
            self._count_records(row)
            return
        # `ended` has the ownerships that this row has ended. Overlaps with them end, too.
        for group, partition, owner in self._owners.ended:
            self._close(group, partition, owner, row.time_us)
        if row.kind == TraceKind.PARTITIONS_ASSIGNED and row.group in self._groups:
            self._open_overlaps(row.group, (row.node, row.incarnation), row)

    def _open_overlaps(self, group: str, owner: Owner, row: TraceRow) -> None:
        """Open an overlap for each partition of a new assignment that has another owner, too.

        `owner`: the member's process. `row`: its PARTITIONS_ASSIGNED.
        """
        for partition in self._owners.owned_by(owner):
            self._assignments += 1
            for other, older in self._owners.of(group, partition).items():
                if other != owner:
                    pairs = self._open.setdefault((group, partition), {})
                    pairs[other, owner] = _Overlap(older=older, newer=row, first_of={})
                    self._overlaps += 1

    def _count_records(self, row: TraceRow) -> None:
        """Count processed records for each overlap that the member is part of."""
        pairs = self._open.get((row.group or "", row.partition or ""))
        if not pairs or row.detail is None:
            return
        owner = (row.node, row.incarnation)
        # The row has the first offset of a batch; its detail has the last.
        count = decode_consumed(row.detail).last - (row.offset or 0) + 1
        for (older, newer), overlap in pairs.items():
            if owner not in (older, newer):
                continue
            overlap.records += count
            overlap.first_of.setdefault(owner, row)
            # If the length is 2, both owners have now processed records during the overlap.
            if overlap.both_us is None and len(overlap.first_of) == 2:
                overlap.both_us = row.time_us
                self._judge(overlap, row)

    def _judge(self, overlap: _Overlap, row: TraceRow) -> None:
        """Report an overlap in which both owners processed records, if the group demands it."""
        group, partition = row.group or "", row.partition or ""
        key = (group, overlap.older.node, overlap.newer.node)
        if group not in self._judged_groups:
            return
        # Two members often overlap in many partitions, for the same reason. Only the first of these
        # overlaps gets a finding with evidence; the others are counted.
        if key in self._reported:
            self.findings_total += 1
            return
        self._reported[key] = None
        self.report_finding(
            f"{group}, {partition}: {overlap.older.node} and {overlap.newer.node} both processed "
            "it while both owned it",
            [overlap.older, overlap.newer, *overlap.first_of.values()],
            group=group,
            partition=partition,
        )

    def _close(self, group: str, partition: str, owner: Owner, ended_us: int) -> None:
        """End all overlaps of a partition that an owner is part of."""
        pairs = self._open.get((group, partition), {})
        of_owner = [pair for pair in pairs if owner in pair]
        for pair in of_owner:
            self._count(pairs.pop(pair), ended_us)

    def _close_all(self, ended_us: int) -> None:
        """End all overlaps, at the end of the judged time."""
        for pairs in self._open.values():
            for overlap in pairs.values():
                self._count(overlap, ended_us)
        self._open.clear()

    def _count(self, overlap: _Overlap, ended_us: int) -> None:
        """Add an overlap that has ended to the figures, if both owners processed records in it."""
        if overlap.both_us is None:
            return  # at most one owner processed records, so no record was processed by both
        # The overlap begins with the later of the two assignments. The times come from the clocks
        # of two nodes, which can differ, so `older` may have the later time.
        length_us = ended_us - max(overlap.newer.time_us, overlap.older.time_us)
        self._records += overlap.records
        self._both_us += length_us
        self._longest_us = max(self._longest_us, length_us)

    def measured(self) -> dict[str, int]:
        """Return how long, and for how many records, two members processed the same partition.

        The first figure is a sum over partitions: two partitions for 3 s each give 6,000 ms.
        """
        return {
            "partition_time_with_two_processing_ms": self._both_us // 1_000,
            "longest_with_two_processing_ms": self._longest_us // 1_000,
            "records_processed_while_two_did": self._records,
        }

    def finish(self) -> CheckReport:
        """Report overlaps and double processing.

        The unit "partition-s" in the text means seconds that are summed over the partitions.
        """
        return self._report(
            judged=self._assignments,
            seen={"partitions_assigned": self._assignments, "overlaps": self._overlaps},
            cost=f"two members processed a partition for {self._both_us / 1e6:.3f} partition-s, "
            f"{self._longest_us / 1e6:.3f} s at most",
        )


class PositionsNeverGoBack(_Unpromised):
    """The committed offset of a partition never falls."""

    name = "positions_never_go_back"
    promise = (
        "the committed offset of a partition never falls; promised by neither design, judged for "
        "groups that ask for it (must_hold)"
    )
    kinds = frozenset(
        {
            TraceKind.ZOOKEEPER_TXN_APPLIED,
            TraceKind.COMMIT_STORED,
            TraceKind.OFFSET_REMOVED,
            TraceKind.RUN_STAGE,
        }
    )

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._tree = self.evidence.zookeeper_tree
        # (group, partition, store) -> the last committed offset and its row. The store is "Kafka"
        # or "ZooKeeper".
        self._last: dict[tuple[str, str, str], tuple[int, TraceRow]] = {}
        self._commits = 0
        self._rewinds = 0  # number of commits that went back
        self._records = 0  # number of records by which they went back, in total

    def judge(self, row: TraceRow) -> None:
        """Judge a committed offset, in ZooKeeper or in Kafka."""
        match row.kind:
            case TraceKind.ZOOKEEPER_TXN_APPLIED:
                self._judge_transaction(row)
            case TraceKind.COMMIT_STORED if row.group in self._groups and row.offset is not None:
                # A commit without a member id is a commit of an administrator. But members of a
                # group on ZooKeeper have no member id in Kafka, so their commits lack it, too.
                by_administrator = not row.member and row.group not in self.context.zookeeper_groups
                store = (row.group, row.partition or "", "Kafka")
                self._judge_commit(
                    store, row.offset, row, row.member or "", may_go_back=by_administrator
                )
            case TraceKind.OFFSET_REMOVED:
                # The next commit begins anew: no stored offset precedes it any more.
                self._last.pop((row.group or "", row.partition or "", "Kafka"), None)
            case _:
                pass

    def _judge_transaction(self, row: TraceRow) -> None:
        """Judge a transaction of ZooKeeper that writes a committed offset."""
        # Each server writes a row when it applies the transaction. Only the first row is news.
        if not self._tree.is_news:
            return
        detail = detail_of(row)
        path = _OFFSET_PATH.fullmatch(str(detail.get("path")))
        if path is None:
            return
        group, topic, number = path.groups()
        if group not in self._groups or "data" not in detail:
            return
        store = (group, f"{topic}-{number}", "ZooKeeper")
        # The client that has the session; the session's id if the client is not known
        writer = self._tree.clients.get(detail["session"], detail["session"])
        self._judge_commit(store, int(detail["data"]), row, writer, may_go_back=False)

    def _judge_commit(
        self,
        key: tuple[str, str, str],
        offset: int,
        row: TraceRow,
        writer: str,
        *,
        may_go_back: bool,
    ) -> None:
        """Compare an offset with the offset that was committed before; report it if it is lower.

        - `key`: group, partition and store. A group may store its offsets both in Kafka and in
          ZooKeeper, so an offset is compared only with the last offset in the same store.
        - `writer`: the member that committed; "" if it is unknown.
        - `may_go_back`: True if an administrator committed, who may set an offset back on purpose.
        """
        group, partition, store = key
        self._commits += 1
        before = self._last.get(key)
        self._last[key] = (offset, row)
        if before is None:
            return
        offset_before, row_before = before
        if offset >= offset_before or may_go_back:
            return
        self._rewinds += 1
        self._records += offset_before - offset
        if group in self._judged_groups:
            self.report_finding(
                f"{group}, {partition}: {writer or 'a commit without a member'} set the offset in "
                f"{store} back from {offset_before} to {offset}",
                [row_before, row],
                group=group,
                partition=partition,
            )

    def measured(self) -> dict[str, int]:
        """Return the number of commits that went back, and by how many records in total."""
        return {"positions_that_went_back": self._rewinds, "records_set_back": self._records}

    def finish(self) -> CheckReport:
        """Report the commits that went back."""
        return self._report(
            judged=self._commits,
            seen={"commits": self._commits, "positions_that_went_back": self._rewinds},
            cost=f"positions went back {self._rewinds} times, by {self._records} records",
        )
