"""One run in virtual time, written as `run` writes it, whose state can be inspected at any moment.

Wiring only. Data flow: schedule -> ExperimentRun -> run directory; at a moment that was asked for,
`Moment` -> callbacks that inspect the cluster at that moment.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from chaos.checkers.registry import CheckSuite, context_of
from chaos.experiment.structs import Experiment, to_cluster_spec
from chaos.results.run_directory import RunDirectory
from chaos.results.run_trace import RunTrace
from chaos.run.plan import plan_of
from chaos.run.runner import ExperimentRun, Progress
from cluster.runtime import ClusterStatus
from cluster.trace.digest import EventsOnly, TraceDigest
from cluster.virtual.runtime import VirtualRuntime
from protocol.trace import TraceRow
from results_schema.journal import JournalEntry
from results_schema.results import Results

LAST_ROWS = 1_000
"""Rows of the trace that a `Moment` holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The run at a moment of its clock, before anything that happens then.

    Shape: `rows` are the last of the trace, `faults` the journal so far.
    """

    runtime: VirtualRuntime
    experiment: Experiment
    time_us: int
    stage: str
    status: ClusterStatus
    faults: tuple[JournalEntry, ...]
    rows: tuple[TraceRow, ...]


Look = Callable[[Moment], bool]
"""Looks at a moment of a run, and returns whether the run goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Results of a recorded run.

    Shape: `digest` and `trail` are of the trace without messages; `reached` says whether the moment
    that was asked for came.
    """

    results: Results
    digest: str
    trail: str
    reached: bool


class Recorder:
    """Plays one schedule into a run directory. `play` may be called once."""

    def __init__(self, experiment: Experiment, seed: int, directory: RunDirectory) -> None:
        self._experiment = experiment
        self._seed = seed
        self._directory = directory
        self._whole = TraceDigest()
        self._events = TraceDigest()
        self._events_only = EventsOnly(self._events)
        self._trace = RunTrace(directory)
        self._rows: deque[TraceRow] = deque(maxlen=LAST_ROWS)
        self._progress: Progress | None = None
        self._suite = CheckSuite(context_of(experiment, in_virtual_time=True), experiment.checks)
        self._is_over = False
        self._reached = False
        self._runtime = VirtualRuntime(
            to_cluster_spec(experiment),
            seed=seed,
            run_id=directory.manifest.run,
            observers=(self._suite.observe, self._observe),
        )

    def play(self, *, at_us: int | None = None, look: Look | None = None) -> Recording:
        """Play it and return what it came to; at `at_us` call `look`, and end there if it says so.

        The trace of a run that ends there ends there too.
        """
        if at_us is not None and look is not None:
            self._runtime.at(at_us, lambda: self._look(look))
        run = ExperimentRun(
            self._experiment,
            plan_of(self._experiment),
            self._runtime,
            self._suite,
            seed=self._seed,
            directory=self._directory,
            progress=self._see,
        )
        try:
            results = run.execute()
        finally:
            rows = self._trace.close()
        self._directory.manifest.digest = self._whole.hexdigest()
        self._directory.write_manifest()
        self._directory.conclude(results, rows=rows)
        return Recording(
            results=results,
            digest=self._events.hexdigest(),
            trail=self._events.trail(),
            reached=self._reached,
        )

    def _look(self, look: Look) -> None:
        self._reached = True
        progress = self._progress
        moment = Moment(
            runtime=self._runtime,
            experiment=self._experiment,
            time_us=self._runtime.now_us(),
            stage="" if progress is None else progress.stage,
            status=self._runtime.status_now(),
            faults=() if progress is None else progress.faults,
            rows=tuple(self._rows),
        )
        self._is_over = not _goes_on(look, moment)
        if self._is_over:
            raise KeyboardInterrupt

    def _see(self, progress: Progress) -> None:
        self._progress = progress

    def _observe(self, row: TraceRow) -> None:
        if self._is_over:
            return  # what heals and stops the cluster is not what was asked for
        self._rows.append(row)
        self._whole(row)
        self._events_only(row)
        self._trace(row)


def _goes_on(look: Look, moment: Moment) -> bool:
    try:
        return look(moment)
    except KeyboardInterrupt:  # at the debugger's prompt
        return False
