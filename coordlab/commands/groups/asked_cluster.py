"""The clusters that `groups` can ask.

A subcommand of `groups` writes its question once, as a coroutine that sends requests. Two kinds of
cluster can answer it:

- RunningCluster: a run that is in progress in real time, in other processes. The question connects
  to its brokers over the network.
- ReplayedCluster: a schedule (an experiment with a seed) that is played in virtual time, in this
  process. The question starts at the moment that `--at` names.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
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

T = TypeVar("T")  # the type of an answer
# Covariant, so that every TimedAnswer is a TimedAnswer[object].
T_co = TypeVar("T_co", covariant=True)

Question = Callable[[Host, ClusterSpec], Awaitable[T]]
"""A coroutine that sends requests to a cluster and returns the answer.

The requests go through the Host that the coroutine gets. (Clients and brokers reach the network and
the clock only through a Host.)
"""
VIRTUAL = "virtual"
"""The value of `runtime` in the manifest of a run in virtual time."""


class NoAnswer(Exception):
    """The cluster did not answer a question; the message has the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedAnswer(Generic[T_co]):
    """The answer to a question, with the cluster that gave it, and the time.

    - `where`: the name of the run or schedule that was asked.
    - `asked_at_us`, `answered_at_us`: times of the run's clock.
    - `rebalances`: the rebalances in the trace (the run's recorded events) up to the time of the
      answer; None if they were not requested.
    - `missing_traces`: a sentence for the user, if the traces of some brokers cannot be read from
      here, so that rebalances may be missing; None if all traces can be read.
    """

    answer: T_co
    where: str
    asked_at_us: int
    answered_at_us: int
    rebalances: RebalanceLog | None = None
    missing_traces: str | None = None

    def times(self) -> dict[str, object]:
        """Return the cluster that answered and the times, for a JSON document."""
        return {
            "where": self.where,
            "asked_at_us": self.asked_at_us,
            "answered_at_us": self.answered_at_us,
        }


class AskedCluster(ABC):
    """A cluster that answers questions."""

    @abstractmethod
    def ask(self, question: Question[T], *, with_rebalances: bool) -> TimedAnswer[T]:
        """Run the question as a client of this cluster, and return its answer.

        `with_rebalances`: True to fill `rebalances` and `missing_traces` of the reply.
        Raises: NoAnswer if the cluster ends before it has answered; NotARun if it had already
        ended; and the exceptions of the question itself.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionOptions:
    """The options that every subcommand of `groups` has.

    - `run`, `runs`: the run to ask, if `replay` is None. Without `run`, it is the latest run in
      `runs`.
    - `replay`, `space`, `at_us`: the schedule to play, and the moment at which to ask.
    - `force`: True to replay a schedule file although another version of coordlab wrote it.
    - `timeout_us`: how long to wait for answers, by the run's clock.
    - `broker`: the broker to ask, even if it is no coordinator; None: each group's coordinator.
    - `json`: True to print a JSON document.
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
        self, question: Callable[[AdminClient], Awaitable[T]], *, with_rebalances: bool = False
    ) -> TimedAnswer[T]:
        """Ask the cluster that these options name, with an AdminClient.

        Raises: NoAnswer, TimeoutError or ClientError if there is no answer; click.UsageError,
        ExperimentError or NotARun if the options name no cluster.
        """

        async def ask_as_admin(host: Host, cluster: ClusterSpec) -> T:
            # The client counts in milliseconds. A timeout below 1 ms must not become 0.
            timeout_ms = max(1, self.timeout_us // 1_000)
            broker = self._broker_in(cluster)
            with AdminClient(host, cluster, timeout_ms=timeout_ms, broker=broker) as admin:
                return await question(admin)

        return self._cluster().ask(ask_as_admin, with_rebalances=with_rebalances)

    def _cluster(self) -> AskedCluster:
        """Return the cluster that the options name.

        Raises: click.UsageError if they name both a run and a schedule, or no moment to ask at.
        """
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

    The cluster can be asked only from the machine of its driver, the process that started the run.
    """

    def __init__(self, run: PastRun) -> None:
        """Store the run, which is in progress, although a PastRun usually is over.

        Raises: NotARun with the reason, if the run's cluster cannot be asked.
        """
        manifest = run.manifest
        if manifest.runtime == VIRTUAL:
            raise NotARun(
                f"{run.path} is a run in virtual time, which answers no other process: "
                "ask a moment of it with --replay and --at"
            )
        if not run.is_running:
            # A driver that was killed could not write the end of its run into the manifest.
            end = f"is {manifest.status}" if manifest.ended_at else "broke off"
            raise NotARun(f"{run.path} {end}: its cluster is gone")
        if not run.is_here:
            raise NotARun(f"{run.path} is driven from {manifest.host}: ask there")
        self._run = run
        try:
            self._cluster = to_cluster_spec(experiment_of(manifest))
        except msgspec.ValidationError as error:
            raise NotARun(f"{run.path} is a run of another version: {error}") from error

    def ask(self, question: Question[T], *, with_rebalances: bool) -> TimedAnswer[T]:
        """Ask the brokers over their network, like any other client."""

        async def ask_with_times(host: Host) -> TimedAnswer[T]:
            asked_at_us = host.now_us()
            answer = await question(host, self._cluster)
            return TimedAnswer(
                answer=answer,
                where=self._run.manifest.run,
                asked_at_us=asked_at_us,
                answered_at_us=host.now_us(),
            )

        try:
            reply = ask_as_guest(self._run.path, ask_with_times)
        except NotReachable as error:
            raise NotARun(f"{self._run.path} cannot be asked: {error}") from error
        if not with_rebalances:
            return reply
        return replace(
            reply,
            rebalances=self._rebalances(reply.answered_at_us),
            missing_traces=self._missing_traces(),
        )

    def _rebalances(self, until_us: int) -> RebalanceLog:
        """Return the rebalances in the trace up to a time.

        The latest rebalances may be missing, because nodes write events to their files a bit late.
        """
        log = RebalanceLog()
        files = sorted((self._run.path / TRACE_FOLDER).glob("*.frames"))
        for row in merge_rows([FrameReader(file) for file in files]):
            # The run goes on while its files are read. So the files may have later rows, too.
            if row.time_us <= until_us:
                log.observe(row)
        return log

    def _missing_traces(self) -> str | None:
        """Return a sentence about brokers that write their traces on other machines, or None."""
        traces = self._run.path / TRACE_FOLDER
        # A broker begins another file after each restart. A broker without any file here runs on
        # another machine.
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
        candidate
        for candidate in list_runs(runs)
        if candidate.manifest.runtime != VIRTUAL and candidate.is_running and candidate.is_here
    ]
    if not running:
        raise NotARun(
            f"none of the runs in {runs} is in progress in real time on this machine: start one in "
            "another terminal, name one with --run, or ask a moment of a run in virtual time: "
            "--replay split_brain_generations --at 60s"
        )
    latest = max(running, key=lambda candidate: candidate.manifest.started_at)
    return RunningCluster(latest)


# -- a moment of a replay ------------------------------------------------------------------------


class ReplayedCluster(AskedCluster):
    """The cluster of a schedule, an experiment with a seed, at a moment of virtual time.

    In virtual time the same seed always gives the same run. So even the cluster of a run that is
    over can be asked: the run is played again, only for this question, and is not recorded.
    """

    def __init__(self, schedule: Schedule, at_us: int, *, force: bool) -> None:
        """Store the schedule.

        Raises: click.UsageError if another version of coordlab wrote the schedule's file, because
        its run may differ now. With `force` this is permitted.
        """
        # This call raises the UsageError. The differences that it returns are not needed.
        schedule.changes_since_stamp("ask", force=force)
        self._schedule = schedule
        self._at_us = at_us

    def ask(self, question: Question[T], *, with_rebalances: bool) -> TimedAnswer[T]:
        """Play the schedule up to the moment, ask, and play on until the answer has arrived.

        Raises: click.UsageError if the run ends before the moment.
        """
        played = _PlayedWithQuestion(
            self._schedule.experiment, self._schedule.seed, question, self._at_us
        )
        # No garbage is collected during the run, because that would slow it down.
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
        (answer,) = played.answers
        return TimedAnswer(
            answer=answer,
            where=self._schedule.name,
            asked_at_us=played.asked_at_us,
            answered_at_us=played.answered_at_us,
            rebalances=played.rebalances if with_rebalances else None,
        )


class _PlayedWithQuestion(Generic[T]):
    """One run of an experiment, with a question at a given moment. The run ends with the answer.

    1. `play` plays the run. When its clock reaches the moment, it calls `_start_question`.
    2. The question runs in a task of its own, beside the cluster. `_ask_and_end_run` waits for the
       answer and stores it. If the question raises an exception, it stores the exception.
    3. `_ask_and_end_run` then lets the runtime call `_end_the_run`, which interrupts the run. The
       rest of the run is not needed.
    """

    def __init__(
        self, experiment: Experiment, seed: int, question: Question[T], at_us: int
    ) -> None:
        self.rebalances = RebalanceLog()
        self.answers: list[T] = []
        """A list with the answer. The list is empty until the answer has arrived.

        A field that is None at first would not do, because an answer may be None.
        """
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
            # Most rows of a trace are messages. They are left out, because rebalances need only the
            # events.
            trace_messages=False,
        )
        self._runtime.at(at_us, self._start_question)

    def play(self) -> Results:
        """Play the run up to the answer. Raises: KeyboardInterrupt after a Ctrl-C of the user."""
        results = ExperimentRun(
            self._experiment,
            plan_of(self._experiment),
            self._runtime,
            self._suite,
            seed=self._seed,
        ).execute()
        # After the answer, `_end_the_run` has interrupted the run. If there is no answer yet, the
        # user has interrupted the run.
        if results.outcome is RunOutcome.INTERRUPTED and not self._is_over:
            raise KeyboardInterrupt
        return results

    @property
    def _is_over(self) -> bool:
        """True once the question has its answer, or has failed."""
        return self.answered_at_us is not None

    def _observe(self, row: TraceRow) -> None:
        """Look for rebalances in the rows of the trace up to the answer.

        The later rows come from the end of the run, which heals the faults and stops the cluster.
        """
        if not self._is_over:
            self.rebalances.observe(row)

    def _start_question(self) -> None:
        self.asked_at_us = self._runtime.now_us()
        host = self._runtime.admin_host()
        host.spawn(self._ask_and_end_run(host), name="question")

    async def _ask_and_end_run(self, host: Host) -> None:
        """Store the answer to the question or its exception, and then end the run."""
        try:
            self.answers.append(await self._question(host, self._spec))
        except (HostDead, asyncio.CancelledError):
            # The run ended while the question waited for the answer.
            raise
        except Exception as error:
            # The question has failed, and not the run. So the run must not get the exception.
            # Instead `ReplayedCluster.ask` raises it after the run.
            self.failure = error
        self.answered_at_us = self._runtime.now_us()
        # The runtime takes a KeyboardInterrupt for a Ctrl-C only if one of its callbacks raises it.
        # If this task raised it, it would be an error of the task.
        self._runtime.at(self.answered_at_us, _end_the_run)


def _end_the_run() -> None:
    """Interrupt the run as a Ctrl-C would, so that it heals its faults and stops the cluster."""
    raise KeyboardInterrupt
