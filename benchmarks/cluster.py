"""`make cluster`: what coordlab does if one of its machines is killed or cut off.

The three machines are simulated on the present machine: each of them is a set of Linux namespaces
with a network address and a /tmp of its own (scripts/machines). Each case starts a command on
machine 1, such as `coordlab run`, and checks how the command ends. If the case kills a machine
meanwhile, all machines are made anew for the next case.

The results of the cases are printed as a table. With `--record`, they also become a section of
docs/SOAK.md.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec
import pyspark
from rich.console import Console
from rich.table import Table

from benchmarks.measurement import commit, machine
from benchmarks.recorded_page import replace_section
from results_schema.journal import JournalEntry
from results_schema.results import Results

ROOT = Path(__file__).resolve().parent.parent
MACHINES = str(ROOT / "scripts" / "machines")
SUBNET = "10.219.55"
HEAD_ADDRESS = f"{SUBNET}.11"
"""Address of machine 1, on which Ray's head, Spark's master and all commands run."""
PORT = 6379
"""Port of Ray's head."""
RUNS = "/tmp/coordlab-runs"
"""Folder of the runs, on machine 1. If a machine is killed, its /tmp is lost, and so are the trace
rows that its nodes have written there, as on a real machine.
"""
SHARED_RUNS = ROOT / "build" / "cluster"
"""Folder of the run that Spark analyses. It is on all machines, because Spark reads the run's files
on several of them."""
SPARK_PORT = 7077
"""Port of Spark's master."""
SPARK_WORK = "/tmp/spark-work"
"""Folder on each machine, in which Spark makes a folder for each application that runs there."""
SEARCH_SEEDS = 40
"""Number of seeds that the search plays."""
NODE_PROCESS = "ray::_(Node|Agent)Actor"
"""Pattern of the command lines of a run's processes: nodes, and the agents that start them."""
PAGE = ROOT / "docs" / "SOAK.md"
SECTION = "machines"
"""Heading of the section of PAGE."""
MACHINE_COUNT = 3
START_LIMIT_S = 180.0
"""Time within which Ray must start on a machine, or a process must appear."""
CASE_LIMIT_S = 400.0
"""Time within which a case's command must end. It is checked at each line that the command prints.
"""
PROCESSES_END_LIMIT_S = 60.0
"""Time within which the processes of the nodes must end after the end of a run."""
SLOW_START = ("--var", "run.steady_state_timeout=120s")
"""Options for a longer timeout, because the three machines share the processors of one machine."""


class CaseFailed(Exception):
    """A case did not have its expected result. The message has the actual result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One case. `name` and `expects` are texts for the table."""

    name: str
    expects: str
    play: Callable[[], str]
    """Returns the actual result as a text. Raises: CaseFailed if it is not as expected."""
    kills_a_machine: bool = False


def on_machine(number: int, *command: str) -> list[str]:
    """Return the command line that runs `command` on a machine, counted from 1."""
    # Each machine has a HOME of its own, so the machines cannot share Ray's token file.
    environment = ["env", "RAY_AUTH_MODE=disabled"]
    return [MACHINES, "run", str(number), *environment, *command]


def call_machines_script(*words: str) -> None:
    """Call scripts/machines. Raises: CaseFailed with its output."""
    done = subprocess.run([MACHINES, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CaseFailed(done.stderr.strip() or f"scripts/machines {words[0]} failed")


def start_ray(number: int) -> None:
    """Start Ray on a machine. Raises: CaseFailed."""
    role = ["--head", f"--port={PORT}"] if number == 1 else [f"--address={HEAD_ADDRESS}:{PORT}"]
    command = [
        str(Path(sys.executable).parent / "ray"),
        "start",
        *role,
        f"--node-ip-address={address_of(number)}",
        "--num-cpus=1",
        "--object-store-memory=100000000",
        "--disable-usage-stats",
    ]
    try:
        subprocess.run(
            on_machine(number, *command),
            capture_output=True,
            text=True,
            check=True,
            timeout=START_LIMIT_S,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise CaseFailed(f"Ray did not start on machine {number}: {error}") from error


@contextmanager
def three_machines() -> Iterator[None]:
    """Provide three machines with Ray, and remove them afterwards, even after Ctrl-C."""
    os.environ.setdefault("SHARED", shared_folder())  # scripts/machines reads it
    call_machines_script("up", str(MACHINE_COUNT))
    try:
        for number in range(1, MACHINE_COUNT + 1):
            start_ray(number)
        yield
    finally:
        subprocess.run([MACHINES, "down"], check=False)


def address_of(number: int) -> str:
    """Return the IP address of a machine, counted from 1."""
    return f"{SUBNET}.{10 + number}"


def shared_folder() -> str:
    """Return the folder that the machines must share so that all of them see the checkout.

    If the checkout is /tmp/a/b, the folder is /tmp/a, because each machine has a /tmp of its own.
    If the checkout is not in /tmp, return "".
    """
    # The parts of /tmp/a/b are "/", "tmp", "a" and "b".
    parts = ROOT.parts
    return str(Path(*parts[:3])) if parts[1] == "tmp" else ""


def has_process(number: int, pattern: str) -> bool:
    """Return whether the command line of a process on a machine matches.

    If the machine is gone, the result is False.
    """
    command = on_machine(number, "pgrep", "-f", pattern)
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def await_process(number: int, pattern: str) -> None:
    """Wait until the command line of a process on a machine matches. Raises: CaseFailed."""
    deadline_s = time.monotonic() + START_LIMIT_S
    while not has_process(number, pattern):
        if time.monotonic() > deadline_s:
            raise CaseFailed(
                f"machine {number} has no process `{pattern}` after {START_LIMIT_S:.0f} s"
            )
        time.sleep(0.2)


def check_all_ended(*numbers: int) -> None:
    """Check that the node processes and agents of a run have ended. Raises: CaseFailed."""
    deadline_s = time.monotonic() + PROCESSES_END_LIMIT_S
    while machines_left := [number for number in numbers if has_process(number, NODE_PROCESS)]:
        if time.monotonic() > deadline_s:
            raise CaseFailed(f"node processes are left on machines {machines_left}")
        time.sleep(1)


class RunningCommand:
    """A `coordlab` command that runs on machine 1. A case can wait for a line of its output."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            on_machine(1, sys.executable, "-m", "coordlab", *words),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._began_s = time.monotonic()

    def wait_for(self, text: str) -> None:
        """Read the output until a line contains `text`. Raises: CaseFailed if none does."""
        for line in self._read():
            if text in line:
                return
        raise CaseFailed(f"the command ended without `{text}`: {' '.join(self.lines[-3:])}")

    def end(self) -> int:
        """Read the output to its end, and return the exit code.

        Raises: CaseFailed if the command printed a traceback.
        """
        for _ in self._read():
            continue  # `_read` keeps the lines
        code = self._process.wait()
        if any(line.startswith("Traceback") for line in self.lines):
            raise CaseFailed("a traceback was printed")
        return code

    def kill(self) -> None:
        """Kill the driver, which is the process of `coordlab run`, with SIGKILL."""
        # `_process` is only the command that entered the machine. The driver is another process on
        # the machine, which pkill finds.
        subprocess.run(on_machine(1, "pkill", "-9", "-f", "coordlab run"), check=False)
        self._process.wait()

    def _read(self) -> Iterator[str]:
        """Yield the lines of the output, and keep them. Raises: CaseFailed after CASE_LIMIT_S."""
        if self._process.stdout is None:
            return  # for the type checker: `__init__` makes a pipe
        for line in self._process.stdout:
            self.lines.append(line.strip())
            yield line
            if time.monotonic() - self._began_s > CASE_LIMIT_S:
                self._process.send_signal(signal.SIGTERM)
                raise CaseFailed(f"not done after {CASE_LIMIT_S:.0f} s")


def start_run(experiment: str) -> RunningCommand:
    """Start a run on the Ray of the three machines."""
    address = ("--ray-address", f"{HEAD_ADDRESS}:{PORT}", "--no-analyze", "--runs", RUNS)
    return RunningCommand("run", experiment, "--seed", "1", *SLOW_START, *address)


def results_of(command: RunningCommand, experiment: str, *codes: int) -> tuple[int, Results]:
    """Wait for the end of a run, and return its exit code and results.

    Raises: CaseFailed if the exit code is none of `codes`, or if a node process does not end.
    """
    code = command.end()
    path = f"{RUNS}/{experiment}/latest/results.json"
    read = subprocess.run(on_machine(1, "cat", path), capture_output=True, check=False)
    if code not in codes or read.returncode != 0:
        raise CaseFailed(f"exit code {code}: {' '.join(command.lines[-4:])}")
    check_all_ended(1, 2, 3)
    return code, msgspec.json.decode(read.stdout, type=Results)


def outcome_text(code: int, results: Results) -> str:
    """Return the result of a run as a text: `exit code 2, unknown; the machine was lost`."""
    return "; ".join((f"exit code {code}, {results.verdict}", *results.reasons[:1]))


def accident_of(number: int, results: Results) -> JournalEntry:
    """Return the entry of the run's journal about the loss or silence of a machine.

    Raises: CaseFailed if there is no such entry.
    """
    for entry in results.faults:
        if entry.is_by_accident and entry.target == address_of(number):
            return entry
    raise CaseFailed(f"the journal has no accident of machine {number}: {results.reasons[:1]}")


def run_alone() -> str:
    """Run coordinator_crash without an accident."""
    return outcome_text(*results_of(start_run("coordinator_crash"), "coordinator_crash", 0))


def lose_machine_on_purpose() -> str:
    """Run machine_crash, whose fault kills every node of one machine."""
    return outcome_text(*results_of(start_run("machine_crash"), "machine_crash", 0))


def lose_machine_in_start() -> str:
    """Kill machine 3 when its agent runs and its nodes are about to start."""
    command = start_run("coordinator_crash")
    await_process(3, "ray::_AgentActor")
    return _kill_third_machine(command)


def lose_machine_before_steady_state() -> str:
    """Kill machine 3 when its nodes run and the group is not stable yet."""
    command = start_run("coordinator_crash")
    await_process(3, "ray::_NodeActor")
    return _kill_third_machine(command)


def lose_machine_in_fault() -> str:
    """Kill machine 3 while a fault is in force."""
    command = start_run("coordinator_crash")
    command.wait_for("in force")
    return _kill_third_machine(command)


def lose_machine_in_collection() -> str:
    """Kill machine 3 while the nodes stop and their traces are collected."""
    command = start_run("coordinator_crash")
    command.wait_for("stopping")
    return _kill_third_machine(command)


def _kill_third_machine(command: RunningCommand) -> str:
    """Kill machine 3, and check that the verdict is unknown because of this accident."""
    call_machines_script("kill", "3")
    code, results = results_of(command, "coordinator_crash", 2)
    accident = accident_of(3, results)
    if results.reasons[0] != accident.note:
        raise CaseFailed(f"the first reason is not `{accident.note}`: {results.reasons[0]}")
    return outcome_text(code, results)


def cut_machine() -> str:
    """Cut machine 2 off for 12 s."""
    command = start_run("coordinator_crash")
    command.wait_for("in force")
    call_machines_script("cut", "2")
    # This is longer than `machine_silent_after` (3 s), so the run notices that the machine is
    # silent. It is shorter than `machine_lost_after` (20 s), so the machine does not count as lost.
    time.sleep(12)
    call_machines_script("mend", "2")
    # The exit code is 0 if the group did not need machine 2 in that time. Otherwise the verdict is
    # unknown, and the exit code is 2.
    code, results = results_of(command, "coordinator_crash", 0, 2)
    accident = accident_of(2, results)
    if accident.in_force_until_us is None:
        raise CaseFailed(f"the machine that came back has no end of its silence: {accident.note}")
    return f"{outcome_text(code, results)}; {accident.note}"


def kill_driver() -> str:
    """Kill the driver of a run. The processes of its nodes must end by themselves."""
    command = start_run("coordinator_crash")
    command.wait_for("in force")
    command.kill()
    began_s = time.monotonic()
    check_all_ended(1, 2, 3)
    return f"no process is left after {time.monotonic() - began_s:.0f} s"


def lose_worker_of_search() -> str:
    """Kill machine 3 while its worker plays seeds of a search."""
    address = ("--ray-address", f"{HEAD_ADDRESS}:{PORT}", "--explorations", f"{RUNS}/explorations")
    count = ("--count", str(SEARCH_SEEDS), "--batch", "2", "--recheck", "0")
    command = RunningCommand("explore", "operations", *count, *address)
    await_process(3, "ray::_Worker.do")
    call_machines_script("kill", "3")
    code = command.end()
    path = f"{RUNS}/explorations/operations/latest/results.json"
    read = subprocess.run(on_machine(1, "cat", path), capture_output=True, text=True, check=False)
    if code != 0 or read.returncode != 0:
        raise CaseFailed(f"exit code {code}: {' '.join(command.lines[-4:])}")
    played = json.loads(read.stdout)["seeds"]
    if played != SEARCH_SEEDS:
        raise CaseFailed(f"expected {SEARCH_SEEDS} seeds played, got {played}")
    return f"exit code 0, {played} seeds played"


def analyze_on_spark() -> str:
    """Analyse a run with a Spark master on machine 1 and workers on machines 2 and 3."""
    folder = str(SHARED_RUNS)
    play = ("run", "coordinator_crash", "--runtime", "virtual", "--seed", "1", "--no-analyze")
    if RunningCommand(*play, "--runs", folder).end() != 0:
        raise CaseFailed("the run to analyse did not pass")
    master = f"spark://{HEAD_ADDRESS}:{SPARK_PORT}"
    daemons = [
        _start_spark(1, "master.Master", "--host", HEAD_ADDRESS, "--port", str(SPARK_PORT)),
        *(_start_spark(number, "worker.Worker", "--cores", "1", master) for number in (2, 3)),
    ]
    try:
        for number in (2, 3):
            await_process(number, "deploy.worker.Worker")
        run_directory = f"{folder}/coordinator_crash/latest"
        command = RunningCommand("analyze", run_directory, "--master", master)
        code = command.end()
        used = [number for number in (2, 3) if _has_spark_folder(number)]
    finally:
        for daemon in daemons:
            daemon.terminate()
            daemon.wait()
    tables = sorted(path.name for path in SHARED_RUNS.glob("*/latest/tables/*"))
    if code != 0 or not tables:
        raise CaseFailed(f"exit code {code}: {' '.join(command.lines[-4:])}")
    if not used:
        raise CaseFailed("no worker has a folder of an application")
    return f"exit code 0, {len(tables)} tables, executors on machines {used}"


def _start_spark(number: int, name: str, *words: str) -> subprocess.Popen[bytes]:
    """Start a master or a worker of Spark from pyspark's own jars.

    `name` is the name of its class, such as `worker.Worker`. `words` are its arguments.
    """
    home = Path(pyspark.__file__).parent
    address = address_of(number)
    environment = ("env", f"SPARK_LOCAL_IP={address}", f"SPARK_WORKER_DIR={SPARK_WORK}")
    program = (str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}")
    # The last argument of a worker must be the master's address, so `--host` stands before `words`.
    # The `words` of the master have `--host` already.
    host = () if "--host" in words else ("--host", address)
    return subprocess.Popen(
        on_machine(number, *environment, *program, *host, *words),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _has_spark_folder(number: int) -> bool:
    """Return whether an application has run on the worker of a machine."""
    command = on_machine(number, "sh", "-c", f"ls -d {SPARK_WORK}/app-*")
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


CASES = (
    Case(name="coordinator_crash", expects="pass", play=run_alone),
    Case(name="machine_crash", expects="pass", play=lose_machine_on_purpose),
    Case(name="machine cut off for 12 s", expects="disturbed", play=cut_machine),
    Case(name="driver killed", expects="no process is left", play=kill_driver),
    Case(name="analyze on Spark", expects="tables", play=analyze_on_spark),
    Case(
        name="explore, worker's machine killed",
        expects="every seed is played",
        play=lose_worker_of_search,
        kills_a_machine=True,
    ),
    *(
        Case(
            name=f"machine killed {moment}",
            expects="unknown, exit code 2",
            play=play,
            kills_a_machine=True,
        )
        for moment, play in (
            ("during the start", lose_machine_in_start),
            ("before the steady state", lose_machine_before_steady_state),
            ("in a fault", lose_machine_in_fault),
            ("in collection", lose_machine_in_collection),
        )
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedCase:
    """A played case with its result."""

    case: Case
    actual: str
    passed: bool
    seconds: float
    stamp: str
    """The commit and the machine when the case began. The commit may change while cases are played.
    """


def play_case(case: Case) -> PlayedCase:
    """Play a case, and return its result. A failure is a result, too: it does not raise."""
    began_s = time.monotonic()
    stamp = f"{commit()}, {machine()}"
    try:
        actual = case.play()
        passed = True
    except CaseFailed as error:
        actual = f"FAILED: {error}"
        passed = False
    seconds = time.monotonic() - began_s
    return PlayedCase(case=case, actual=actual, passed=passed, seconds=seconds, stamp=stamp)


def play_cases(cases: Sequence[Case]) -> Iterator[PlayedCase]:
    """Play cases in order. After a case that kills a machine, the machines are made anew.

    Raises: CaseFailed if the machines cannot be made.
    """
    remaining = list(cases)
    while remaining:
        with three_machines():
            all_machines_run = True
            while remaining and all_machines_run:
                case = remaining.pop(0)
                yield play_case(case)
                all_machines_run = not case.kills_a_machine


def section_of(page: str, played: Sequence[PlayedCase]) -> str:
    """Return the new section of docs/SOAK.md, which has the row of each case.

    Cases that were not played now keep their rows in `page`.
    """
    rows = {result.case.name: _row(result) for result in played}
    # The text from this section's heading to the next heading.
    former_section = page.partition(f"\n## {SECTION}\n")[2].partition("\n## ")[0]
    names = {case.name for case in CASES}
    for line in former_section.splitlines():
        name = line.removeprefix("| ").partition(" | ")[0]
        # Other lines are the head of the table, or about cases that no longer exist.
        if name in names:
            rows.setdefault(name, line)
    return "\n".join(
        (
            f"## {SECTION}",
            "",
            "`make cluster`: three machines of namespaces with a Ray of one processor each.",
            "",
            "| case | expected | actual | seconds | commit, machine |",
            "|---|---|---|---|---|",
            *(rows[case.name] for case in CASES if case.name in rows),
            "",
        )
    )


def _row(played: PlayedCase) -> str:
    """Return the row of a case in the table of docs/SOAK.md."""
    case = played.case
    seconds = f"{played.seconds:.0f}"
    return f"| {' | '.join((case.name, case.expects, played.actual, seconds, played.stamp))} |"


@click.command()
@click.option("--only", multiple=True, help="Words of the cases to play; default: all.")
@click.option("--record", is_flag=True, help="Replace the section of docs/SOAK.md.")
def main(only: tuple[str, ...], record: bool) -> None:
    """Play the cases on three machines and print a table."""
    console = Console()
    table = Table("case", "expected", "actual", "seconds", title="three machines")
    cases = [case for case in CASES if not only or any(word in case.name for word in only)]
    played: list[PlayedCase] = []
    try:
        for result in play_cases(cases):
            played.append(result)
            case = result.case
            table.add_row(case.name, case.expects, result.actual, f"{result.seconds:.0f}")
            console.print(f"{case.name}: {result.actual}", soft_wrap=True)
    except CaseFailed as error:
        console.print(f"[red]error:[/red] {error}")
        # 1 would mean that a case failed. 3 means that the machines could not be made.
        raise SystemExit(3) from error
    console.print(table)
    if record:
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(replace_section(page, SECTION, section_of(page, played)), encoding="utf-8")
    raise SystemExit(0 if all(result.passed for result in played) else 1)


if __name__ == "__main__":
    main()
