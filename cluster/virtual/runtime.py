"""VirtualRuntime: a whole cluster in one process, in virtual time, from a seed.

VirtualRuntime has the event loop, the network and the trace; its base class VirtualLives starts,
kills and pauses nodes. The rows of the trace are passed to observers, in the order of the events.
If a node's task dies, or an invariant is violated, this is a bug of this project. Such a bug is
recorded as a failure of the tool, and is never a finding about Kafka.
"""

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Concatenate, ParamSpec, TypeVar

from cluster.host.host import Host
from cluster.lives import NodeBuilder
from cluster.node_factory import build_node
from cluster.runtime import (
    DRIVER,
    ClusterStartError,
    NodeTaskFailed,
    RowObserver,
    Runtime,
)
from cluster.spec import ClusterSpec, starts_later
from cluster.virtual.checks.commit_interval_checks import (
    COMMIT_INTERVAL_KINDS,
    CommitIntervalChecks,
)
from cluster.virtual.checks.controller_checks import ControllerChecks
from cluster.virtual.checks.metrics_checks import (
    METRICS_CHECK_KINDS,
    STATUS_KINDS,
    MetricsChecks,
    StatusChecks,
)
from cluster.virtual.checks.replica_checks import CHECKED_ROWS, ReplicaChecks
from cluster.virtual.checks.role_checks import ROLE_KINDS, RoleChecks
from cluster.virtual.checks.task_checks import TASK_KINDS, TaskChecks
from cluster.virtual.checks.transaction_checks import ProducerEpochChecks
from cluster.virtual.clock import NodeClock
from cluster.virtual.host import LogSink, VirtualHost
from cluster.virtual.lives import VirtualLife, VirtualLives
from cluster.virtual.loop import Deadlock, VirtualLoop
from cluster.virtual.network import VirtualNetwork
from cluster.virtual.starts import draw_starts, draw_wait_us
from cluster.virtual.tripwires import tripwires
from partition_log.memory_storage import MemoryStorage
from protocol.answer_contract import check_answer
from protocol.api import AnyRequest, AnyResponse
from protocol.errors import InvariantViolation
from protocol.ids import Incarnation, NodeName
from protocol.trace import TraceEvent, TraceKind, TraceRow, stamp

P = ParamSpec("P")
T = TypeVar("T")

_CHECKED_CHANGES = frozenset({TraceKind.BECAME_LEADER, TraceKind.ISR_CHANGED})
"""After these rows, nodes are compared at once and not only at the next regular check."""
_WATCHED_ROWS = (
    _CHECKED_CHANGES
    | CHECKED_ROWS
    | METRICS_CHECK_KINDS
    | TASK_KINDS
    | ROLE_KINDS
    | COMMIT_INTERVAL_KINDS
    | STATUS_KINDS
    | {TraceKind.TRANSACTION_STATE}
)
"""Kinds of rows that any check must see. One test of them skips most rows."""


class VirtualRuntime(VirtualLives, Runtime):
    """A cluster in virtual time. One object is one run."""

    name = "virtual"

    def __init__(
        self,
        spec: ClusterSpec,
        *,
        seed: int,
        run_id: str,
        observers: Sequence[RowObserver] = (),
        trace_messages: bool = True,
        copy_messages: bool = False,
        log: LogSink | None = None,
        build: NodeBuilder = build_node,
        invariants_every: int | None = None,
    ) -> None:
        """Prepare a cluster.

        If `copy_messages` is True, receivers get copies of messages, encoded and decoded as between
        processes.

        If `invariants_every` is given, each node checks itself after this number of events, and
        before it stops, and each answer is checked against its request. A violation ends the run,
        as a failure of the tool.
        """
        self._seed = seed
        self._run_id = run_id
        self._observers = tuple(observers)
        self._trace_messages = trace_messages
        self._log = log
        loop = VirtualLoop()
        self._network = VirtualNetwork(
            loop,
            seed=seed,
            model=spec.links,
            racks={broker.name: broker.rack for broker in spec.brokers},
            copy_messages=copy_messages,
        )
        super().__init__(spec, loop, build=build, new_host=self._build_host, trace=self.trace)
        self._failures: list[str] = []
        """Texts of the tool's own failures, the oldest first."""
        self._checks_invariants = invariants_every is not None
        """True if nodes are checked, until the first violation."""
        self._checks_answers = invariants_every is not None
        """True if each answer is checked before it is sent."""
        self._replica_checks = ReplicaChecks(self._lives, spec)
        self._controller_checks = ControllerChecks(
            self._lives, spec.broker_config.broker_session_timeout_ms * 1_000
        )
        self._metrics_checks = MetricsChecks()
        self._task_checks = TaskChecks()
        self._role_checks = RoleChecks(self._lives)
        self._epoch_checks = ProducerEpochChecks()
        self._commit_interval_checks = CommitIntervalChecks(spec)
        self._status_checks = StatusChecks(self._lives)
        self._invariants_every = invariants_every or 0
        self._nodes_due_at = self._invariants_every
        """The nodes check themselves next when `events_run` has reached this number."""
        if invariants_every is not None:
            loop.check_every(invariants_every, self._check_what_is_due)
            # This observer is the last one. So when it finds a violation in a row, the row is in
            # the trace already.
            self._observers += (self._check_row,)
        self._open_questions = 0
        """Number of calls of `ask_as_admin` that have not ended."""
        self._driver_rows = 0
        self._starts_aged = False
        """True if a node that starts first acts as if it had run for long; see `starts`."""

    def now_us(self) -> int:
        """Return microseconds since the run began, by the run's clock, which has no drift."""
        return self._loop.now_us()

    @property
    def events_run(self) -> int:
        """Number of the loop's callbacks so far: frames, timers and steps of tasks."""
        return self._loop.events_run

    def requests_arrived(self) -> dict[str, int]:
        """Return the number of requests that reached a live node, by Kafka's name of the API."""
        arrived = self._network.requests_arrived
        return {api_key.label: arrived[api_key] for api_key in sorted(arrived)}

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run `main` to its end and return its result.

        If NodeTaskFailed, Deadlock or KeyboardInterrupt ends the run, `main` is cancelled first, so
        that its cleanup runs. A second Ctrl-C skips the cleanup.
        Raises: exceptions of `main`; NodeTaskFailed if a node's task died, also by a tripwire;
            Deadlock if `main` waits and nothing is scheduled; KeyboardInterrupt after a Ctrl-C;
            InvariantViolation of a check between two events.
        """
        task = self._loop.create_task(main, name="main")
        with self._interruptible(), tripwires():
            try:
                return self._loop.run_until_complete(task)
            except (KeyboardInterrupt, NodeTaskFailed, Deadlock):
                self._cancel(task)
                raise

    async def sleep(self, delay_us: int) -> None:
        """Wait on the run's clock."""
        future = self._loop.create_future()
        self._loop.call_at_us(self._loop.now_us() + delay_us, _wake, future)
        await future

    async def start(self, *, apart: bool = False) -> None:
        """Start every node of the initial cluster.

        If `apart` is True, each node starts at a random time, and its timers begin at random points
        of their periods. Otherwise all nodes start now, in the order of the spec.
        Raises: ClusterStartError if a node cannot be started, after the started nodes were stopped.
        """
        began_us = self.now_us()
        self._starts_aged = apart
        for start_us, name in (
            draw_starts(self._cluster, self._seed) if apart else self._initial_starts_at_once()
        ):
            try:
                if (wait_us := began_us + start_us - self.now_us()) > 0:
                    await self.sleep(wait_us)
                await self.start_node(name)
            except Exception as error:
                await self.stop()
                raise ClusterStartError(f"{name} could not be started: {error!r}") from error

    async def stop(self) -> None:
        """Let each node check itself, then end all nodes. May be called twice."""
        # A violation is recorded and not raised, because the nodes must still be ended.
        try:
            self._check_invariants_once(thoroughly=True)
        except InvariantViolation as violation:
            self._failures.append(f"at the end: {violation!r}")
        self._checks_invariants = False
        await super().stop()

    def out_of_step_us(self) -> int:
        """Return a random time to wait before the first fault (see `draw_wait_us`)."""
        return draw_wait_us(self._cluster, self._seed)

    def at(self, time_us: int, callback: Callable[[], None]) -> None:
        """Call `callback` at `time_us`. Observers of a run use this.

        The callback must not change the run, because another run of the same seed, without the
        callback, must have the same trace. If it raises KeyboardInterrupt, the run ends as after a
        Ctrl-C.
        """
        self._loop.call_at_us(time_us, callback)

    async def ask_as_admin(
        self,
        question: Callable[Concatenate[Host, ClusterSpec, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Await `question` with the administrator's host.

        Raises: exceptions of `question`.
        """
        self._open_questions += 1
        try:
            return await question(self.admin_host(), self._cluster, *args, **kwargs)
        finally:
            self._open_questions -= 1

    def trace(self, event: TraceEvent) -> None:
        """Write an event of the run itself (node "driver")."""
        if not self._observers:
            return
        now_us = self._loop.now_us()
        row = stamp(
            event,
            run=self._run_id,
            time_us=now_us,
            node_time_us=now_us,
            seq=self._driver_rows,
            node=DRIVER,
            incarnation=0,
        )
        self._driver_rows += 1
        for observer in self._observers:
            observer(row)

    def failures(self) -> tuple[str, ...]:
        """Return the tool's own failures so far."""
        return tuple(self._failures)

    def _check_invariants_once(self, *, thoroughly: bool = False) -> None:
        """Check all nodes, unless an earlier check has failed."""
        if self._checks_invariants:
            self._checks_invariants = False  # stays False if the next line raises
            self.check_invariants(thoroughly=thoroughly)
            self._replica_checks.check(thoroughly=thoroughly)
            self._check_administrator()
            if thoroughly:
                self._status_checks.check(self.status_now())
            self._checks_invariants = True

    def _check_administrator(self) -> None:
        """Check that the administrator's connections end with its last client.

        A client lives as long as the question that has created it.
        Raises: InvariantViolation.
        """
        if self._open_questions or self._admin is None:
            return
        if peers := self._admin.endpoint.peers():
            raise InvariantViolation(
                "the connections of an administrator end with its clients",
                f"no question is open, and {self._admin.name} has connections to {peers}",
            )

    def _check_what_is_due(self) -> None:
        """Compare the nodes with each other; if it is time for it, make them check themselves, too.

        The loop calls this regularly, and also after `check_soon`.
        """
        if self.events_run >= self._nodes_due_at:
            self._nodes_due_at = self.events_run + self._invariants_every
            self._check_invariants_once()
        elif self._checks_invariants:
            self._checks_invariants = False  # as in `_check_invariants_once`
            self._replica_checks.check()
            self._checks_invariants = True

    def _check_row(self, row: TraceRow) -> None:
        """Check what a row shows; after a change of a leader or an ISR, compare the nodes soon.

        Raises: InvariantViolation.
        """
        if row.kind not in _WATCHED_ROWS:
            return
        if row.kind in _CHECKED_CHANGES:
            self._loop.check_soon()
        elif row.kind in CHECKED_ROWS:
            self._replica_checks.traced(row)
        if row.kind in METRICS_CHECK_KINDS:
            self._metrics_checks.observe(row)
        if row.kind in TASK_KINDS:
            self._task_checks.observe(row)
        if row.kind in ROLE_KINDS:
            self._role_checks.observe(row)
        if row.kind == TraceKind.TRANSACTION_STATE:
            self._epoch_checks.observe(row)
        if row.kind in COMMIT_INTERVAL_KINDS:
            self._commit_interval_checks.observe(row)
        elif row.kind in STATUS_KINDS:
            self._status_checks.observe(row)

    def _check_answer(self, node: NodeName, request: AnyRequest, response: AnyResponse) -> None:
        """Check an answer of a node before it leaves. Raises: InvariantViolation."""
        check_answer(request, response)
        self._replica_checks.answered(node, request, response)
        self._controller_checks.answered(node, request, response)

    def _before_exit(self, life: VirtualLife) -> None:
        """Make a node check itself at the end of its orderly stop. Raises: InvariantViolation."""
        if self._checks_invariants:
            self._check_one(life.spec.name, life, thoroughly=True)

    def _initial_starts_at_once(self) -> list[tuple[int, NodeName]]:
        return [(0, name) for name, life in self._lives.items() if not starts_later(life.spec)]

    def _build_host(
        self, name: NodeName, incarnation: Incarnation, storage: MemoryStorage, clock: NodeClock
    ) -> VirtualHost:
        """Return the host of an incarnation, ready to take frames."""
        host = VirtualHost(
            name=name,
            incarnation=incarnation,
            run_id=self._run_id,
            loop=self._loop,
            network=self._network,
            clock=clock,
            seed=self._seed,
            storage=storage,
            observers=self._observers,
            traces_messages=self._trace_messages,
            on_failure=self._node_failed,
            log=self._log,
            # A restarted node has really just started.
            has_run_before=self._starts_aged and incarnation == 0,
        )
        self._network.attach(host)
        if self._checks_answers:
            host.endpoint.check_answer = partial(self._check_answer, name)
            self._replica_checks.cleanings.watch(host, storage)
            if any(controller.name == name for controller in self._cluster.controllers):
                host.endpoint.before_request = partial(self._controller_checks.received, name)
        return host

    def _node_failed(self, host: VirtualHost, what: str, error: BaseException) -> None:
        """Record that task or callback `what` of a node died, and end the run by NodeTaskFailed."""
        failure = f"{host.name} incarnation {host.incarnation}: {what} died: {error!r}"
        self._failures.append(failure)  # before the row below, because an observer may raise
        host.trace(TraceEvent(kind=TraceKind.TASK_FAILED, detail={"exception": failure}))
        raise NodeTaskFailed(failure) from error

    def _cancel(self, task: "asyncio.Task[Any]") -> None:
        """Cancel the task of `run`'s main; failures during its cleanup go to `failures`."""
        task.cancel()
        while not task.done():
            try:
                self._loop.run_until_complete(task)
            except NodeTaskFailed:
                continue  # `_node_failed` has recorded it; the cleanup goes on
            except asyncio.CancelledError:
                return
            except Exception as error:  # it is only recorded: `run` raises the first failure
                self._failures.append(f"cleanup after a broken run: {error!r}")
                return

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Turn Ctrl-C into KeyboardInterrupt between two callbacks of the loop."""
        # Python allows signal handlers only in the main thread. A caller's own handler stays.
        if (
            threading.current_thread() is not threading.main_thread()
            or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        ):
            yield
            return
        signal.signal(signal.SIGINT, lambda _signal, _frame: self._loop.interrupt())
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
