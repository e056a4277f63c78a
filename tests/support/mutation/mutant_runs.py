"""The process that runs tests against mutants, in a copy of the packages that it may change.

A mutant is a package with one small change, which tests should notice. The process reads jobs as
JSON, and answers each job with a line. Each job runs in a forked child process, which imports the
changed package. Modules that no mutant changes are imported once, in the parent. The parent must
not import a module that a mutant changes: the children would inherit the original.
"""

import io
import os
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path

import hypothesis  # noqa: F401  # imported here for the children
import msgspec
import pytest

ARGUMENTS = ("-x", "-q", "--timeout=60", "--timeout-method=signal", "-p", "no:cacheprovider")
CPU_SECONDS_MAX = 600
"""Limit of a child's CPU time, after which the system kills the child.

A child that takes longer is in an endless loop, which counts as a failed test. Spark's process
inherits the limit; it takes 100 s.
"""
OUTPUT_MAX = 4_000
"""Number of last characters of pytest's output that are kept."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Tests to run with the packages unchanged, or with one file changed."""

    tests: tuple[str, ...]
    path: str = ""  # of the changed file; empty: nothing is changed
    source: str = ""  # the whole changed file


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Pytest's exit code for a job, and the end of its output."""

    code: int
    output: str

    @property
    def is_passed(self) -> bool:
        """Return True if every test passed."""
        return self.code == pytest.ExitCode.OK

    @property
    def is_failed(self) -> bool:
        """Return True if a test failed; False also if the tests could not be run."""
        return self.code == pytest.ExitCode.TESTS_FAILED


def main() -> None:
    """Run the jobs of stdin one after another."""
    jobs = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Job])
    # Unless a mutant changes it, `protocol` is imported here once, for all children.
    if not any(job.path.startswith("protocol/") for job in jobs):
        for path in sorted(Path("protocol").rglob("*.py")):
            import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
    for number, job in enumerate(jobs):
        with _changed(job, number):
            sys.stdout.buffer.write(_in_child(job.tests) + b"\n")
            sys.stdout.buffer.flush()


@contextmanager
def _changed(job: Job, number: int) -> Iterator[None]:
    """Write the changed file, and restore the original afterwards."""
    if not job.path:
        yield
        return
    path = Path(job.path)
    before, times = path.read_bytes(), path.stat()
    path.write_text(job.source, encoding="utf-8")
    # Python recompiles a file if its time (in whole seconds) or its size differs from that of the
    # compiled one. So every changed file gets a second of its own.
    os.utime(path, (number, number))
    try:
        yield
    finally:
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _in_child(tests: Sequence[str]) -> bytes:
    """Run pytest in a child, which ends with its modules; return its Run."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS_MAX, CPU_SECONDS_MAX))
        with os.fdopen(writing, "wb") as answer:
            answer.write(msgspec.json.encode(_run_pytest(tests)))
        # End without the exit handlers of pytest and Python, which belong to the parent.
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        run = answer.read()
    os.waitpid(child, 0)
    # A child that was killed has written nothing; then the limit of CPU time is the likely reason.
    return run or msgspec.json.encode(
        Run(code=pytest.ExitCode.TESTS_FAILED, output=f"over {CPU_SECONDS_MAX} s of CPU time")
    )


def _run_pytest(tests: Sequence[str]) -> Run:
    """Run pytest in this process, and keep its output."""
    output = io.StringIO()
    with redirect_stdout(output):
        code = int(pytest.main([*ARGUMENTS, *tests]))
    return Run(code=code, output=output.getvalue()[-OUTPUT_MAX:])


if __name__ == "__main__":
    main()
