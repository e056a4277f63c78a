"""Tally: the totals of an exploration so far, which the live view and the results show.

A Tally takes the records of the store one by one, and counts runs, findings and much more. Each
record has the runs of a batch of seeds. When an exploration is resumed, its new Tally first takes
the records that the earlier sessions have stored. So the totals include the earlier sessions.

Findings (violations that checkers have reported) are put into groups by their signature, which is
the kind of a finding. If two seeds show the same problem, their findings have equal signatures.

Data flow: ExplorationRecord -> Tally -> live view, results.
"""

from collections import Counter
from dataclasses import dataclass, field

from chaos.exploration.play import PlayedFinding, PlayedRun, PlayResult
from chaos.exploration.signature import Signature, normalized
from chaos.exploration.store import ExplorationRecord, Lost, PlayedAgain, PlayedSeeds


@dataclass(slots=True, kw_only=True)
class FindingGroup:
    """All runs with a finding of the same kind (signature).

    - `number`: the group's number among the groups of its checker, from 1, in order of discovery.
    - `seeds`: the seeds of the runs, in the order in which they were played.
    - `example`: the run with the fewest faults, because it is the easiest to understand. If several
      runs have equally few faults, it is the run with the earliest finding among them.
    - `finding`: the finding of the example.
    """

    signature: Signature
    number: int
    seeds: list[int] = field(default_factory=list)
    example: PlayedRun
    finding: PlayedFinding

    @property
    def name(self) -> str:
        """Name of the group and of its file. It consists of the checker and the number."""
        return f"{self.signature.check}-{self.number}"

    def take(self, run: PlayedRun, finding: PlayedFinding) -> None:
        """Add a run, and make it the example if it is a better one."""
        self.seeds.append(run.seed)
        if _rank(run, finding) < _rank(self.example, self.finding):
            self.example, self.finding = run, finding


@dataclass(frozen=True, slots=True, kw_only=True)
class RecheckDifference:
    """A seed that gave two different results. It shows that coordlab is not deterministic.

    - `digest`, `digest_again`: the digests of the first and the second run's trace.
    - `worker`, `worker_again`: the workers that played the first and the second run.
    - `fields`: names of the fields in which the two runs differ.
    """

    seed: int
    digest: str
    digest_again: str
    worker: str
    worker_again: str
    fields: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class _Chosen:
    """A run whose seed is to be played again, and the worker that played this first run."""

    run: PlayedRun
    worker: str


class Tally:
    """Totals over explored runs.

    - `done`: the seeds that were played or lost, in the order in which this happened. The dict
      serves as an ordered set.
    - `results`: the number of runs with each result.
    - `unknown`: the seeds whose runs prove nothing, by reason. For example,
      {"no steady state within N s": [12, 70]}.
    - `broken`: the seeds in whose runs coordlab itself failed, by reason.
    - `lost`: the seeds that were given up because each worker that played them died, each with the
      reason.
    - `marks`: the number of runs that reached each coverage mark.
    - `excused`: the number of runs in which a promise was not kept for a permitted reason, such as
      {"liveness: all members are dead": 3}.
    - `effort`: for each count of work, how many runs had which value. {"rebalances": {2: 40, 3: 5}}
      means that forty runs had two rebalances, and five had three.
    - `to_recheck`: the seeds that must be played again, with the worker that played them first.
    - `rechecked`: number of seeds that were played again.
    - `rechecked_elsewhere`: number of these seeds that another process played the second time.
    - `differences`: the seeds whose two results differ.
    """

    def __init__(self, recheck_percent: float) -> None:
        self._recheck_percent = recheck_percent
        self.done: dict[int, None] = {}
        self.results: Counter[PlayResult] = Counter()
        self.groups: dict[Signature, FindingGroup] = {}
        self.unknown: dict[str, list[int]] = {}
        self.broken: dict[str, list[int]] = {}
        self.lost: dict[int, str] = {}
        self.marks: Counter[str] = Counter()
        self.excused: Counter[str] = Counter()
        self.effort: dict[str, Counter[int]] = {}
        self.to_recheck: dict[int, str] = {}
        self.rechecked = 0
        self.rechecked_elsewhere = 0
        self.differences: list[RecheckDifference] = []
        self.faults_hit = 0
        self.faults_missed = 0
        self.commits = 0
        self.events = 0
        self.virtual_us = 0
        self.busy_s = 0.0
        self._numbers: Counter[str] = Counter()  # number of groups of each checker
        self._chosen: dict[int, _Chosen] = {}  # seed to play again -> its first run

    @property
    def runs(self) -> int:
        """Number of seeds that are done."""
        return len(self.done)

    @property
    def broken_runs(self) -> int:
        """Number of seeds that prove nothing, because coordlab itself failed.

        The run of such a seed is BROKEN, or the seed is lost, or its two results differ.
        """
        return sum(map(len, self.broken.values())) + len(self.lost) + len(self.differences)

    def take(self, record: ExplorationRecord) -> list[FindingGroup]:
        """Add a record; return the groups that are new or have a better example now."""
        match record:
            case PlayedSeeds():
                self.busy_s += record.busy_s
                changed: dict[Signature, FindingGroup] = {}
                for run in record.runs:
                    # Several runs may change the same group, so a dict collects the groups.
                    changed |= self._played(run, record.worker)
                return list(changed.values())
            case PlayedAgain():
                self.busy_s += record.busy_s
                for run in record.runs:
                    self._played_again(run, record.worker)
            case Lost():
                self.lost.update(dict.fromkeys(record.seeds, record.why))
                self.done.update(dict.fromkeys(record.seeds))
        return []

    def _played(self, run: PlayedRun, worker: str) -> dict[Signature, FindingGroup]:
        """Count a run, unless its seed is done; return the groups whose example is the run now."""
        if run.seed in self.done:
            return {}
        self.done[run.seed] = None
        self.results[run.result] += 1
        self.marks.update(run.marks)
        self.excused.update(run.excused.keys())
        for name, count in run.effort.items():
            self.effort.setdefault(name, Counter())[count] += 1
        self.faults_hit += run.faults_hit
        self.faults_missed += run.faults_missed
        self.commits += run.commits
        self.events += run.events
        self.virtual_us += run.virtual_us
        changed = {}
        match run.result:
            case PlayResult.BROKEN:
                _add_reason(self.broken, run)
            case PlayResult.UNKNOWN:
                _add_reason(self.unknown, run)
            case PlayResult.VIOLATED:
                changed = self._found(run)
            case PlayResult.PASS | PlayResult.INTERRUPTED:
                pass
        # A share of all seeds is played again. So is each seed whose run is the first of a group,
        # because a finding that is reported must be repeatable. A group with only one seed shows
        # that this run is its first.
        if is_chosen(run.seed, self._recheck_percent) or any(
            len(group.seeds) == 1 for group in changed.values()
        ):
            self._chosen[run.seed] = _Chosen(run=run, worker=worker)
            self.to_recheck[run.seed] = worker
        return changed

    def _found(self, run: PlayedRun) -> dict[Signature, FindingGroup]:
        """Add a run's findings to their groups; return the groups whose example is this run now."""
        changed = {}
        # A run has at most one finding of each signature, so no group counts it twice.
        for finding in run.findings:
            signature = finding.signature
            group = self.groups.get(signature)
            if group is None:
                self._numbers[signature.check] += 1
                number = self._numbers[signature.check]
                group = FindingGroup(
                    signature=signature, number=number, example=run, finding=finding
                )
                self.groups[signature] = group
            # This call is also needed for a new group. Its `example` is the run already, but its
            # `seeds` do not have the run's seed yet.
            group.take(run, finding)
            if group.example is run:
                changed[signature] = group
        return changed

    def _played_again(self, again: PlayedRun, worker: str) -> None:
        """Compare the second run of a seed with its first run."""
        chosen = self._chosen.pop(again.seed, None)
        self.to_recheck.pop(again.seed, None)
        if chosen is None:
            return  # this seed was compared before
        self.rechecked += 1
        # True counts as 1. So 1 is added if another worker played the second run.
        self.rechecked_elsewhere += worker != chosen.worker
        if again != chosen.run:
            self.differences.append(
                RecheckDifference(
                    seed=again.seed,
                    digest=chosen.run.digest,
                    digest_again=again.digest,
                    worker=chosen.worker,
                    worker_again=worker,
                    fields=tuple(
                        name
                        for name in again.__struct_fields__
                        if getattr(again, name) != getattr(chosen.run, name)
                    ),
                )
            )


def is_chosen(seed: int, percent: float) -> bool:
    """Return True if `seed` belongs to the `percent` of seeds that are played twice.

    With 25 percent these are the seeds 3, 7, 11 and so on. The choice depends only on the seed. So
    it is the same for all batches and workers, and after an interruption.
    """
    # Of the first n seeds, n * percent // 100 are chosen. The seeds before this one are the first
    # `seed` seeds, because the seeds count from 0. So this seed is chosen if the number for the
    # first `seed + 1` seeds is larger than the number for the first `seed` seeds.
    return int((seed + 1) * percent // 100) > int(seed * percent // 100)


def _add_reason(reasons: dict[str, list[int]], run: PlayedRun) -> None:
    """Add a run's seed to the seeds with the same reasons.

    The key of `reasons` is a text with all reasons of the run, in which placeholders stand for
    names and numbers.
    """
    reason = normalized("; ".join(run.reasons) or "no reason was given")
    reasons.setdefault(reason, []).append(run.seed)


def _rank(run: PlayedRun, finding: PlayedFinding) -> tuple[int, int, int]:
    """Return a sort key for the runs of a group. The run with the smallest key is the best example.

    The number of faults counts first, and the time of the finding second. The seed decides last, so
    that the example does not depend on which run ended first.
    """
    return (run.faults_hit + run.faults_missed, finding.time_us, run.seed)
