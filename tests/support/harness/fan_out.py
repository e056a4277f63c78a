"""Workers for tests of the search: they work only while `wait` is called, and die on demand.

A search plays runs of many seeds on several workers: it gives a worker items, and waits for
answers. An item is a seed or a lineage. A seed is a number from which a schedule of faults is
drawn. A lineage is a tuple of seeds: the first draws a schedule, and each later seed changes it.
The number of a lineage is its last seed.

The workers do not play real runs: a function makes up the result of each run from its seed.
"""

from collections.abc import Callable, Mapping

import msgspec

from chaos.exploration.play import PlayedFinding, PlayedRun, PlayResult
from chaos.exploration.signature import Signature
from cluster.fan_out import Died, Finished, Item, Items, WorkerName, number_of

Play = Callable[[int], PlayedRun]


def passed(seed: int) -> PlayedRun:
    """Return a run that passed; its digest depends on the seed."""
    return PlayedRun(seed=seed, result=PlayResult.PASS, digest=f"{seed:04x}", virtual_us=40_000_000)


def violated(
    seed: int, *, check: str = "fencing", claim: str = "it broke", faults: int = 5, time_us: int = 7
) -> PlayedRun:
    """Return a run with one finding: checker `check` reports the broken promise `claim`."""
    finding = PlayedFinding(
        signature=Signature(check=check, claim=claim), summary=f"{claim} {seed}", time_us=time_us
    )
    run = passed(seed)
    return msgspec.structs.replace(
        run, result=PlayResult.VIOLATED, findings=(finding,), faults_hit=faults
    )


def inconclusive(seed: int, result: PlayResult, reason: str) -> PlayedRun:
    """Return a run that proves nothing, with its reason."""
    return PlayedRun(seed=seed, result=result, reasons=(reason,))


class ScriptedClock:
    """A clock that a test moves. Units: seconds."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


class ScriptedWorkers:
    """`size` workers. Each call of `wait` returns the answer to the oldest work that was given.

    - `given`: the work of every worker, in order.
    - `play`, `play_again`: play a seed for the first time, and later.
    - `play_item`: if given, plays every item, also lineages, instead of `play` and `play_again`.
    - `deadly`: for each deadly seed, how many workers it still kills.
    - `on_wait`: called at the beginning of each wait.
    - `late`: the number of waits after which the last worker has started.
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
        self._lives = size  # workers that were ever started
        self._names = [WorkerName(f"worker:{number}") for number in range(size)]
        self._busy: dict[WorkerName, Items] = {}
        self._played: dict[int, None] = {}  # an ordered set of seeds

    def __enter__(self) -> "ScriptedWorkers":
        """Return the workers, which need no preparation."""
        return self

    def __exit__(self, *error: object) -> None:
        """Do nothing: no process has to be ended."""

    def idle(self) -> tuple[WorkerName, ...]:
        """Return the workers without work."""
        started = self._names[: len(self._names) - self.coming()]
        return tuple(name for name in started if name not in self._busy)

    def coming(self) -> int:
        """Return the number of workers that are still starting: only the last one may be."""
        return int(self.late > 0)

    def give(self, worker: WorkerName, items: Items) -> None:
        """Accept work."""
        if worker in self._busy or worker not in self._names:
            raise ValueError(f"{worker} is not idle")
        self.given.append((worker, items))
        self._busy[worker] = items

    def wait(self, timeout_s: float) -> list[Finished | Died]:
        """Let the worker that has had its work longest answer, or die."""
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
            self._names[self._names.index(worker)] = WorkerName(f"worker:{self._lives}")
            self._lives += 1
            return [Died(worker=worker, items=items, why="killed")]
        runs = []
        for item, seed in zip(items, seeds, strict=True):
            play = self._play_again if seed in self._played else self._play
            self._played[seed] = None
            runs.append(play(seed) if self._play_item is None else self._play_item(item))
        answer = msgspec.msgpack.encode(runs)
        return [Finished(worker=worker, items=items, answer=answer, busy_s=0.25 * len(items))]
