"""The process that plays seeds in a switched tree: once sound, then once for each mutant.

Every run is a child of its own, so that nothing of it is left for the next one: no module state, no
cache, no memory. The parent imports the packages and plays nothing. A mutant whose place is reached
by that import (a constant, a default, a class) is on while its child imports them anew. Must not
import anything of the packages before the switch is set. Data flow: Order lines on stdin ->
PlayedOrder lines on stdout.
"""

import os
import resource
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.sight import probes

PACKAGES = ("protocol", "partition_log", "coordinator", "cluster", "results_schema", "chaos")
CPU_SECONDS_MIN, CPU_FACTOR = 400, 100
"""Bound of a mutated run: seconds, or multiples of the sound run's if that is more.

Above the one of `explore`, which reports such a run as broken (`cpu_limit`): what comes here is
compiled, or waits for memory."""
STOPS_MAX = 3
"""A mutant whose runs were stopped so often is not played again: it would keep every worker."""
SECONDS_MAX = 2 * 3_600
"""The same for a run that waits for something without using CPU."""
MEMORY_MAX = 4 * 1024**3
"""Bytes of a child; one that needs more has exploded, and would end its worker."""
LAB = "the lab"
"""Who reports a failure of the lab: no checker."""


_spaces: dict[str, Any] = {}
"""The space that was read by the packages that are imported now, by its name."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A seed, and the mutants to play if it reaches them."""

    seed: int
    mutants: tuple[int, ...]
    also_unchanged: bool = False
    """Play mutants, too, that would not change a value: a test shows that they change nothing."""


class SoundPlay(msgspec.Struct, frozen=True, kw_only=True):
    """The run of a seed without a mutant.

    Shape: `reached` are the places of the run, `at_import` those that were reached before it;
    `unchanged` are those of `reached` whose mutant would never have changed a value.
    """

    result: str
    digest: str
    checks: tuple[str, ...]
    cpu_s: float
    events: int
    reached: tuple[int, ...] = ()
    at_import: tuple[int, ...] = ()
    unchanged: tuple[int, ...] = ()


class MutantPlay(msgspec.Struct, frozen=True, kw_only=True):
    """The run of a seed with one mutant on.

    Shape: `found_by` are the checkers with findings that had none in the sound run, LAB if the lab
    failed and did not in the sound run; `is_stopped` is True where the run was over its bound of
    CPU or memory. `what` is the earliest finding, or the reasons.
    """

    mutant: int
    differs: bool
    result: str
    found_by: tuple[str, ...]
    what: str
    cpu_s: float
    is_stopped: bool = False


class PlayedOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an order: one line of the journal."""

    seed: int
    sound: SoundPlay
    mutants: tuple[MutantPlay, ...]


class PlayedChild(msgspec.Struct, frozen=True, kw_only=True):
    """What a child sends: what is kept of its run."""

    result: str
    digest: str
    checks: tuple[str, ...]
    summaries: tuple[str, ...]
    reasons: tuple[str, ...]
    cpu_s: float
    events: int
    reached: tuple[int, ...]
    differing: tuple[int, ...]


class _Child:
    """A run in a process of its own."""

    def __init__(self, job: Callable[[], PlayedChild], cpu_s_max: int) -> None:
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s_max, cpu_s_max))
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.alarm(SECONDS_MAX)
            try:
                answer = msgspec.json.encode(_played_or_broken(job))
                with os.fdopen(writing, "wb") as file:
                    file.write(answer)
            finally:
                os._exit(0)
        os.close(writing)
        self.file = os.fdopen(reading, "rb")

    def result(self) -> tuple[PlayedChild | None, float]:
        """Wait for the end; return what was played, None if it was stopped, and the CPU time."""
        with self.file:
            answer = self.file.read()
        _, _, usage = os.wait4(self.pid, 0)
        played = msgspec.json.decode(answer, type=PlayedChild) if answer else None
        return played, usage.ru_utime + usage.ru_stime


def main() -> None:
    """Play the orders of stdin one after another."""
    space, workers = sys.argv[1], int(sys.argv[2])
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a run may print is no answer
    _import_packages(space)
    at_import = tuple(sorted(probes.reached))
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        answers.write(msgspec.json.encode(_play_order(order, space, at_import, workers)) + b"\n")
        answers.flush()


def _play_order(order: Order, space: str, at_import: tuple[int, ...], workers: int) -> PlayedOrder:
    seed = order.seed
    played, cpu_s = _Child(lambda: _play_sound(space, seed), CPU_SECONDS_MIN * 4).result()
    if played is None:
        raise RuntimeError(f"seed {seed}: the sound run was stopped after {cpu_s:.0f} s of CPU")
    reached = tuple(number for number in played.reached if number not in at_import)
    changed = {*played.differing, *at_import}
    playable = {*changed, *reached} if order.also_unchanged else changed
    to_play = [
        number
        for number in order.mutants
        if number in playable and (number in reached or number in at_import)
    ]
    cpu_s_max = max(CPU_SECONDS_MIN, int(CPU_FACTOR * played.cpu_s))
    plays = {
        number: mutant_play(number, played, child, child_cpu_s)
        for number, child, child_cpu_s in _play_mutants(
            to_play, space, seed, at_import, cpu_s_max, workers
        )
    }
    return PlayedOrder(
        seed=seed,
        sound=SoundPlay(
            result=played.result,
            digest=played.digest,
            checks=played.checks,
            cpu_s=round(played.cpu_s, 3),
            events=played.events,
            reached=reached,
            at_import=at_import,
            unchanged=tuple(number for number in reached if number not in changed),
        ),
        mutants=tuple(plays[number] for number in to_play),
    )


def _play_mutants(
    numbers: Sequence[int],
    space: str,
    seed: int,
    at_import: tuple[int, ...],
    cpu_s_max: int,
    workers: int,
) -> Iterator[tuple[int, PlayedChild | None, float]]:
    """Play each mutant, `workers` at a time, and yield what came of it in any order."""
    waiting = list(reversed(numbers))
    with selectors.DefaultSelector() as selector:
        while waiting or selector.get_map():
            while waiting and len(selector.get_map()) < workers:
                number = waiting.pop()
                child = _Child(_job(space, seed, number, number in at_import), cpu_s_max)
                selector.register(child.file, selectors.EVENT_READ, (number, child))
            for key, _ in selector.select():
                number, child = key.data
                selector.unregister(key.fileobj)
                played, cpu_s = child.result()
                yield number, played, cpu_s


def _played_or_broken(job: Callable[[], PlayedChild]) -> PlayedChild:
    """Run a job; what it raises would end a worker of `explore`, which is a failure of the lab.

    Raises: MemoryError, which only the bound of this child brought about.
    """
    began_s = time.process_time()
    try:
        return job()
    except MemoryError:
        raise
    except Exception as error:
        return PlayedChild(
            result="broken",
            digest="",
            checks=(),
            summaries=(),
            reasons=(f"{type(error).__name__}: {error}",),
            cpu_s=time.process_time() - began_s,
            events=0,
            reached=(),
            differing=(),
        )


def _job(space: str, seed: int, number: int, is_at_import: bool) -> Callable[[], PlayedChild]:
    def play_mutant() -> PlayedChild:
        probes.switch_on(number)
        if is_at_import:
            _forget_packages()
            _import_packages(space)
        return _play(space, seed)

    return play_mutant


def _play_sound(space: str, seed: int) -> PlayedChild:
    probes.reached.clear()
    probes.record_values()
    return _play(space, seed)


def _play(space: str, seed: int) -> PlayedChild:
    batches = import_module("chaos.exploration.batches")
    began_s = time.process_time()
    run: Any = batches.play_seed(_spaces[space], seed)  # a PlayedRun of the modules of this process
    cpu_s = time.process_time() - began_s
    if any("MemoryError" in reason for reason in run.reasons):
        raise MemoryError  # the bound of this child, and no finding
    in_time = sorted(run.findings, key=lambda each: each.time_us)
    return PlayedChild(
        result=str(run.result),
        digest=run.digest,
        checks=tuple(each.signature.check for each in in_time),
        summaries=tuple(each.summary for each in in_time),
        reasons=run.reasons,
        cpu_s=cpu_s,
        events=run.events,
        reached=tuple(sorted(probes.reached)),
        differing=tuple(sorted(_changed_numbers())),
    )


def _changed_numbers() -> set[int]:
    """Return the places that may change a run: with effects, or with another value."""
    return (probes.reached.keys() - probes.compared.keys()) | probes.differing()


def mutant_play(
    number: int, sound: PlayedChild, played: PlayedChild | None, child_cpu_s: float
) -> MutantPlay:
    """Return what the mutated run says by itself: the sound run only silences checkers.

    Shape: `played` is None if the child was stopped after `child_cpu_s`.
    """
    if played is None:
        return MutantPlay(
            mutant=number,
            differs=True,
            result="stopped",
            found_by=(),
            what="over the bound of CPU or memory",
            cpu_s=round(child_cpu_s, 3),
            is_stopped=True,
        )
    new = [n for n, check in enumerate(played.checks) if check not in sound.checks]
    found_by = list(dict.fromkeys(played.checks[n] for n in new))
    what = played.summaries[new[0]] if new else "; ".join(played.reasons)
    if played.result == "broken" and sound.result != "broken":
        found_by.append(LAB)
        what = what if new else "; ".join(played.reasons)
    return MutantPlay(
        mutant=number,
        differs=played.digest != sound.digest,
        result=played.result,
        found_by=tuple(found_by),
        what=what[:300],
        cpu_s=round(played.cpu_s, 3),
    )


def _import_packages(space: str) -> None:
    """Import what playing a seed needs, the space's file read as well."""
    for name in ("chaos.exploration.batches", "chaos.exploration.space"):
        import_module(name)
    for package in PACKAGES:
        file = Path(str(sys.modules[package].__file__)).resolve()
        if not file.is_relative_to(Path.cwd().resolve()):
            raise RuntimeError(f"{package} was imported from {file}, expected the copy")
    _spaces[space] = sys.modules["chaos.exploration.space"].load_space(space)


def _forget_packages() -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] in PACKAGES:
            del sys.modules[name]


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, BrokenPipeError):
        main()
