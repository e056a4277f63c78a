"""Mutants of `coordinator`: small changes that must make the tests of a scenario fail.

A mutant is the code with one change. The change is made in a copy of the packages and their tests,
never in the checkout. A scenario is a test case of Kafka, with an id such as GC-010; the tests of a
scenario name its id. A mutant is killed if one of these tests fails, and a survivor if all pass. A
job is a list of tests to run with one file changed.

There are two sources of mutants: a list written by hand (`LIST`), and changes drawn at random
(`drawn_survivors`).
"""

import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from scripts.docs.conformance_page import places_by_scenario
from tests.support.mutation.draw import Drawn
from tests.support.mutation.mutant_runs import Job, Run

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = "coordinator"
LIST = ROOT / "tests" / "coordinator" / "mutants.toml"
TESTS = "tests/coordinator/"
COPIED = ("protocol", "partition_log", PACKAGE, "benchmarks", "tests/support", "tests/coordinator")
"""Folders that the tests of the coordinator need. `run_jobs` adds the files that pytest needs."""
SURVIVORS = ROOT / "tests" / "coordinator" / "surviving_mutants.toml"
"""Drawn mutants that no test can kill, each with the reason."""
SLOW_TESTS = (
    "test_coordinator_properties.py",
    "storage/test_compacted_load.py",
    "test_core_benchmark.py",
)
"""Tests tried only on mutants that the others did not kill."""


class Mutant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of one file of the package, and the scenario whose tests must notice the change.

    Some changes belong to no scenario, for example those of the switches that imitate the Java
    coordinator. Such a mutant names a file of tests (`tests`) instead of a scenario.
    """

    file: str
    scenario: str = ""
    tests: str = ""
    old: str  # occurs in the file exactly once
    new: str

    @property
    def name(self) -> str:
        """Return scenario or tests, file and the first changed line, for people."""
        line = self.old.strip().splitlines()[0].strip()
        return f"{self.scenario or self.tests} {self.file}: {line}"

    def applied_to(self, source: str) -> str:
        """Return the source with the change.

        Raises: ValueError unless `old` occurs in the source exactly once.
        """
        if source.count(self.old) != 1 or self.old == self.new:
            raise ValueError(f"{self.name}: found {source.count(self.old)} times")
        return source.replace(self.old, self.new)


def read_mutants() -> tuple[Mutant, ...]:
    """Return the mutants of the list."""
    with LIST.open("rb") as file:
        return msgspec.convert(tomllib.load(file)["mutant"], tuple[Mutant, ...])


def scenario_tests(mutant: Mutant) -> tuple[str, ...]:
    """Return the tests of the coordinator that name the mutant's scenario, as pytest's node ids.

    Without a scenario, return the file of tests that the mutant names.
    """
    if mutant.tests:
        return (f"{TESTS}{mutant.tests}",)
    # `places_by_scenario` has the tests that name a scenario, by its id.
    places = places_by_scenario().get(mutant.scenario, ())
    return tuple(f"{place.path}::{place.name}" for place in places if place.path.startswith(TESTS))


def survivors(folder: Path, mutants: Sequence[Mutant]) -> list[Mutant]:
    """Run for each mutant the tests of its scenario, below `folder`; return the survivors.

    Raises: RuntimeError if a test fails without a change, or cannot be run with a mutant.
    """
    jobs = [
        Job(
            tests=scenario_tests(mutant),
            path=f"{PACKAGE}/{mutant.file}",
            source=mutant.applied_to((ROOT / PACKAGE / mutant.file).read_text(encoding="utf-8")),
        )
        for mutant in mutants
    ]
    runs = run_jobs(folder, jobs)
    for mutant, run in zip(mutants, runs, strict=True):
        # If an import fails, for example, the tests have neither passed nor failed. Such a mutant
        # proves nothing about the tests.
        if not run.is_passed and not run.is_failed:
            raise RuntimeError(f"{mutant.name}: its tests cannot be run:\n{run.output}")
    return [mutant for mutant, run in zip(mutants, runs, strict=True) if run.is_passed]


class Survivor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A drawn mutant that no test kills, and the reason why that is right."""

    file: str
    before: str
    after: str
    reason: str


def read_survivors() -> tuple[Survivor, ...]:
    """Return the drawn mutants that are known to survive."""
    with SURVIVORS.open("rb") as file:
        return msgspec.convert(tomllib.load(file)["survivor"], tuple[Survivor, ...])


def drawn_survivors(folder: Path, drawn: Sequence[Drawn]) -> list[Drawn]:
    """Run every test of the coordinator against each mutant; return the survivors.

    Raises: RuntimeError if the tests fail without any change.
    """
    # test_mutants compares the text of the code with a list, so it would fail with any mutant.
    ignored = (f"--ignore={TESTS}{name}" for name in ("test_mutants.py", *SLOW_TESTS))
    quick = (TESTS, *ignored)
    slow = tuple(f"{TESTS}{name}" for name in SLOW_TESTS)
    alive = list(drawn)
    # The slow tests run only for mutants that survive the quick ones.
    for tests in (quick, slow):
        if not alive:
            break
        jobs = [
            Job(tests=tests, path=f"{PACKAGE}/{mutant.file}", source=mutant.source)
            for mutant in alive
        ]
        runs = run_jobs(Path(tempfile.mkdtemp(dir=folder)), jobs)
        alive = [mutant for mutant, run in zip(alive, runs, strict=True) if run.is_passed]
    return alive


def run_jobs(folder: Path, jobs: Sequence[Job]) -> list[Run]:
    """Copy packages and tests into `folder`, and run the jobs there one after another.

    Raises: RuntimeError, before any job, if a test of the jobs fails without a change.
    """
    # pytest needs its settings and fixtures, too.
    copy = JobFolder(folder, copied=(*COPIED, "pyproject.toml", "tests/conftest.py"))
    return list(copy.run(jobs))


class JobFolder:
    """A copy of packages and their tests, in which a job changes one file at a time."""

    def __init__(self, folder: Path, copied: Sequence[str] = (".",)) -> None:
        """Copy the files below the paths `copied` into `folder`, without files that Git ignores."""
        self._folder = folder
        listed = subprocess.run(
            # `--others`: new files too, which are not committed yet.
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *copied],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
        for name in listed.stdout.split("\0"):
            if name and (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, folder / name)

    def run(self, jobs: Sequence[Job]) -> Iterator[Run]:
        """Run the jobs one after another, and yield the result of each when it is known.

        Raises: RuntimeError, before any job, if a test of the jobs fails without a change.
        """
        everything = dict.fromkeys(test for job in jobs for test in job.tests)
        # One run of all tests without a change; each of them must pass. `*_` reads to the end of
        # the output, so that the process can end.
        unchanged, *_ = self._run([Job(tests=tuple(everything))])
        if not unchanged.is_passed:
            raise RuntimeError(f"tests fail without a mutant:\n{unchanged.output}")
        yield from self._run(jobs)

    def _run(self, jobs: Sequence[Job]) -> Iterator[Run]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with subprocess.Popen(
            [sys.executable, "-m", "tests.support.mutation.mutant_runs"],
            cwd=self._folder,
            # Without PYTHONPATH, which could lead to the checkout: Python must import the copy.
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            if process.stdin is None or process.stdout is None:
                raise RuntimeError("the process has no pipes")
            process.stdin.write(msgspec.json.encode(jobs))
            process.stdin.close()
            for line in process.stdout:
                yield msgspec.json.decode(line, type=Run)
        if process.returncode != 0:
            raise RuntimeError(f"the process that runs mutants ended with {process.returncode}")
