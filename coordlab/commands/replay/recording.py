"""Plays a schedule into a run directory, and can stop at one moment to inspect the cluster.

The command `replay` has two inspections: --until prints the state of the cluster, and --break-at
opens a debugger. An inspection is a function that gets a Moment, which has the cluster and its
latest events.
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
"""The largest number of rows of the trace in a Moment. They are the latest rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A run that stands still at one time of its clock, before the events of this time.

    - `stage`: the stage of the run, such as "faults"; "" before the first stage.
    - `status`: the answers of all live nodes about their own states.
    - `faults`: an entry for each fault of the plan, with its present state.
    - `rows`: the last rows of the trace.
    - `stop_again_at`: takes a later time of the run's clock in microseconds. The run stops there,
      too, and is inspected again.
    """

    runtime: VirtualRuntime
    experiment: Experiment
    time_us: int
    stage: str
    status: ClusterStatus
    faults: tuple[JournalEntry, ...]
    rows: tuple[TraceRow, ...]
    stop_again_at: Callable[[int], None]


Inspection = Callable[[Moment], bool]
"""Looks at a run at one moment. Returns True if the run goes on, False to end it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The results of a recorded run.

    - `digest`: a hash over the trace without messages, to compare with the digest of another run.
    - `trail`: the digests of the trace up to several earlier times. Two trails show when two runs
      begin to differ.
    - `reached`: True if the run has reached the moment of the inspection.
    """

    results: Results
    digest: str
    trail: str
    reached: bool


class Recorder:
    """Plays one experiment with its seed into a run directory. Each Recorder plays only once."""

    def __init__(self, experiment: Experiment, seed: int, directory: RunDirectory) -> None:
        self._experiment = experiment
        self._seed = seed
        self._directory = directory
        # Two hashes over the trace. The hash over all rows is for the manifest. The hash over rows
        # without messages can be compared with a run that did not record messages. EventsOnly drops
        # the messages.
        self._digest_of_all = TraceDigest()
        self._digest_of_events = TraceDigest()
        self._feed_digest_of_events = EventsOnly(self._digest_of_events)
        self._trace = RunTrace(directory)
        self._rows: deque[TraceRow] = deque(maxlen=LAST_ROWS)
        self._progress: Progress | None = None  # the latest progress that the run has reported
        self._checks = CheckSuite(context_of(experiment, in_virtual_time=True), experiment.checks)
        self._ended_by_inspection = False
        self._reached = False  # True once the run has reached the moment of the inspection
        self._runtime = VirtualRuntime(
            to_cluster_spec(experiment),
            seed=seed,
            run_id=directory.manifest.run,
            observers=(self._checks.observe, self._observe),
        )

    def play(self, *, at_us: int | None = None, inspect: Inspection | None = None) -> Recording:
        """Play the schedule.

        At the time `at_us` of the run's clock, `inspect` is called. If it returns False, the run
        ends there. Both are None if the run is not inspected.
        """
        if at_us is not None and inspect is not None:
            self._stop_at(at_us, inspect)
        run = ExperimentRun(
            self._experiment,
            plan_of(self._experiment),
            self._runtime,
            self._checks,
            seed=self._seed,
            directory=self._directory,
            progress=self._remember_progress,
        )
        try:
            results = run.execute()
        finally:
            row_count = self._trace.close()
        self._directory.manifest.digest = self._digest_of_all.hexdigest()
        self._directory.write_manifest()
        self._directory.conclude(results, rows=row_count)
        return Recording(
            results=results,
            digest=self._digest_of_events.hexdigest(),
            trail=self._digest_of_events.trail(),
            reached=self._reached,
        )

    def _stop_at(self, time_us: int, inspect: Inspection) -> None:
        self._runtime.at(time_us, lambda: self._stop_and_inspect(inspect))

    def _stop_and_inspect(self, inspect: Inspection) -> None:
        """Call `inspect` with the present moment.

        Raises: KeyboardInterrupt to end the run, as a Ctrl-C would.
        """
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
            stop_again_at=lambda time_us: self._stop_at(time_us, inspect),
        )
        self._ended_by_inspection = not _goes_on_after(inspect, moment)
        if self._ended_by_inspection:
            raise KeyboardInterrupt

    def _remember_progress(self, progress: Progress) -> None:
        """Keep the progress that the run reports, because a Moment needs it."""
        self._progress = progress

    def _observe(self, row: TraceRow) -> None:
        """Record a row of the trace."""
        if self._ended_by_inspection:
            # The run still heals its faults and stops the cluster. These rows are dropped, because
            # the user wants a trace that ends at the moment of the inspection.
            return
        self._rows.append(row)
        self._digest_of_all(row)
        self._feed_digest_of_events(row)
        self._trace(row)


def _goes_on_after(inspect: Inspection, moment: Moment) -> bool:
    """Return True if the run goes on after the inspection.

    The run does not go on if the user quits the debugger, which raises KeyboardInterrupt.
    """
    try:
        return inspect(moment)
    except KeyboardInterrupt:
        return False
