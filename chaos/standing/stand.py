"""`stand`: runs a standing cluster until a user ends it, and writes the run's directory.

This is the main part of the command `up`. It puts three things together: the run (StandingRun), the
checkers, and the writers of the directory. The caller chooses the runtime.

Data flow: (Experiment, orders) -> run directory -> Results.
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
"""Function that makes the runtime of a run in real time, for given observers of trace rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stood:
    """The result of a standing run.

    `unseen_groups` are the groups that Kafka clients from outside have joined. These clients write
    no rows into the trace. So the checks of members have left these groups out, and the user should
    know this.
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
    """Run a cluster until a user or `duration_us` ends it; write its directory; return the results.

    The plan of faults comes from the manifest of the directory.

    - `orders`: the source of the requests of commands.
    - `identity`: a StatusAnswer with the fields that are the same in every answer of this run, such
      as its name and directory.
    - `duration_us`: the time for which the run accepts orders; None if only a user ends the run.
    - `on_serving`: called once, as soon as the brokers serve, with the runtime and the time on the
      run's clock.
    - `while_serving`: a context manager. It is entered as soon as the brokers serve, and left when
      the healing begins.

    Raises: NotRecorded if a file of the directory could not be written. Before this is raised, the
    cluster is healed and stopped.
    """
    guests = GuestGroups()
    context = context_of(experiment)

    def suite_without(mixed: Collection[str]) -> CheckSuite:
        """Return new checkers that do not judge the groups in `mixed` by the rows of their members.

        `mixed` has the groups of the experiment that clients from outside have joined.
        """
        return CheckSuite(context.without_guests(mixed, experiment.groups), experiment.checks)

    def judge_again() -> CheckSuite | None:
        """If clients from outside have joined groups of the experiment, check the trace again.

        The first checkers did not know about these clients, so they may have judged the groups
        wrongly. For example, a partition of such a client seems to have no owner. Return the new
        checkers, or None if there are no such clients.
        """
        mixed = [group for group in guests.groups() if group in experiment.groups]
        if not mixed:
            return None
        suite = suite_without(mixed)
        # `runtime` is assigned below. This function is called only after the run, when the runtime
        # exists.
        suite.allow_clock_error(runtime.clock_error_us)
        files = sorted((directory.path / TRACE_FOLDER).glob("*.frames"))
        suite.observe_all(merge_rows([FrameReader(file) for file in files]))
        return suite

    suite = suite_without(())
    # The nodes write their rows to files. Only after the nodes have stopped, the rows are merged
    # and checked for the verdict (`rows_come_last`). During the run, `tail` reads the growing files
    # for the live checks. The live checks have checkers of their own, because a checker may see
    # each row only once.
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
