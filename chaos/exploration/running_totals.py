"""Totals of an exploration so far: runs by result, findings by signature, marks, rechecks.

A finding is a violation that a checker reports. Its signature is its kind: findings of different
seeds that show the same problem have equal signatures. A recheck is a second play of a seed, whose
run must be equal. BROKEN is the result of a run in which the lab itself failed, UNKNOWN the result
of a run that proves nothing. A Tally takes the records of the store one by one. A resumed
exploration first takes the stored records of its earlier sessions, so that its totals include them.
Data flow: ExplorationRecord -> Tally -> live view, results.
"""

from collections import Counter
from dataclasses import dataclass, field

from chaos.exploration.play import PlayedFinding, PlayedRun, PlayResult
from chaos.exploration.signature import Signature, normalized
from chaos.exploration.store import ExplorationRecord, Lost, PlayedAgain, PlayedSeeds


@dataclass(slots=True, kw_only=True)
class FindingGroup:
    """Every run with a finding of one signature.

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

    - `done`: the keys are the seeds that were played or lost, in this order.
    - `results`: result -> number of played runs.
    - `unknown`, `broken`: reason, with N in place of each number -> seeds.
    - `lost`: seed that was given up because each worker that played it died -> the reason.
    - `excused`: excuse -> number of runs in which it applied.
    - `effort`: kind of effort -> value -> number of runs with this value.
    - `to_recheck`: seed to play again -> the worker that played it first.
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
        # The first run of each finding is played again, too, because a reported finding must be
        # repeatable.
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
        # A comparison that is true adds 1.
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

    These seeds are evenly spread. The choice depends only on the seed, so that neither batches nor
    workers nor interruptions change it.
    """
    # Of the first n seeds, n * percent // 100 are chosen. So this seed is chosen if that number is
    # larger with it than without it.
    return int((seed + 1) * percent // 100) > int(seed * percent // 100)


def _add_reason(reasons: dict[str, list[int]], run: PlayedRun) -> None:
    """Add a run's seed under its reasons, which are one text without names and numbers."""
    reason = normalized("; ".join(run.reasons) or "no reason was given")
    reasons.setdefault(reason, []).append(run.seed)


def _rank(run: PlayedRun, finding: PlayedFinding) -> tuple[int, int, int]:
    """Return the rank of a run as an example of its finding; the best example has the smallest."""
    # The seed comes last, so that the example does not depend on the order in which runs end.
    return (run.faults_hit + run.faults_missed, finding.time_us, run.seed)
