"""Administration: the cluster carries out an administrator's orders.

Some faults in a run's plan are orders of an administrator: shut a broker down, move a leadership,
delete a group. Most rules below are about orders that are given "while nothing is broken". This
means that no other fault is in force, and that the consequences of earlier faults are over:
`settling_us` of the context has passed since the last fault ended, and since a leader last changed.

In a controlled shutdown a broker asks the controller to move its leaderships away. The broker stops
when the controller permits it (Source: Kafka BrokerHeartbeatManager, ReplicationControlManager).
Two rules are about shutdowns:

1. A broker that ends its controlled shutdown leads no partition. It is also in no ISR that has
   another member. Two kinds of brokers stop without the controller's permission, and are not
   judged: a broker that was not running yet, and a broker that has waited for
   CONTROLLED_SHUTDOWN_TIMEOUT_US and given up (Source: Kafka BrokerLifecycleManager).
2. A controlled shutdown that begins while nothing is broken ends by itself, unless another fault
   begins meanwhile. If the shutdown does not end, the run kills the broker some time later.

An administrator may order elections. Two rules are about such orders:

3. The controller elects the leader that the fault `leadership_move` asks for, or it refuses. At the
   end of the run the trace (the run's recorded rows) shows the election or the refusal.
4. The controller refuses no election that is ordered while nothing is broken. (The run chooses the
   new leader just before the order, among the replicas that are in sync and alive.)

Two rules are about orders that concern a group (GROUP_ORDERS):

5. An order that is given while nothing is broken is carried out, or is refused with an error that
   fits the group's state (`_fits`). The order also gets its answer in time, unless another fault
   begins or a leader changes meanwhile. Some errors are never right, whatever is broken
   (_NEVER_RIGHT).
6. An order that is carried out has its effect on the group (`evidence.orders.group_effects`).

Three rules are about orders that concern topics:

7. A deletion that is ordered while nothing is broken is carried out, unless the topic was deleted
   before.
8. A creation that is ordered while nothing is broken is carried out, or is refused with an error
   that fits: the topic exists already, or the order's numbers are not possible. Some errors must
   fit even if something is broken (`evidence.orders.topic_creations`).
9. A creation that is carried out has its effect: the topic has the ordered partitions, each with
   different replicas and a leader among those in sync.

In the trace, an order is a row FAULT_INJECTED, with the fault's id as `cause`. If it was refused or
got no answer, a row FAULT_MISSED with the same `cause` follows. For an order that was carried out
there is no second row.

All rules are judged only in virtual time (the run's own simulated clock). In real time a busy
machine can delay a shutdown, and the cluster can change between the choice of a new leader and the
order.
"""

from dataclasses import dataclass
from itertools import chain

from chaos.checkers.base import Checker
from chaos.checkers.context import HEALED_STAGE, CheckContext, detail_of, topic_of
from chaos.checkers.evidence.board import Evidence
from chaos.checkers.evidence.coordinators import COORDINATOR_KINDS
from chaos.checkers.evidence.faults_in_force import FAULT_KINDS
from chaos.checkers.evidence.orders.group_effects import (
    EFFECT_KINDS,
    GROUP_ORDERS,
    REMOVE_MEMBERS,
    GroupEffects,
)
from chaos.checkers.evidence.orders.topic_creations import CREATE_TOPIC, TopicCreation
from chaos.checkers.evidence.replicas import LEADERSHIP_MOVE, REPLICA_KINDS
from cluster.broker.node import CONTROLLED_SHUTDOWN_TIMEOUT_US
from protocol.errors import ErrorCode
from protocol.trace import TraceKind, TraceRow
from results_schema.evidence_text import seconds
from results_schema.results import CheckReport

# Names of faults of the plan.
DELETE_TOPIC = "delete_topic"
PREFERRED_LEADER_ELECTION = "preferred_leader_election"
_ELECTIONS = frozenset({LEADERSHIP_MOVE, PREFERRED_LEADER_ELECTION})
_NEVER_RIGHT = frozenset({ErrorCode.NONE.name, ErrorCode.UNKNOWN_SERVER_ERROR.name})
"""Errors with which no order may be refused, whatever is broken: they show a bug.

NONE is among them because a refusal must name an error.
"""
_WITHOUT_MEMBERS = frozenset({None, "Empty", "Dead"})
"""States of a group that has no members. None stands for a group that its coordinator lacks."""
_REBALANCING = frozenset({"PreparingRebalance", "CompletingRebalance"})
"""States of a group whose members rejoin, to get new partitions."""


@dataclass(slots=True)
class _Order:
    """An order without an outcome so far."""

    row: TraceRow
    """FAULT_INJECTED, or NODE_STOPPING of a shutdown."""
    must_succeed: bool
    """True if nothing was broken that can make the order fail.

    Then a refusal is a finding, and so is a shutdown that does not end.
    """
    state: str | None = None
    """State of the group when the order was given, for an order about a group."""


class Administration(Checker):
    """Controlled shutdowns, ordered elections and orders to groups and topics are carried out."""

    name = "administration"
    promise = (
        "a broker that ends its controlled shutdown leads no partition and is in no ISR beside "
        "another replica, and an election that an administrator orders is held or refused; while "
        "nothing is broken, shutdowns end, no election is refused, and an order about a group is "
        "answered as the group's state asks for; an order that is carried out has its effect, and "
        "the creation of a topic is refused only for a reason (all judged in virtual time)"
    )
    kinds = frozenset(
        {
            TraceKind.RUN_STAGE,
            TraceKind.NODE_STOPPED,
            TraceKind.FAULT_MISSED,
            TraceKind.TOPIC_DELETED,
            *FAULT_KINDS,
            *REPLICA_KINDS,
            *COORDINATOR_KINDS,
            *EFFECT_KINDS,
        }
    )

    def __init__(self, context: CheckContext, evidence: Evidence | None = None) -> None:
        super().__init__(context, evidence)
        self._replicas = self.evidence.replicas
        self._coordinators = self.evidence.coordinators
        consumers = [known.consumers for known in context.groups.values()]
        consumers += [known.consumers for known in context.zookeeper_groups.values()]
        self._consumers = frozenset(chain.from_iterable(consumers))
        self._shutdowns: dict[str, _Order] = {}  # by broker
        self._elections: dict[str, _Order] = {}  # by fault id
        # The order about a group that has no answer yet. There is only one such order at a time,
        # because the run waits for the answer before it injects the next fault.
        self._group_order: _Order | None = None
        self._effects = GroupEffects(context)  # the changes of the group since `_group_order`
        self._topic_orders: dict[str, _Order] = {}  # deletions, by fault id
        self._deleted_topics: dict[str, None] = {}  # topics that were not created again
        # The order to create a topic that has no answer yet. Again there is only one at a time.
        self._creation: TopicCreation | None = None
        self._leader_changed_us = 0
        self._was_nothing_broken = False  # True if nothing was broken just before the last fault
        self._is_healed = False  # True from the healing on. By then every order has its answer.
        # True from the moment at which the run stops all nodes. These stops are no orders.
        self._is_over = False
        self._ended_shutdowns = 0
        self._ended_elections = 0
        self._group_orders = 0
        self._topic_orders_total = 0

    def judge(self, row: TraceRow) -> None:
        """Follow orders, their outcomes and the faults between them; judge each outcome."""
        if self._is_over or not self.context.in_virtual_time:
            return
        if row.kind in EFFECT_KINDS:
            self._effects.observe(row)
            return
        match row.kind:
            case TraceKind.RUN_STAGE:
                stage = detail_of(row).get("stage")
                if stage == HEALED_STAGE:
                    self._is_healed = True
                    self._judge_group_effects()
                    self._judge_creation()
                self._is_over = stage == "stopping"
            case TraceKind.FAULT_INJECTED:
                self._injected(row)
            case TraceKind.FAULT_MISSED:
                # The fault may be an order that was refused. If it is no order, `_refused` ignores
                # the row.
                self._refused(row)
            case TraceKind.LEADER_ELECTED:
                self._elected(row)
            case TraceKind.TOPIC_DELETED:
                self._deleted_topics[detail_of(row).get("topic", "")] = None
                if self._creation is not None:
                    self._creation.observe(row)
            case TraceKind.NODE_STOPPING if row.peer in self._consumers:
                pass  # a rollout kills a consumer at the end of its grace period
            case TraceKind.NODE_STOPPING:
                # The shutdown's row FAULT_INJECTED came just before this row. At that row
                # `_injected` found out whether anything was broken. Now the shutdown itself counts
                # as a fault in force, so something would always be broken.
                self._shutdowns[row.peer or ""] = _Order(row, self._was_nothing_broken)
            case TraceKind.NODE_STOPPED:
                self._stopped(row)
            case TraceKind.NODE_KILLED:
                self._killed(row)
            case _:
                pass

    # -- orders --------------------------------------------------------------------------------

    def _injected(self, row: TraceRow) -> None:
        """Remember an order, and whether anything was broken before this fault."""
        self._was_nothing_broken = self._is_nothing_broken_before(row)
        for order in self._shutdowns.values():
            order.must_succeed = False  # this fault may prevent the end of the shutdown
        # The run injects a fault only after the former order has ended. So this order is judged
        # now.
        self._judge_group_effects()
        self._judge_creation()
        detail = detail_of(row)
        if detail.get("fault") in _ELECTIONS:
            self._elections[row.cause or ""] = _Order(row, self._was_nothing_broken)
        elif detail.get("fault") == DELETE_TOPIC:
            # If an earlier order has deleted the topic, the controller rightly refuses this order.
            is_there = _topics_of(row).isdisjoint(self._deleted_topics)
            self._topic_orders_total += 1
            self._topic_orders[row.cause or ""] = _Order(row, self._was_nothing_broken and is_there)
        elif detail.get("fault") == CREATE_TOPIC:
            topic = detail.get("topic")
            self._topic_orders_total += 1
            self._creation = TopicCreation(
                row,
                must_succeed=self._was_nothing_broken,
                exists=any(topic_of(name) == topic for name in self._replicas.partitions),
            )
        elif detail.get("fault") in GROUP_ORDERS:
            (group_id,) = detail["groups"]  # such an order is about one group
            self._group_orders += 1
            self._group_order = _Order(row, self._was_nothing_broken, self._state(group_id))
            self._effects.begin(
                group_id,
                str(detail["fault"]),
                self._coordinators.coordinator(group_id),
                self._coordinators.members(group_id),
            )

    def _is_nothing_broken_before(self, fault: TraceRow) -> bool:
        """Return True if no other fault was in force, and the last fault's consequences were over.

        `settling_us` is the longest time in which consequences end.
        """
        # The evidence has already seen that this fault began. So `quiet_since_us` may be None only
        # because of this fault itself. `was_quiet_since_us` is its value before this row.
        quiet_us = self._faults.was_quiet_since_us
        if quiet_us is None:
            return False  # a fault was in force
        if quiet_us == 0:
            return True  # there was no fault so far, so nothing has to settle
        last_change_us = max(quiet_us, self._leader_changed_us)
        return fault.time_us > last_change_us + self.context.settling_us

    def _elected(self, row: TraceRow) -> None:
        """Count the elections that were ordered and are carried out with this row.

        A leadership move is about one partition, so it is done with this row. An order to elect
        preferred leaders may be about several partitions, each with a row LEADER_ELECTED of its
        own. So such an order is kept, and `finish` does not ask for its outcome.
        """
        self._leader_changed_us = row.time_us
        if self._creation is not None:
            self._creation.observe(row)
        # If the topic was deleted before, it has been created again.
        self._deleted_topics.pop(topic_of(row.partition), None)
        if self._group_order is not None:
            # The new leader may be the coordinator of the group that the order is about. A
            # coordinator rightly refuses orders about a group while it loads the group.
            self._group_order.must_succeed = False
        for fault_id, order in list(self._elections.items()):
            detail = detail_of(order.row)
            if row.peer in detail.get("to", ()) and row.partition in detail.get("partitions", ()):
                self._ended_elections += 1
                if detail.get("fault") == LEADERSHIP_MOVE:
                    del self._elections[fault_id]

    def _refused(self, row: TraceRow) -> None:
        """Judge an order that was not carried out. Other faults that had no effect are ignored."""
        if self._group_order is not None and self._group_order.row.cause == row.cause:
            self._judge_group_order(self._group_order, row)
            self._group_order = None
            return
        if self._creation is not None and self._creation.row.cause == row.cause:
            self._judge_refused_creation(self._creation, row)
            self._creation = None
            return
        # The row is about another fault. The run waits for the answer to an order about a group or
        # to a creation before it goes on, so such an order has been carried out.
        self._judge_group_effects()
        self._judge_creation()
        order = self._topic_orders.pop(row.cause or "", None)
        if order is not None:
            # A refusal does not always mean that the topic is still there. If the answer to the
            # request was lost, the client sent the request again. The second request failed because
            # the first request had deleted the topic.
            if order.must_succeed and _topics_of(order.row).isdisjoint(self._deleted_topics):
                self.report_finding(
                    f"{row.cause}: the topic was not deleted ({detail_of(row).get('reason')}), "
                    "although nothing was broken",
                    [order.row, row],
                )
            return
        order = self._elections.pop(row.cause or "", None)
        if order is None:
            return
        self._ended_elections += 1
        if order.must_succeed:
            detail = detail_of(order.row)
            self.report_finding(
                f"{row.cause}: no leader was elected ({detail_of(row).get('reason')}), although "
                "nothing was broken",
                [order.row, row],
                partition=next(iter(detail.get("partitions", ())), None),
            )

    def _judge_group_order(self, order: _Order, refused: TraceRow) -> None:
        """Report an order about a group whose error does not fit the group (rule 5)."""
        detail = detail_of(order.row)
        (group_id,) = detail["groups"]
        states = (order.state, self._state(group_id))
        # While something is broken, nearly every error is possible.
        misfits = [
            error
            for error in detail_of(refused).get("errors", ())
            if error in _NEVER_RIGHT
            or (order.must_succeed and not _fits(error, str(detail.get("fault")), states))
        ]
        if misfits:
            self.report_finding(
                f"{refused.cause}: {detail.get('fault')} of {group_id} met {', '.join(misfits)} "
                f"while the group was {order.state or 'not there'}"
                + (", although nothing was broken" if order.must_succeed else ""),
                [order.row, refused],
                group=group_id,
            )

    def _judge_group_effects(self) -> None:
        """Report an order about a group that was carried out and has no effect (rule 6)."""
        order, self._group_order = self._group_order, None
        if order is None:
            return
        missing = self._effects.find_missing(is_undisturbed=order.must_succeed)
        if missing is not None:
            detail = detail_of(order.row)
            (group_id,) = detail["groups"]
            self.report_finding(
                f"{order.row.cause}: {detail.get('fault')} of {group_id} was carried out, but "
                f"{missing}",
                [order.row],
                group=group_id,
            )

    def _judge_refused_creation(self, creation: TopicCreation, refused: TraceRow) -> None:
        """Report a refused creation of a topic, if the error does not fit (rule 8)."""
        errors = detail_of(refused).get("errors", ())
        misfits = creation.misfits(errors, brokers=len(self._replicas.may_lead))
        # If there is no error, the order got no answer.
        if misfits or (creation.must_succeed and not errors):
            self.report_finding(
                f"{refused.cause}: the topic {creation.topic} was not created "
                f"({detail_of(refused).get('reason')})"
                + (", although nothing was broken" if creation.must_succeed else ""),
                [creation.row, refused],
            )

    def _judge_creation(self) -> None:
        """Report a creation that was carried out and lacks a part of its effect (rule 9)."""
        creation, self._creation = self._creation, None
        missing = None if creation is None else creation.find_missing()
        if creation is None or missing is None:
            return
        what, row = missing
        self.report_finding(
            f"{creation.row.cause}: the topic {creation.topic} was created, but {what}",
            [creation.row, *([] if row is None else [row])],
        )

    def _state(self, group_id: str) -> str | None:
        """Return the state of a group at its coordinator; None if the coordinator lacks it."""
        seen = self._coordinators.state(group_id)
        return None if seen is None else seen.state

    # -- shutdowns -----------------------------------------------------------------------------

    def _stopped(self, row: TraceRow) -> None:
        """Judge a broker that ended its shutdown (rule 1); report one partition at most."""
        order = self._shutdowns.pop(row.node, None)
        if order is None:
            return
        took_us = row.time_us - order.row.time_us
        # A broker that was not running yet takes no time to stop. A broker that gave up waiting for
        # the permission has taken the whole timeout.
        if not 0 < took_us < CONTROLLED_SHUTDOWN_TIMEOUT_US:
            return
        self._ended_shutdowns += 1
        for partition, known in self._replicas.partitions.items():
            if known.leader == row.node:
                what = f"still leads {partition}"
            elif row.node in known.in_sync and len(known.in_sync) > 1:
                what = f"is still in the ISR of {partition}"
            else:
                continue
            self.report_finding(
                f"{row.node} stops in order, and {what}",
                [order.row, known.row, row],
                partition=partition,
            )
            return

    def _killed(self, row: TraceRow) -> None:
        """Report a broker that was killed in a shutdown that should have ended (rule 2)."""
        order = self._shutdowns.pop(row.peer or "", None)
        if order is None or not order.must_succeed:
            return
        took_us = row.time_us - order.row.time_us
        self.report_finding(
            f"{row.peer} is killed {seconds(took_us)} after its controlled shutdown began, which "
            "has not ended although nothing else was broken",
            [order.row, row],
        )

    def finish(self) -> CheckReport:
        """Judge the orders that were neither carried out nor refused, and report."""
        # A run that was cut short before the healing may have ended between an order and its
        # outcome. So nothing is reported for such a run.
        unanswered = self._elections if self._is_healed else {}
        for fault_id, order in unanswered.items():
            detail = detail_of(order.row)
            if detail.get("fault") != LEADERSHIP_MOVE:
                continue
            # A leadership move names one new leader. The text after `or` is for a row that names
            # none.
            (new_leader,) = detail.get("to") or ("its replica",)
            self.report_finding(
                f"{fault_id} was not refused, and {new_leader} was never elected",
                [order.row],
                partition=next(iter(detail.get("partitions", ())), None),
            )
        # The sum for `judged` counts an order with a finding twice. This does no harm, because all
        # that matters is whether anything was judged.
        return self.report(
            judged=self._orders_total + self.findings_total,
            seen={
                "controlled_shutdowns": self._ended_shutdowns,
                "elections_ordered": self._ended_elections,
                "group_orders": self._group_orders,
                "topic_orders": self._topic_orders_total,
            },
            note=self._note(),
        )

    @property
    def _orders_total(self) -> int:
        """Number of judged orders of every kind."""
        return (
            self._ended_shutdowns
            + self._ended_elections
            + self._group_orders
            + self._topic_orders_total
        )

    def _note(self) -> str:
        if not self.context.in_virtual_time:
            return "judged in virtual time only"
        is_idle = not (self._orders_total or self.findings_total)
        return "nothing was ordered" if is_idle else ""


def _topics_of(order: TraceRow) -> set[str]:
    """Return the topics of the partitions that an order is about."""
    return {topic_of(name) for name in detail_of(order).get("partitions", ())}


def _fits(error: str, fault: str, states: tuple[str | None, ...]) -> bool:
    """Return True if an order about a group, the fault `fault`, may be refused with `error`.

    `states` are the group's states when the order was given and when the error came. The
    coordinator decided at some moment in between, so the error may fit either of the two states.
    """
    has_members = any(state not in _WITHOUT_MEMBERS for state in states)
    match error:
        case ErrorCode.NON_EMPTY_GROUP.name | ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC.name:
            return has_members
        case ErrorCode.UNKNOWN_MEMBER_ID.name:
            # Two kinds of orders may be refused with this error. To remove members, the
            # administrator first asks for a list of the members, and then some member of the list
            # may have left. And an administrator's commit has no member id, so a group with members
            # refuses the commit.
            return fault == REMOVE_MEMBERS or has_members
        case ErrorCode.GROUP_ID_NOT_FOUND.name:
            return None in states or "Dead" in states
        case ErrorCode.REBALANCE_IN_PROGRESS.name:
            return any(state in _REBALANCING for state in states)
        case _:
            return False
