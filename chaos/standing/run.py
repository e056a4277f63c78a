"""StandingRun: the run of a standing cluster, from `coordlab up` to `coordlab down`.

During the run, commands from other processes send orders to the cluster: `inject` a fault, `heal`
the fault, tell the `status`. Otherwise this is a run like all other runs (ExperimentRun). Three
things are different:

1. The run accepts orders as soon as the brokers serve. Groups may become stable later, or never.
2. Faults come from orders. If the run also has a plan (`--play`), the plan begins at the first
   steady state, when all groups are stable.
3. The run ends after a `down`, after its duration, or after a Ctrl-C. Then all faults are healed
   (undone), and the run waits until the groups of the experiment are live again. At last the
   checkers judge the trace.

Users may connect Kafka clients of their own, which are called guests. Guests write no rows into the
trace, so nobody can see what they did with their partitions. So if a group has a guest, it is
judged only by the rows of brokers and coordinators, and the checks of members leave it out. This
is also true of a group of the experiment, if a guest has joined it.
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
"""Interval of the status queries during the start. It is short, because a person waits."""


class StandingRun(ExperimentRun):
    """One run of a standing cluster. `execute` may be called once."""

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

        - `orders`: the source of the requests of commands.
        - `identity`: a StatusAnswer with the fields that are the same in every answer of this run,
          such as its name and directory.
        - `duration_us`: the time for which the run accepts orders. If it is None, the run accepts
          orders until a `down`.
        - `on_serving`: called once, as soon as the brokers serve, with the time on the run's clock.
        - `while_serving`: a context manager. It is entered as soon as the brokers serve, and left
          when the healing begins.
        - `judge_again`: called at the end, when the whole trace is on disk. If guests have joined
          groups of the experiment, `suite` has judged these groups too strictly. Then this function
          returns other checkers, which have read the trace again. Otherwise it returns None.
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
        """Moments that are still to come, in the order of time.

        These are the acts of the plan, the ends of ordered faults, and the steps of gradual faults.
        Unlike in a plan, the times are times on the run's clock.
        """
        self._not_arrived = {arrival.node: None for arrival in arrivals_of(experiment)}
        """Late members of the experiment that have not started yet. No condition waits for them."""
        self._live_at_us = 0
        """Time on the run's clock at which the brokers began to serve."""
        self._missing: list[str] = []
        """What is still missing for the steady state, as sentences."""
        self._next_numbers: dict[str, int] = {}
        """For each kind of fault, the number in the id of the next order, as 2 in `crash-2`."""
        self._ordered_ids: dict[str, None] = {}
        """Ids of the faults that come from orders."""
        self._unjudged: dict[str, None] = {}
        """Groups that have, or had, a guest. What their members do is not judged."""
        self._unknown_ids: dict[str, None] = {}
        """Member ids in the last status that belong to no consumer of coordlab."""
        self._own_ids: dict[str, None] = {}
        """Member ids that coordlab's own consumers have now, or had before a restart."""
        self._waiting: dict[str, tuple[PendingRequest, tuple[str, ...]]] = {}
        """Requests that are answered when their fault is over, by the id of the fault.

        The second value has the warnings about the order.
        """

    # -- from the start to the end of the orders --

    async def _until_healing(self) -> None:
        """Wait until the brokers serve, and then carry out orders and the plan.

        This replaces the first two stages of ExperimentRun, because orders need no steady state.
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

        Raises: GiveUp after the `steady_state_timeout` of the experiment.
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
            # If the controller does not know a broker yet, the status lacks this broker.
            if status.brokers_fenced.get(BrokerId(broker), True)
        ]
        # While a broker is missing, its partitions have no leader for this reason. So partitions
        # are shown only if all brokers are registered.
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
            # Wait for an order. The wait ends at the next regular check, at the next moment of the
            # schedule (`_moments[:1]` has this moment, or none), or at the end of the duration.
            wake_times_us = [now_us + POLL_US, *(moment.at_us for moment in self._moments[:1])]
            if ends_us is not None:
                wake_times_us.append(ends_us)
            pause = self._runtime.sleep(max(min(wake_times_us) - now_us, 0))
            pending = await self._orders.next(pause)
            if pending is not None and await self._carry_out(pending):
                return

    async def _watch(self) -> None:
        """Make a regular check. At the first steady state, schedule the plan."""
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
                # The times of the plan count from the steady state, which is now. But the times in
                # `_moments` are times on the run's clock.
                began_us = self._runtime.now_us()
                for moment in schedule_of(self._plan_of_the_file, arrivals_of(self._experiment)):
                    self._schedule(replace(moment, at_us=began_us + moment.at_us))
        self._show(self._missing)

    def _note_guests(self, status: ClusterStatus) -> None:
        """Note the groups that have a guest as a member.

        A guest has a member id that no consumer of coordlab has. But a consumer of coordlab may
        look like a guest for a moment: its coordinator has added it to the group already, but the
        answer with its new member id is still on the way. So a group of the experiment counts only
        if two successive queries show the same unknown id.
        """
        # Earlier ids of a consumer stay in `_own_ids`. After a restart the consumer has a new id,
        # but its group still has the old id, until the session of this member ends.
        self._own_ids |= dict.fromkeys(member.member_id for member in status.members.values())
        unknown_before, self._unknown_ids = self._unknown_ids, {}
        for group_id, coordinators in status.groups.items():
            if group_id not in self._experiment.groups:
                # No consumer of coordlab joins this group, so all its members are guests.
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

        The checks of members need the rows of all members, but a guest writes no rows. So a finding
        about its group may be wrong. At the end of the run, `judge_again` judges such a group only
        by the rows of brokers and coordinators.
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

        A DownRequest is not answered here. The mailbox answers it when the report is written.
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

        If the fault would hit nothing, the order is refused, and the fault is added neither to the
        plan nor to the journal.
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
        # The fault is aimed before it is added to the plan and to the journal, to see whether it
        # would hit anything.
        aim = self._injector.aim(planned, status)
        if isinstance(aim, Miss):
            pending.answer(_nothing_hit(planned, aim.reason))
            return

        self._next_numbers[request.fault] = number + 1
        entry = self._enter_order(planned)
        try:
            await self._injector.inject(planned, status)
        except ToolFailed as error:
            # This failure ends the run. So the order must be answered before.
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

        For example, if the plan has `crash-0` and `crash-2`, the next crash gets the number 3. If a
        fault is repeated, the plan has ids such as `crash-2.1`. They count like `crash-2`.
        """
        used = [
            int(number)
            for planned in self._plan
            if planned.fault == fault
            and (number := planned.fault_id.rpartition("-")[2].partition(".")[0]).isdecimal()
        ]
        return max(used, default=-1) + 1

    def _enter_order(self, planned: PlannedFault) -> JournalEntry:
        """Add an ordered fault to the plan, to the manifest and to the journal."""
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
        # The planned ends of the healed faults are dropped.
        self._moments = [
            moment
            for moment in self._moments
            if not (isinstance(moment, PlannedAct) and moment.heals and moment.planned in chosen)
        ]
        pending.answer(HealAnswer(faults=tuple(healed)))
        self._answer_waiting()

    def _faults_to_heal(self, request: HealRequest) -> tuple[PlannedFault, ...] | OrderRefusal:
        """Return the faults in force that the request means, the newest first, or a refusal."""
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
        """Return the members for which the end of the run must not wait.

        These are lost members, and late members of the experiment that have not started yet.
        """
        return (*super()._absent_nodes(), *self._not_arrived)

    def _judged_entries(self) -> tuple[JournalEntry, ...]:
        """Return the entries of the journal, without orders that have hit nothing.

        If a planned fault hits nothing, the verdict is UNKNOWN. But if an order hits nothing, this
        does not change the verdict, because its sender got a refusal and could order another fault.
        """
        return tuple(
            entry
            for entry in super()._judged_entries()
            if entry.fault_id not in self._ordered_ids or entry.outcome is not FaultOutcome.MISSED
        )

    def _finish_checks(self) -> tuple[CheckReport, ...]:
        """Let the checkers finish, and return their reports.

        If `judge_again` returns other checkers, the reports come from these.
        """
        if self._judge_again is not None:
            # An exception here is a bug of coordlab. It must not prevent that the results and the
            # manifest are written.
            try:
                self._suite = self._judge_again() or self._suite
            except Exception as error:
                self._tool_failures.append(f"checking: {type(error).__name__}: {error}")
        return super()._finish_checks()

    def unjudged_groups(self) -> tuple[str, ...]:
        """Return the groups that have, or had, a client from outside, sorted by name."""
        return tuple(sorted(self._unjudged))


def _nothing_hit(planned: PlannedFault, reason: str) -> OrderRefusal:
    problem = f"inject: {planned.fault} {planned.aimed_at}: {reason}; nothing was done"
    return OrderRefusal(kind=RefusalKind.NOTHING_NOW, problems=(problem,))
