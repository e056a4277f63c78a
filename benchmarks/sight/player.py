"""The process that plays seeds in a switched tree: first sound (no mutant on), then each mutant.

A mutant is a small change of the code. A switched tree is a copy of the sources that contains every
mutant; `probes` turns one of them on. A mutant's number also names its place, the changed statement
or expression.

Each run is in a child process (fork), so that it leaves no module state, cache or memory for the
next run. The parent imports the packages, and plays nothing itself. The import can already evaluate
a mutant's place (a constant, a default, a class). Then the child of this mutant turns the mutant
on, and imports the packages again. So this module must not import the packages at its top.
Data flow: Order lines on stdin -> PlayedOrder lines on stdout.
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
"""Bound of a mutated run's CPU: CPU_SECONDS_MIN, or CPU_FACTOR times the sound run's CPU if that is
more.

The bound is higher than the limit of `explore` (`cpu_limit`). `explore` ends a run at that limit
and reports the run as BROKEN. So only a run that this limit cannot end reaches the bound.
"""
STOPS_MAX = 3
"""After this number of stopped runs, a mutant is not played again, because it costs too much."""
SECONDS_MAX = 2 * 3_600
"""Bound of a run's wall-clock seconds. It stops a run that waits without using CPU."""
MEMORY_MAX = 4 * 1024**3
"""Bound of a child's memory in bytes, far more than a sound run needs."""
LAB = "the lab"
"""Entry of `found_by` if the run of the tool itself failed, which no checker reports."""
OTHER_SPACE_EVERY = 10
"""Every tenth seed (9, 19 and so on) is a seed of the second space."""

_spaces: dict[str, Any] = {}
"""Each space by its name, as the presently imported packages have read it."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """A seed, and the mutants to play if it reaches them."""

    seed: int
    mutants: tuple[int, ...]
    also_unchanged: bool = False
    """True: also play mutants that change no value. By this a test proves that they change no
    run."""


class SoundPlay(msgspec.Struct, frozen=True, kw_only=True):
    """The run of a seed without a mutant.

    The number of its mutant names a place.

    - `reached`: places that the run evaluated.
    - `at_import`: places that the import of the packages evaluated.
    - `unchanged`: places in `reached` whose mutated expression always had the same value as the
      sound one.
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

    - `differs`: True if the digest of the trace differs from that of the sound run.
    - `found_by`: checkers with findings here and none in the sound run; also LAB, if this run is
      BROKEN and the sound run is not.
    - `what`: the summary of the earliest finding of these checkers, or else the reasons of the
      result.
    - `is_stopped`: True if the run exceeded its bound of CPU or memory.
    """

    mutant: int
    differs: bool
    result: str
    found_by: tuple[str, ...]
    what: str
    cpu_s: float
    is_stopped: bool = False


class PlayedOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Results of an order: one line of the journal."""

    seed: int
    sound: SoundPlay
    mutants: tuple[MutantPlay, ...]


class PlayedChild(msgspec.Struct, frozen=True, kw_only=True):
    """Data of a run that a child sends to its parent.

    - `checks`, `summaries`: names of the checks of the findings, and their summaries, earliest
      first.
    - `reached`: places that the run evaluated.
    - `differing`: those of the reached places that can have changed the run.
    """

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
            signal.alarm(SECONDS_MAX)  # SIGALRM ends the process
            try:
                answer = msgspec.json.encode(_played_or_broken(job))
                with os.fdopen(writing, "wb") as file:
                    file.write(answer)
            finally:
                # `_exit` instead of sys.exit: the parent's cleanup and buffers are not the child's.
                # A child that was stopped, or that raised, has written nothing; `result` returns
                # None.
                os._exit(0)
        os.close(writing)
        self.file = os.fdopen(reading, "rb")

    def result(self) -> tuple[PlayedChild | None, float]:
        """Wait for the end; return the run (None if it was stopped), and the CPU seconds."""
        with self.file:
            answer = self.file.read()
        _, _, usage = os.wait4(self.pid, 0)
        played = msgspec.json.decode(answer, type=PlayedChild) if answer else None
        return played, usage.ru_utime + usage.ru_stime


def main() -> None:
    """Play the orders of stdin one after another."""
    # Arguments: the number of mutated runs at the same time, and the names of one or two spaces.
    workers, spaces = int(sys.argv[1]), tuple(sys.argv[2:])
    # Answers go to the original stdout. From here on, file descriptor 1 is stderr, so that output
    # of a run is not mistaken for an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    _import_packages(spaces)
    # Nothing was played yet, so these places were evaluated by the import.
    at_import = tuple(sorted(probes.reached))
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=Order)
        answers.write(msgspec.json.encode(_play_order(order, spaces, at_import, workers)) + b"\n")
        answers.flush()


def space_of(seed: int, spaces: Sequence[str]) -> str:
    """Return the name of the space from which a seed is drawn; `spaces` has one or two names."""
    is_of_second = seed % OTHER_SPACE_EVERY == OTHER_SPACE_EVERY - 1
    return spaces[-1] if is_of_second else spaces[0]


def _play_order(
    order: Order, spaces: Sequence[str], at_import: tuple[int, ...], workers: int
) -> PlayedOrder:
    """Play a seed sound, then with each mutant of the order that can change its run."""
    seed = order.seed
    # The bound is four times that of a mutated run: without the sound run nothing can be compared.
    played, cpu_s = _Child(lambda: _play_sound(spaces, seed), CPU_SECONDS_MIN * 4).result()
    if played is None:
        raise RuntimeError(f"seed {seed}: the sound run was stopped after {cpu_s:.0f} s of CPU")
    reached = tuple(number for number in played.reached if number not in at_import)
    changed = {*played.differing, *at_import}
    playable = {*changed, *reached} if order.also_unchanged else changed
    # With `also_unchanged`, every reached mutant is played, even if its values were always equal.
    to_play = [
        number
        for number in order.mutants
        if number in playable and (number in reached or number in at_import)
    ]
    cpu_s_max = max(CPU_SECONDS_MIN, int(CPU_FACTOR * played.cpu_s))
    plays = {
        number: mutant_play(number, played, child, child_cpu_s)
        for number, child, child_cpu_s in _play_mutants(
            to_play, spaces, seed, at_import, cpu_s_max, workers
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
    spaces: Sequence[str],
    seed: int,
    at_import: tuple[int, ...],
    cpu_s_max: int,
    workers: int,
) -> Iterator[tuple[int, PlayedChild | None, float]]:
    """Play each mutant, `workers` at a time; yield its run and CPU seconds as the runs end."""
    waiting = list(reversed(numbers))  # pop() takes from the end
    with selectors.DefaultSelector() as selector:
        while waiting or selector.get_map():
            while waiting and len(selector.get_map()) < workers:
                number = waiting.pop()
                child = _Child(_job(spaces, seed, number, number in at_import), cpu_s_max)
                selector.register(child.file, selectors.EVENT_READ, (number, child))
            for key, _ in selector.select():
                number, child = key.data
                selector.unregister(key.fileobj)
                played, cpu_s = child.result()
                yield number, played, cpu_s


def _played_or_broken(job: Callable[[], PlayedChild]) -> PlayedChild:
    """Run a job. An exception makes the run BROKEN, because it would end a worker of `explore`.

    Raises: MemoryError, because its cause is this child's bound of memory, not the mutant.
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


def _job(
    spaces: Sequence[str], seed: int, number: int, is_at_import: bool
) -> Callable[[], PlayedChild]:
    """Return the function with which a child process plays a seed with one mutant on."""

    def play_mutant() -> PlayedChild:
        probes.switch_on(number)
        if is_at_import:
            _forget_packages()
            _import_packages(spaces)
        return _play(spaces, seed)

    return play_mutant


def _play_sound(spaces: Sequence[str], seed: int) -> PlayedChild:
    probes.reached.clear()
    probes.record_values()
    return _play(spaces, seed)


def _play(spaces: Sequence[str], seed: int) -> PlayedChild:
    """Play a seed in this process, with the mutant that is on. Raises: MemoryError."""
    batches = import_module("chaos.exploration.batches")
    began_s = time.process_time()
    # This is a PlayedRun of the packages as imported here. A type that this module had imported
    # would be another class.
    run: Any = batches.play_seed(_spaces[space_of(seed, spaces)], seed)
    cpu_s = time.process_time() - began_s
    if any("MemoryError" in reason for reason in run.reasons):
        raise MemoryError  # caused by the bound of this child: it is no finding
    earliest_first = sorted(run.findings, key=lambda finding: finding.time_us)
    return PlayedChild(
        result=str(run.result),
        digest=run.digest,
        checks=tuple(finding.signature.check for finding in earliest_first),
        summaries=tuple(finding.summary for finding in earliest_first),
        reasons=run.reasons,
        cpu_s=cpu_s,
        events=run.events,
        reached=tuple(sorted(probes.reached)),
        differing=tuple(sorted(_changed_numbers())),
    )


def _changed_numbers() -> set[int]:
    """Return the reached places that can change the run.

    These are the places with effects, and those without effects whose mutated value differed.
    """
    return (probes.reached.keys() - probes.compared.keys()) | probes.differing()


def mutant_play(
    number: int, sound: PlayedChild, played: PlayedChild | None, child_cpu_s: float
) -> MutantPlay:
    """Return the results of a mutated run, as a user without the sound run would see them.

    The sound run only excludes checkers that have a finding without the mutant, too.
    `played` is None if the child was stopped after `child_cpu_s`.
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
    reasons = "; ".join(played.reasons)
    new_findings = [
        (check, summary)
        for check, summary in zip(played.checks, played.summaries, strict=True)
        if check not in sound.checks
    ]
    found_by = list(dict.fromkeys(check for check, _ in new_findings))
    what = new_findings[0][1] if new_findings else reasons
    if played.result == "broken" and sound.result != "broken":
        found_by.append(LAB)
    return MutantPlay(
        mutant=number,
        differs=played.digest != sound.digest,
        result=played.result,
        found_by=tuple(found_by),
        what=what[:300],
        cpu_s=round(played.cpu_s, 3),
    )


def _import_packages(spaces: Sequence[str]) -> None:
    """Import the modules that playing a seed needs, and read the files of the spaces.

    Raises: RuntimeError if a package does not come from the copy in the current folder.
    """
    for name in ("chaos.exploration.batches", "chaos.exploration.space"):
        import_module(name)
    for package in PACKAGES:
        file = Path(str(sys.modules[package].__file__)).resolve()
        if not file.is_relative_to(Path.cwd().resolve()):
            raise RuntimeError(f"{package} was imported from {file}, expected the copy")
    for space in spaces:
        _spaces[space] = sys.modules["chaos.exploration.space"].load_space(space)


def _forget_packages() -> None:
    """Make the next import evaluate every module again; `probes` is in none of the packages."""
    for name in list(sys.modules):
        if name.partition(".")[0] in PACKAGES:
            del sys.modules[name]


if __name__ == "__main__":
    with suppress(KeyboardInterrupt, BrokenPipeError):
        main()
