"""Needless rebalance: a failover of a Stable group whose members all survive causes none.

The new coordinator loads members and generation from the log, and their next heartbeat or commit
is accepted (MEASURED_FAILOVER 6). Judged from each fault that hit servers only, to the end
of the run or to the first change of the group's own making: a member that was hit, left, or came.

Living members may still be out of hearing for a session, so that the rebalance is needed; it is
counted, and the note says why:

* the old coordinator lives on behind a cut, and they stay with it;
* `session_silence` knows why: heartbeats behind commits, a long search, a stopped coordinator;
* the group was lost with the last replica in sync (`lost_data`), or what it had become;
* a coordinator that was replaced began a rebalance, and told them to rejoin; or it told them that
  it does not know them (standard space, seeds 16282 and 19542);
* a coordinator expired them whose view of the group was never stored, because it was not the
  coordinator any more (BEHAVIOUR 6.6 i) or was lost before the group had rebalanced: the next one
  loads them as members, and they come as new ones, or what they were expires.

A rebalance that was begun and not ended is owed still: the group is watched from the next
generation on (BEHAVIOUR 0: what a failover loses is an unfinished rebalance). So is one whose last
answer has not come: the coordinator is Stable, and a member that waits for its SyncGroup will ask
again from the beginning (standard space, seed 1041). And so is one in which a static member came
back, after the generation began, before its old id had sent a SyncGroup: the coordinator waits for
that of the old id, as Kafka's does (BEHAVIOUR 4.4: pendingSync is not re-keyed).
"""

from dataclasses import dataclass, field

from chaos.checkers.base import CheckContext, Checker, GroupExpectation, detail_of
from chaos.checkers.evidence.coordinators import COORDINATOR_KINDS, CoordinatorView
from chaos.checkers.evidence.faults_in_force import FAULT_KINDS, FaultsInForce, is_momentary
from chaos.checkers.evidence.living_members import PRESENCE_KINDS, Presence
from chaos.checkers.evidence.lost_data import LOSS_KINDS, LostData
from chaos.checkers.evidence.session_silence import HEARING_KINDS, Hearing
from protocol.causes import RebalanceCause, RemovalCause
from protocol.errors import ErrorCode
from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import seconds
from results_schema.results import CheckReport

STABLE = "Stable"
MEMBER_STABLE = "STABLE"
_FOR_EVER_US = 2**62


@dataclass(slots=True)
class _Group:
    """The fault under which a group is watched, and what was seen since."""

    expected: GroupExpectation
    watched_since: TraceRow | None = None  # the fault
    stable_before: TraceRow | None = None  # the row that made it Stable before the fault
    trail: list[TraceRow] = field(default_factory=list)  # what led to a rebalance
    unsettled_generation: int = -1  # up to here it may owe a rebalance to a member of its own
    hit_members: dict[str, None] = field(default_factory=dict)  # faults in force on its members
    unsettled_until_us: int = 0  # until then their sessions may end
    told: TraceRow | None = None  # a rebalance that another coordinator began since
    expelled: dict[str, TraceRow] = field(default_factory=dict)  # since the last generation
    sent_away: dict[str, TraceRow] = field(default_factory=dict)  # consumers, by a zombie
    lost_at_us: int = -1  # what was known of it before is gone with the data of its partition


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
            *HEARING_KINDS,
            TraceKind.RUN_STAGE,
            TraceKind.REBALANCE_STARTED,
            TraceKind.MEMBER_STATE,
            TraceKind.COORDINATOR_FOUND,
        }
    )

    def __init__(self, context: CheckContext) -> None:
        super().__init__(context)
        self._groups = {group_id: _Group(known) for group_id, known in context.groups.items()}
        self._coordinators = CoordinatorView(context)
        self._presence = Presence(context)
        self._faults = FaultsInForce(context)
        self._lost_data = LostData()
        self._hearing = Hearing(self._faults)
        self._member_states: dict[str, str] = {}  # consumer -> what it says of itself
        self._believed: dict[str, str] = {}  # consumer -> whom it takes for its coordinator
        self._over = False
        self._watched = 0
        self._rebalances = 0
        self._explained: list[str] = []

    def observe(self, row: TraceRow) -> None:
        """Take in a fault or a step of a group."""
        if self._over:
            return
        if row.kind in HEARING_KINDS:
            self._hearing.observe(row)
        self._coordinators.observe(row)
        if row.kind in FAULT_KINDS:
            self._faults.observe(row)
        if row.kind in LOSS_KINDS and self._lost_data.observe(row):
            self._lost(row)
        match row.kind:
            case TraceKind.RUN_STAGE:
                self._over = detail_of(row).get("stage") == "stopping"
            case TraceKind.FAULT_INJECTED:
                self._fault(row)
            case TraceKind.FAULT_HEALED:
                self._members_recover(row.cause or "", row)
            case TraceKind.NODE_PAUSED | TraceKind.NODE_RESUMED:
                self._paused_or_resumed(row)
            case TraceKind.NODE_KILLED | TraceKind.NODE_STOPPED | TraceKind.NODE_STARTED:
                self._member_states.pop(row.peer or row.node, None)
                self._node_changed(row)
            case TraceKind.COORDINATOR_FOUND:
                self._believed[row.node] = row.peer or ""
            case TraceKind.MEMBER_STATE:
                self._member_states[row.node] = str(detail_of(row).get("to"))
                self._sent_away(row)
            case _:
                group = self._groups.get(row.group or "")
                if group is not None:
                    self._group_step(group, row)

    # -- what is watched ----------------------------------------------------------------------

    def _fault(self, row: TraceRow) -> None:
        detail = detail_of(row)
        hit = [row.peer or ""]
        for end in ("nodes", "from", "to"):
            hit += detail.get(end, ())
        concerned = {
            group_id: None
            for node in hit
            if (group_id := self._presence.group_of(node)) is not None
        }
        if detail.get("members_survive") is not True and not concerned:
            concerned = dict.fromkeys(self._groups)
        for group_id, group in self._groups.items():
            if group_id in concerned:
                self._members_hit(group_id, row.cause or "")
                if is_momentary(row):
                    self._members_recover(row.cause or "", row)
                continue
            seen = self._coordinators.state(group_id)
            if (
                seen is not None
                and seen.state == STABLE
                and seen.row.time_us >= group.lost_at_us
                and (seen.row.generation or 0) > group.unsettled_generation
                and row.time_us >= group.unsettled_until_us
                and group.watched_since is None
                and self._is_whole(group_id)
                and self._has_its_assignments(group_id)
            ):
                group.watched_since = row
                group.stable_before = seen.row
                group.trail = []
                self._watched += 1

    def _lost(self, election: TraceRow) -> None:
        """Stop watching the groups of a partition that lost data: they may be gone.

        Also before the next load has shown it (standard space, seed 2768).
        """
        for group in self._groups.values():
            if group.expected.offsets_partition == election.partition:
                group.watched_since = None
                group.lost_at_us = election.time_us

    def _is_whole(self, group_id: str) -> bool:
        """Whether its coordinator has as many members as there are: else somebody will come or go.

        One that died while its JoinGroup waited is in the next generation too, with a session to
        end after it (BEHAVIOUR 3.5; standard space, seed 5008).
        """
        members = self._coordinators.members(group_id)
        return members is None or len(members) == len(self._presence.present(group_id))

    def _has_its_assignments(self, group_id: str) -> bool:
        """Whether its members are where the coordinator is, as far as they say."""
        return all(
            self._member_states.get(consumer, MEMBER_STABLE) == MEMBER_STABLE
            for consumer in self._presence.present(group_id)
        )

    def _members_hit(self, group_id: str, fault: str) -> None:
        """Stop watching a group some of whose members may not be heard."""
        group = self._groups[group_id]
        group.watched_since = None
        group.hit_members[fault] = None
        group.unsettled_until_us = _FOR_EVER_US

    def _members_recover(self, fault: str, row: TraceRow) -> None:
        """Let a session pass before a group is watched again: it may still end, or they rejoin."""
        for group in self._groups.values():
            if fault in group.hit_members:
                del group.hit_members[fault]
                if not group.hit_members:
                    group.unsettled_until_us = row.time_us + group.expected.session_timeout_us

    def _paused_or_resumed(self, row: TraceRow) -> None:
        node = row.peer or ""
        is_paused = row.kind == TraceKind.NODE_PAUSED
        group_id = self._presence.group_of(node)
        if group_id is None:
            return
        if is_paused:
            self._members_hit(group_id, f"paused {node}")
        else:
            self._members_recover(f"paused {node}", row)

    def _sent_away(self, row: TraceRow) -> None:
        """Note a member whom a zombie told that it is none."""
        group_id = self._presence.group_of(row.node)
        if group_id is None or row.error != ErrorCode.UNKNOWN_MEMBER_ID.name:
            return
        if self._coordinators.is_zombie(group_id, self._believed.get(row.node, "")):
            self._groups[group_id].sent_away[row.node] = row

    def _node_changed(self, row: TraceRow) -> None:
        """Stop watching a group when one of its members dies, stops or is started.

        Until the group learns of it, it is Stable and yet owes a rebalance: it is watched again
        only in a later generation.
        """
        group_id = self._presence.observe(row)
        if group_id is not None:
            group = self._groups[group_id]
            group.watched_since = None
            seen = self._coordinators.state(group_id)
            group.unsettled_generation = 0 if seen is None else seen.row.generation or 0

    # -- what a group does --------------------------------------------------------------------

    def _group_step(self, group: _Group, row: TraceRow) -> None:
        match row.kind:
            case TraceKind.GROUP_LOADED:
                group.trail.append(row)
            case TraceKind.MEMBER_REMOVED if row.cause == RemovalCause.LEAVE:
                group.watched_since = None
            case TraceKind.MEMBER_REMOVED | TraceKind.MEMBER_ADDED:
                group.trail.append(row)
                if row.kind == TraceKind.MEMBER_REMOVED:
                    group.expelled.setdefault(row.member or "", row)
            case TraceKind.REBALANCE_STARTED | TraceKind.GENERATION_STARTED:
                self._rebalance(group, row)
                self._owes(group, row)
            case _:
                pass
        del group.trail[:-12]

    def _owes(self, group: _Group, row: TraceRow) -> None:
        """Note what members have been told to do, by whichever coordinator, and not yet done."""
        is_coordinator = row.node == self._coordinators.coordinator(row.group or "")
        if row.kind == TraceKind.REBALANCE_STARTED:
            group.unsettled_generation = max(group.unsettled_generation, row.generation or 0)
            if not is_coordinator:
                group.told = row
        elif is_coordinator:
            group.expelled = {}
            group.sent_away = {}
            group.told = None

    def _rebalance(self, group: _Group, row: TraceRow) -> None:
        fault = group.watched_since
        if fault is None or row.group is None:
            return
        if row.node != self._coordinators.coordinator(row.group):
            return  # a zombie rebalances whom it cannot reach: its members have moved on
        before = group.stable_before
        if (
            row.kind == TraceKind.GENERATION_STARTED
            and before is not None
            and row.generation == before.generation
        ):
            return
        if row.kind == TraceKind.REBALANCE_STARTED:
            self._rebalances += 1
        group.watched_since = None
        explanation = self._explain(group, row.group, row)
        if explanation is not None:
            self._explained.append(f"{row.group} at {seconds(row.time_us)}: {explanation}")
            return
        reason = f" because {row.explanation}" if row.explanation else ""
        self.found(
            f"{row.group} was Stable and all its members survived {fault.cause or 'the fault'}, "
            f"yet {row.node} began a rebalance{reason}",
            [
                *([group.stable_before] if group.stable_before is not None else []),
                fault,
                *(step for step in group.trail if step.time_us >= fault.time_us),
                row,
            ],
            group=row.group,
        )

    def _explain(self, group: _Group, group_id: str, row: TraceRow) -> str | None:
        """Say why living members could not be heard for a session, or None if they could."""
        told = group.told
        if told is not None and row.cause == RebalanceCause.REJOIN:
            return (
                f"{row.member} rejoined, because {told.node}, which was not its coordinator any "
                f"more, had told it to at {seconds(told.time_us)}"
            )
        if row.cause == RebalanceCause.NO_SYNC_GROUP:
            return _explain_silence(group, detail_of(row)["silent_members"])
        last = group.trail[-1] if group.trail else None
        if last is None or last.node != row.node:
            return None
        if last.kind == TraceKind.MEMBER_ADDED:
            return self._explain_newcomer(group, group_id, last)
        if last.kind != TraceKind.MEMBER_REMOVED or last.cause != RemovalCause.SESSION_EXPIRY:
            return None
        expected = group.expected
        load = self._coordinators.load_of(group_id, row.node)
        before = group.expelled.get(last.member or "", last)
        in_office_us = self._coordinators.in_office_since_us(group_id)
        if before.node != last.node or before.time_us < in_office_us:
            return (
                f"{last.member} is nobody's any more: {before.node}, which was not its coordinator "
                f"then, had dropped it at {seconds(before.time_us)}"
            )
        shortest_us = expected.eviction_us - self.context.clock_error_us
        if load is not None and row.time_us < load.time_us + shortest_us:
            return None
        since_us = row.time_us - expected.session_timeout_us
        old = self._coordinators.other_coordinator(group_id, since_us)
        if old is not None and load is not None:
            return (
                f"{last.member} was not heard of for a session after {row.node} had loaded the "
                f"group: {old.node}, coordinator in epoch {old.leader_epoch}, still served it"
            )
        return self._hearing.explain(last, row.node, expected, self.context.clock_error_us)

    def _explain_newcomer(self, group: _Group, group_id: str, added: TraceRow) -> str | None:
        """The member was dropped by another coordinator than the one that has loaded it since.

        Or another did not know it.
        """
        detail = detail_of(added)
        begin = f"{detail.get('instance') or detail.get('client_id')}-"  # of its member ids
        in_office_us = self._coordinators.in_office_since_us(group_id)
        for member, expelled in group.expelled.items():
            if not member.startswith(begin):
                continue
            if expelled.node != added.node or expelled.time_us < in_office_us:
                return (
                    f"{member} came as a new member, because {expelled.node}, which was not its "
                    f"coordinator then, had dropped it at {seconds(expelled.time_us)}"
                )
        refusal = group.sent_away.get(str(detail.get("client_id")))
        if refusal is not None:
            return (
                f"{added.member} came as a new member, because a broker that was not its "
                f"coordinator any more had told it at {seconds(refusal.time_us)}: "
                f"{refusal.explanation}"
            )
        return None

    def measured(self) -> dict[str, int]:
        """Return how many rebalances followed failovers of Stable groups, and how many had to."""
        return {
            "rebalances_after_faults": self._rebalances,
            "rebalances_that_were_needed": len(self._explained),
        }

    def finish(self) -> CheckReport:
        """Report; a rebalance is judged when it begins."""
        note = "; ".join(f"a rebalance was needed in {each}" for each in self._explained)
        return self.report(
            judged=self._watched,
            seen={
                "failovers_of_a_stable_group": self._watched,
                "needless_rebalances": self.findings_total,
                "rebalances_that_were_needed": len(self._explained),
            },
            note=note if self._watched else "no fault on servers met a Stable group",
        )


def _explain_silence(group: _Group, members: list[str]) -> str | None:
    """Say since when members that owe a SyncGroup have other ids, None if one of them has not."""
    replaced = [group.expelled.get(member) for member in members]
    if not all(
        row is not None and row.cause == RemovalCause.STATIC_MEMBER_REPLACED for row in replaced
    ):
        return None
    since = ", ".join(seconds(row.time_us) for row in replaced if row is not None)
    return f"{', '.join(members)} owed a SyncGroup, and have other ids since {since}"
