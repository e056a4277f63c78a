"""Results of an exploration: the content of its results.json, and its exit code.

The totals of the search come from its Tally. This module turns them into the structs of the file.
Findings of the same kind are put together into one group.

The verdict says whether the cluster kept Kafka's promises in the runs of the search. The verdict is
the same if coordlab itself failed in some runs, or if a seed that was played twice gave two
different results. In these two cases the exit code says that there was an internal error.
"""

from collections import Counter
from pathlib import Path

import msgspec

from chaos.exploration.guided.guidance import Guidance
from chaos.exploration.guided.lineage import lineage_text
from chaos.exploration.guided.report import GuidedSearch, guided_search
from chaos.exploration.marks.registry import expected_marks
from chaos.exploration.play import PlayResult
from chaos.exploration.running_totals import FindingGroup, Tally
from chaos.exploration.search import Stop
from chaos.exploration.store import FINDINGS
from results_schema.results import RunOutcome, Verdict, exit_code

COMMAND = "python -m coordlab"
"""Beginning of the command lines in the results."""


class FoundGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of finding, with all runs that had a finding of this kind. One run is the example.

    - `summary`: the finding of the example run, as a sentence.
    - `claim`: this sentence with placeholders for names and numbers, such as "GROUP lost N
      commits".
    - `story`: the kinds of the trace rows that prove the finding.
    - `runs`, `seeds`: the number of the runs, and their seeds in the order in which the search
      played them.
    - `time_us`: the time of the finding in the example run, on the clock of this run.
    - `file`: the example's replay file, relative to the exploration's directory.
    - `replay`, `shrink`: the commands that replay and shrink this file.
    """

    name: str
    check: str
    claim: str
    story: tuple[str, ...]
    runs: int
    seeds: tuple[int, ...]
    example_seed: int
    example_faults: int
    summary: str
    time_us: int
    file: str
    replay: str
    shrink: str


class ReasonGroup(msgspec.Struct, frozen=True, kw_only=True):
    """All runs that prove nothing for the same reason.

    `allowed` is True if the space file permits the reason (its key `may_be_unknown`). A run that is
    UNKNOWN for another reason prevents the verdict PASS.
    """

    reason: str
    runs: int
    seeds: tuple[int, ...]
    allowed: bool = False


class NotDeterministic(msgspec.Struct, frozen=True, kw_only=True):
    """A seed that was played twice and gave two different results.

    `fields` has the names of the fields of PlayedRun in which the two results differ.
    """

    seed: int
    digest: str
    digest_again: str
    worker: str
    worker_again: str
    fields: tuple[str, ...]


class Rechecks(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the rechecks, in which a seed is played again to see whether it gives the same run.

    - `runs`: number of seeds that were played again.
    - `equal`: number of these seeds whose two results are equal.
    - `in_another_process`: number of these seeds that another process played the second time.
    - `still_to_do`: number of seeds that were chosen for a recheck but were not played again yet.
    - `different`: the seeds with two different results.
    """

    runs: int
    equal: int
    in_another_process: int
    still_to_do: int
    different: tuple[NotDeterministic, ...] = ()


class ReachedMark(msgspec.Struct, frozen=True, kw_only=True):
    """A coverage mark (a rare situation in a run), and the number of runs that reached it."""

    mark: str
    meaning: str
    runs: int


class EffortOfRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Distribution of one count over the runs. `p50` is the median, `p90` the ninth decile."""

    p50: int
    p90: int
    max: int
    sum: int


class ExplorationResults(msgspec.Struct, frozen=True, kw_only=True):
    """results.json of an exploration.

    - `runs`: number of runs by result, such as {"pass": 980, "violated": 3, ...}.
    - `excused`: the number of runs in which a promise was not kept for a permitted reason. For
      example, {"liveness: all members are dead": 12}.
    - `effort`: how much work the runs did, by the name of the count, such as "rebalances".
    - `guided`: what the search won by changing earlier plans; None if it changed no plan.
    - `lost`: the seeds that were given up because each worker that played them died, each with the
      reason of the last death.
    - `lineages`: if the plan of a seed was made by changing an earlier plan, the seed alone does
      not define its run. For each such seed in these results, this is the text that `replay` takes.
    - `virtual_us`: the sum of the durations of all runs, each on the run's own clock.
    - `busy_s`: the processor time of all sessions. The first session is the start of the search,
      and each resumption is a further session.
    - `elapsed_s`, `runs_per_minute`: figures of the last session alone.
    """

    outcome: RunOutcome
    verdict: Verdict
    exit_code: int
    stopped_because: str
    seeds: int
    runs: dict[str, int]
    findings: tuple[FoundGroup, ...]
    unknown: tuple[ReasonGroup, ...]
    broken: tuple[ReasonGroup, ...]
    lost: dict[str, str]
    rechecks: Rechecks
    marks: tuple[ReachedMark, ...]
    marks_unreached: tuple[str, ...]
    excused: dict[str, int]
    effort: dict[str, EffortOfRuns] = {}
    guided: GuidedSearch | None = None
    lineages: dict[str, str] = {}
    faults_hit: int
    faults_missed: int
    commits: int
    events: int
    virtual_us: int
    busy_s: float
    elapsed_s: float
    runs_per_minute: float
    workers: int


def results_of(
    tally: Tally,
    stop: Stop,
    path: Path,
    *,
    elapsed_s: float,
    runs_per_minute: float,
    workers: int,
    may_be_unknown: tuple[str, ...] = (),
    guidance: Guidance | None = None,
) -> ExplorationResults:
    """Return the results of an exploration in `path`.

    - `may_be_unknown`: beginnings of reasons for which a run may be UNKNOWN (SpaceDefinition).
    - `guidance`: the search's Guidance, which decides about changes of earlier plans; None if the
      search changes no plan.
    """
    unknown = _reasons(tally.unknown, may_be_unknown)
    verdict = _verdict(tally, unknown)
    outcome = _outcome(tally, stop)
    return ExplorationResults(
        outcome=outcome,
        verdict=verdict,
        exit_code=exit_code(outcome, verdict),
        stopped_because=stop.value,
        seeds=tally.runs,
        runs={
            PlayResult.PASS.value: tally.results[PlayResult.PASS],
            PlayResult.VIOLATED.value: tally.results[PlayResult.VIOLATED],
            PlayResult.UNKNOWN.value: tally.results[PlayResult.UNKNOWN],
            # `seeds` also counts the lost seeds, which have no run. The workers that played them
            # died, so coordlab itself failed, and each lost seed counts as a BROKEN run.
            PlayResult.BROKEN.value: tally.results[PlayResult.BROKEN] + len(tally.lost),
        },
        findings=tuple(_found(group, path) for group in tally.groups.values()),
        unknown=unknown,
        broken=_reasons(tally.broken),
        lost={str(seed): why for seed, why in tally.lost.items()},
        rechecks=Rechecks(
            runs=tally.rechecked,
            equal=tally.rechecked - len(tally.differences),
            in_another_process=tally.rechecked_elsewhere,
            still_to_do=len(tally.to_recheck),
            different=tuple(
                NotDeterministic(
                    seed=difference.seed,
                    digest=difference.digest,
                    digest_again=difference.digest_again,
                    worker=difference.worker,
                    worker_again=difference.worker_again,
                    fields=difference.fields,
                )
                for difference in tally.differences
            ),
        ),
        # `expected_marks` leaves out marks that no run of this space can reach.
        marks=tuple(
            ReachedMark(mark=mark, meaning=meaning, runs=tally.marks[mark])
            for mark, meaning in expected_marks(reached_marks(tally)).items()
        ),
        marks_unreached=unreached(tally),
        excused=dict(sorted(tally.excused.items())),
        effort={name: _effort_of(runs) for name, runs in tally.effort.items()},
        guided=None if guidance is None else guided_search(guidance),
        lineages={} if guidance is None else _lineages(tally, guidance),
        faults_hit=tally.faults_hit,
        faults_missed=tally.faults_missed,
        commits=tally.commits,
        events=tally.events,
        virtual_us=tally.virtual_us,
        busy_s=round(tally.busy_s, 3),
        elapsed_s=round(elapsed_s, 3),
        runs_per_minute=round(runs_per_minute, 1),
        workers=workers,
    )


def _lineages(tally: Tally, guidance: Guidance) -> dict[str, str]:
    """Return the lineage of each seed in the results whose plan was made from an earlier plan."""
    # All seeds that occur in the results
    named = [seed for group in tally.groups.values() for seed in group.seeds]
    named += [
        seed
        for seeds in (*tally.unknown.values(), *tally.broken.values(), list(tally.lost))
        for seed in seeds
    ]
    named += [different.seed for different in tally.differences]
    return {
        str(seed): lineage_text(lineage)
        for seed in sorted(dict.fromkeys(named))
        # If the seed drew its plan, the lineage is only the seed itself.
        if len(lineage := guidance.lineage(seed)) > 1
    }


def unreached(tally: Tally) -> tuple[str, ...]:
    """Return the expected marks (`expected_marks`) that no run reached."""
    return tuple(mark for mark in expected_marks(reached_marks(tally)) if not tally.marks[mark])


def reached_marks(tally: Tally) -> tuple[str, ...]:
    """Return the marks that runs reached."""
    return tuple(mark for mark, runs in tally.marks.items() if runs)


def replay_command_line(path: Path) -> str:
    """Return the command that replays a finding's file."""
    return f"{COMMAND} replay {path}"


def shrink_command_line(path: Path) -> str:
    """Return the command that shrinks a finding's file."""
    return f"{COMMAND} shrink {path}"


def _verdict(tally: Tally, unknown: tuple[ReasonGroup, ...]) -> Verdict:
    """Return the verdict; an UNKNOWN run prevents PASS unless the space allows its reason."""
    if tally.results[PlayResult.VIOLATED]:
        return Verdict.VIOLATED
    if not all(group.allowed for group in unknown):
        return Verdict.UNKNOWN
    # At least one run must have passed. If every run is UNKNOWN, even for an allowed reason, the
    # search has proved nothing.
    return Verdict.PASS if tally.results[PlayResult.PASS] else Verdict.UNKNOWN


def _outcome(tally: Tally, stop: Stop) -> RunOutcome:
    """Return the outcome: completed, interrupted, or a failure of coordlab itself."""
    if stop is Stop.INTERRUPTED:
        return RunOutcome.INTERRUPTED
    return RunOutcome.INTERNAL_ERROR if tally.broken_runs else RunOutcome.COMPLETED


def _found(group: FindingGroup, path: Path) -> FoundGroup:
    """Return a group of findings as results.json has it."""
    file = Path(FINDINGS) / f"{group.name}.yaml"
    return FoundGroup(
        name=group.name,
        check=group.signature.check,
        claim=group.signature.claim,
        story=group.signature.story,
        runs=len(group.seeds),
        seeds=tuple(group.seeds),
        example_seed=group.example.seed,
        example_faults=group.example.faults_hit + group.example.faults_missed,
        summary=group.finding.summary,
        time_us=group.finding.time_us,
        file=str(file),
        replay=replay_command_line(path / file),
        shrink=shrink_command_line(path / file),
    )


def _reasons(
    reasons: dict[str, list[int]], allowed: tuple[str, ...] = ()
) -> tuple[ReasonGroup, ...]:
    """Return the groups of runs by reason: disallowed reasons first, then by size."""
    groups = [
        ReasonGroup(
            reason=reason,
            runs=len(seeds),
            seeds=tuple(seeds),
            allowed=bool(allowed) and reason.startswith(allowed),
        )
        for reason, seeds in reasons.items()
    ]
    return tuple(sorted(groups, key=lambda group: (group.allowed, -group.runs, group.reason)))


def _effort_of(runs: Counter[int]) -> EffortOfRuns:
    """Return the distribution of a count; `runs` has the number of runs for each value."""
    values = sorted(runs.elements())  # one value for each run
    # The values at half and at nine tenths of the sorted list
    return EffortOfRuns(
        p50=values[(len(values) - 1) // 2],
        p90=values[(len(values) - 1) * 9 // 10],
        max=values[-1],
        sum=sum(values),
    )
