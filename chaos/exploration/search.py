"""Search: gives seeds to workers, collects their results, and decides when the search ends.

A seed is a number that stands for one run. The search gives the seeds in batches to worker
processes, which play the runs. It stores the results of each finished batch, and adds them to its
totals (the Tally).

- Most seeds draw a new plan of faults at random. The other seeds mutate (change) the plan of an
  earlier run. The Guidance decides which seeds these are. Such a seed must wait until the results
  of the earlier seeds are known.
- Some seeds are played a second time by another worker. Such a recheck shows whether a seed always
  gives the same run.

This module must not depend on Ray, the terminal or a clock, so that tests can replace them. So the
workers, the observer and the clock are arguments of the search.

Data flow: seeds -> Workers -> ExplorationRecord -> store, Tally.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import count as count_from

from chaos.exploration.batches import decode_runs
from chaos.exploration.guided.guidance import Guidance
from chaos.exploration.play import PlayedRun, PlayResult
from chaos.exploration.running_totals import FindingGroup, Tally
from chaos.exploration.store import ExplorationRecord, Lost, PlayedAgain, PlayedSeeds
from cluster.fan_out import Died, Finished, Items, WorkerName, Workers, number_of

POLL_S = 0.25
"""Longest wait for the workers.

After each wait the search looks at its clock, updates the live view, and checks for Ctrl-C.
"""
BATCH_S = 1.0
"""Target duration of a batch.

If a batch were much shorter, the transfer of its results would cost more than its runs. If it were
much longer, the search would end late: after a time limit it still waits for the last batches.
"""
MAX_BATCH = 500
"""Maximum number of seeds in a batch."""
MAX_BROKEN = 50
"""Number of failures of coordlab itself after which a search ends, because it proves nothing."""


class Stop(StrEnum):
    """Reasons for the end of a search."""

    COUNT = "every seed was played"
    TIME_LIMIT = "the time limit was reached"
    FINDINGS = "enough was found"
    INTERRUPTED = "it was interrupted"
    TOOL_FAILED = f"the lab itself failed in {MAX_BROKEN} runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a search.

    - `first_seed`, `count`: the search plays `count` seeds, the first of which is `first_seed`. If
      `count` is None, the search plays seeds until another limit is reached.
    - `time_limit_s`: the time after which the search ends. If a search is resumed, the time counts
      from the resumption.
    - `stop_after`: the number of different findings at which the search ends.
    - `batch`: the number of seeds in a batch. If `batch` is None, a batch has as many seeds as a
      worker plays in about BATCH_S.
    """

    first_seed: int = 0
    count: int | None = None
    time_limit_s: float | None = None
    stop_after: int | None = None
    batch: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProgress:
    """State of a search, for a live view.

    - `workers`: number of worker processes.
    - `elapsed_s`: time since the search began in this process.
    - `runs_here`: number of runs in this process. The tally also counts the runs of earlier
      sessions.
    - `runs_wanted`: number of runs at which the search ends, including the runs of earlier
      sessions; None if the search has no such limit.
    - `left_s`: the expected remaining time; None while it is not known.
    """

    tally: Tally
    workers: int
    elapsed_s: float
    runs_here: int
    runs_wanted: int | None
    left_s: float | None
    stop: Stop | None = None

    @property
    def runs_per_minute(self) -> float:
        """Speed of the search in this process."""
        return 60 * self.runs_here / self.elapsed_s if self.elapsed_s > 0 else 0.0


class Search:
    """One search for findings. It may continue an earlier search.

    A seed that `tally` has counted already is played once more only for a recheck.
    """

    def __init__(
        self,
        tally: Tally,
        workers: Workers,
        limits: Limits,
        *,
        clock: Callable[[], float],
        write: Callable[[ExplorationRecord], None],
        stop_requested: Callable[[], bool] = lambda: False,
        observer: Callable[[SearchProgress], None] = lambda progress: None,
        on_group: Callable[[FindingGroup], None] = lambda group: None,
        guidance: Guidance | None = None,
    ) -> None:
        """Prepare a search.

        - `write`: stores a record.
        - `stop_requested`: called between two steps. If it returns True, the search ends.
        - `observer`: called with the state of the search in each round.
        - `on_group`: called with each kind of finding (FindingGroup) that is new or has a better
          example.
        - `guidance`: decides which seeds mutate an earlier plan. If it is None, every seed draws
          its plan. The guidance must have taken the same records as `tally`.
        """
        self._tally = tally
        self._workers = workers
        self._limits = limits
        self._clock = clock
        self._write = write
        self._stop_requested = stop_requested
        self._observer = observer
        self._on_group = on_group
        self._guidance = guidance or Guidance(0.0)  # a share of 0: no seed mutates a plan
        self._began = clock()
        self._runs_before = tally.runs
        self._seeds = self._seeds_to_play()
        self._next: int | None = next(self._seeds, None)  # first seed that no worker has yet
        # For each worker: the seeds that it plays for the first time now (`_playing`), and the
        # seeds that it rechecks now (`_replaying`). The inner dicts serve as ordered sets.
        self._playing: dict[WorkerName, dict[int, None]] = {}
        self._replaying: dict[WorkerName, dict[int, None]] = {}
        self._alone: list[int] = []  # seeds of a worker that died; each becomes a batch of its own
        self._unfinished: list[int] = []  # seeds whose first runs were interrupted
        self._suspects: dict[int, None] = {}  # seeds that may be the cause of a worker's death
        self._recheck_failed: dict[int, None] = {}  # seeds whose recheck was given up
        self._stop: Stop | None = None

    def run(self) -> Stop:
        """Search until there is a reason to stop, and return this reason.

        Raises: WorkersFailed if no worker is left, and exceptions of `write`. The records that were
        stored before are kept.
        """
        while True:
            self._stop = self._reason_to_stop()
            self._observer(self.progress())
            # After Ctrl-C the search does not wait for the batches that workers have. The seeds of
            # these batches are played if the search is resumed.
            if self._stop is Stop.INTERRUPTED:
                return self._stop
            # Even after another reason to stop, the search waits for batches that workers have, and
            # for rechecks.
            if not self._give_work() and self._stop is not None:
                return self._stop
            for event in self._workers.wait(POLL_S):
                self._take(event)

    def progress(self) -> SearchProgress:
        """Return the current state."""
        elapsed_s = self._clock() - self._began
        wanted = None
        if self._limits.count is not None:
            # An earlier session may have played more seeds than `count`.
            wanted = max(self._limits.count, self._tally.runs)
        return SearchProgress(
            tally=self._tally,
            workers=self._workers.size,
            elapsed_s=elapsed_s,
            runs_here=self._tally.runs - self._runs_before,
            runs_wanted=wanted,
            left_s=self._left_s(elapsed_s, wanted),
            stop=self._stop,
        )

    def _left_s(self, elapsed_s: float, wanted: int | None) -> float | None:
        """Return the expected remaining time; None while it is not known.

        The search ends at the time limit or after `wanted` runs, whichever is first.
        """
        left = []
        if self._limits.time_limit_s is not None:
            left.append(self._limits.time_limit_s - elapsed_s)
        runs_here = self._tally.runs - self._runs_before
        # Before the first run has ended, the speed is not known.
        if wanted is not None and runs_here:
            left.append((wanted - self._tally.runs) * elapsed_s / runs_here)
        return max(0.0, min(left)) if left else None

    # -- end of the search --

    def _reason_to_stop(self) -> Stop | None:
        """Return the reason to begin no further seed, or None."""
        if self._stop_requested():
            return Stop.INTERRUPTED
        if self._stop is not None:
            return self._stop  # the first reason stays, even if the last batches add another
        limit_s = self._limits.time_limit_s
        if limit_s is not None and self._clock() - self._began >= limit_s:
            return Stop.TIME_LIMIT
        if self._tally.broken_runs >= MAX_BROKEN:
            return Stop.TOOL_FAILED
        stop_after = self._limits.stop_after
        if stop_after is not None and len(self._tally.groups) >= stop_after:
            return Stop.FINDINGS
        # No seed is left to give. But the count is not complete while a worker plays seeds: if this
        # worker dies, its seeds go to `_alone` and must be played again.
        if self._next is None and not self._alone and not any(self._playing.values()):
            return Stop.COUNT
        return None

    # -- distribution of work --

    def _give_work(self) -> bool:
        """Give work to every idle worker; return True if any worker is, or will be, busy."""
        for worker in self._workers.idle():
            again = self._seeds_to_play_again(worker)
            if again:
                self._replaying[worker] = dict.fromkeys(again)
                self._workers.give(worker, self._items(again))
            elif self._stop is None and (seeds := self._next_batch()):
                self._playing[worker] = dict.fromkeys(seeds)
                self._workers.give(worker, self._items(seeds))
        if any(self._playing.values()) or any(self._replaying.values()):
            return True
        # All workers are idle now. If seeds still wait for a recheck, the idle workers may not play
        # them, because they have played these seeds themselves. But a worker that is still starting
        # may play them.
        return bool(self._waiting_to_be_played_again() and self._workers.coming())

    def _waiting_to_be_played_again(self) -> dict[int, str]:
        """Return the seeds that wait for a recheck, each with the worker that played it first."""
        if self._stop in {Stop.TIME_LIMIT, Stop.TOOL_FAILED}:
            # After the time limit there is no time for rechecks. After too many failures of
            # coordlab, rechecks prove nothing.
            return {}
        # The seeds that workers are rechecking now
        given = {seed for seeds in self._replaying.values() for seed in seeds}
        return {
            seed: first
            for seed, first in self._tally.to_recheck.items()
            if seed not in given and seed not in self._recheck_failed
        }

    def _seeds_to_play_again(self, worker: WorkerName) -> tuple[int, ...]:
        """Return a batch of seeds for `worker` to recheck.

        Another worker must have played these seeds first, because a faulty process could give the
        same wrong result twice. Only if there is no other worker, `worker` rechecks its own seeds.
        """
        waiting = self._waiting_to_be_played_again()
        seeds = [seed for seed, first in waiting.items() if first != worker]
        if not seeds and (self._workers.size == 1 or self._is_last_at_work()):
            seeds = list(waiting)
        return tuple(seeds[: self._batch_size()])

    def _is_last_at_work(self) -> bool:
        """Return True if all seeds were played and no other worker is busy, idle or starting."""
        return (
            self._stop is not None
            and len(self._workers.idle()) == 1
            and not self._workers.coming()
            and not any(self._playing.values())
            and not any(self._replaying.values())
        )

    def _items(self, seeds: tuple[int, ...]) -> Items:
        """Return what a worker gets for each seed: the seed itself, or its lineage."""
        return tuple(self._guidance.item(seed) for seed in seeds)

    def _next_batch(self) -> tuple[int, ...]:
        """Return the seeds to play next.

        The result is empty if no seed is left. The result is also empty while the next seed must
        change an earlier plan, and results on which the choice of this plan depends are not known.
        """
        # If a worker has died, each of its seeds gets a batch of its own. If the worker that plays
        # this batch dies, too, there is no doubt that the seed is the cause.
        if self._alone:
            return (self._alone.pop(),)
        seeds: list[int] = []
        while (
            self._next is not None
            and len(seeds) < self._batch_size()
            and self._guidance.is_ready(self._next)
        ):
            seeds.append(self._next)
            self._next = next(self._seeds, None)
        if not seeds and self._next is not None and not any(self._playing.values()):
            # The next seed waits for the results of earlier seeds, but no worker plays any seed. So
            # the runs of these earlier seeds were interrupted. They are played again now.
            seeds, self._unfinished = self._unfinished, []
        return tuple(seeds)

    def _batch_size(self) -> int:
        """Return the number of seeds that a worker plays in about BATCH_S, unless it is given."""
        if self._limits.batch is not None:
            return self._limits.batch
        played = self._tally.runs + self._tally.rechecked
        if not played or self._tally.busy_s <= 0:
            return 1  # the speed is not known yet
        return max(1, min(MAX_BATCH, round(BATCH_S * played / self._tally.busy_s)))

    def _seeds_to_play(self) -> Iterator[int]:
        """Yield the seeds within the limits that no earlier session has played."""
        first, number = self._limits.first_seed, self._limits.count
        seeds = count_from(first) if number is None else iter(range(first, first + number))
        return (seed for seed in seeds if seed not in self._tally.done)

    # -- results of workers --

    def _take(self, event: Finished | Died) -> None:
        """Record the results of a worker's batch, or handle the worker's death."""
        # A worker has only one batch at a time, either of rechecks or of first plays.
        again = bool(self._replaying.get(event.worker))
        given = (self._replaying if again else self._playing).get(event.worker, {})
        if isinstance(event, Died):
            left = tuple(given)
            # A dead worker plays no seed, and the search must not wait for it.
            given.clear()
            self._take_death(left, event.why, again=again)
            return
        for item in event.items:
            given.pop(number_of(item), None)

        # Ctrl-C reaches the workers, too. So a batch may have interrupted runs, which are dropped.
        # Their seeds are played again, in this search or when it is resumed.
        runs = tuple(
            run for run in decode_runs(event.answer) if run.result is not PlayResult.INTERRUPTED
        )
        if not again:
            complete = {run.seed for run in runs}
            seeds = (number_of(item) for item in event.items)
            self._unfinished += [seed for seed in seeds if seed not in complete]
        if runs:
            self._record(_record_of(event, runs, again=again))

    def _take_death(self, seeds: tuple[int, ...], why: str, *, again: bool) -> None:
        """Decide about the unfinished seeds of a worker that died.

        1. After the first death, each seed is a suspect, and is played again alone.
        2. After a second death, the seed is lost.
        """
        if self._stop_requested():
            return  # Ctrl-C ends workers, too
        if again:
            # The worker rechecked the seeds. Their first runs are known, so no seed is lost. The
            # recheck of a seed is given up if the seed was alone in the batch, or was a suspect
            # before. Otherwise the recheck is tried again.
            for seed in seeds:
                if len(seeds) == 1 or seed in self._suspects:
                    self._recheck_failed[seed] = None
                self._suspects[seed] = None
            return
        lost = tuple(seed for seed in seeds if seed in self._suspects)
        for seed in seeds:
            if seed not in self._suspects:
                self._suspects[seed] = None
                self._alone.append(seed)
        if lost:
            self._record(Lost(seeds=lost, why=why))

    def _record(self, record: ExplorationRecord) -> None:
        """Store a record, and then count and report it.

        It is stored first, because the search must not report what a crash could still lose.
        """
        self._write(record)
        self._guidance.take(record)
        for group in self._tally.take(record):
            self._on_group(group)


def _record_of(event: Finished, runs: tuple[PlayedRun, ...], *, again: bool) -> ExplorationRecord:
    kind = PlayedAgain if again else PlayedSeeds
    return kind(worker=event.worker, busy_s=event.busy_s, runs=runs)
