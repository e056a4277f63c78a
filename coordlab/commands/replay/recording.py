"""Recorder: plays a run in virtual time into a directory, and calls an inspection at one moment.

An inspection is a function that gets a Moment: the cluster, and what the run has recorded so far.

The trace has the recorded rows of the run: its events, and the messages between nodes. A digest is
a hash over the rows of a trace. A trail is a sequence of digests, each over the trace up to a point
in time. An experiment file can have a stamp, which is the digest and the trail of an earlier run,
both computed without the messages.
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
"""Number of trace rows in a Moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The run at one time of its clock, before any event of that time.

    - `rows`: the last LAST_ROWS rows of the trace.
    - `faults`: an entry for each fault of the plan, with its times and nodes as far as they are
      known.
    - `stage`: the name of the run's stage (such as the warmup); "" before the first stage.
    """

    runtime: VirtualRuntime
    experiment: Experiment
    time_us: int
    stage: str
    status: ClusterStatus
    faults: tuple[JournalEntry, ...]
    rows: tuple[TraceRow, ...]


Inspection = Callable[[Moment], bool]
"""Inspects a run at one moment; returns True if the run continues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Results of a recorded run.

    - `digest`, `trail`: computed over the trace without messages.
    - `reached`: the run reached the requested time.
    """

    results: Results
    digest: str
    trail: str
    reached: bool


class Recorder:
    """Plays one experiment with its seed into a run directory.

    `play` may be called only once, because it closes the trace.
    """

    def __init__(self, experiment: Experiment, seed: int, directory: RunDirectory) -> None:
        self._experiment = experiment
        self._seed = seed
        self._directory = directory
        self._whole = TraceDigest()  # of all rows, for the manifest
        self._events = TraceDigest()  # of all rows but messages, to compare with a stamp
        self._events_only = EventsOnly(self._events)  # passes all rows but messages on
        self._trace = RunTrace(directory)
        self._rows: deque[TraceRow] = deque(maxlen=LAST_ROWS)
        self._progress: Progress | None = None  # the latest progress that the run has reported
        self._suite = CheckSuite(context_of(experiment, in_virtual_time=True), experiment.checks)
        self._is_over = False  # True once an inspection has ended the run
        self._reached = False  # True once the run has reached the requested time
        self._runtime = VirtualRuntime(
            to_cluster_spec(experiment),
            seed=seed,
            run_id=directory.manifest.run,
            observers=(self._suite.observe, self._observe),
        )

    def play(self, *, at_us: int | None = None, inspect: Inspection | None = None) -> Recording:
        """Play the schedule; at `at_us` call `inspect`, and end the run if `inspect` returns False.

        If `inspect` ends the run, the recorded trace ends at `at_us`.
        """
        if at_us is not None and inspect is not None:
            self._runtime.at(at_us, lambda: self._inspect(inspect))
        run = ExperimentRun(
            self._experiment,
            plan_of(self._experiment),
            self._runtime,
            self._suite,
            seed=self._seed,
            directory=self._directory,
            progress=self._remember_progress,
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

    def _inspect(self, inspect: Inspection) -> None:
        """Call `inspect` with the present moment; its result decides whether the replay goes on.

        Raises: KeyboardInterrupt if the replay ends here.
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
        )
        self._is_over = not _continues(inspect, moment)
        if self._is_over:
            # ExperimentRun then heals the faults and stops the cluster, as after Ctrl-C.
            raise KeyboardInterrupt

    def _remember_progress(self, progress: Progress) -> None:
        """Store what the run reports about itself, for the next Moment."""
        self._progress = progress

    def _observe(self, row: TraceRow) -> None:
        """Record a row, unless the inspection has ended the run."""
        if self._is_over:
            return  # rows of healing and stopping the cluster are not recorded
        self._rows.append(row)
        self._whole(row)
        self._events_only(row)
        self._trace(row)


def _continues(inspect: Inspection, moment: Moment) -> bool:
    """Return the result of the inspection; False if the user quits the debugger."""
    try:
        return inspect(moment)
    except KeyboardInterrupt:
        return False
