"""A process that runs tests on mutants.

A mutant is a package with one small change, which the tests should notice. `JobFolder` copies the
packages and starts this process in the copy, where the process may change files. The process reads
all jobs from stdin as JSON, and answers each job with a line on stdout.

The tests of each job run in a forked child process, which imports the changed package. Forking
saves time: pytest and the modules that no mutant changes are imported only once, in the parent. But
the parent must not import a module that a mutant changes, because the children would inherit the
original module.
"""

import io
import os
import resource
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from pathlib import Path

import hypothesis  # noqa: F401  # imported in the parent, so that the children need not do it
import msgspec
import pytest

ARGUMENTS = ("-x", "-q", "--timeout=60", "--timeout-method=signal", "-p", "no:cacheprovider")
"""Options of pytest: the first failed test ends the run, and a test may take 60 s."""
CPU_SECONDS_MAX = 600
"""Limit of a child's CPU time, after which the system kills the child.

A child that takes longer is in an endless loop because of the mutant. Such a loop counts as a
failed test. Some tests start a process of Spark. This process inherits the limit, but needs only
100 s.
"""
OUTPUT_MAX = 4_000
"""The number of characters that are kept of pytest's output: those at its end."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Tests to run on one mutant. If `path` is empty, they run on the unchanged packages."""

    # Arguments of pytest: files, names of tests, options.
    tests: tuple[str, ...]
    # The file that the mutant changes, and its whole text with the change.
    path: str = ""
    source: str = ""


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
    """Read the jobs from stdin, and run one after another."""
    jobs = msgspec.json.decode(sys.stdin.buffer.read(), type=list[Job])
    # Every package imports `protocol`. Unless a mutant changes it, the parent imports it.
    if not any(job.path.startswith("protocol/") for job in jobs):
        for path in sorted(Path("protocol").rglob("*.py")):
            import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
    for number, job in enumerate(jobs):
        with _changed(job, number):
            sys.stdout.buffer.write(_in_child(job.tests) + b"\n")
            sys.stdout.buffer.flush()


@contextmanager
def _changed(job: Job, number: int) -> Iterator[None]:
    """Write the changed file of a job, and restore the original file afterwards.

    `number` must be different for each job.
    """
    if not job.path:
        yield
        return
    path = Path(job.path)
    original_content = path.read_bytes()
    original_stat = path.stat()
    path.write_text(job.source, encoding="utf-8")
    # Python keeps the compiled form of a source file. It compiles the source again only if the time
    # of the source (in whole seconds) or its size has changed. But two mutants of a file may have
    # the same size, and may be written within the same second. So the number of the job becomes the
    # time of the file: it is different for each job.
    os.utime(path, (number, number))
    try:
        yield
    finally:
        path.write_bytes(original_content)
        os.utime(path, ns=(original_stat.st_atime_ns, original_stat.st_mtime_ns))


def _in_child(tests: Sequence[str]) -> bytes:
    """Run pytest in a forked child, and return its Run as JSON.

    The changed module is imported only in the child. So it is gone when the child ends.
    """
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
    # A child that was killed has written nothing. The likely reason is the limit of CPU time.
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
