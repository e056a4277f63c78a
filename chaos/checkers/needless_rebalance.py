"""Needless rebalance: the failover of a Stable group whose members all survive needs no rebalance.

In a rebalance the members join the group again and get new partitions; the generation is the number
of a group's rebalance. In a failover the new coordinator loads the members and the generation from
the log, and accepts the members' next heartbeat or commit. Real Kafka does so, too
(docs/kafka/MEASURED_FAILOVER.md, section 6). A zombie is a coordinator that does not know yet that
it was replaced. Citations name sections of docs/kafka/BEHAVIOUR.md.

A fault is judged if it hits only servers. At the fault, a group and its members must be Stable (no
rebalance is in progress) in one generation, and nothing must have happened to a member in this
generation. The group is watched from the fault to the next rebalance that its coordinator begins,
or until a fault hits a member. If no row before the rebalance shows a reason, the rebalance is a
finding. These rows show that it is needed:

1. A session that ended: the coordinator removed a member that was silent for its session timeout
   (an expiry). An expiry is right if and only if, for a session timeout, the broker neither
   restarted the member's session (SESSION_RESTARTED) nor loaded the group. Any other expiry is a
   finding by itself. A right expiry makes a rebalance needed, except in calm times: the member
   reports that it is Stable, and nothing has been broken for the sum of a session timeout and a
   request timeout. In calm times a member has no reason to be silent.
2. A removal for another reason: a member left, an administrator removed it, or a static member
   (with a configured `group.instance.id`) returned under a new member id. A removal by the sync
   deadline (the member did not ask for its assignment in time) counts only if no consumer got an
   assignment under that id. A coordinator may remove a member that did not rejoin when a rebalance
   has lasted for the shortest `max.poll.interval.ms` of the group. An earlier removal is always a
   finding.
3. A member that is not Stable any more: by itself (it missed its poll), or because a broker refused
   it. A refusal counts if the member had been removed before, or is of another generation. Refusals
   by two kinds of coordinators always count: by a zombie (BEHAVIOUR 6.6 i), and by a coordinator
   that lost the leadership during its load (`half_loads`).
4. An earlier rebalance that a replaced coordinator began, or that a failover cut short. It had
   already asked members to rejoin. The log does not show this, so the new coordinator cannot know
   it.
5. The end or start of a member's process, or a fault that is an order to the groups.

If the group's partition loses data with the last in-sync replica (`lost_data`), the facts about the
group are discarded. Its generation is then the one that the coordinator loads next, and the refusal
of a member of the lost generation has a reason.
"""

from dataclasses import dataclass, field

from chaos.checkers.base import Checker
from chaos.checkers.context import CheckContext, GroupExpectation, detail_of
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.evidence.coordinators import COORDINATOR_KINDS
from chaos.checkers.evidence.faults_in_force import FAULT_KINDS
from chaos.checkers.evidence.living_members import PRESENCE_KINDS
from chaos.checkers.evidence.lost_data import LOSS_KINDS
from protocol.causes import MemberStateCause, RemovalCause
from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import describe_event, seconds
from results_schema.results import CheckReport

STABLE = "Stable"
"""State of a group without a rebalance."""
MEMBER_STABLE = "STABLE"
"""State of a member that has its assignment."""
HALF_LOAD = "refusal by a coordinator that lost its log while it loaded it"
"""Name of an excuse in the report."""
OWN_DOING = frozenset({MemberStateCause.MISSED_POLL, MemberStateCause.LEFT})
"""Causes for which a member stops being Stable by itself."""
_TRAIL_ROWS = 12
"""Limit of the rows about a group that a finding shows."""


@dataclass(slots=True)
class _Group:
    """A group of the experiment. The checker watches the group while `watched_since` is set."""

    expected: GroupExpectation
    watched_since: TraceRow | None = None  # the row of the fault
    stable_before: TraceRow | None = None  # the row that made the group Stable before the fault
    happened: list[TraceRow] = field(default_factory=list)  # rows that make a rebalance needed
    trail: list[TraceRow] = field(default_factory=list)  # evidence: rows since the fault
    # the row that began the present generation or, after a loss, loaded it
    generation: TraceRow | None = None
    # (broker, member) -> the last SESSION_RESTARTED: the broker's last request from the member
    heard: dict[tuple[str, str], TraceRow] = field(default_factory=dict)
    began: dict[str, TraceRow] = field(default_factory=dict)  # broker -> its last rebalance
    lost_at_us: int = -1  # last loss of data of the group's partition; older facts do not count

    def has(self, member: str | None, generation: int | None) -> bool:
        """Return True if `generation` is the current one and has the member.

        If the trace does not show the current generation, the answer is True.
        """
        began = self.generation
        if began is None:
            return True  # the trace lacks the generation's beginning
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
        self._refused_from_half = 0
        # consumer -> the broker that it takes for its coordinator
        self._believed_coordinator: dict[str, str] = {}
        self._over = False  # from the stage "stopping" on, the driver stops every node
        self._watched = 0  # number of watched failovers
        self._rebalances = 0  # number of rebalances that ended a watch
        self._needed: list[str] = []  # a text for each rebalance that was needed

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
            case TraceKind.LOAD_COMPLETED:
                self._take_loaded_generations(row)
            case TraceKind.RUN_STAGE:
                self._over = detail_of(row).get("stage") == "stopping"
            case TraceKind.FAULT_INJECTED:
                self._observe_fault(row)
            case TraceKind.NODE_KILLED | TraceKind.NODE_STOPPED | TraceKind.NODE_STARTED:
                self._observe_node(row)
            case _ if group is not None:
                self._observe_group(group, row.group or "", row)
            case _:
                pass

    # -- watched groups -----------------------------------------------------------------------

    def _observe_fault(self, row: TraceRow) -> None:
        """Begin to watch the Stable groups that the fault does not hit; stop for those it hits."""
        detail = detail_of(row)
        # A fault on links names its nodes by the two ends of the links.
        nodes = [
            row.peer or "",
            *(node for end in ("nodes", "from", "to") for node in detail.get(end, ())),
        ]
        hit_groups = {self._presence.group_of(node) for node in nodes} - {None}
        # An order, such as `remove_members`, hits a server, and yet gives members a reason to
        # rejoin. So it is not watched as a failover.
        is_order = detail.get("members_survive") is not True and not hit_groups
        for group_id, group in self._groups.items():
            if is_order:
                group.happened.append(row)
            if is_order or group_id in hit_groups:
                group.watched_since = None
            elif group.watched_since is None:
                self._watch_if_stable(group, group_id, row)

    def _watch_if_stable(self, group: _Group, group_id: str, fault: TraceRow) -> None:
        """Begin to watch a group if it is Stable, and no consumer has reported another state.

        A consumer counts as Stable only in the group's present generation. If it is Stable in an
        earlier one, it was removed and does not know it yet, for example because a zombie answers
        its heartbeats. It will join again.
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

        The next load shows which groups are left, but only later.
        """
        for group in self._groups.values():
            if group.expected.offsets_partition == election.partition:
                group.watched_since = None
                group.lost_at_us = election.time_us

    def _take_loaded_generations(self, load: TraceRow) -> None:
        """Take the generation of each loaded group whose own one was lost with the data.

        The rows GROUP_LOADED of a load come before its LOAD_COMPLETED, with which the broker
        becomes the coordinator.
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
        """Remember a member that stopped being Stable by itself or was refused with a reason.

        A refusal without a reason is an error of the coordinator, and makes no rebalance needed.
        """
        if detail_of(row).get("from") != MEMBER_STABLE:
            return
        group.trail.append(row)
        if row.cause in OWN_DOING:
            group.happened.append(row)
            return
        if row.error is None:
            return  # the member rejoins because its coordinator began a rebalance
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
        """Report a removal that came too early; remember one that makes a rebalance needed."""
        group.trail.append(row)
        match row.cause:
            case RemovalCause.SESSION_EXPIRY:
                is_right = not self._report_early_expiry(group, group_id, row)
                if is_right and not self._is_calm(group, row):
                    self._remember_if_coordinators(group, group_id, row)
            case RemovalCause.SYNC_DEADLINE:
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
        """Remember a row of the coordinator or of a zombie; ignore rows of other brokers."""
        is_coordinator = row.node == self._coordinators.coordinator(group_id)
        if is_coordinator or self._coordinators.is_zombie(group_id, row.node):
            group.happened.append(row)

    def _report_early_expiry(self, group: _Group, group_id: str, expired: TraceRow) -> bool:
        """Report an expiry if the broker heard the member less than a session timeout before.

        Returns True if the expiry was reported.
        """
        heard = group.heard.get((expired.node, expired.member or ""))
        load = self._load_of(group_id, expired.node, expired.member)
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
        # Both rows have the same clock. The clock error allows for the delay with which a busy
        # machine reads this clock.
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
        # The rebalance that follows has this cause, so it is no finding of its own.
        group.watched_since = None
        return True

    def _report_early_removal(self, group: _Group, group_id: str, removed: TraceRow) -> bool:
        """Report a removal that came before the end of the time that members have to rejoin."""
        began = group.began.get(removed.node)
        # A rebalance of an earlier process of the broker has no part in this removal.
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
        """Return the last GROUP_LOADED of a broker, or None if the loaded group lacks the member.

        If the row has no list of members, the group may have had the member, so the row counts.
        """
        load = self._coordinators.loaded(broker, group_id)
        members = None if load is None else detail_of(load).get("members")
        return None if isinstance(members, list) and member not in members else load

    def _is_calm(self, group: _Group, expired: TraceRow) -> bool:
        """Return True if a Stable member was silent although nothing was broken for a long time."""
        stated = self._presence.stable_as(expired.member)
        # One request may have been lost with the last fault. The member notices this after the
        # request's timeout. Then it has a whole session timeout for the next request.
        calm_us = group.expected.session_timeout_us + group.expected.request_timeout_us
        since_us = expired.time_us - calm_us - self.context.clock_error_us
        return stated is not None and stated.time_us < since_us and not self._faults.since(since_us)

    # -- steps of a group ---------------------------------------------------------------------

    def _observe_group(self, group: _Group, group_id: str, row: TraceRow) -> None:
        """Follow a row of a broker about a group; judge removals and rebalances."""
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
                # After the judgement, because a rebalance is no reason for itself.
                self._remember_if_coordinators(group, group_id, row)
            case TraceKind.GENERATION_STARTED if is_its_coordinator:
                self._judge_rebalance(group, group_id, row)
                group.happened = []
                group.generation = row
            case _:
                pass
        del group.trail[:-_TRAIL_ROWS]

    def _judge_rebalance(self, group: _Group, group_id: str, row: TraceRow) -> None:
        """Judge the first rebalance after a fault."""
        fault, before = group.watched_since, group.stable_before
        if fault is None or before is None:
            return
        if row.kind == TraceKind.REBALANCE_STARTED:
            self._rebalances += 1
        # A generation that begins without a row REBALANCE_STARTED counts as a rebalance, too,
        # unless it is the generation from before the fault.
        elif row.generation == before.generation:
            return
        group.watched_since = None
        if group.happened:
            needed_by = group.happened[-1]
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

    # -- the end ------------------------------------------------------------------------------

    def measured(self) -> dict[str, int]:
        """Return the number of rebalances after failovers, and the number of needed ones."""
        return {
            "rebalances_after_faults": self._rebalances,
            "rebalances_that_were_needed": len(self._needed),
        }

    def finish(self) -> CheckReport:
        """Report; each rebalance was judged at its beginning."""
        note = "; ".join(f"a rebalance was needed in {case}" for case in self._needed)
        return self.report(
            judged=self._watched,
            seen={
                "failovers_of_a_stable_group": self._watched,
                "needless_rebalances": self.findings_total,
                "rebalances_that_were_needed": len(self._needed),
            },
            note=note if self._watched else "no fault on servers met a Stable group",
            excused={HALF_LOAD: self._refused_from_half} if self._refused_from_half else None,
        )
