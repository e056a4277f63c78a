"""One run of one drawn schedule in virtual time, and the few hundred bytes that are kept of it.

A schedule is an experiment with its plan of faults, and a seed for the network. A finding is a
violation that a checker reports. Its signature is its kind: the checker, the claim (the sentence
without names and numbers) and the story (the kinds of its rows). A played run uses the same runner,
faults and checkers as the command `run`, but writes no files. Virtual time is the run's own
simulated clock.
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
"""Number of events between two checks of the nodes' invariants.

With this number, a run has about sixty checks, which take 3 % of its time. The modules
`replica_checks`, `controller_checks` and `metrics_checks` make further checks.
"""
INVARIANTS_DENSELY = 25
"""Number of events between two checks in a run with dense checks (`batches.DENSE_CHECKS_EVERY`)."""


class PlayResult(StrEnum):
    """Result of an explored run.

    A fault that hits nothing does not make the run UNKNOWN here, unlike in the command `run`.
    """

    PASS = "pass"
    VIOLATED = "violated"
    UNKNOWN = "unknown"  # no steady state, or the run ended before the healing
    BROKEN = "broken"  # the tool itself failed: never a verdict about Kafka
    INTERRUPTED = "interrupted"


class PlayedFinding(msgspec.Struct, frozen=True, kw_only=True):
    """A finding without its rows. Units: `time_us` is on the run's clock."""

    signature: Signature
    summary: str
    time_us: int


class PlayedRun(msgspec.Struct, frozen=True, kw_only=True):
    """Data kept of an explored run.

    - `findings`: the earliest finding of each signature.
    - `marks`: sorted names of coverage marks, the rare situations that occurred.
    - `requests`: the numbers of requests that reached a live node, by API.
    - `events`: the number of callbacks of the loop (frames, timers, steps of tasks).
    - `excused`: numbers of permitted exceptions from a promise, by check and excuse ("liveness: all
      members are dead").
    - `effort`: the counts of `effort.Effort`.
    - `lineage`: the seeds from a drawn plan to this mutated one; empty if this plan was drawn.
    - `digest`: a hash over the trace's rows, without rows of messages.
    - `trail`: a few digits of this hash at steps of time (`TraceDigest`).
    - `virtual_us`: the run's duration on its own clock.
    - `steady_us`: the time of the steady state on this clock, None if there was none.
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
    """Run `experiment` in virtual time, without messages in the trace, and return its data.

    - `observers` get every trace row.
    - `stop_at`: the run ends soon after the first finding with the claim of this signature.
    - `time_limit_us`: the run ends at this time of its clock; without a finding, it is UNKNOWN.
    - `on_finding` is called with every finding of the verdict. The finding includes its rows.
    - `plan` replaces the experiment's own plan.
    - `invariants_every`: every node checks its invariants after about this many events, and at the
      end. If it is None, invariants are not checked. A violated invariant is a failure of the tool.
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
        # The marks come first, because they need the shared evidence as it was before the row. The
        # suite then updates the evidence with the row.
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
        stop_when=None
        if stop_at is None
        else lambda finding: signature_of(finding).claims_as(stop_at),
        # The verification at the end reads the committed offsets. It says nothing about liveness,
        # and takes a minute for each group whose coordinator does not answer. So a run that only
        # looks for a finding of Liveness omits it.
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
        result=_result(results, bool(findings)),
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

    If the lab itself failed, the run is BROKEN even with a finding. Otherwise a run with a finding
    is VIOLATED. A run without a finding proves nothing if it had no steady state, or ended before
    the healing.
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
