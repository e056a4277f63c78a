"""Run `python -m coordlab` as a user does: as a process of its own, in an empty folder.

A test can also find all processes that a command has left running. For this purpose, each command
gets an environment variable as a mark. Every process that the command starts inherits the mark.
Even Ray's daemons have it, although they leave the session of the command.
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
# The program `env`, which sets up signals for a command (see `started`). It is searched for now,
# because a test may start a command without a PATH.
_ENV = shutil.which("env") or "env"


class CommandLine:
    """Runs commands in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(
        self, *arguments: str, environment: Mapping[str, str | None] | None = None
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command until it ends.

        `environment` sets variables, or removes those whose value is None.

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
        """Start a command in a session of its own.

        The command writes its output to the file `stdout`. By default it writes to a pipe, from
        which the test reads. If the command still runs at the end of the block, it is killed,
        together with all other processes that commands in this folder have started.
        """
        variables = {
            **os.environ,
            # The packages are in the checkout, which is not the working directory.
            "PYTHONPATH": str(ROOT),
            # Wide enough that no line is wrapped.
            "COLUMNS": "200",
            MARK: str(self.folder),
        }
        for name, value in (environment or {}).items():
            variables.pop(name, None)
            if value is not None:
                variables[name] = value
        # A command that a user starts does not ignore SIGHUP. But tests that run under nohup ignore
        # SIGHUP, and a process inherits the ignored signals. So `env` restores the default action.
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
            # If the command has ended by itself, some tests look for processes that the command has
            # left. So these processes are not killed here.
            if process.poll() is None:
                process.kill()
                process.communicate()
                self.kill_everything()

    def kill_everything(self) -> None:
        """Kill all processes that commands in this folder have started and that are left."""
        for pid in self.processes():
            # The error means that the process has ended meanwhile.
            with suppress(ProcessLookupError):
                os.kill(pid, SIGKILL)

    def processes(self) -> list[int]:
        """Return the pids of all living processes that commands in this folder have started."""
        mark = f"{MARK}={self.folder}".encode()
        pids = []
        for entry in Path("/proc").iterdir():
            # The folders of processes are named by their pids. A process without a start time has
            # ended or is a zombie.
            if not entry.name.isdigit() or start_ticks(int(entry.name)) is None:
                continue
            try:
                variables = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                # The process has ended meanwhile, or it belongs to another user.
                continue
            if mark in variables:
                pids.append(int(entry.name))
        return pids

    def runs(self) -> list[PastRun]:
        """Return the runs in this folder, ordered by experiment, and then from old to new."""
        return list(list_runs(self.folder / "runs"))
