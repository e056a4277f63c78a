"""Ownership in real time: how long two members own one partition, and whether this is allowed.

When a coordinator drops a silent member, it gives the member's partitions to other members. The
dropped member does not hear of this, and goes on processing. For some time the partition has two
owners. We call this time an overlap. Kafka cannot prevent overlaps, and promises no limit for their
length. In a recorded split brain of real Kafka, in which two brokers acted as the coordinator, an
overlap lasted for 31 s (MEASURED_FAILOVER two-owners). But the settings do imply limits, and this
checker judges them:

1. An overlap must not begin too early. The coordinator may drop the older owner only when this
   owner has been silent for `eviction_us` (normally `session.timeout.ms`). A healthy member is not
   silent for so long. So a fault must have begun at least `eviction_us` ago, minus one heartbeat
   interval, because the member's last heartbeat may have come one interval before the fault.
2. A coordinator that has just loaded the group gives each member a full session (BEHAVIOUR 5.4). So
   the overlap must not begin earlier than `eviction_us` after this load.
3. An overlap must not end too late. When nothing is broken any more, the older owner must soon hear
   that it was dropped. The part of an overlap in which nothing is broken is called its overstay. An
   overstay may last for the sum of three times: the time until a replaced coordinator learns of its
   replacement, the time until the member's next heartbeat, and the time until the member has
   rejoined.
4. A member that sends JoinGroup owns no partition.

Some owners may be dropped at any time, so rules 1 and 2 do not protect them:
- an owner whose application has missed `max.poll.interval.ms`;
- an owner that did not rejoin in time;
- an owner that an administrator removed (the owner learns of its removal by its next heartbeat);
- the owners of a group that was lost with the last replica in sync (`lost_data`).

The members decide who is an owner, not the coordinator. A member owns a partition from the poll in
which it gets the partition until the moment at which it revokes the partition, loses it, or dies.
"""

from dataclasses import dataclass

from chaos.checkers.base import Checker
from chaos.checkers.context import CheckContext, GroupExpectation, detail_of
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.evidence.faults_in_force import FAULT_KINDS
from chaos.checkers.evidence.living_members import JOINING
from chaos.checkers.evidence.lost_data import LOSS_KINDS
from chaos.checkers.evidence.owners import OWNER_KINDS, Owner
from protocol.causes import MemberStateCause, RemovalCause
from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import seconds
from results_schema.results import CheckReport

RESIGNING_US = 5_000_000
"""Longest time until a broker that the controller can reach learns that it is no longer leader.

Measured: a broker that had been cut off learned it 0.4 s after the cut had been healed.
"""
BACKOFFS_OF_A_REJOIN = 2
"""Number of times that a member which rejoins may wait for `retry.backoff.max.ms`.

The member may wait once before it finds the coordinator, and once before it joins.
"""
AFTER_HEALING_MS = "longest_part_of_an_overlap_after_everything_was_healed_ms"
"""Name of the longest overstay among the measured figures."""


@dataclass(slots=True)
class _Overlap:
    """Two owners of one partition at the same time."""

    older: TraceRow  # PARTITIONS_ASSIGNED of the owner that got the partition first
    newer: TraceRow  # PARTITIONS_ASSIGNED of the other owner
    began_us: int
    # The reason why the overlap began too early, such as `nothing was broken`, or `only 3.000 s
    # after ...`. None if the overlap did not begin too early.
    too_early: str | None
    evidence: list[TraceRow]  # rows that show why the older owner was dropped
    too_late: bool = False  # True if an overstay was longer than its bound
    # The longest overstay so far. An overlap may have several, because a new fault ends an
    # overstay.
    overstay_us: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOverlap:
    """An overlap as the report shows it."""

    group: str
    partition: str
    owners: tuple[str, str]
    began_us: int
    ended_us: int

    @property
    def length_us(self) -> int:
        """Length of the overlap."""
        return self.ended_us - self.began_us


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A group as a coordinator read it from the log.

    The default values stand for a group that was deleted.
    """

    members: tuple[str, ...] = ()
    generation: int = -1


class _Group:
    """A group's overlaps, and the facts about the group that decide whether they are allowed."""

    def __init__(self, expected: GroupExpectation) -> None:
        self.expected = expected
        # (partition, older owner, newer owner) -> unfinished overlap
        self.open: dict[tuple[str, Owner, Owner], _Overlap] = {}
        self.loads: dict[str, TraceRow] = {}  # broker -> its last load of the group's partition
        self.loaded: dict[str, _Loaded] = {}  # broker -> the group in its last load, if known
        self.loading: dict[str, _Loaded] = {}  # broker -> the group in its unfinished load
        self.has_leader = True
        # Time of the last election of a leader, or load, of the group's offsets partition
        self.settled_us = 0
        # member -> broker -> the row with which the broker last removed the member. The inner dict
        # has the brokers in the order of these rows, so the last entry is the newest removal.
        self.removed: dict[str, dict[str, TraceRow]] = {}
        self.slow: dict[Owner, TraceRow] = {}  # owners that missed max.poll.interval.ms
        # (older node, newer node, kind) of each reported violation. The kind is "begin" (rule 1 or
        # 2), "end" (rule 3) or "join" (rule 4, which is about one node only).
        self.reported: dict[tuple[str, str, str], None] = {}

    def removal_of(self, member: str | None, coordinator: str | None) -> TraceRow | None:
        """Return the row in which `coordinator` removed the member.

        If `coordinator` did not remove the member, return the member's newest removal by any
        broker. If there is no removal at all, return None.
        """
        removals = self.removed.get(member or "", {})
        return removals.get(coordinator or "") or next(reversed(removals.values()), None)

    def load_completed(self, row: TraceRow) -> None:
        """Note the end of a load.

        If the load found this group, a row GROUP_LOADED came before `row`. If no such row came, the
        group may have been deleted. This is certain only if LOAD_COMPLETED has a list of the loaded
        groups. Without such a list, the group as the earlier load found it is kept.
        """
        self.loads[row.node] = row
        loaded = self.loading.pop(row.node, None)
        if loaded is None and "groups" in detail_of(row):
            loaded = _Loaded()
        if loaded is not None:
            self.loaded[row.node] = loaded

    @property
    def overstay_bound_us(self) -> int:
        """Longest overstay that is allowed (rule 3)."""
        expected = self.expected
        rejoin_us = BACKOFFS_OF_A_REJOIN * expected.retry_backoff_max_us + expected.application_us
        return RESIGNING_US + expected.heartbeat_interval_us + rejoin_us


class Ownership(Checker):
    """No partition has two owners for longer than configuration and faults allow."""

    name = "ownership"
    promise = (
        "two members own a partition at one time only after a fault, no sooner than a session "
        "timeout after it and after the new coordinator's load, and no longer than a heartbeat "
        "interval and a rejoin after healing; a bound of this lab, made of the settings: Kafka "
        "promises none for what members own in real time"
    )
    kinds = frozenset(
        {
            *FAULT_KINDS,
            *LOSS_KINDS,
            *OWNER_KINDS,
            TraceKind.RUN_STAGE,
            TraceKind.LEADER_ELECTED,
            TraceKind.LOAD_COMPLETED,
            TraceKind.GROUP_LOADED,
            TraceKind.MEMBER_REMOVED,
            TraceKind.MEMBER_STATE,
        }
    )

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._groups = {group_id: _Group(known) for group_id, known in context.groups.items()}
        self._owners = self.evidence.owners
        self._faults = self.evidence.faults
        self._lost_data = self.evidence.lost_data
        self._over = False  # from the stage "stopping" on
        self._last_us = 0
        self._assignments = 0
        self._overlaps: list[MeasuredOverlap] = []
        self._longest_overstay_us = 0

    def judge(self, row: TraceRow) -> None:
        """Judge assignments, their ends, and joins; keep the facts that decide about overlaps."""
        if self._over:
            return
        self._last_us = row.time_us
        match row.kind:
            case TraceKind.RUN_STAGE:
                self._observe_stage(row)
            case TraceKind.LEADER_ELECTED | TraceKind.LOAD_COMPLETED:
                self._observe_coordinator(row)
            case TraceKind.ISR_CHANGED:
                pass  # only `lost_data` needs this row
            case _ if row.kind in FAULT_KINDS:
                # If the row begins a fault, it ends all overstays, so the overstays are measured up
                # to now. This measurement needs the faults that were in force before the row.
                self._measure_all_overstays(row.time_us, self._faults.was_quiet_since_us)
            case _:
                group = self._groups.get(row.group or "")
                if group is not None:
                    self._observe_member(group, row.group or "", row)
        if row.kind in OWNER_KINDS:
            self._observe_owners(row)

    def _observe_stage(self, row: TraceRow) -> None:
        if detail_of(row).get("stage") == "stopping":
            self._measure_all_overstays(row.time_us, self._faults.quiet_since_us)
            self._over = True  # the driver now stops all nodes; later rows are no overlaps

    def _observe_member(self, group: _Group, group_id: str, row: TraceRow) -> None:
        owner = (row.node, row.incarnation)
        match row.kind:
            case TraceKind.PARTITIONS_ASSIGNED:
                group.slow.pop(owner, None)
            case TraceKind.GROUP_LOADED:
                members = detail_of(row).get("members")
                if isinstance(members, list):
                    group.loading[row.node] = _Loaded(tuple(members), row.generation or 0)
            case TraceKind.MEMBER_REMOVED:
                removals = group.removed.setdefault(row.member or "", {})
                # A dict keeps the place of a key that is assigned again. After the pop, the new row
                # gets the last place.
                removals.pop(row.node, None)
                removals[row.node] = row
            case TraceKind.MEMBER_STATE if row.cause == MemberStateCause.MISSED_POLL:
                group.slow[owner] = row
            case TraceKind.MEMBER_STATE if self._owners.owned_by(owner):
                self._check_join_without_partitions(group, group_id, owner, row)
            case _:
                pass

    def _check_join_without_partitions(
        self, group: _Group, group_id: str, owner: Owner, row: TraceRow
    ) -> None:
        """Report, once for each node, a member that joins while it owns partitions (rule 4).

        Members use Kafka's eager protocol, in which a member revokes all its partitions before it
        joins (BEHAVIOUR 7.6).
        """
        key = (row.node, row.node, "join")
        if detail_of(row).get("to") != JOINING or key in group.reported:
            return
        group.reported[key] = None
        partition = self._owners.owned_by(owner)[0]
        self.report_finding(
            f"{group_id}, {partition}: {row.node} went to join while it still owned it",
            [self._owners.of(group_id, partition)[owner], row],
            group=group_id,
            partition=partition,
        )

    # -- elections and loads ------------------------------------------------------------------

    def _observe_coordinator(self, row: TraceRow) -> None:
        for group in self._groups.values():
            if group.expected.offsets_partition != row.partition:
                continue
            # After an election or a load, the older owners need time to hear of the new
            # coordinator. So their overstays begin anew (`settled_us`). Before this, the overstays
            # are measured up to now.
            self._measure_overstays(group, row.time_us, self._faults.quiet_since_us)
            if row.kind == TraceKind.LOAD_COMPLETED:
                group.load_completed(row)
            else:
                group.has_leader = bool(row.peer)
            group.settled_us = row.time_us

    # -- overlaps -----------------------------------------------------------------------------

    def _observe_owners(self, row: TraceRow) -> None:
        """Close the overlaps of ended ownerships, and open those of a new owner."""
        for group_id, partition, owner in self._owners.ended:
            if group_id in self._groups:
                self._release(self._groups[group_id], group_id, partition, owner, row)
        group_id, owner = row.group or "", (row.node, row.incarnation)
        group = self._groups.get(group_id)
        if row.kind != TraceKind.PARTITIONS_ASSIGNED or group is None:
            return
        for partition in self._owners.owned_by(owner):
            self._assignments += 1
            for older_owner, older in self._owners.of(group_id, partition).items():
                if older_owner != owner:
                    too_early, evidence = self._check_beginning(group, older_owner, older, row)
                    group.open[partition, older_owner, owner] = _Overlap(
                        older, row, row.time_us, too_early, evidence
                    )

    def _check_beginning(
        self, group: _Group, older_owner: Owner, older: TraceRow, newer: TraceRow
    ) -> tuple[str | None, list[TraceRow]]:
        """Return the reason why an overlap begins too early, and rows as evidence.

        The reason is None if the overlap does not begin too early. `older` and `newer` are the
        PARTITIONS_ASSIGNED of the two owners.
        """
        # The first cases are the owners that may be dropped at any time.
        expected = group.expected
        now_us = newer.time_us
        removal = group.removal_of(older.member, newer.peer)
        evidence = [] if removal is None else [removal]
        slow = group.slow.get(older_owner)
        if slow is not None:
            return None, [*evidence, slow]
        if removal is not None and removal.cause in (
            RemovalCause.DID_NOT_REJOIN,
            RemovalCause.LEAVE,  # also the cause if an administrator removed the member
        ):
            return None, evidence

        losses = self._lost_data.of(expected.offsets_partition)
        if losses and losses[-1].time_us > older.time_us:
            return None, evidence  # the group that had the older owner was lost
        # When was the older owner dropped? At the latest now. If its session ended, it was dropped
        # at the end of the session, and the newer owner may have got the partition much later. But
        # `removal` may be an earlier removal, from before the older owner got the partition. So
        # the time is not set before that.
        dropped_us = now_us
        if removal is not None and removal.cause == RemovalCause.SESSION_EXPIRY:
            dropped_us = max(removal.time_us, older.time_us)

        # Rule 1. A fault must have begun early enough before the drop. A fault that was already
        # over for `overstay_bound_us` is not to blame, because by then all members had recovered.
        recent = self._faults.since(dropped_us - group.overstay_bound_us)
        if not recent:
            return "nothing was broken", evidence
        # If there were several faults, the first of them may have silenced the owner.
        first = min(recent, key=lambda fault: fault.time_us)
        evidence.append(first)
        # The owner's last heartbeat may have come up to one interval before the fault.
        margin_us = expected.heartbeat_interval_us + self.context.clock_error_us
        if _was_assigned_by_zombie(older, removal, group):
            # 1. A new coordinator loaded the group. From then on it heard nothing of the owner.
            # 2. The replaced coordinator, a zombie, still gave the owner this partition.
            # 3. A session after its load, the new coordinator dropped the owner.
            # The drop may come at any time after the assignment, so the margin is a whole session.
            margin_us = expected.eviction_us
        if dropped_us < first.time_us + expected.eviction_us - margin_us:
            after = f"{seconds(dropped_us - first.time_us)} after {first.explanation or first.kind}"
            return (
                f"only {after}, while a silent member may be dropped after "
                f"{seconds(expected.eviction_us)}",
                evidence,
            )

        # Rule 2. The rule does not protect an owner that got its partition from this same
        # coordinator after the load. The session of such an owner has been restarted since the
        # load, so rule 1 is enough.
        load = self._load_by(group, newer)
        if load is None or (older.peer == load.node and older.time_us > load.time_us):
            return None, evidence
        loaded = group.loaded.get(load.node)
        if loaded is not None and (
            older.member not in loaded.members or newer.generation == loaded.generation
        ):
            # The new coordinator owed the older owner no session, for one of two reasons. Either
            # the older owner was no longer a member of the loaded group. Or the loaded generation
            # had already given the partition to the newer owner. This happens to a static member
            # that does not rejoin in time: it remains a member, but others get its partitions.
            return None, evidence
        evidence.append(load)
        if now_us < load.time_us + expected.eviction_us - self.context.clock_error_us:
            return (
                f"only {seconds(now_us - load.time_us)} after {load.node} had loaded the group, "
                f"while each member has {seconds(expected.eviction_us)} from there on",
                evidence,
            )
        return None, evidence

    @staticmethod
    def _load_by(group: _Group, newer: TraceRow) -> TraceRow | None:
        """Return the load of the coordinator that assigned the partition to the newer owner.

        `newer.peer` is this coordinator. If the row does not name the coordinator, the newest load
        of any broker is returned. The result is None if there was no load.
        """
        if newer.peer is not None:
            return group.loads.get(newer.peer)
        return max(group.loads.values(), key=lambda load: load.leader_epoch or 0, default=None)

    def _release(
        self, group: _Group, group_id: str, partition: str, owner: Owner, row: TraceRow
    ) -> None:
        """Measure and close the overlaps of an owner that no longer owns the partition."""
        ended = [key for key in group.open if key[0] == partition and owner in key[1:]]
        for key in ended:
            overlap = group.open.pop(key)
            self._measure_overstay(group, overlap, row.time_us, self._faults.quiet_since_us)
            self._close(group, group_id, partition, overlap, row.time_us, row)

    def _measure_all_overstays(self, now_us: int, quiet_since_us: int | None) -> None:
        for group in self._groups.values():
            self._measure_overstays(group, now_us, quiet_since_us)

    def _measure_overstays(self, group: _Group, now_us: int, quiet_since_us: int | None) -> None:
        for overlap in group.open.values():
            self._measure_overstay(group, overlap, now_us, quiet_since_us)

    def _measure_overstay(
        self, group: _Group, overlap: _Overlap, now_us: int, quiet_since_us: int | None
    ) -> None:
        """Measure an overlap's overstay up to now.

        The overstay begins with the latest of three moments: the beginning of the overlap, the last
        election or load of the group's partition, and the end of the last fault, `quiet_since_us`.
        While a fault is in force (None), or while the partition has no leader, there is no
        overstay.
        """
        if quiet_since_us is None or not group.has_leader:
            return
        overstay_us = now_us - max(overlap.began_us, quiet_since_us, group.settled_us)
        overlap.overstay_us = max(overlap.overstay_us, overstay_us)
        if overstay_us > group.overstay_bound_us + self.context.clock_error_us:
            overlap.too_late = True

    def _close(
        self,
        group: _Group,
        group_id: str,
        partition: str,
        overlap: _Overlap,
        ended_us: int,
        end: TraceRow | None,
    ) -> None:
        """Record and judge an overlap. `end` is None if the overlap lasted until the run's end."""
        if ended_us - overlap.began_us <= self.context.clock_error_us:
            # The overlap is so short that it may be an error of the clocks: the older owner may
            # have revoked the partition before the newer owner got it.
            return
        older, newer = overlap.older, overlap.newer
        measured = MeasuredOverlap(
            group=group_id,
            partition=partition,
            owners=(older.node, newer.node),
            began_us=overlap.began_us,
            ended_us=ended_us,
        )
        self._overlaps.append(measured)
        self._longest_overstay_us = max(self._longest_overstay_us, overlap.overstay_us)
        if overlap.too_early is not None:
            problem = f"which began when it might not: {overlap.too_early}"
        elif overlap.too_late:
            problem = (
                f"of which {seconds(overlap.overstay_us)} with nothing broken any more; "
                f"{seconds(group.overstay_bound_us)} are enough to hear of it"
            )
        else:
            return
        kind = "begin" if overlap.too_early is not None else "end"
        if (key := (older.node, newer.node, kind)) in group.reported:
            # The violation has been reported for another partition of these members. It is only
            # counted.
            self.findings_total += 1
            return
        group.reported[key] = None
        self.report_finding(
            f"{group_id}, {partition}: {older.node} and {newer.node} both owned it for "
            f"{seconds(measured.length_us)}, {problem}",
            [older, *overlap.evidence, newer, *([] if end is None else [end])],
            group=group_id,
            partition=partition,
        )

    # -- the end ------------------------------------------------------------------------------

    def measured(self) -> dict[str, int]:
        """Return figures of all overlaps so far, including unfinished ones."""
        overlaps = [*self._overlaps, *self._unfinished()]
        if not overlaps:
            return {"overlaps": 0}
        longest = max(overlaps, key=lambda overlap: overlap.length_us)
        partitions = {(overlap.group, overlap.partition) for overlap in overlaps}
        return {
            "overlaps": len(overlaps),
            "overlapping_partitions": len(partitions),
            "longest_overlap_ms": longest.length_us // 1_000,
            "first_overlap_began_us": min(overlap.began_us for overlap in overlaps),
            "last_overlap_ended_us": max(overlap.ended_us for overlap in overlaps),
            AFTER_HEALING_MS: self._longest_overstay_us // 1_000,
        }

    def _unfinished(self) -> list[MeasuredOverlap]:
        return [
            MeasuredOverlap(
                group=group_id,
                partition=partition,
                owners=(overlap.older.node, overlap.newer.node),
                began_us=overlap.began_us,
                ended_us=self._last_us,
            )
            for group_id, group in self._groups.items()
            for (partition, _, _), overlap in group.open.items()
            if self._last_us - overlap.began_us > self.context.clock_error_us
        ]

    def finish(self) -> CheckReport:
        """Judge unfinished overlaps, and report."""
        if not self._over:
            self._measure_all_overstays(self._last_us, self._faults.quiet_since_us)
        for group_id, group in self._groups.items():
            still_open, group.open = group.open, {}
            for (partition, _, _), overlap in still_open.items():
                self._close(group, group_id, partition, overlap, self._last_us, None)
        return self.report(
            judged=self._assignments,
            seen={
                "partitions_assigned_in_all_generations": self._assignments,
                "overlaps": len(self._overlaps),
            },
            note=self._note(),
        )

    def _note(self) -> str:
        if not self._overlaps:
            return "" if self._assignments else "nobody was given a partition"
        longest = max(self._overlaps, key=lambda overlap: overlap.length_us)
        return (
            f"{longest.group}, {longest.partition} had two owners ({' and '.join(longest.owners)}) "
            f"for {seconds(longest.length_us)}, the longest of {len(self._overlaps)}, from "
            f"{longest.began_us / 1e6:.3f} s to {longest.ended_us / 1e6:.3f} s"
        )


def _was_assigned_by_zombie(older: TraceRow, removal: TraceRow | None, group: _Group) -> bool:
    """Return True if the broker that assigned `older` had already been replaced as coordinator.

    This happens to a coordinator that is replaced while it is paused. When it runs again, it first
    answers the requests that have been waiting, and only then learns of its replacement. The row
    `removal` was written by the new coordinator.
    """
    if removal is None or older.peer in {None, removal.node}:
        return False
    load = group.loads.get(removal.node)
    return load is not None and load.time_us < older.time_us
