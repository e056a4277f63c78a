"""`play`: one run of the search, in virtual time.

The command `run` writes a directory for each run. A search plays thousands of runs, so it keeps
only a PlayedRun of each: whether the run passed, what the checkers found, and some counts. The
runner, the faults and the checkers are the same as those of the command `run`.

Data flow: (Experiment, seed) -> ExperimentRun -> Results -> PlayedRun.
"""

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from chaos.checkers.base import FindingSink
from chaos.checkers.liveness import Liveness
from chaos.checkers.registry import CheckSuite, context_of
from chaos.experiment.structs import Experiment, to_cluster_spec
from chaos.exploration.effort import Effort
from chaos.exploration.gc_pause import collecting_afterwards
from chaos.exploration.marks.registry import CoverageMarks
from chaos.exploration.signature import Signature, signature_of
from chaos.run.plan import plan_of
from chaos.run.runner import ExperimentRun
from cluster.runtime import RowObserver
from cluster.trace.digest import TraceDigest
from cluster.virtual.runtime import VirtualRuntime
from results_schema.journal import FaultOutcome
from results_schema.manifest import Plan
from results_schema.results import Results, RunOutcome

INVARIANTS_EVERY = 500
"""The nodes check their own invariants each time after this many events of the simulated loop.

A run of the search then makes about sixty such checks. The benchmark `invariants_cost` measures how
much time the checks take.
"""
INVARIANTS_DENSELY = 25
"""Number of events between two checks in a run with dense checks (`batches.DENSE_CHECKS_EVERY`)."""


class PlayResult(StrEnum):
    """Result of an explored run.

    In the command `run`, a fault that hits nothing makes the run UNKNOWN. This is not so here,
    because drawn faults often hit nothing.
    """

    PASS = "pass"
    VIOLATED = "violated"
    UNKNOWN = "unknown"  # no steady state, or the run ended before it could heal its faults
    BROKEN = "broken"  # coordlab itself failed, so the run says nothing about Kafka
    INTERRUPTED = "interrupted"


class PlayedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A violation that a checker has found.

    - `signature`: the kind of the violation.
    - `summary`: the violation as a sentence.
    - `time_us`: the time of the violation on the run's clock.

    The trace rows that prove the violation are not kept.
    """

    signature: Signature
    summary: str
    time_us: int


class PlayedRun(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a run of the search.

    - `findings`: the earliest finding of each kind.
    - `marks`: names of the rare situations that occurred (coverage marks), sorted.
    - `requests`: for each API, the number of requests that reached a live node.
    - `events`: the number of callbacks of the loop (frames, timers, steps of tasks).
    - `excused`: how often a promise of Kafka's was not kept for a reason that the check permits.
      For example, {"liveness: all members are dead": 1}.
    - `effort`: counts of work such as rebalances (see `effort.Effort`).
    - `lineage`: the search makes some plans by changing earlier plans. If the plan of this run was
      made in this way, these are the seeds from the first plan to this plan; otherwise ().
    - `digest`: a hash over the trace's rows, to see whether two runs are equal.
    - `trail`: a few digits of this hash at regular times of the run, to see when two runs begin to
      differ (`TraceDigest`).
    - `virtual_us`: the run's duration on its own clock.
    - `steady_us`: the time of the steady state on this clock; None if the run never reached it.
    - `commits`: the number of acknowledged commits.
    - `rows`: the number of rows of the trace.
    """

    seed: int
    result: PlayResult
    reasons: tuple[str, ...] = ()
    findings: tuple[PlayedFinding, ...] = ()
    marks: tuple[str, ...] = ()
    digest: str = ""
    trail: str = ""
    faults_hit: int = 0
    faults_missed: int = 0
    requests: dict[str, int] = {}
    events: int = 0
    commits: int = 0
    rows: int = 0
    virtual_us: int = 0
    steady_us: int | None = None
    excused: dict[str, int] = {}
    effort: dict[str, int] = {}
    lineage: tuple[int, ...] = ()


def play(
    experiment: Experiment,
    seed: int,
    *,
    observers: Sequence[RowObserver] = (),
    stop_at: Signature | None = None,
    time_limit_us: int | None = None,
    on_finding: FindingSink | None = None,
    plan: Plan | None = None,
    invariants_every: int | None = INVARIANTS_EVERY,
) -> PlayedRun:
    """Run `experiment` in virtual time, and return the data to keep of the run.

    The trace has no rows about messages, because this saves time.

    - `observers` get every trace row.
    - `stop_at`: the run ends soon after the first finding that makes the same claim as this
      signature. The shrinker looks for one certain finding, and does not need the rest of the run.
    - `time_limit_us`: the run ends at this time of its clock. If nothing was found until then, the
      run is UNKNOWN.
    - `on_finding` is called at the end with every finding, including its trace rows.
    - `plan` replaces the experiment's own plan.
    - `invariants_every`: every node checks its invariants each time after about this many events,
      and at the end; None means never. A violated invariant is a bug of coordlab, so the run is
      BROKEN.

    An exception in the run is not raised. The run is BROKEN, with the exception as its reason.
    """
    with collecting_afterwards():
        return _play(
            experiment, seed, observers, stop_at, time_limit_us, on_finding, plan, invariants_every
        )


def _play(
    experiment: Experiment,
    seed: int,
    observers: Sequence[RowObserver],
    stop_at: Signature | None,
    time_limit_us: int | None,
    on_finding: FindingSink | None,
    plan: Plan | None,
    invariants_every: int | None,
) -> PlayedRun:
    """Build the runtime, the checkers and the observers of one run, and execute it."""
    context = context_of(experiment, in_virtual_time=True)
    suite = CheckSuite(context, experiment.checks)
    digest = TraceDigest()
    marks = CoverageMarks(context, suite.evidence)
    effort = Effort()
    runtime = VirtualRuntime(
        to_cluster_spec(experiment),
        seed=seed,
        run_id="explore",
        # Each observer gets every row, in this order. The order matters for the first two, which
        # share the state that was collected from the rows (`suite.evidence`). The marks need this
        # state as it was before the new row, and `suite.observe` adds the new row to the state.
        observers=(marks.observe, suite.observe, digest, effort.observe, *observers),
        trace_messages=False,
        invariants_every=invariants_every,
    )
    run = ExperimentRun(
        experiment,
        plan_of(experiment) if plan is None else plan,
        runtime,
        suite,
        seed=seed,
        time_limit_us=time_limit_us,
        # A function that is called with each finding. If it returns True, the run ends soon.
        stop_when=None
        if stop_at is None
        else lambda finding: signature_of(finding).claims_as(stop_at),
        # `verifies`: at its end the run reads the committed offsets. If a group's coordinator does
        # not answer, this takes a minute, and shows nothing about liveness. So a run that only
        # looks for a finding of Liveness leaves this step out.
        verifies=stop_at is None or stop_at.check != Liveness.name,
    )
    results = run.execute()
    if on_finding is not None:
        for finding in results.findings:
            on_finding(finding)
    return _played(seed, results, digest, marks.reached(), runtime, effort)


def _played(
    seed: int,
    results: Results,
    digest: TraceDigest,
    marks: tuple[str, ...],
    runtime: VirtualRuntime,
    effort: Effort,
) -> PlayedRun:
    """Return the data to keep of a finished run."""
    # Each check has its findings in the order in which it made them. So the first finding of each
    # kind, which is kept, is the earliest.
    findings: dict[Signature, PlayedFinding] = {}
    for finding in results.findings:
        signature = signature_of(finding)
        findings.setdefault(
            signature,
            PlayedFinding(signature=signature, summary=finding.summary, time_us=finding.time_us),
        )
    outcomes = [entry.outcome for entry in results.faults]
    return PlayedRun(
        seed=seed,
        result=_result(results, violated=bool(findings)),
        reasons=results.reasons,
        findings=tuple(findings.values()),
        marks=marks,
        digest=digest.hexdigest(),
        trail=digest.trail(),
        faults_hit=outcomes.count(FaultOutcome.HIT),
        faults_missed=outcomes.count(FaultOutcome.MISSED),
        requests=runtime.requests_arrived(),
        events=runtime.events_run,
        commits=results.commits_acknowledged,
        rows=results.rows_seen,
        virtual_us=results.ended_at_us,
        steady_us=results.steady_at_us,
        excused={
            f"{check.check}: {excuse}": cases
            for check in results.checks
            for excuse, cases in sorted(check.excused.items())
        },
        effort=effort.counts(),
    )


def _result(results: Results, violated: bool) -> PlayResult:
    """Return the result of a run.

    If coordlab itself failed, the run is BROKEN even with a finding. Otherwise a run with a finding
    is VIOLATED. A run without a finding is UNKNOWN if it never reached the steady state, or ended
    before its faults were healed, because then it proves nothing.
    """
    if results.outcome is RunOutcome.INTERRUPTED:
        return PlayResult.INTERRUPTED
    if results.outcome is RunOutcome.INTERNAL_ERROR:
        return PlayResult.BROKEN
    if violated:
        return PlayResult.VIOLATED
    if results.steady_at_us is None or results.healed_at_us is None:
        return PlayResult.UNKNOWN
    return PlayResult.PASS
