"""Shrinker: makes an experiment that shows a violation as small as possible.

A search may find a violation in a run with five brokers and twenty faults. The violation is easier
to understand in a run with two brokers and one fault. So the shrinker tries smaller and smaller
experiments (candidates). It plays each candidate, and continues with those that still fail.

1. The passes of STRUCTURE leave out parts: faults, groups, members, brokers.
2. The passes of `wording` make the rest simpler: rounder times, default settings, weaker faults.
3. Both steps are repeated until nothing smaller fails.

A candidate must fail in the same way: the same checker must make the same claim, apart from names
and numbers. Whether a candidate fails may also depend on the network seed, which determines the
latencies of messages and so the outcome of races. If a candidate fails only with another network
seed, the shrinker continues with that seed.

A schedule is an experiment together with its faults.

The shrinker has no clock of its own and draws no random numbers. So equal input gives equal
results, unless time runs out.
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
"""Number of other network seeds to try if a candidate of STRUCTURE does not fail."""
FEW_SEEDS = 4
"""Number of other network seeds to try in the last pass of the first round (`_run_rounds`)."""
SHIFTS_US = (350_000, 750_000, 1_100_000, 1_600_000)
"""Delays of a plan. The plan is also tried with all its faults later by one of these times.

In virtual time the members of every run send their heartbeats at the same moments, counted from the
steady state. On a real cluster these moments differ from run to run. So a plan is of little use if
it fails only when its fault comes just before a heartbeat.

Before a plan is simplified, it is tried with each of the delays, and a network seed for each of
them. The simplified plan must fail with all delays with which the plan has failed.
"""
SHORTER_WAITS = ("20s", "40s")
"""Liveness timeouts to try in place of the experiment's own, if this is longer.

A run waits this long for its groups to recover after the healing of all faults. If a group never
recovers, nearly all time of the run is spent on this wait, so a shorter timeout saves much. Later
the result is confirmed with the full timeout.
"""
MAX_RUNS = 600
"""Number of runs after which the shrinking ends, if the caller does not set another limit."""
MAX_ROUNDS = 6
"""Number of rounds, each with all passes, after which the shrinking ends."""

Play = Callable[[Experiment, int, Signature], PlayedRun]
"""Function that plays an experiment with a network seed.

The run may end at the first finding with the claim of this signature.
"""


class ShrinkEnd(StrEnum):
    """Reasons for the end of the shrinking."""

    SMALLEST = "nothing smaller fails"
    TIME = "the time was up"
    RUNS = "the runs were used up"
    INTERRUPTED = "interrupted"


class Shrunk(msgspec.Struct, frozen=True, kw_only=True):
    """The result of shrinking.

    - `experiment`, `seed`: the smaller experiment, and the network seed with which it fails.
    - `signature`: the kind of violation that was looked for.
    - `finding`: the violation in the run of `experiment`.
    - `before`, `after`: the sizes of the original experiment and of `experiment`.
    - `runs`: the number of runs that the shrinking took.
    - `end`: the reason for the end of the shrinking.
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
    """Robustness of a schedule: it fails with `fails` of the `tried` other network seeds."""

    fails: int
    tried: int


class ShrinkProgress(msgspec.Struct, frozen=True, kw_only=True):
    """State of the shrinking after a run, for the live display.

    - `does`: what the shrinking does now.
    - `before`, `after`: the sizes of the original and of the best experiment so far.
    """

    does: str
    runs: int
    before: Sizes
    after: Sizes


class DoesNotFail(Exception):
    """The schedule does not show the violation. The message has the results of its run."""


class _Enough(Exception):
    """The shrinking must end now, for the reason `end`."""

    def __init__(self, end: ShrinkEnd) -> None:
        self.end = end
        super().__init__(end)


class Shrinker:
    """Shrinks one schedule. Call `shrink` once, and perhaps `robustness` after it.

    - `play`: plays a run.
    - `now_s`: any clock in seconds.
    - `deadline_s`: the time of this clock at which the shrinking ends with the best schedule so
      far. A KeyboardInterrupt ends the shrinking in the same way.
    - `last_s`: the time of this clock at which `robustness` ends.
    - `stop_requested`: called before each run. If it returns True, the shrinking ends.
    - `base`: the experiment of the space from which the schedule was drawn; None if it is not
      known.
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
        self._activity = ""
        self._tried: dict[bytes, int] = {}  # candidate that did not fail -> number of seeds tried
        self._waits: tuple[str, ...] = ()
        """Shorter liveness timeouts. The first is in use. If empty, the full timeout is in use."""

    def shrink(self, experiment: Experiment, seed: int, signature: Signature) -> Shrunk:
        """Return the smallest schedule that was found, and that still fails.

        A schedule fails if its run has a finding with the claim of `signature`.

        Raises: DoesNotFail if `experiment` does not fail with `seed`.
        """
        self._original = experiment
        self._signature = signature
        self._before = sizes_of(experiment)
        self._best, self._seed = experiment, seed

        self._activity = "running it as it is"
        played = self._play(experiment, seed, signature)
        self._runs += 1
        if played.result is PlayResult.INTERRUPTED:
            raise KeyboardInterrupt
        finding = _finding(played, signature)
        if finding is None:
            raise DoesNotFail(played_text(played))
        self._finding = finding
        # The last schedule that failed with the full liveness timeout, with its seed and finding.
        self._confirmed = (experiment, seed, finding)
        # Pairs (network seed, delay of the plan) with which each further candidate must fail, too.
        self._required_failures: tuple[tuple[int, int], ...] = ()

        end = ShrinkEnd.SMALLEST
        try:
            self._shorten_wait(played)
            if played.steady_us is not None:
                self._run_pass(cut_off(finding.time_us - played.steady_us), seeds=1)
            self._run_rounds()
        except _Enough as enough:
            end = enough.end
        except KeyboardInterrupt:
            end = ShrinkEnd.INTERRUPTED
        # If the shrinking was cut short, perhaps the best schedule has failed only with a shorter
        # liveness timeout. After a regular end the next call does not change the best schedule,
        # because the last pass has confirmed it.
        self._return_to_confirmed(may_run=end is not ShrinkEnd.INTERRUPTED)

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
        """Play `shrunk` with `count` other network seeds; return with how many of them it fails.

        Fewer seeds are tried if time runs out, or after a Ctrl-C.
        """
        fails = tried = 0
        self._activity = "trying other network seeds"
        try:
            for seed in _other_seeds(shrunk.seed, count):
                if self._stop_requested() or self._now_s() >= self._last_s:
                    break
                # `_judge` is not called here, because it observes the limits of the shrinking:
                # `deadline_s` and `max_runs`.
                failed = self._finding_of(shrunk.experiment, seed) is not None
                tried += 1
                fails += failed
        except KeyboardInterrupt:
            pass
        return Robustness(fails=fails, tried=tried)

    # -- the search --

    def _run_rounds(self) -> None:
        """Leave out parts, then simplify, and repeat this until a round changes nothing.

        The first round has very many candidates, and most bugs do not depend on a race. So each
        candidate of this round is tried only with the present network seed. The exception is the
        last pass of the round, which leaves out single faults: it also tries a few other seeds.
        """
        simplifications = wording(self._base)
        for number in range(MAX_ROUNDS):
            before = self._best
            for part_pass in STRUCTURE:
                self._run_pass(part_pass, seeds=1 if number == 0 else 1 + NETWORK_SEEDS)
            if number == 0:
                self._run_pass(FAULTS, seeds=1 + FEW_SEEDS)
            # The first round cannot be the last, because it hardly tries other seeds.
            if number > 0 and self._best == before:
                return
            self._find_required_failures()
            for simplification in simplifications:
                self._run_pass(simplification, seeds=1)
            # A smaller plan may fail less often. So the next round begins without requirements.
            self._required_failures = ()

    def _find_required_failures(self) -> None:
        """Find the delays (SHIFTS_US) and network seeds with which the best schedule fails.

        Later simplifications must not make the plan fail less often. So the simplified plan must
        fail with each delay and seed that is found here.
        """
        self._activity = "trying it a little later"
        seeds = _other_seeds(self._seed, len(SHIFTS_US))
        self._required_failures = tuple(
            (seed, shift_us)
            for seed, shift_us in zip(seeds, SHIFTS_US, strict=True)
            if self._judge(_delayed(self._best, shift_us), seed) is not None
        )

    def _run_pass(self, shrink_pass: ShrinkPass, *, seeds: int) -> None:
        """Play the candidates of a pass, each with at most `seeds` seeds; confirm the result."""
        self._activity = shrink_pass.does
        steps = shrink_pass.steps(self._best)
        # `next` returns the first candidate of the pass. `send` tells the pass whether the
        # candidate still fails, and returns the next candidate. Both raise StopIteration at the end
        # of the pass.
        try:
            candidate = next(steps)
            while True:
                candidate = steps.send(self._accepts(candidate, seeds))
        except StopIteration:
            self._confirm()

    # -- liveness timeout --

    def _shorten_wait(self, played: PlayedRun) -> None:
        """Use a shorter liveness timeout from now on.

        The full timeout stays in use if the run `played` did not wait long, or if the schedule does
        not fail with a shorter timeout.
        """
        bound_us = microseconds(self._original.run.liveness_timeout)
        waits = [wait for wait in SHORTER_WAITS if microseconds(wait) < bound_us]
        # `horizon_us` is the time from the steady state to the healing.
        healed_us = (played.steady_us or 0) + self._before.horizon_us
        if not waits or played.virtual_us - healed_us <= microseconds(waits[0]):
            return  # the run did not wait longer than the shorter timeout
        self._activity = "waiting less long"
        for number, wait in enumerate(waits):
            if self._judge(with_wait(self._best, wait), self._seed) is not None:
                # If this timeout proves to be too short, `_confirm` changes to the longer ones.
                self._waits = tuple(waits[number:])
                return

    def _confirm(self) -> None:
        """Confirm that the best schedule fails with the full liveness timeout, too.

        If the schedule does not fail with the full timeout, a group recovers after the shorter
        timeout, but before the full timeout. This is no violation. The shrinking then continues
        from the last confirmed schedule, with a longer timeout.
        """
        confirmed_experiment, _, _ = self._confirmed
        if self._best == confirmed_experiment:
            return
        if self._waits:
            finding = self._judge(self._best, self._seed, full_timeout=True)
            if finding is None:
                self._best, self._seed, self._finding = self._confirmed
                self._waits = self._waits[1:]
                return
            self._finding = finding
        self._confirmed = (self._best, self._seed, self._finding)

    def _return_to_confirmed(self, *, may_run: bool) -> None:
        """Return to the last confirmed schedule, unless one more run confirms the best schedule."""
        confirmed_experiment, _, _ = self._confirmed
        if self._waits and may_run and self._best != confirmed_experiment:
            # `_judge` would raise _Enough here, because the time or the runs are used up.
            finding = self._finding_of(self._best, self._seed, full_timeout=True)
            if finding is not None:
                self._confirmed = (self._best, self._seed, finding)
        if self._waits:
            self._best, self._seed, self._finding = self._confirmed
        self._waits = ()

    # -- verdict of a run --

    def _accepts(self, candidate: Experiment, seeds: int) -> bool:
        """Return True, and make `candidate` the best, if it fails with one of `seeds` seeds.

        The first of these seeds is the present network seed.
        """
        if candidate == self._best:
            return True  # the edit changed nothing, and the best schedule is known to fail
        key = msgspec.msgpack.encode(candidate)
        if self._tried.get(key, 0) >= seeds or not is_sound(candidate, self._original):
            return False
        for seed in (self._seed, *_other_seeds(self._seed, seeds - 1)):
            finding = self._judge(candidate, seed)
            if finding is None:
                continue
            if not self._fails_as_required(candidate):
                break  # the requirements have seeds of their own, so another seed would not help
            self._best, self._seed, self._finding = candidate, seed, finding
            return True
        self._tried[key] = seeds
        return False

    def _fails_as_required(self, candidate: Experiment) -> bool:
        """Return True if a candidate also fails with each required delay and seed."""
        return all(
            self._judge(_delayed(candidate, shift_us), seed) is not None
            for seed, shift_us in self._required_failures
        )

    def _judge(
        self, candidate: Experiment, seed: int, *, full_timeout: bool = False
    ) -> PlayedFinding | None:
        """Play a schedule if no limit is reached; return its finding with the signature, or None.

        Raises: _Enough, KeyboardInterrupt.
        """
        if self._stop_requested():
            raise _Enough(ShrinkEnd.INTERRUPTED)
        if self._runs >= self._max_runs:
            raise _Enough(ShrinkEnd.RUNS)
        if self._now_s() >= self._deadline_s:
            raise _Enough(ShrinkEnd.TIME)
        return self._finding_of(candidate, seed, full_timeout=full_timeout)

    def _finding_of(
        self, candidate: Experiment, seed: int, *, full_timeout: bool = False
    ) -> PlayedFinding | None:
        """Play a schedule; return its finding with the signature, or None."""
        if self._waits and not full_timeout:
            candidate = with_wait(candidate, self._waits[0])
        played = self._play(candidate, seed, self._signature)
        # A run handles Ctrl-C itself and returns. Here the Ctrl-C must end the shrinking, too.
        if played.result is PlayResult.INTERRUPTED:
            raise KeyboardInterrupt
        self._runs += 1
        self._progress(
            ShrinkProgress(
                does=self._activity,
                runs=self._runs,
                before=self._before,
                after=sizes_of(self._best),
            )
        )
        return _finding(played, self._signature)


def played_text(played: PlayedRun) -> str:
    """Return the results of a run in a sentence."""
    if played.findings:
        return "; ".join(
            f"{finding.signature.check}: {finding.summary}" for finding in played.findings
        )
    reasons = f": {'; '.join(played.reasons)}" if played.reasons else ""
    return f"{played.result}{reasons}"


def _finding(played: PlayedRun, signature: Signature) -> PlayedFinding | None:
    """Return a run's earliest finding with the signature's claim, or None."""
    same_claim = [finding for finding in played.findings if finding.signature.claims_as(signature)]
    return min(same_claim, key=lambda finding: finding.time_us, default=None)


def _delayed(experiment: Experiment, shift_us: int) -> Experiment:
    """Return the experiment with all faults later by `shift_us`."""
    return moved(experiment, -shift_us, range(len(experiment.faults)))


def _other_seeds(seed: int, count: int) -> Iterator[int]:
    """Yield the `count` smallest seeds other than `seed`."""
    # If `seed` is among the numbers, it is left out. So the range has one number more in this case:
    # a comparison that is True counts as 1.
    return (other for other in range(count + (seed <= count)) if other != seed)
