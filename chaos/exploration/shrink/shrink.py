"""From a schedule that fails to the smallest one found that still fails in the same way.

The same way: a finding of the same checker with the same claim; how it came to that may differ, and
the digest always does. A smaller plan may fail under another seed of the network only: the search
goes on with that seed. Data flow: (Experiment, seed, Signature) -> passes propose -> `play` judges
-> Shrunk. Nothing here reads a clock of its own or draws a number: the same input is shrunk in the
same way, as long as the time does not run out.
"""

from collections.abc import Callable, Iterator
from enum import StrEnum

import msgspec

from chaos.experiment.structs import Experiment, microseconds
from chaos.exploration.play import PlayedFinding, PlayedRun, PlayResult
from chaos.exploration.shrink.edits import Sizes, is_sound, moved, sizes_of, with_wait
from chaos.exploration.shrink.passes import FAULTS, STRUCTURE, ShrinkPass, cut_off, wording
from chaos.exploration.signature import Signature

NETWORK_SEEDS = 12
"""Under so many other network seeds a plan that leaves something out is tried."""
FEW_SEEDS = 4
"""Under so many, at first, one that leaves out a fault: they are what is read first."""
SHIFTS_US = (350_000, 750_000, 1_100_000, 1_600_000)
"""By so much later, and each under a network seed of its own, a plan has to go on failing that only
says the same more simply. In virtual time a steady state is always reached at the same phase of all
heartbeats; on a real cluster it is not."""
SHORTER_WAITS = ("20s", "40s")
"""Bounds of liveness to try instead of a longer one: a group that never comes back is waited for as
long as its bound says, and that is then what a run costs. What is left is confirmed in full."""
MAX_RUNS = 600
MAX_ROUNDS = 6

Play = Callable[[Experiment, int, Signature], PlayedRun]
"""Runs an experiment under a seed; it may end at the first finding that claims as the signature."""


class ShrinkEnd(StrEnum):
    """Why the search for something smaller ended."""

    SMALLEST = "nothing smaller fails"
    TIME = "the time was up"
    RUNS = "the runs were used up"
    INTERRUPTED = "interrupted"


class Shrunk(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of a schedule.

    Shape: `seed` is a network seed under which it fails; `runs` counts all that were played. It
    fails as `signature` says; `finding` is that of its run under `seed`.
    """

    experiment: Experiment
    seed: int
    signature: Signature
    finding: PlayedFinding
    before: Sizes
    after: Sizes
    runs: int
    end: ShrinkEnd


class Robustness(msgspec.Struct, frozen=True, kw_only=True):
    """Under how many of the `tried` other network seeds a plan fails."""

    fails: int
    tried: int


class ShrinkProgress(msgspec.Struct, frozen=True, kw_only=True):
    """What who watches is told after each run."""

    does: str
    runs: int
    before: Sizes
    after: Sizes


class DoesNotFail(Exception):
    """The schedule that was to be shrunk shows no such violation; says what it showed instead."""


class _Enough(Exception):
    def __init__(self, end: ShrinkEnd) -> None:
        self.end = end
        super().__init__(end)


class Shrinker:
    """Shrinks one schedule. `shrink` may be called once, `robustness` after it.

    Units: `now_s` is any clock in seconds; at `deadline_s` of it the search ends with the best so
    far, and at `last_s` the counting of `robustness`. `stop_requested` is asked before each run;
    a KeyboardInterrupt ends it, too, with the best so far.
    """

    def __init__(
        self,
        play: Play,
        *,
        now_s: Callable[[], float],
        deadline_s: float,
        last_s: float,
        max_runs: int = MAX_RUNS,
        stop_requested: Callable[[], bool] = lambda: False,
        progress: Callable[[ShrinkProgress], None] = lambda _: None,
        base: Experiment | None = None,
    ) -> None:
        self._play = play
        self._now_s = now_s
        self._deadline_s = deadline_s
        self._last_s = last_s
        self._max_runs = max_runs
        self._stop_requested = stop_requested
        self._progress = progress
        self._base = base
        self._runs = 0
        self._does = ""
        self._tried: dict[bytes, int] = {}  # candidate that did not fail -> seeds it was given
        self._waits: tuple[str, ...] = ()
        """Shorter bounds of liveness that may do, the one in use first; none: the experiment's."""

    def shrink(self, experiment: Experiment, seed: int, signature: Signature) -> Shrunk:
        """Return the smallest schedule found that fails as `experiment` does under `seed`.

        Raises: DoesNotFail if it does not.
        """
        self._original = experiment
        self._signature = signature
        self._before = sizes_of(experiment)
        self._best, self._seed = experiment, seed
        self._does = "running it as it is"
        played = self._play(experiment, seed, signature)
        self._runs += 1
        if played.result is PlayResult.INTERRUPTED:
            raise KeyboardInterrupt
        finding = _finding(played, signature)
        if finding is None:
            raise DoesNotFail(played_text(played))
        self._finding = finding
        self._confirmed = (experiment, seed, finding)
        self._sure: tuple[tuple[int, int], ...] = ()  # network seed, how much later
        end = ShrinkEnd.SMALLEST
        try:
            self._shorten_wait(played)
            if played.steady_us is not None:
                self._run_pass(cut_off(finding.time_us - played.steady_us), seeds=1)
            self._rounds()
        except _Enough as enough:
            end = enough.end
        except KeyboardInterrupt:
            end = ShrinkEnd.INTERRUPTED
        self._end_in_full(may_run=end is not ShrinkEnd.INTERRUPTED)
        return Shrunk(
            experiment=self._best,
            seed=self._seed,
            signature=self._signature,
            finding=self._finding,
            before=self._before,
            after=sizes_of(self._best),
            runs=self._runs,
            end=end,
        )

    def robustness(self, shrunk: Shrunk, count: int) -> Robustness:
        """Return under how many of `count` other network seeds `shrunk` fails.

        Counts fewer if the time is up; at Ctrl-C it returns what it has.
        """
        fails = tried = 0
        self._does = "trying other network seeds"
        try:
            for seed in _others(shrunk.seed, count):
                if self._stop_requested() or self._now_s() >= self._last_s:
                    break
                failed = self._finding_of(shrunk.experiment, seed) is not None
                tried += 1
                fails += failed
        except KeyboardInterrupt:
            pass
        return Robustness(fails=fails, tried=tried)

    # -- the search --

    def _rounds(self) -> None:
        """Leave out, then say it more simply, until a round changes nothing.

        In the first round a plan has to fail under the seed that it has: most bugs are no race,
        and many seeds for every candidate would cost more than they find. Only what is left of its
        faults is tried under a few.
        """
        passes = wording(self._base)
        for number in range(MAX_ROUNDS):
            before = self._best
            for each in STRUCTURE:
                self._run_pass(each, seeds=1 if number == 0 else 1 + NETWORK_SEEDS)
            if number == 0:
                self._run_pass(FAULTS, seeds=1 + FEW_SEEDS)
            if number > 0 and self._best == before:
                return
            self._become_sure()
            for each in passes:
                self._run_pass(each, seeds=1)
            self._sure = ()

    def _become_sure(self) -> None:
        """Find in which other circumstances it fails: those are asked of each simplification."""
        self._does = "trying it a little later"
        seeds = _others(self._seed, len(SHIFTS_US))
        self._sure = tuple(
            (seed, shift_us)
            for seed, shift_us in zip(seeds, SHIFTS_US, strict=True)
            if self._judge(_later(self._best, shift_us), seed) is not None
        )

    def _run_pass(self, each: ShrinkPass, *, seeds: int) -> None:
        self._does = each.does
        steps = each.steps(self._best)
        try:
            candidate = next(steps)
            while True:
                candidate = steps.send(self._accepts(candidate, seeds))
        except StopIteration:
            self._confirm()

    # -- how long a group is waited for --

    def _shorten_wait(self, played: PlayedRun) -> None:
        """Wait less long from now on, if `played` waited long and the same shows then."""
        bound_us = microseconds(self._original.run.liveness_timeout)
        waits = [wait for wait in SHORTER_WAITS if microseconds(wait) < bound_us]
        over_us = (played.steady_us or 0) + self._before.horizon_us
        if not waits or played.virtual_us - over_us <= microseconds(waits[0]):
            return
        self._does = "waiting less long"
        for number, wait in enumerate(waits):
            if self._judge(with_wait(self._best, wait), self._seed) is not None:
                self._waits = tuple(waits[number:])
                return

    def _confirm(self) -> None:
        """See that the best fails when it is waited for in full, too.

        If it does not, it was only slow: the search goes on from the last one that did, and waits
        longer.
        """
        if self._best == self._confirmed[0]:
            return
        if self._waits:
            finding = self._judge(self._best, self._seed, in_full=True)
            if finding is None:
                self._best, self._seed, self._finding = self._confirmed
                self._waits = self._waits[1:]
                return
            self._finding = finding
        self._confirmed = (self._best, self._seed, self._finding)

    def _end_in_full(self, *, may_run: bool) -> None:
        """Go back to the last one that was confirmed, unless the best can be confirmed at once."""
        if self._waits and may_run and self._best != self._confirmed[0]:
            finding = self._finding_of(self._best, self._seed, in_full=True)
            if finding is not None:
                self._confirmed = (self._best, self._seed, finding)
        if self._waits:
            self._best, self._seed, self._finding = self._confirmed
        self._waits = ()

    # -- what a run says --

    def _accepts(self, candidate: Experiment, seeds: int) -> bool:
        """Take `candidate` for the best if it fails under one of so many seeds; say whether."""
        if candidate == self._best:
            return True
        key = msgspec.msgpack.encode(candidate)
        if self._tried.get(key, 0) >= seeds or not is_sound(candidate, self._original):
            return False
        for seed in (self._seed, *_others(self._seed, seeds - 1)):
            finding = self._judge(candidate, seed)
            if finding is None:
                continue
            if not self._is_sure_of(candidate):
                break
            self._best, self._seed, self._finding = candidate, seed, finding
            return True
        self._tried[key] = seeds
        return False

    def _is_sure_of(self, candidate: Experiment) -> bool:
        return all(
            self._judge(_later(candidate, shift_us), seed) is not None
            for seed, shift_us in self._sure
        )

    def _judge(
        self, candidate: Experiment, seed: int, *, in_full: bool = False
    ) -> PlayedFinding | None:
        """Return the finding that was looked for. Raises: _Enough, KeyboardInterrupt."""
        if self._stop_requested():
            raise _Enough(ShrinkEnd.INTERRUPTED)
        if self._runs >= self._max_runs:
            raise _Enough(ShrinkEnd.RUNS)
        if self._now_s() >= self._deadline_s:
            raise _Enough(ShrinkEnd.TIME)
        return self._finding_of(candidate, seed, in_full=in_full)

    def _finding_of(
        self, candidate: Experiment, seed: int, *, in_full: bool = False
    ) -> PlayedFinding | None:
        if self._waits and not in_full:
            candidate = with_wait(candidate, self._waits[0])
        played = self._play(candidate, seed, self._signature)
        if played.result is PlayResult.INTERRUPTED:
            raise KeyboardInterrupt
        self._runs += 1
        self._progress(
            ShrinkProgress(
                does=self._does,
                runs=self._runs,
                before=self._before,
                after=sizes_of(self._best),
            )
        )
        return _finding(played, self._signature)


def played_text(played: PlayedRun) -> str:
    """Return what a run showed, in a sentence."""
    if played.findings:
        return "; ".join(f"{each.signature.check}: {each.summary}" for each in played.findings)
    reasons = f": {'; '.join(played.reasons)}" if played.reasons else ""
    return f"{played.result}{reasons}"


def _finding(played: PlayedRun, signature: Signature) -> PlayedFinding | None:
    found = [each for each in played.findings if each.signature.claims_as(signature)]
    return min(found, key=lambda each: each.time_us, default=None)


def _later(experiment: Experiment, shift_us: int) -> Experiment:
    return moved(experiment, -shift_us, range(len(experiment.faults)))


def _others(seed: int, count: int) -> Iterator[int]:
    """Yield `count` seeds other than `seed`; always the same ones."""
    return (each for each in range(count + (seed <= count)) if each != seed)
