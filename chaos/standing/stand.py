"""`stand`: runs a standing cluster to its end, and writes the run's directory.

This is the main part of the command `up`. It puts the run (StandingRun), the checkers and the
writers of the directory together.

Data flow: (Experiment, orders) -> run directory -> Results. The caller chooses the runtime.
"""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from chaos.checkers.registry import CheckSuite, context_of
from chaos.experiment.structs import Experiment
from chaos.exploration.gc_pause import collecting_seldom
from chaos.results.run_directory import TRACE_FOLDER, RunDirectory
from chaos.results.run_trace import RunTrace
from chaos.run.live_checks import LiveChecks
from chaos.run.runner import ProgressObserver
from chaos.standing.guests import GuestGroups
from chaos.standing.mailbox import OrderSource
from chaos.standing.messages import StatusAnswer
from chaos.standing.run import StandingRun
from cluster.runtime import RowObserver, Runtime
from cluster.trace.files import FrameReader, merge_rows
from cluster.trace.tail import WATERMARK_LAG_US, TraceTail
from results_schema.results import Results

RuntimeFactory = Callable[[Sequence[RowObserver]], Runtime]
"""Makes the runtime of a run, in real time, with the observers of its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stood:
    """A standing run that has ended.

    `unseen_groups`: the groups that Kafka clients from outside have joined. These clients write no
    rows into the trace, so the checks of members have left the groups out, and the user is told.
    """

    results: Results
    unseen_groups: tuple[str, ...]


def stand(
    experiment: Experiment,
    directory: RunDirectory,
    make_runtime: RuntimeFactory,
    orders: OrderSource,
    *,
    identity: StatusAnswer,
    duration_us: int | None = None,
    progress: ProgressObserver | None = None,
    on_serving: Callable[[Runtime, int], None] | None = None,
    while_serving: AbstractContextManager[object] | None = None,
) -> Stood:
    """Run a cluster until it is ended, write its directory, and return the results.

    The plan comes from the directory's manifest. The keyword arguments have the same meaning as in
    StandingRun, except that `on_serving` gets two arguments, the runtime and the time.
    Raises: NotRecorded if a file of the directory could not be written. The cluster is healed and
    stopped by then.
    """
    guests = GuestGroups()
    context = context_of(experiment)

    def suite_without(mixed: Collection[str]) -> CheckSuite:
        """Return new checkers that do not judge the groups in `mixed` by their members' rows.

        `mixed` has groups that clients from outside have joined.
        """
        return CheckSuite(context.without_guests(mixed, experiment.groups), experiment.checks)

    def judge_again() -> CheckSuite | None:
        """Judge the trace anew if clients from outside have joined groups of the experiment.

        The first suite did not know of these clients, and may have judged the groups wrongly. For
        example, it took the partitions of such a client for partitions without an owner.
        """
        mixed = [group for group in guests.groups() if group in experiment.groups]
        if not mixed:
            return None
        suite = suite_without(mixed)
        # `runtime` is assigned further below. It exists when this function is called, after the
        # run.
        suite.allow_clock_error(runtime.clock_error_us)
        files = sorted((directory.path / TRACE_FOLDER).glob("*.frames"))
        suite.observe_all(merge_rows([FrameReader(file) for file in files]))
        return suite

    suite = suite_without(())
    # The nodes write their rows to files. The rows are merged and checked for the verdict only
    # after the nodes have stopped (`rows_come_last`). In the meantime `tail` reads the growing
    # files for the live checks. These have checkers of their own, because a suite may see each row
    # only once.
    trace = RunTrace(directory, rows_come_last=True)
    runtime = make_runtime((suite.observe, guests.observe, trace))
    tail = TraceTail(directory.path / TRACE_FOLDER, lag_us=WATERMARK_LAG_US)
    run = StandingRun(
        experiment,
        directory.manifest.plan,
        runtime,
        suite,
        orders,
        identity=identity,
        seed=directory.manifest.seed,
        directory=directory,
        progress=progress,
        live_checks=LiveChecks(suite_without(()), tail.poll),
        duration_us=duration_us,
        on_serving=None if on_serving is None else lambda at_us: on_serving(runtime, at_us),
        while_serving=while_serving,
        judge_again=judge_again,
    )
    try:
        with collecting_seldom():
            results = run.execute()
    finally:
        rows = trace.close()
    directory.manifest.clock_error_us = runtime.clock_error_us
    directory.manifest.losses = runtime.losses
    directory.write_manifest()
    directory.conclude(results, rows=rows)
    unseen = dict.fromkeys((*run.unjudged_groups(), *guests.groups()))
    return Stood(results=results, unseen_groups=tuple(sorted(unseen)))
