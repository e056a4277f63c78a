"""Fake workers for tests of the search.

The search plays many random runs on several workers, which normally are processes. It gives items
to a worker, and waits for answers. An item says which run to play. There are two forms of items: an
item is the seed of a run, or it is a lineage, which is a tuple of seeds. The first seed of a
lineage draws a schedule of faults, and each later seed changes this schedule.

The workers here play no real runs: a function makes up the result of each run from its seed. The
workers do nothing until `wait` is called. So a test knows what happens in which order. A test can
also let a worker die.
"""

from collections.abc import Callable, Mapping

import msgspec

from chaos.exploration.play import PlayedFinding, PlayedRun, PlayResult
from chaos.exploration.signature import Signature
from cluster.fan_out import Died, Finished, Item, Items, WorkerName, number_of

Play = Callable[[int], PlayedRun]


def passed(seed: int) -> PlayedRun:
    """Return a run that passed.

    Its digest depends on the seed. (In a real run, the digest is a hash over all recorded events.)
    """
    return PlayedRun(seed=seed, result=PlayResult.PASS, digest=f"{seed:04x}", virtual_us=40_000_000)


def violated(
    seed: int, *, check: str = "fencing", claim: str = "it broke", faults: int = 5, time_us: int = 7
) -> PlayedRun:
    """Return a run in which the checker `check` has found a violation of the promise `claim`."""
    finding = PlayedFinding(
        signature=Signature(check=check, claim=claim), summary=f"{claim} {seed}", time_us=time_us
    )
    run = passed(seed)
    return msgspec.structs.replace(
        run, result=PlayResult.VIOLATED, findings=(finding,), faults_hit=faults
    )


def inconclusive(seed: int, result: PlayResult, reason: str) -> PlayedRun:
    """Return a run that proves nothing, for a given reason."""
    return PlayedRun(seed=seed, result=result, reasons=(reason,))


class ScriptedClock:
    """A clock, in seconds, that moves only when a test sets `now_s`."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Return the time of the clock."""
        return self.now_s


class ScriptedWorkers:
    """`size` workers. At each call of `wait` one worker answers, the one that got its items first.

    play: makes up the result of a seed.
    play_again: makes up the result of a seed that was played before; by default `play`.
    play_item: if given, this function makes up the result of every item, instead of `play` and
        `play_again`.
    deadly: how many workers each of these seeds kills. With {7: 2}, the seed 7 kills the first two
        workers that play it.
    on_wait: is called at the beginning of each `wait`.
    late: the last worker has started only after this number of calls of `wait`.

    A test finds in `given` which items each worker got, oldest first.
    """

    def __init__(
        self,
        play: Play = passed,
        *,
        size: int = 2,
        deadly: Mapping[int, int] | None = None,
        play_again: Play | None = None,
        on_wait: Callable[[], None] = lambda: None,
        late: int = 0,
        play_item: Callable[[Item], PlayedRun] | None = None,
    ) -> None:
        self.size = size
        self.late = late
        self.given: list[tuple[WorkerName, Items]] = []
        self._play = play
        self._play_item = play_item
        self._play_again = play_again or play
        self._deadly = dict(deadly or {})
        self._on_wait = on_wait
        # The number of workers that were ever started. A new worker has this number in its name.
        self._started_count = size
        self._names = [WorkerName(f"worker:{number}") for number in range(size)]
        # The items of each busy worker, in the order in which the workers got their items.
        self._busy: dict[WorkerName, Items] = {}
        self._played: set[int] = set()

    def __enter__(self) -> "ScriptedWorkers":
        """Do nothing: no process has to be started."""
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: no process has to be ended."""

    def idle(self) -> tuple[WorkerName, ...]:
        """Return the started workers that have nothing to do."""
        started = self._names[: len(self._names) - self.coming()]
        return tuple(name for name in started if name not in self._busy)

    def coming(self) -> int:
        """Return how many workers are still starting: 1 if the last worker is late, else 0."""
        return 1 if self.late > 0 else 0

    def give(self, worker: WorkerName, items: Items) -> None:
        """Give a worker some items. They are played later, in `wait`."""
        if worker in self._busy or worker not in self._names:
            raise ValueError(f"{worker} is not idle")
        self.given.append((worker, items))
        self._busy[worker] = items

    def wait(self, timeout_s: float) -> list[Finished | Died]:
        """Let the worker that got its items first play them, or die."""
        self._on_wait()
        self.late -= 1
        if not self._busy:
            return []
        worker = next(iter(self._busy))
        items = self._busy.pop(worker)
        seeds = tuple(map(number_of, items))
        deadly_seed = next((seed for seed in seeds if self._deadly.get(seed, 0) > 0), None)
        if deadly_seed is not None:
            # The worker dies, and a new one with another name takes its place.
            self._deadly[deadly_seed] -= 1
            self._names[self._names.index(worker)] = WorkerName(f"worker:{self._started_count}")
            self._started_count += 1
            return [Died(worker=worker, items=items, why="killed")]
        runs = []
        for item, seed in zip(items, seeds, strict=True):
            play = self._play_again if seed in self._played else self._play
            self._played.add(seed)
            runs.append(play(seed) if self._play_item is None else self._play_item(item))
        answer = msgspec.msgpack.encode(runs)
        # Each item is said to have taken a quarter of a second.
        return [Finished(worker=worker, items=items, answer=answer, busy_s=0.25 * len(items))]
