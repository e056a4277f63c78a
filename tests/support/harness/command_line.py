"""`python -m coordlab` as a user runs it: a process of its own, in an empty folder.

Every process that a command starts inherits a mark (an environment variable). By the mark a test
finds all processes that a command left running, even Ray's daemons, which begin sessions of their
own.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from signal import SIGKILL
from typing import IO

from chaos.results.run_directory import PastRun, list_runs
from cluster.realtime.machine_processes import start_ticks

ROOT = Path(__file__).resolve().parents[3]
MARK = "COORDLAB_TEST_MARK"
COMMAND_TIMEOUT_S = 200.0
_ENV = shutil.which("env") or "env"  # found now, because a test may start a command without PATH


class CommandLine:
    """Runs commands in `folder`; `runs` are the run directories in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(
        self, *arguments: str, environment: Mapping[str, str | None] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run one command to its end. `environment` sets variables; the value None removes one.

        Raises: subprocess.TimeoutExpired after COMMAND_TIMEOUT_S.
        """
        with self.started(*arguments, environment=environment) as process:
            output, errors = process.communicate(timeout=COMMAND_TIMEOUT_S)
        return subprocess.CompletedProcess(arguments, process.returncode, output, errors)

    @contextmanager
    def started(
        self,
        *arguments: str,
        environment: Mapping[str, str | None] | None = None,
        stdout: IO[str] | None = None,
    ) -> Iterator["subprocess.Popen[str]"]:
        """Start one command in a session of its own.

        If the command still runs at the end, all processes that commands in this folder started are
        killed. If `stdout` is None, the output goes to a pipe, from which the test reads.
        """
        variables = {
            **os.environ,
            "PYTHONPATH": str(ROOT),  # the working directory is not the checkout
            "COLUMNS": "200",  # so wide that no line is wrapped
            MARK: str(self.folder),
        }
        for name, value in (environment or {}).items():
            variables.pop(name, None)
            if value is not None:
                variables[name] = value
        # A process inherits ignored signals. Under nohup, the tests ignore SIGHUP; a command that
        # a user starts does not.
        process = subprocess.Popen(
            [_ENV, "--default-signal=HUP", sys.executable, "-m", "coordlab", *arguments],
            cwd=self.folder,
            env=variables,
            stdout=stdout or subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            # If the command has ended, the processes that it left are not killed, because some
            # tests look for them.
            if process.poll() is None:
                process.kill()
                process.communicate()
                self.kill_everything()

    def kill_everything(self) -> None:
        """Kill all processes that the commands in this folder left."""
        for pid in self.processes():
            with suppress(ProcessLookupError):  # it has ended meanwhile
                os.kill(pid, SIGKILL)

    def processes(self) -> list[int]:
        """Return the pids of living processes that commands in this folder started."""
        mark = f"{MARK}={self.folder}".encode()
        pids = []
        for entry in Path("/proc").iterdir():
            # A process without a start time is gone or a zombie.
            if not entry.name.isdigit() or start_ticks(int(entry.name)) is None:
                continue
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:  # the process has ended meanwhile, or belongs to another user
                continue
            if mark in variables:
                pids.append(int(entry.name))
        return pids

    def runs(self) -> list[PastRun]:
        """Return the runs in this folder, by experiment and then oldest first."""
        return list(list_runs(self.folder / "runs"))
