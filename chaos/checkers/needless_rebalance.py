"""Needless rebalance: the failover of a Stable group whose members all survive needs no rebalance.

When a broker dies, another one becomes the coordinator of its groups. The new coordinator loads the
members and the generation from the log, and accepts the members' next heartbeat or commit as if
nothing had happened. A rebalance, in which all members stop working and join again, would be
needless. Real Kafka does not rebalance in this case, either (docs/kafka/MEASURED_FAILOVER.md,
section 6). BEHAVIOUR 6.6 is a section of docs/kafka/BEHAVIOUR.md.

This checker watches a group from a fault on, if

- the fault hits only servers, and no member of the group;
- the group and its members are Stable in the same generation;
- nothing has happened in this generation that may force a rebalance later.

The checker stops watching when a fault hits a member, or when the coordinator begins a rebalance.
In the second case it looks for a reason. The rebalance is a finding if nothing in this list has
happened since the generation began:

1. A session expired: the coordinator removed a member because the member was silent for its
   session timeout. There is one exception. If the member's process was well, and nothing in the
   cluster had been broken for a long time, the member had no cause to be silent. Then the expiry is
   no reason for a rebalance (`_is_calm`).
2. A member was removed for another reason: it left, did not rejoin in time, was removed by an
   administrator, or is a static member (with a `group.instance.id`) that came back under a new
   member id. The coordinator may also say that it removed a member because the member did not ask
   for its assignment in time. This is a reason only if the member has not reported an assignment.
3. A member stopped being Stable. The member may have done so by itself, because its application did
   not poll in time. Or a broker refused the member for a good reason: the member had been removed,
   or was of another generation. Two kinds of brokers refuse members wrongly, but cannot know that
   they are wrong. So their refusals are reasons, too. One kind is a replaced coordinator that has
   not heard of its replacement, a zombie (BEHAVIOUR 6.6 i). The other kind is a coordinator that
   lost the leadership in the middle of its load (`half_loads`).
4. A replaced coordinator had begun a rebalance, or the failover interrupted a rebalance. Some
   members were already asked to rejoin. A new coordinator cannot know this, because rebalances in
   progress are not written to the log.
5. A member's process ended or started, or there was a fault that is an order to the groups, such as
   `remove_members`.
6. The JoinGroup of the leader member came late. On a slow link the leader gave up this request,
   joined the present generation with another JoinGroup, and became Stable. Then the first JoinGroup
   arrives. When a leader joins again, the coordinator begins a rebalance (`_late_join`).

Two kinds of removals are findings by themselves, even without a fault:

- a session expired, although the broker heard the member, or loaded the group, less than a session
  timeout ago;
- a member was removed because it did not rejoin, before the rebalance had lasted for the shortest
  `max.poll.interval.ms` of the group.

If the group's partition loses data with the last in-sync replica (`lost_data`), the log may lack
the present generation. The checker then stops watching the group, and takes the group's generation
from the next load. Members of the lost generation may be refused.
"""

from dataclasses import dataclass, field

from chaos.checkers.base import Checker
from chaos.checkers.context import CheckContext, GroupExpectation, detail_of
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.evidence.commit_registers import GIVEN_UP_BY_THE_CLIENT
from chaos.checkers.evidence.coordinators import COORDINATOR_KINDS
from chaos.checkers.evidence.faults_in_force import FAULT_KINDS
from chaos.checkers.evidence.living_members import JOINING, PRESENCE_KINDS
from chaos.checkers.evidence.lost_data import LOSS_KINDS
from protocol.causes import (
    CoordinatorUnknownCause,
    MemberStateCause,
    RebalanceCause,
    RemovalCause,
)
from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import describe_event, seconds
from results_schema.results import CheckReport

STABLE = "Stable"
"""State of a group without a rebalance."""
MEMBER_STABLE = "STABLE"
"""State of a member that has its assignment."""
LATE_JOIN = "JoinGroup that its member had given up"
"""Name in the report for the rebalances with reason 6."""
HALF_LOAD = "refusal by a coordinator that lost its log while it loaded it"
"""Name in the report for refusals by coordinators that lost the leadership (reason 3)."""
OWN_DOING = frozenset({MemberStateCause.MISSED_POLL, MemberStateCause.LEFT})
"""Causes in rows of a member that stops being Stable by itself, and not because of a broker."""
_GIVES_UP = GIVEN_UP_BY_THE_CLIENT | frozenset(CoordinatorUnknownCause)
"""Causes in COORDINATOR_UNKNOWN with which a client gives up requests that may still arrive."""
_TRAIL_ROWS = 12
"""Largest number of rows about its group that a finding shows."""


@dataclass(slots=True)
class _Group:
    """A group of the experiment."""

    expected: GroupExpectation
    # The row of the fault since which the group is watched; None while it is not watched
    watched_since: TraceRow | None = None
    # The row that made the group Stable before the fault in `watched_since`
    stable_before: TraceRow | None = None
    happened: list[TraceRow] = field(default_factory=list)  # reasons for a rebalance, see above
    trail: list[TraceRow] = field(default_factory=list)  # last rows about the group, for a finding
    # The row that began the present generation or, after a loss of data, loaded it
    generation: TraceRow | None = None
    # (broker, member) -> the last SESSION_RESTARTED, which shows when the broker last heard from
    # the member
    heard: dict[tuple[str, str], TraceRow] = field(default_factory=dict)
    began: dict[str, TraceRow] = field(default_factory=dict)  # broker -> its last rebalance
    lost_at_us: int = -1  # when the group's partition last lost data; -1: never

    def has(self, member: str | None, generation: int | None) -> bool:
        """Return True if `generation` is the group's present one, and `member` is still in it."""
        began = self.generation
        if began is None:
            return True  # the trace lacks the generation's beginning, so the member may be right
        return (
            began.generation == generation
            and member in detail_of(began).get("members", ())
            and not any(row.member == member for row in self.happened)
        )

    def has_lost_generation(self) -> bool:
        """Return True if the generation began before its partition last lost data."""
        return self.generation is not None and self.generation.time_us <= self.lost_at_us


class NeedlessRebalance(Checker):
    """No rebalance on a graceful move or failover of a Stable group whose members all survive."""

    name = "needless_rebalance"
    promise = (
        "no rebalance on a graceful move or on a failover of a Stable group whose members all "
        "survive"
    )
    kinds = frozenset(
        {
            *COORDINATOR_KINDS,
            *FAULT_KINDS,
            *PRESENCE_KINDS,
            *LOSS_KINDS,
            TraceKind.RUN_STAGE,
            TraceKind.SESSION_RESTARTED,
            TraceKind.REBALANCE_STARTED,
            TraceKind.COORDINATOR_FOUND,
            TraceKind.COORDINATOR_UNKNOWN,
        }
    )

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._groups = {group_id: _Group(known) for group_id, known in context.groups.items()}
        self._coordinators = self.evidence.coordinators
        self._presence = self.evidence.presence
        self._faults = self.evidence.faults
        self._lost_data = self.evidence.lost_data
        self._half_loads = self.evidence.half_loads
        self._refused_from_half = 0  # refusals by coordinators that lost their log in the load
        # consumer -> the broker that the consumer takes for its coordinator
        self._believed_coordinator: dict[str, str] = {}
        # (consumer, broker) -> the row in which the consumer last gave up a JoinGroup to the broker
        self._given_up: dict[tuple[str, str], TraceRow] = {}
        self._late_joins = 0  # rebalances with reason 6
        self._over = False  # from the stage "stopping" on, the driver stops every node
        self._watched = 0  # number of groups that were watched, counted again at each fault
        self._rebalances = 0  # number of rebalances that began while the group was watched
        # For each of these rebalances that had a reason, a text that names it, such as
        # `g at 41.200 s: broker-1, 40.900 s: ...`
        self._needed: list[str] = []

    def judge(self, row: TraceRow) -> None:
        """Judge a fault, a step of a group or a step of a member."""
        if self._over:
            return
        if row.kind in LOSS_KINDS and self._lost_data.is_loss(row):
            self._discard_facts(row)
        group = self._groups.get(row.group or "")
        match row.kind:
            case TraceKind.SESSION_RESTARTED if group is not None:
                group.heard[row.node, row.member or ""] = row
                return
            case TraceKind.MEMBER_STATE if group is not None:
                self._observe_member(group, row.group or "", row)
            case TraceKind.COORDINATOR_FOUND:
                self._believed_coordinator[row.node] = row.peer or ""
            case TraceKind.COORDINATOR_UNKNOWN:
                if row.cause in _GIVES_UP and self._presence.state(row.node) == JOINING:
                    self._given_up[row.node, row.peer or ""] = row
            case TraceKind.LOAD_COMPLETED:
                self._take_loaded_generations(row)
            case TraceKind.RUN_STAGE:
                self._over = detail_of(row).get("stage") == "stopping"
            case TraceKind.FAULT_INJECTED:
                self._observe_fault(row)
            case TraceKind.NODE_KILLED | TraceKind.NODE_STOPPED | TraceKind.NODE_STARTED:
                self._observe_node(row)
            case _ if group is not None:  # the rows of a broker about a group
                self._observe_group(group, row.group or "", row)
            case _:
                pass

    # -- watched groups -----------------------------------------------------------------------

    def _observe_fault(self, row: TraceRow) -> None:
        """Begin to watch the Stable groups that the fault spares.

        The groups that the fault hits are no longer watched.
        """
        detail = detail_of(row)
        # If a fault hits one node, this node is the row's `peer`. If a fault hits several nodes,
        # the row's detail lists them as "nodes". A fault on links lists the nodes at the two ends
        # of the links as "from" and "to".
        nodes = [
            row.peer or "",
            *(node for end in ("nodes", "from", "to") for node in detail.get(end, ())),
        ]
        hit_groups = {self._presence.group_of(node) for node in nodes} - {None}
        # An order, such as `remove_members`, goes to a server, but is a reason for a rebalance. A
        # fault is no order if its row says that the groups' members survive the fault as if nothing
        # had happened.
        is_order = detail.get("members_survive") is not True and not hit_groups
        for group_id, group in self._groups.items():
            if is_order:
                group.happened.append(row)
            if is_order or group_id in hit_groups:
                group.watched_since = None
            elif group.watched_since is None:
                self._watch_if_stable(group, group_id, row)

    def _watch_if_stable(self, group: _Group, group_id: str, fault: TraceRow) -> None:
        """Begin to watch a group if the group and its consumers are Stable in the same generation.

        A consumer that is Stable in an earlier generation has been removed, but does not know this
        yet, for example because a zombie answers its heartbeats. Such a consumer will soon cause a
        rebalance. A consumer of which the trace shows nothing at all is ignored.
        """
        seen = self._coordinators.state(group_id)
        if (
            seen is not None
            and seen.state == STABLE
            and seen.row.time_us >= group.lost_at_us
            and not group.happened  # otherwise a rebalance is needed already
            and all(
                self._presence.is_unseen(consumer) or self._is_stable_in(group, consumer)
                for consumer in self._presence.present(group_id)
            )
        ):
            group.watched_since = fault
            group.stable_before = seen.row
            group.trail = []
            self._watched += 1

    def _is_stable_in(self, group: _Group, consumer: str) -> bool:
        """Return True if a consumer is Stable as a member of the group's present generation."""
        stated = self._presence.state_row(consumer)
        return (
            stated is not None
            and self._presence.is_stable(consumer)
            and group.has(stated.member, stated.generation)
        )

    def _discard_facts(self, election: TraceRow) -> None:
        """Stop watching the groups of a partition that lost data.

        What is left of the groups will be known at the next load (`_take_loaded_generations`).
        """
        for group in self._groups.values():
            if group.expected.offsets_partition == election.partition:
                group.watched_since = None
                group.lost_at_us = election.time_us

    def _take_loaded_generations(self, load: TraceRow) -> None:
        """After a loss of data, take the groups' generations from the coordinator's load.

        `load` is the LOAD_COMPLETED with which a broker becomes the coordinator. The rows
        GROUP_LOADED of this load came before.
        """
        for group_id, group in self._groups.items():
            if (
                group.expected.offsets_partition == load.partition
                and group.has_lost_generation()
                and load.node == self._coordinators.coordinator(group_id)
            ):
                loaded = self._coordinators.loaded(load.node, group_id)
                if loaded is not None and loaded.time_us > group.lost_at_us:
                    group.generation = loaded

    def _observe_node(self, row: TraceRow) -> None:
        """Stop watching the group of a consumer whose process ended or started."""
        group_id = self._presence.group_of(row.peer or row.node)
        if group_id is not None:
            group = self._groups[group_id]
            group.watched_since = None
            group.happened.append(row)

    # -- members ------------------------------------------------------------------------------

    def _observe_member(self, group: _Group, group_id: str, row: TraceRow) -> None:
        """Remember a member that stopped being Stable, if this is a reason for a rebalance.

        If the coordinator refused the member wrongly, this is an error of the coordinator and no
        reason for a rebalance.
        """
        if detail_of(row).get("from") != MEMBER_STABLE:
            return
        group.trail.append(row)
        if row.cause in OWN_DOING:
            group.happened.append(row)
            return
        if row.error is None:
            # Without an error, the member rejoins because its coordinator began a rebalance.
            return
        coordinator = self._believed_coordinator.get(row.node, "")
        partition = group.expected.offsets_partition
        is_half = self._half_loads.answers_from_half(coordinator, partition)
        if is_half:
            self._refused_from_half += 1
        if (
            is_half
            or self._coordinators.is_zombie(group_id, coordinator)
            or not group.has(row.member, row.generation)
        ):
            group.happened.append(row)

    def _judge_removal(self, group: _Group, group_id: str, row: TraceRow) -> None:
        """Report a removal that came too early.

        Any other removal is remembered if it is a reason for a rebalance.
        """
        group.trail.append(row)
        match row.cause:
            case RemovalCause.SESSION_EXPIRY:
                is_right = not self._report_early_expiry(group, group_id, row)
                if is_right and not self._is_calm(group, row):
                    self._remember_if_coordinators(group, group_id, row)
            case RemovalCause.SYNC_DEADLINE:
                # The coordinator says that the member did not ask for its assignment in time. This
                # is untrue if the member has reported that it got the assignment.
                stated = self._presence.stable_as(row.member)
                if stated is None or stated.generation != row.generation:
                    self._remember_if_coordinators(group, group_id, row)
            case RemovalCause.LEAVE:
                self._remember_if_coordinators(group, group_id, row)
                group.watched_since = None  # the promise is about groups whose members all survive
            case RemovalCause.DID_NOT_REJOIN:
                if not self._report_early_removal(group, group_id, row):
                    self._remember_if_coordinators(group, group_id, row)
            case _:
                self._remember_if_coordinators(group, group_id, row)

    def _remember_if_coordinators(self, group: _Group, group_id: str, row: TraceRow) -> None:
        """Remember a row as a reason for a rebalance, if the coordinator or a zombie wrote it."""
        is_coordinator = row.node == self._coordinators.coordinator(group_id)
        if is_coordinator or self._coordinators.is_zombie(group_id, row.node):
            group.happened.append(row)

    def _report_early_expiry(self, group: _Group, group_id: str, expired: TraceRow) -> bool:
        """Report an expiry if the broker heard the member less than a session timeout before.

        Returns True if the expiry was reported.
        """
        heard = group.heard.get((expired.node, expired.member or ""))
        load = self._load_of(group_id, expired.node, expired.member)
        # The later of the two rows began the session. A row of a former process of the broker does
        # not count, because the present process has begun all sessions anew.
        last = max(
            (
                row
                for row in (heard, load)
                if row is not None and row.incarnation == expired.incarnation
            ),
            key=lambda row: row.time_us,
            default=None,
        )
        if last is None:
            return False
        # `node_time_us` is the time by the node's own clock. One node wrote both rows, so there is
        # no difference of clocks. But a busy machine may read its clock late, and the clock error
        # allows for that.
        silent_us = expired.node_time_us - last.node_time_us
        if silent_us >= group.expected.eviction_us - self.context.clock_error_us:
            return False
        since = "the group's load" if last is load else "its last request"
        self.report_finding(
            f"{group_id}: {expired.node} expired {expired.member} {seconds(silent_us)} after "
            f"{since}, while a session takes {seconds(group.expected.eviction_us)}",
            [last, *([] if group.watched_since is None else [group.watched_since]), expired],
            group=group_id,
        )
        # A rebalance will follow as a consequence of the reported expiry. So it is not judged.
        group.watched_since = None
        return True

    def _report_early_removal(self, group: _Group, group_id: str, removed: TraceRow) -> bool:
        """Report the removal of a member that still had time to rejoin.

        Returns True if the removal was reported.
        """
        began = group.began.get(removed.node)
        # If the broker has restarted since this rebalance began, the removal belongs to another
        # rebalance.
        if began is None or began.incarnation != removed.incarnation:
            return False
        lasted_us = removed.node_time_us - began.node_time_us
        least_us = group.expected.max_poll_interval_us
        if lasted_us >= least_us - self.context.clock_error_us:
            return False
        self.report_finding(
            f"{group_id}: {removed.node} removed {removed.member}, which had not rejoined, "
            f"{seconds(lasted_us)} after the rebalance began, while a member may take "
            f"{seconds(least_us)}",
            [began, removed],
            group=group_id,
        )
        group.watched_since = None  # as in `_report_early_expiry`
        return True

    def _load_of(self, group_id: str, broker: str, member: str | None) -> TraceRow | None:
        """Return the last load of the group by a broker, if the load gave the member a session.

        A load gives a session to each member of the loaded group. If the row GROUP_LOADED has no
        list of members, the member may have been in the group, so the load is returned. The result
        is None if there is no such load.
        """
        load = self._coordinators.loaded(broker, group_id)
        members = None if load is None else detail_of(load).get("members")
        return None if isinstance(members, list) and member not in members else load

    def _is_calm(self, group: _Group, expired: TraceRow) -> bool:
        """Return True if a Stable member was silent although nothing was broken for a long time."""
        stated = self._presence.stable_as(expired.member)
        # A fault that is over may still be to blame, because one request of the member may have
        # been lost in the fault. The member notices this at the request's timeout, and then sends
        # the next request. If the next request does not come within another session timeout, the
        # fault is not to blame.
        calm_us = group.expected.session_timeout_us + group.expected.request_timeout_us
        since_us = expired.time_us - calm_us - self.context.clock_error_us
        return stated is not None and stated.time_us < since_us and not self._faults.since(since_us)

    # -- steps of a group ---------------------------------------------------------------------

    def _observe_group(self, group: _Group, group_id: str, row: TraceRow) -> None:
        """Judge a broker's row about a removal or a rebalance, and follow the group."""
        is_its_coordinator = row.node == self._coordinators.coordinator(group_id)
        match row.kind:
            case TraceKind.GROUP_LOADED | TraceKind.MEMBER_ADDED:
                group.trail.append(row)
            case TraceKind.MEMBER_REMOVED:
                self._judge_removal(group, group_id, row)
            case TraceKind.REBALANCE_STARTED:
                group.began[row.node] = row
                if is_its_coordinator:  # a replaced coordinator rebalances only its own copy
                    self._judge_rebalance(group, group_id, row)
                # A rebalance is a reason for a later rebalance, but not for itself. So it is
                # remembered only after it has been judged.
                self._remember_if_coordinators(group, group_id, row)
            case TraceKind.GENERATION_STARTED if is_its_coordinator:
                self._judge_rebalance(group, group_id, row)
                group.happened = []
                group.generation = row
            case _:
                pass
        del group.trail[:-_TRAIL_ROWS]

    def _judge_rebalance(self, group: _Group, group_id: str, row: TraceRow) -> None:
        """Judge the first rebalance after the fault since which the group is watched."""
        fault, before = group.watched_since, group.stable_before
        if fault is None or before is None:
            return
        if row.kind == TraceKind.REBALANCE_STARTED:
            self._rebalances += 1
        # In the next case the row is GENERATION_STARTED. This row, too, shows a rebalance, even if
        # no REBALANCE_STARTED came before. But if the generation is the same as before the fault,
        # there was no rebalance.
        elif row.generation == before.generation:
            return
        group.watched_since = None
        reasons = group.happened
        if not reasons and (given_up := self._late_join(row)) is not None:
            self._late_joins += 1
            reasons = [given_up]
        if reasons:
            needed_by = reasons[-1]
            self._needed.append(
                f"{group_id} at {seconds(row.time_us)}: {needed_by.node}, "
                f"{seconds(needed_by.time_us)}: {describe_event(needed_by)}"
            )
            return
        reason = f" because {row.explanation}" if row.explanation else ""
        self.report_finding(
            f"{group_id} was Stable and all its members survived {fault.cause or 'the fault'}, "
            f"yet {row.node} began a rebalance{reason}",
            [before, fault, *(step for step in group.trail if step.time_us >= fault.time_us), row],
            group=group_id,
        )

    def _late_join(self, rebalance: TraceRow) -> TraceRow | None:
        """Return the row in which a member gave up the JoinGroup that began a rebalance.

        As the member is still Stable, it has sent no other JoinGroup since it became Stable. The
        result is None if there is no such row.
        """
        if rebalance.cause != RebalanceCause.REJOIN:
            return None
        stable = self._presence.stable_as(rebalance.member)
        if stable is None:
            return None
        given_up = self._given_up.get((stable.node, rebalance.node))
        return given_up if given_up is not None and given_up.time_us <= stable.time_us else None

    # -- the end ------------------------------------------------------------------------------

    def measured(self) -> dict[str, int]:
        """Return the number of rebalances after failovers, and the number of needed ones."""
        return {
            "rebalances_after_faults": self._rebalances,
            "rebalances_that_were_needed": len(self._needed),
        }

    def finish(self) -> CheckReport:
        """Report; each rebalance was judged at its beginning."""
        excused = {HALF_LOAD: self._refused_from_half, LATE_JOIN: self._late_joins}
        note = "; ".join(f"a rebalance was needed in {case}" for case in self._needed)
        return self.report(
            judged=self._watched,
            seen={
                "failovers_of_a_stable_group": self._watched,
                "needless_rebalances": self.findings_total,
                "rebalances_that_were_needed": len(self._needed),
            },
            note=note if self._watched else "no fault on servers met a Stable group",
            excused={excuse: cases for excuse, cases in excused.items() if cases} or None,
        )
