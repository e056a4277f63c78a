"""Tally: the totals of an exploration so far, which the live view and the results show.

A Tally takes the records of the store one by one, and counts runs, findings and much more. When an
exploration is resumed, its new Tally first takes the stored records of the earlier sessions, so
that the totals include them.

Findings are put into groups by their signature. Findings of different seeds that show the same
problem have equal signatures.

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
    - `example`: the run with the fewest faults; among equals, the one with the earliest finding.
    - `finding`: the example's finding.
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
        """Add a run."""
        self.seeds.append(run.seed)
        if _rank(run, finding) < _rank(self.example, self.finding):
            self.example, self.finding = run, finding


@dataclass(frozen=True, slots=True, kw_only=True)
class RecheckDifference:
    """A seed with two results. It shows that the lab is not deterministic.

    - `digest`, `digest_again`: the digests of the two traces.
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
    """A run whose seed is to be played again, and the worker that played it first."""

    run: PlayedRun
    worker: str


class Tally:
    """Totals over explored runs.

    - `done`: the seeds that were played or lost, in this order (a dict as an ordered set).
    - `results`: the number of runs with each result.
    - `unknown`, `broken`: the seeds that prove nothing, and those in which the lab itself failed,
      both by reason. For example, {"no steady state within N s": [12, 70]}.
    - `lost`: seeds that were given up, because each worker that played them died; with the reason.
    - `marks`: the number of runs that reached each coverage mark.
    - `excused`: the number of runs in which a promise was not kept for a permitted reason, such as
      {"liveness: all members are dead": 3}.
    - `effort`: for each count of work, how many runs had which value. {"rebalances": {2: 40, 3: 5}}
      means that forty runs had two rebalances, and five had three.
    - `to_recheck`: the seeds that must be played again, with the worker that played them first.
    - `rechecked`: number of seeds that were played again.
    - `rechecked_elsewhere`: number of those that another process played.
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
        """Number of seeds that prove nothing, because the lab failed.

        Their run is BROKEN, or their workers died, or their two plays differ.
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
        """Count a run, unless its seed is done; return the groups that it has changed."""
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
        # A run that is the first of a new group (the group has only this seed) is played again,
        # too, because a finding that is reported must be repeatable.
        if is_chosen(run.seed, self._recheck_percent) or any(
            len(group.seeds) == 1 for group in changed.values()
        ):
            self._chosen[run.seed] = _Chosen(run=run, worker=worker)
            self.to_recheck[run.seed] = worker
        return changed

    def _found(self, run: PlayedRun) -> dict[Signature, FindingGroup]:
        """Add a run's findings to their groups; return the groups that have it as example now."""
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
            # A new group has the run as its example already, but not yet in its `seeds`.
            group.take(run, finding)
            if group.example is run:
                changed[signature] = group
        return changed

    def _played_again(self, again: PlayedRun, worker: str) -> None:
        """Compare the second run of a seed with the first one."""
        chosen = self._chosen.pop(again.seed, None)
        self.to_recheck.pop(again.seed, None)
        if chosen is None:
            return  # this seed was compared before
        self.rechecked += 1
        # True counts as 1, so this adds 1 if another worker has played the seed now.
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

    With 25 percent these are the seeds 3, 7, 11 and so on. The choice depends only on the seed, so
    that batches, workers and interruptions do not change it.
    """
    # Of the first n seeds, n * percent // 100 are chosen. So this seed is chosen if that number is
    # larger when the seed is counted, too.
    return int((seed + 1) * percent // 100) > int(seed * percent // 100)


def _add_reason(reasons: dict[str, list[int]], run: PlayedRun) -> None:
    """Add a run's seed under its reasons, which are one text without names and numbers."""
    reason = normalized("; ".join(run.reasons) or "no reason was given")
    reasons.setdefault(reason, []).append(run.seed)


def _rank(run: PlayedRun, finding: PlayedFinding) -> tuple[int, int, int]:
    """Return a sort key for the runs of a group; the run with the smallest is the best example.

    That is the run with the fewest faults, and among these the one with the earliest finding. The
    seed decides last, so that the example does not depend on which run ended first.
    """
    return (run.faults_hit + run.faults_missed, finding.time_us, run.seed)
