"""Run the tests of the package `coordinator` on mutants, to see whether they notice a change.

A mutant is a copy of the code with one small change. If a test fails with the change, the tests
have killed the mutant. If all tests pass, the mutant is a survivor. The change is made in a copy of
the packages and their tests, never in the checkout.

There are two kinds of mutants:

- The mutants in the file `LIST` are written by hand. Each of them breaks one scenario: a test case
  of Kafka, with an id such as GC-010. Our tests of a scenario name this id in their docstrings, and
  these tests must kill the mutant. `survivors` runs them.
- Other mutants are drawn at random. Any test of the coordinator may kill such a mutant.
  `drawn_survivors` runs the tests on them.
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
from tests.support.mutation.draw import CodeMutant
from tests.support.mutation.mutant_runs import Job, Run

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = "coordinator"
LIST = ROOT / "tests" / "coordinator" / "mutants.toml"
"""The file with the mutants that are written by hand."""
TESTS = "tests/coordinator/"
COPIED = ("protocol", "partition_log", PACKAGE, "benchmarks", "tests/support", "tests/coordinator")
"""The folders that the tests of the coordinator need."""
SURVIVORS = ROOT / "tests" / "coordinator" / "surviving_mutants.toml"
"""The file with the drawn mutants that no test can kill, each with the reason why not."""
SLOW_TESTS = (
    "test_coordinator_properties.py",
    "storage/test_compacted_load.py",
    "test_core_benchmark.py",
)
"""Tests that run only on the mutants that all other tests let live."""


class Mutant(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A mutant of `LIST`: a change of one file, and the scenario whose tests must notice it.

    Some changes belong to no scenario, for example changes of the switches that let our coordinator
    imitate Kafka's Java coordinator. Such a mutant has an empty `scenario`, and `tests` names a
    file of tests.
    """

    # The path of the changed file, relative to the package.
    file: str
    # The id of the scenario, such as "GC-010".
    scenario: str = ""
    # The file of tests that runs instead of the tests of a scenario.
    tests: str = ""
    # The text that is replaced by `new`. It occurs in the file exactly once.
    old: str
    new: str

    @property
    def name(self) -> str:
        """Return a line for people, such as `GC-011 apis/join_group.py: <= config.group_max`."""
        line = self.old.strip().splitlines()[0].strip()
        return f"{self.scenario or self.tests} {self.file}: {line}"

    def applied_to(self, source: str) -> str:
        """Return the source with the change.

        Raises: ValueError unless `old` occurs in the source exactly once and differs from `new`.
        """
        if source.count(self.old) != 1 or self.old == self.new:
            raise ValueError(f"{self.name}: found {source.count(self.old)} times")
        return source.replace(self.old, self.new)


def read_mutants() -> tuple[Mutant, ...]:
    """Return the mutants of `LIST`."""
    with LIST.open("rb") as file:
        return msgspec.convert(tomllib.load(file)["mutant"], tuple[Mutant, ...])


def scenario_tests(mutant: Mutant) -> tuple[str, ...]:
    """Return the tests of the coordinator that name the mutant's scenario, as pytest's node ids.

    Without a scenario, return the file of tests that the mutant names.
    """
    if mutant.tests:
        return (f"{TESTS}{mutant.tests}",)
    places = places_by_scenario().get(mutant.scenario, ())
    return tuple(f"{place.path}::{place.name}" for place in places if place.path.startswith(TESTS))


def survivors(folder: Path, mutants: Sequence[Mutant]) -> list[Mutant]:
    """Run for each mutant the tests of its scenario, and return the mutants that survive.

    The copy of the code is made in `folder`.

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
        # The tests have neither passed nor failed if, for example, an import fails because of the
        # change. Such a mutant proves nothing about the tests.
        if not run.is_passed and not run.is_failed:
            raise RuntimeError(f"{mutant.name}: its tests cannot be run:\n{run.output}")
    return [mutant for mutant, run in zip(mutants, runs, strict=True) if run.is_passed]


class Survivor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A drawn mutant that no test kills, and the reason why no test has to kill it."""

    file: str
    # The changed line before and after the change, as in `CodeMutant`.
    before: str
    after: str
    reason: str


def read_survivors() -> tuple[Survivor, ...]:
    """Return the drawn mutants that are known to survive."""
    with SURVIVORS.open("rb") as file:
        return msgspec.convert(tomllib.load(file)["survivor"], tuple[Survivor, ...])


def drawn_survivors(folder: Path, drawn: Sequence[CodeMutant]) -> list[CodeMutant]:
    """Run every test of the coordinator against each mutant; return the survivors.

    Raises: RuntimeError if the tests fail without any change.
    """
    # test_mutants compares the text of the code with a list. So it would fail with every mutant,
    # and would prove nothing about the other tests.
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
    # The last two files have the settings and the fixtures of pytest.
    copy = JobFolder(folder, copied=(*COPIED, "pyproject.toml", "tests/conftest.py"))
    return list(copy.run(jobs))


class JobFolder:
    """A copy of packages and their tests, in which a job changes one file at a time."""

    def __init__(self, folder: Path, copied: Sequence[str] = (".",)) -> None:
        """Copy the files below the paths `copied` into `folder`, except those that Git ignores.

        By default the whole repository is copied.
        """
        self._folder = folder
        listed = subprocess.run(
            # `--others` lists also new files, which are not committed yet.
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
        # First all tests run once without a change, and must pass. A dict has each test only once.
        all_tests = dict.fromkeys(test for job in jobs for test in job.tests)
        # `_run` yields a single result, because it gets a single job. `*_` lets the generator
        # `_run` go on to its end, where it waits for its process.
        unchanged, *_ = self._run([Job(tests=tuple(all_tests))])
        if not unchanged.is_passed:
            raise RuntimeError(f"tests fail without a mutant:\n{unchanged.output}")
        yield from self._run(jobs)

    def _run(self, jobs: Sequence[Job]) -> Iterator[Run]:
        """Start a process that runs the jobs in the copy, and yield each result as it comes."""
        # The process must import the copied packages. With PYTHONPATH it could import those of the
        # checkout.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        with subprocess.Popen(
            [sys.executable, "-m", "tests.support.mutation.mutant_runs"],
            cwd=self._folder,
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
