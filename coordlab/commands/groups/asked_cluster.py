"""Clusters that answer an administrator: one in real time, or one at a moment of a replay.

A question is a coroutine that sends requests as a client of the cluster. Both kinds of cluster run
the same questions. With the answer they return the times of question and answer, and on demand the
group's rebalances that the trace (the run's recorded events) has so far.

A Host is a node's only access to the network and the clock; the client of a question has one, too.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import click
import msgspec

from chaos.checkers.registry import CheckSuite, context_of
from chaos.experiment.structs import Experiment, to_cluster_spec
from chaos.exploration.gc_pause import collecting_afterwards
from chaos.results.manifest import experiment_of
from chaos.results.run_directory import TRACE_FOLDER, NotARun, PastRun, list_runs
from chaos.run.plan import plan_of
from chaos.run.runner import ExperimentRun
from cluster.client.admin.admin_client import AdminClient
from cluster.host.host import Host, HostDead
from cluster.realtime.outside_client import NotReachable, ask_as_guest
from cluster.spec import ClusterSpec
from cluster.trace.files import FrameReader, merge_rows
from cluster.virtual.runtime import VirtualRuntime
from coordlab.console import clock
from coordlab.options import find_run
from coordlab.schedules import Schedule, named_schedule
from pipeline.in_memory.rebalances import RebalanceLog
from protocol.ids import BrokerId
from protocol.trace import TraceRow
from results_schema.results import Results, RunOutcome

T = TypeVar("T")  # type of the answer
T_co = TypeVar("T_co", covariant=True)  # covariant, so that any Asked is an Asked[object]

Question = Callable[[Host, ClusterSpec], Awaitable[T]]
"""A coroutine that queries or changes a cluster, with the Host of a client."""
VIRTUAL = "virtual"
"""The runtime of a run in virtual time, as its manifest names it."""


class NoAnswer(Exception):
    """The cluster did not answer a question; the message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked(Generic[T_co]):
    """An answer.

    - `where`: name of the run or schedule that was asked.
    - `asked_at_us`, `answered_at_us`: times of question and answer, on the run's clock.
    - `rebalances`: the rebalances in the trace until the answer; None if they were not requested.
    - `unseen`: a sentence on the missing part of the trace; None if no part is missing.
    """

    answer: T_co
    where: str
    asked_at_us: int
    answered_at_us: int
    rebalances: RebalanceLog | None = None
    unseen: str | None = None

    def times(self) -> dict[str, object]:
        """Return cluster, time of the question and time of the answer, for a JSON document."""
        return {
            "where": self.where,
            "asked_at_us": self.asked_at_us,
            "answered_at_us": self.answered_at_us,
        }


class AskedCluster(ABC):
    """A cluster that answers questions."""

    @abstractmethod
    def ask(self, question: Question[T], *, follows: bool) -> Asked[T]:
        """Ask, and return the answer.

        `follows`: True to return also the rebalances until the answer.
        Raises: NoAnswer if there is no answer; NotARun if the cluster has ended; the exceptions of
        the question itself.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The options of every question: the cluster and broker to ask, and the form of the answer.

    - `at_us`, `timeout_us`: on the run's clock.
    - `broker`: the broker to ask; None: the coordinator of each group, as the brokers name it.
    - `force`: True to replay a schedule although other code wrote it.
    """

    run: Path | None
    runs: Path
    replay: str | None
    space: str
    at_us: int | None
    force: bool
    timeout_us: int
    broker: int | None
    json: bool

    def ask(
        self, question: Callable[[AdminClient], Awaitable[T]], *, follows: bool = False
    ) -> Asked[T]:
        """Ask with an administrator's client, and return the answer.

        Raises: NoAnswer, TimeoutError or ClientError if there is no answer; click.UsageError,
        ExperimentError or NotARun if the options name no cluster.
        """

        async def ask_as_admin(host: Host, cluster: ClusterSpec) -> T:
            # A timeout below a millisecond must not become 0.
            timeout_ms = max(1, self.timeout_us // 1_000)
            broker = self._broker_in(cluster)
            with AdminClient(host, cluster, timeout_ms=timeout_ms, broker=broker) as admin:
                return await question(admin)

        return self._cluster().ask(ask_as_admin, follows=follows)

    def _cluster(self) -> AskedCluster:
        """Return the cluster that the options name. Raises: click.UsageError."""
        if self.replay is None:
            if self.at_us is not None:
                raise click.UsageError("--at is a moment of a replay: name that with --replay")
            return running_cluster(self.run, self.runs)
        if self.run is not None:
            raise click.UsageError("--run asks a running cluster, --replay plays one: give one")
        if self.at_us is None:
            raise click.UsageError("--replay needs the moment to ask at, e.g. --at 31.5s")
        schedule = named_schedule(self.replay, self.space)
        return ReplayedCluster(schedule, self.at_us, force=self.force)

    def _broker_in(self, cluster: ClusterSpec) -> BrokerId | None:
        """Return the broker to ask. Raises: click.UsageError if the cluster has no such broker."""
        if self.broker is None:
            return None
        ids = [broker.broker_id for broker in cluster.brokers]
        if self.broker not in ids:
            raise click.UsageError(f"--broker: there is no broker {self.broker}, there are {ids}")
        return BrokerId(self.broker)


# -- a cluster that runs -------------------------------------------------------------------------


class RunningCluster(AskedCluster):
    """The cluster of a run that is in progress in real time.

    The driver, the process that conducts the run, must be on this machine.
    """

    def __init__(self, past: PastRun) -> None:
        """Store the run.

        Raises: NotARun if its cluster cannot be asked from this process; the message has the
        reason.
        """
        manifest = past.manifest
        if manifest.runtime == VIRTUAL:
            raise NotARun(
                f"{past.path} is a run in virtual time, which answers no other process: "
                "ask a moment of it with --replay and --at"
            )
        if not past.is_running:
            how = f"is {manifest.status}" if manifest.ended_at else "broke off"
            raise NotARun(f"{past.path} {how}: its cluster is gone")
        if not past.is_here:
            raise NotARun(f"{past.path} is driven from {manifest.host}: ask there")
        self._past = past
        try:
            self._cluster = to_cluster_spec(experiment_of(manifest))
        except msgspec.ValidationError as error:
            raise NotARun(f"{past.path} is a run of another version: {error}") from error

    def ask(self, question: Question[T], *, follows: bool) -> Asked[T]:
        """Ask the brokers over their network, like any other client."""

        async def timed(host: Host) -> tuple[int, T, int]:
            """Return the time of the question, the answer, and the time of the answer."""
            asked_at_us = host.now_us()
            # The parts are computed in their order, so the last one is the time of the answer.
            return asked_at_us, await question(host, self._cluster), host.now_us()

        try:
            asked_at_us, answer, answered_at_us = ask_as_guest(self._past.path, timed)
        except NotReachable as error:
            raise NotARun(f"{self._past.path} cannot be asked: {error}") from error
        return Asked(
            answer=answer,
            where=self._past.manifest.run,
            asked_at_us=asked_at_us,
            answered_at_us=answered_at_us,
            rebalances=self._rebalances(answered_at_us) if follows else None,
            unseen=self._unseen() if follows else None,
        )

    def _rebalances(self, until_us: int) -> RebalanceLog:
        """Return the rebalances in the rows that the nodes have written to their files so far.

        Nodes write a row to their files a moment after its time, so the latest rows may be missing.
        """
        log = RebalanceLog()
        files = sorted((self._past.path / TRACE_FOLDER).glob("*.frames"))
        for row in merge_rows([FrameReader(file) for file in files]):
            # The run goes on, so the files already have rows from after the answer.
            if row.time_us <= until_us:
                log.observe(row)
        return log

    def _unseen(self) -> str | None:
        """Return a sentence about brokers with traces on other machines; None if there are none."""
        traces = self._past.path / TRACE_FOLDER
        # A broker has one file for each of its incarnations.
        missing = [
            broker.name
            for broker in self._cluster.brokers
            if not any(traces.glob(f"{broker.name}-*.frames"))
        ]
        if not missing:
            return None
        return (
            f"the traces of {', '.join(missing)} are on other machines until the run is over: "
            "rebalances of groups that they coordinate are missing"
        )


def running_cluster(run: Path | None, runs: Path) -> RunningCluster:
    """Return the cluster of `run`, or of the latest run in `runs` that is in progress here.

    Raises: NotARun if there is no such run; the message says what to do instead.
    """
    if run is not None:
        return RunningCluster(find_run(run, runs))
    running = [
        past
        for past in list_runs(runs)
        if past.manifest.runtime != VIRTUAL and past.is_running and past.is_here
    ]
    if not running:
        raise NotARun(
            f"none of the runs in {runs} is in progress in real time on this machine: start one in "
            "another terminal, name one with --run, or ask a moment of a run in virtual time: "
            "--replay split_brain_generations --at 60s"
        )
    return RunningCluster(max(running, key=lambda past: past.manifest.started_at))


# -- a moment of a replay ------------------------------------------------------------------------


class ReplayedCluster(AskedCluster):
    """The cluster of a schedule at a moment of virtual time.

    A schedule is an experiment with a seed. In virtual time, a simulated clock, it always gives the
    same run. Here the run is played only for the question, and is not written to a directory.
    """

    def __init__(self, schedule: Schedule, at_us: int, *, force: bool) -> None:
        """Store the schedule.

        Raises: click.UsageError if other code wrote its file, unless `force` is True.
        """
        # Called only for its UsageError; the result is not needed.
        schedule.changes_since_stamp("ask", force=force)
        self._schedule = schedule
        self._at_us = at_us

    def ask(self, question: Question[T], *, follows: bool) -> Asked[T]:
        """Play the schedule up to the moment, ask, and play on until the answer has arrived.

        Raises: click.UsageError if the run ends before the moment.
        """
        played = _Played(self._schedule.experiment, self._schedule.seed, question, self._at_us)
        # Garbage collections during the run would slow it down.
        with collecting_afterwards():
            results = played.play()
        if played.failure is not None:
            raise played.failure
        if results.outcome is RunOutcome.INTERNAL_ERROR:
            raise RuntimeError("; ".join(results.reasons))
        if played.asked_at_us is None:
            raise click.UsageError(
                f"the run ends at {clock(results.ended_at_us)}, before {clock(self._at_us)}"
            )
        if played.answered_at_us is None:
            raise NoAnswer(f"the run ended at {clock(results.ended_at_us)}, before an answer")
        return Asked(
            answer=played.answers[0],
            where=self._schedule.name,
            asked_at_us=played.asked_at_us,
            answered_at_us=played.answered_at_us,
            rebalances=played.log if follows else None,
        )


class _Played(Generic[T]):
    """One run of an experiment that ends with an answer.

    1. At the given moment, `_begin` starts the question in a task of the cluster.
    2. `_ask` stores the answer, or the exception of the question.
    3. `_end_the_run` interrupts the run, which then heals its faults and stops the cluster.
    """

    def __init__(
        self, experiment: Experiment, seed: int, question: Question[T], at_us: int
    ) -> None:
        self.log = RebalanceLog()
        self.answers: list[T] = []
        """The answer, once it has arrived; a list, because the answer itself may be None."""
        self.asked_at_us: int | None = None
        self.answered_at_us: int | None = None
        self.failure: Exception | None = None
        """The exception that the question raised."""
        self._question = question
        self._experiment = experiment
        self._seed = seed
        self._spec = to_cluster_spec(experiment)
        self._suite = CheckSuite(context_of(experiment), experiment.checks)
        self._runtime = VirtualRuntime(
            self._spec,
            seed=seed,
            run_id="asked",
            observers=(self._suite.observe, self._observe),
            trace_messages=False,  # rebalances are in other rows
        )
        self._runtime.at(at_us, self._begin)

    def play(self) -> Results:
        """Play, and return the results of the run.

        Raises: KeyboardInterrupt after a Ctrl-C of the user.
        """
        results = ExperimentRun(
            self._experiment,
            plan_of(self._experiment),
            self._runtime,
            self._suite,
            seed=self._seed,
        ).execute()
        # `_end_the_run` interrupts the run only after the answer. A run that was interrupted before
        # an answer was interrupted by the user.
        if results.outcome is RunOutcome.INTERRUPTED and not self._is_over:
            raise KeyboardInterrupt
        return results

    @property
    def _is_over(self) -> bool:
        """True once the question has its answer, or has failed."""
        return self.answered_at_us is not None

    def _observe(self, row: TraceRow) -> None:
        """Add a row to the log of rebalances, if it is not later than the answer."""
        # Rows after the answer are about the healing of faults and the stop of the cluster.
        if not self._is_over:
            self.log.observe(row)

    def _begin(self) -> None:
        """Start the question in a task of the cluster."""
        self.asked_at_us = self._runtime.now_us()
        host = self._runtime.admin_host()
        host.spawn(self._ask(host), name="question")

    async def _ask(self, host: Host) -> None:
        """Ask the question on a host of the replay, and then end the run."""
        try:
            self.answers.append(await self._question(host, self._spec))
        except (HostDead, asyncio.CancelledError):
            # The run has ended before an answer.
            raise
        except Exception as error:
            # The question has failed, not the run. `ReplayedCluster.ask` will raise the exception.
            self.failure = error
        self.answered_at_us = self._runtime.now_us()
        # `_end_the_run` raises KeyboardInterrupt. This exception counts as a Ctrl-C only if a
        # callback of `Runtime.at` raises it, and not this task.
        self._runtime.at(self.answered_at_us, _end_the_run)


def _end_the_run() -> None:
    """Interrupt the run as a Ctrl-C does: the runner then heals faults and stops the cluster."""
    raise KeyboardInterrupt
