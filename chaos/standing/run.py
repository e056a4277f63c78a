"""StandingRun: the run behind `coordlab up`, which stays until `coordlab down`.

While it stays, commands from other processes send it orders: `inject` a fault, `heal` it, tell the
`status`. Apart from that it is a run like all others (ExperimentRun). Three things differ:

1. The run accepts orders as soon as the brokers serve. Groups may become stable later, or never.
2. Faults come from orders. If the run also has a plan (`--play`), the plan begins at the first
   steady state.
3. The run ends after a `down`, after its duration or after a Ctrl-C. Then all faults are healed,
   the run waits until the groups of the experiment are live again, and the trace is judged.

Users may connect Kafka clients of their own, which are called guests. Guests write no rows into the
trace, so nobody can see what they did with their partitions. For this reason a group with a guest
is judged only by what brokers and coordinators have written, and the checks of members leave it
out. This is also so for a group of the experiment that a guest has joined.
"""

from bisect import insort
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import msgspec

from chaos.checkers.registry import CheckSuite
from chaos.experiment.problems import near_miss
from chaos.experiment.structs import Experiment, microseconds
from chaos.results.run_directory import RunDirectory
from chaos.run.conditions import missing_for_steady_state, missing_partitions, summarize
from chaos.run.injection import ToolFailed
from chaos.run.live_checks import LiveChecks
from chaos.run.plan import Moment, NextStep, PlannedAct, arrivals_of, schedule_of
from chaos.run.runner import POLL_US, ExperimentRun, GiveUp, ProgressObserver, TraceReader
from chaos.standing.facts import status_answer
from chaos.standing.mailbox import OrderSource, PendingRequest
from chaos.standing.messages import (
    DownRequest,
    HealAnswer,
    HealRequest,
    InjectAnswer,
    InjectRequest,
    OrderRefusal,
    PresenceAnswer,
    PresenceRequest,
    RefusalKind,
    StatusAnswer,
    StatusRequest,
)
from chaos.standing.ordered_faults import order_fault, with_current_topics_and_groups
from chaos.targets.base import Miss
from cluster.runtime import ClusterStatus, NodeState, Runtime
from protocol.ids import BrokerId, NodeName
from results_schema.journal import FaultOutcome, JournalEntry
from results_schema.manifest import Plan, PlannedFault
from results_schema.results import CheckReport, Finding

SERVING = "serving"
"""Name of the stage in which a standing run accepts orders."""
START_POLL_US = 10_000
"""Interval of the status queries during the start. It is short because a person waits."""


class StandingRun(ExperimentRun):
    """One run that an order, a duration or a Ctrl-C ends. `execute` may be called once."""

    _takes_guests = True

    def __init__(
        self,
        experiment: Experiment,
        plan: Plan,
        runtime: Runtime,
        suite: CheckSuite,
        orders: OrderSource,
        *,
        identity: StatusAnswer,
        seed: int = 0,
        directory: RunDirectory | None = None,
        progress: ProgressObserver | None = None,
        read_trace: TraceReader | None = None,
        live_checks: LiveChecks | None = None,
        duration_us: int | None = None,
        on_serving: Callable[[int], None] | None = None,
        while_serving: AbstractContextManager[object] | None = None,
        judge_again: Callable[[], CheckSuite | None] | None = None,
    ) -> None:
        """Prepare a run, as ExperimentRun does.

        - `orders`: where the requests of commands come from.
        - `identity`: a StatusAnswer with the fields that are the same in every answer of this run,
          such as its name and directory.
        - `duration_us`: how long the run accepts orders; None: until a `down`.
        - `on_serving`: called once, when the brokers serve, with the time of the run's clock.
        - `while_serving`: a context manager that is entered at the same moment, and left when the
          healing begins.
        - `judge_again`: called at the end, when the whole trace is on disk. If guests have joined
          groups of the experiment, `suite` has judged these groups too strictly, and this function
          returns other checkers that have read the trace again. Otherwise it returns None.
        """
        super().__init__(
            experiment,
            plan,
            runtime,
            suite,
            seed=seed,
            directory=directory,
            progress=progress,
            read_trace=read_trace,
            live_checks=live_checks,
        )
        self._orders = orders
        self._identity = identity
        self._duration_us = duration_us
        self._on_serving = on_serving
        self._while_serving = while_serving or nullcontext()
        self._judge_again = judge_again
        self._plan_of_the_file = plan  # `self._plan` grows with each order
        self._moments: list[Moment] = []
        """Acts of the plan and ends of ordered faults, by their time on the run's clock."""
        self._not_arrived = {arrival.node: None for arrival in arrivals_of(experiment)}
        """Late members of the file that have not started. No condition waits for them."""
        self._live_at_us = 0
        """Time at which the brokers began to serve, on the run's clock."""
        self._missing: list[str] = []
        """Conditions of the steady state that do not hold yet."""
        self._next_numbers: dict[str, int] = {}
        """Kind of fault -> the number in the id of its next order, such as 2 in `crash-2`."""
        self._ordered_ids: dict[str, None] = {}
        """Ids of the faults that come from orders."""
        self._unjudged: dict[str, None] = {}
        """Groups that have, or had, a guest. What their members do is not judged."""
        self._unknown_ids: dict[str, None] = {}
        """Member ids in the last status that belong to no consumer of the lab."""
        self._own_ids: dict[str, None] = {}
        """Member ids that the consumers of the lab have now, or had before a restart."""
        self._waiting: dict[str, tuple[PendingRequest, tuple[str, ...]]] = {}
        """Requests that are answered when their fault is over, with their warnings; by fault id."""

    # -- from the start to the end of the orders --

    async def _until_healing(self) -> None:
        """Serve orders and the plan from the moment at which the brokers serve.

        This replaces the first stages of ExperimentRun: orders need no steady state.
        """
        await self._wait_until_brokers_serve()
        self._live_at_us = self._runtime.now_us()
        self._enter_stage(SERVING)
        self._orders.open()
        try:
            with self._while_serving:
                if self._on_serving is not None:
                    self._on_serving(self._live_at_us)
                await self._serve()
        finally:
            self._orders.close("the cluster is going down")

    async def _wait_until_brokers_serve(self) -> None:
        """Wait until every broker is registered, and every partition has a leader.

        Raises: GiveUp after `steady_state_timeout` of the experiment file.
        """
        timeout = self._experiment.run.steady_state_timeout
        deadline_us = self._runtime.now_us() + microseconds(timeout)
        while True:
            missing = self._missing_to_serve(await self._check_and_query())
            if not missing:
                return
            if self._runtime.now_us() >= deadline_us:
                raise GiveUp(f"the brokers do not serve within {timeout}: {summarize(missing)}")
            self._show(missing)
            await self._runtime.sleep(START_POLL_US)

    def _missing_to_serve(self, status: ClusterStatus) -> list[str]:
        """Return what is missing until the brokers serve."""
        brokers = range(self._experiment.cluster.brokers)
        fenced = [
            f"broker {broker} is not registered"
            for broker in brokers
            # The status lacks a broker that the controller does not know yet.
            if status.brokers_fenced.get(BrokerId(broker), True)
        ]
        # If a broker is missing, its partitions have no leader for that reason. So these partitions
        # are shown only if all brokers are there.
        return fenced or missing_partitions(self._experiment, status, full_isr=False)

    async def _serve(self) -> None:
        """Carry out orders and the plan, until a `down` or the end of the duration."""
        ends_us = None if self._duration_us is None else self._live_at_us + self._duration_us
        while True:
            await self._watch()
            await self._act_on_due_moments()
            now_us = self._runtime.now_us()
            if ends_us is not None and now_us >= ends_us:
                self._log("the duration is over")
                return
            # Wait for an order, but not longer than until the next regular check, the next moment
            # of the schedule (`_moments[:1]` has one or none) or the end.
            wake_times_us = [now_us + POLL_US, *(moment.at_us for moment in self._moments[:1])]
            if ends_us is not None:
                wake_times_us.append(ends_us)
            pause = self._runtime.sleep(max(min(wake_times_us) - now_us, 0))
            pending = await self._orders.next(pause)
            if pending is not None and await self._carry_out(pending):
                return

    async def _watch(self) -> None:
        """Query the cluster: report findings, and schedule the plan at the first steady state."""
        status = await self._check_and_query()
        self._note_guests(status)
        # `started` is a list of its own, because the loop removes entries of `_not_arrived`.
        started = [node for node in self._not_arrived if status.nodes.get(node) is NodeState.UP]
        for node in started:
            del self._not_arrived[node]
        if self._steady_at_us is None:
            self._missing = missing_for_steady_state(self._experiment, status, guests=True)
            if not self._missing:
                self._note_steady_state()
                # The times of the plan count from now, but those in `_moments` from the start of
                # the run's clock.
                began_us = self._runtime.now_us()
                for moment in schedule_of(self._plan_of_the_file, arrivals_of(self._experiment)):
                    self._schedule(replace(moment, at_us=began_us + moment.at_us))
        self._show(self._missing)

    def _note_guests(self, status: ClusterStatus) -> None:
        """Note the groups that have a guest as a member.

        A guest has a member id that no consumer of the lab has. But this may also be so for a
        moment with a consumer of the lab: the coordinator has added it already, and the answer with
        its new id is still on the way. So a group of the experiment counts only if two queries one
        after the other show the same unknown id.
        """
        # Former ids of a consumer stay in `_own_ids`: after a restart the consumer has a new id,
        # but its group keeps the old one until the session timeout.
        self._own_ids |= dict.fromkeys(member.member_id for member in status.members.values())
        unknown_before, self._unknown_ids = self._unknown_ids, {}
        for group_id, coordinators in status.groups.items():
            if group_id not in self._experiment.groups:
                # No consumer of the lab joins such a group.
                self._unjudged[group_id] = None
                continue
            for member_id in (member for group in coordinators for member in group.members):
                if member_id in self._own_ids:
                    continue
                self._unknown_ids[member_id] = None
                if member_id in unknown_before:
                    self._unjudged[group_id] = None

    def _take_finding(self, finding: Finding) -> None:
        """Record a finding, unless its group has a guest.

        The checks of members would need the rows of all members, and a guest writes none. At the
        end `judge_again` judges such a group only by the rows of brokers and coordinators.
        """
        if finding.group not in self._unjudged:
            super()._take_finding(finding)

    async def _act_on_due_moments(self) -> None:
        while self._moments and self._moments[0].at_us <= self._runtime.now_us():
            await self._act(self._moments.pop(0), self._moments, began_us=0)
            self._answer_waiting()

    def _schedule(self, moment: Moment) -> None:
        insort(self._moments, moment, key=lambda planned_moment: planned_moment.at_us)

    # -- orders --

    async def _carry_out(self, pending: PendingRequest) -> bool:
        """Carry out a request, and return True if it ends the run.

        A DownRequest gets its answer later, from the mailbox, when the report is written.
        """
        match pending.request:
            case PresenceRequest():
                pending.answer(PresenceAnswer())
            case InjectRequest() as request:
                await self._inject(request, pending)
            case HealRequest() as request:
                await self._heal(request, pending)
            case StatusRequest(partitions=partitions):
                pending.answer(await self._answer_status(with_partitions=partitions))
            case DownRequest():
                self._log("asked to go down")
                return True
        return False

    async def _answer_status(self, *, with_partitions: bool) -> StatusAnswer:
        """Return the answer to a StatusRequest, from a new query of the cluster."""
        status = await self._check_and_query()
        identity = msgspec.structs.replace(
            self._identity,
            stage=self._stage,
            time_us=self._runtime.now_us(),
            bootstrap=self._runtime.bootstrap_servers(),
        )
        return status_answer(
            status,
            self._experiment,
            identity,
            faults=self._journal.entries,
            findings=self._findings,
            waiting_for=self._missing,
            with_partitions=with_partitions,
        )

    async def _inject(self, request: InjectRequest, pending: PendingRequest) -> None:
        """Inject the ordered fault, or refuse the order.

        An order that can hit nothing is refused. It is not added to the plan or to the journal.
        """
        status = self._status_history.with_last_partitions(await self._check_and_query())
        experiment = with_current_topics_and_groups(self._experiment, status)
        number = self._next_numbers.get(request.fault, self._first_free_number(request.fault))
        ordered = order_fault(
            request,
            experiment,
            fault_id=f"{request.fault}-{number}",
            at_us=self._runtime.now_us() - self._live_at_us,
        )
        if isinstance(ordered, OrderRefusal):
            pending.answer(ordered)
            return

        planned = ordered.planned
        self._injector.take_experiment(experiment)
        # An order that hits nothing must not come into the plan and the journal. So it is aimed
        # first to see whether it does.
        aim = self._injector.aim(planned, status)
        if isinstance(aim, Miss):
            pending.answer(_nothing_hit(planned, aim.reason))
            return

        self._next_numbers[request.fault] = number + 1
        entry = self._enter_order(planned)
        try:
            await self._injector.inject(planned, status)
        except ToolFailed as error:
            # The failure ends the run, so the order is answered first.
            pending.answer(OrderRefusal(kind=RefusalKind.FAILED, problems=(str(error),)))
            raise
        self._acted_since_status = True
        if entry.outcome is FaultOutcome.MISSED:
            pending.answer(_nothing_hit(planned, entry.error or "nothing was hit"))
            return

        # Schedule what follows: the healing, or the next step of a gradual fault.
        if entry.in_force and planned.duration_us is not None:
            healed_at_us = self._runtime.now_us() + planned.duration_us
            self._schedule(PlannedAct(at_us=healed_at_us, planned=planned, heals=True))
        if self._injector.has_next_step(planned):
            self._schedule(NextStep(at_us=self._runtime.now_us(), planned=planned))
        if request.waits and entry.in_force:
            self._waiting[planned.fault_id] = (pending, ordered.warnings)
        else:
            pending.answer(InjectAnswer(fault=entry, warnings=ordered.warnings))

    def _first_free_number(self, fault: str) -> int:
        """Return the number for the next id of this kind of fault.

        If the plan has `crash-0` and `crash-2`, the next crash gets 3. If the plan repeats a fault,
        it has ids such as `crash-2.1`, which count like `crash-2`.
        """
        used = [
            int(number)
            for planned in self._plan
            if planned.fault == fault
            and (number := planned.fault_id.rpartition("-")[2].partition(".")[0]).isdecimal()
        ]
        return max(used, default=-1) + 1

    def _enter_order(self, planned: PlannedFault) -> JournalEntry:
        """Enter an ordered fault into plan, manifest and journal."""
        self._plan = (*self._plan, planned)
        self._ordered_ids[planned.fault_id] = None
        entry = self._journal.add(planned)
        entry.planned_at_us = self._runtime.now_us()
        if self._directory is not None:
            self._directory.manifest.plan = self._plan
            self._directory.write_manifest()
        return entry

    async def _heal(self, request: HealRequest, pending: PendingRequest) -> None:
        """Heal the faults that the request means, or refuse the order."""
        chosen = self._faults_to_heal(request)
        if isinstance(chosen, OrderRefusal):
            pending.answer(chosen)
            return
        healed = []
        for planned in chosen:
            try:
                await self._injector.heal(planned, by="order")
            except ToolFailed as error:
                pending.answer(OrderRefusal(kind=RefusalKind.FAILED, problems=(str(error),)))
                raise
            healed.append(self._journal.entry(planned.fault_id))
        self._acted_since_status = True
        # The planned ends of the healed faults are no longer due.
        self._moments = [
            moment
            for moment in self._moments
            if not (isinstance(moment, PlannedAct) and moment.heals and moment.planned in chosen)
        ]
        pending.answer(HealAnswer(faults=tuple(healed)))
        self._answer_waiting()

    def _faults_to_heal(self, request: HealRequest) -> tuple[PlannedFault, ...] | OrderRefusal:
        """Return the faults in force that the request means, the youngest first, or a refusal."""
        in_force = tuple(
            planned
            for planned in reversed(self._plan)
            if self._journal.entry(planned.fault_id).in_force
        )
        if request.fault_id is None:
            if len(in_force) > 1 and not request.everything:
                names = ", ".join(f"`{planned.fault_id}`" for planned in reversed(in_force))
                problem = f"heal: {len(in_force)} faults are in force: name one of {names}, or all"
                return OrderRefusal(kind=RefusalKind.UNKNOWN, problems=(problem,))
            return in_force
        known = {planned.fault_id: planned for planned in self._plan}
        planned = known.get(request.fault_id)
        if planned is None:
            near = near_miss(request.fault_id, known)
            problem = f"heal: there is no fault `{request.fault_id}`"
            problem += f"; did you mean `{near}`?" if near else ""
            return OrderRefusal(kind=RefusalKind.UNKNOWN, problems=(problem,))
        if planned in in_force:
            return (planned,)
        problem = f"heal: `{planned.fault_id}` is not in force"
        return OrderRefusal(kind=RefusalKind.NOTHING_NOW, problems=(problem,))

    def _answer_waiting(self) -> None:
        """Answer the requests that wait for the end of their fault, if the fault is over."""
        # `list` copies the entries, because the loop removes some of them.
        for fault_id, (pending, warnings) in list(self._waiting.items()):
            entry = self._journal.entry(fault_id)
            if not entry.in_force:
                del self._waiting[fault_id]
                pending.answer(InjectAnswer(fault=entry, warnings=warnings))

    # -- the end --

    async def _heal_everything(self) -> None:
        try:
            await super()._heal_everything()
        finally:
            self._answer_waiting()

    def _absent_nodes(self) -> tuple[NodeName, ...]:
        """Return the members that the end of the run must not wait for.

        These are the lost ones, and members of the file that have not started yet.
        """
        return (*super()._absent_nodes(), *self._not_arrived)

    def _judged_entries(self) -> tuple[JournalEntry, ...]:
        """Return the entries of the journal without orders that hit nothing.

        A planned fault that hits nothing makes the verdict unknown. An order that hits nothing does
        not, because its sender got a refusal and could order another fault.
        """
        return tuple(
            entry
            for entry in super()._judged_entries()
            if entry.fault_id not in self._ordered_ids or entry.outcome is not FaultOutcome.MISSED
        )

    def _finish_checks(self) -> tuple[CheckReport, ...]:
        """Return the reports of the suite, or of the suite that `judge_again` returns, if any."""
        if self._judge_again is not None:
            # An error here is a failure of the tool, and must not prevent results and manifest.
            try:
                self._suite = self._judge_again() or self._suite
            except Exception as error:
                self._tool_failures.append(f"checking: {type(error).__name__}: {error}")
        return super()._finish_checks()

    def unjudged_groups(self) -> tuple[str, ...]:
        """Return the groups of clients from outside that were seen, in order of names."""
        return tuple(sorted(self._unjudged))


def _nothing_hit(planned: PlannedFault, reason: str) -> OrderRefusal:
    problem = f"inject: {planned.fault} {planned.aimed_at}: {reason}; nothing was done"
    return OrderRefusal(kind=RefusalKind.NOTHING_NOW, problems=(problem,))
