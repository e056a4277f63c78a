"""`make cluster`: coordlab on three machines made of namespaces, some of which go away.

Each case has a bound on its time and says what it expects; the table at the end says what came.
The machines are taken down whatever happens. Data flow: scripts/machines -> Ray on each machine ->
`coordlab` on machine 1 -> exit codes and results.json -> table.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
MACHINES = str(ROOT / "scripts" / "machines")
HEAD = "10.219.55.11"
PORT = 6379
RUNS = "/tmp/coordlab-runs"
COUNT = 3
START_S = 180.0
CASE_S = 400.0
FEW = ("--var", "run.steady_state_timeout=120s")


class CaseFailed(Exception):
    """A case did not come as expected; says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing that is tried. `play` returns what came, or raises CaseFailed."""

    name: str
    expects: str
    play: Callable[[], str]


def on(machine: int, *command: str) -> list[str]:
    """Return the command line that runs `command` on a machine."""
    environment = ["env", "RAY_AUTH_MODE=disabled"]
    return [MACHINES, "run", str(machine), *environment, *command]


def machines(*words: str) -> None:
    """Call scripts/machines. Raises: CaseFailed with what it says."""
    done = subprocess.run([MACHINES, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CaseFailed(done.stderr.strip() or f"scripts/machines {words[0]} failed")


def start_ray(machine: int) -> None:
    """Start Ray on a machine. Raises: CaseFailed."""
    how = ["--head", f"--port={PORT}"] if machine == 1 else [f"--address={HEAD}:{PORT}"]
    command = [
        str(Path(sys.executable).parent / "ray"),
        "start",
        *how,
        f"--node-ip-address=10.219.55.{10 + machine}",
        "--num-cpus=1",
        "--object-store-memory=100000000",
        "--disable-usage-stats",
    ]
    try:
        subprocess.run(
            on(machine, *command), capture_output=True, text=True, check=True, timeout=START_S
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise CaseFailed(f"Ray did not start on machine {machine}: {error}") from error


@contextmanager
def three_machines() -> Iterator[None]:
    """Have machines with Ray on them; they are gone afterwards, also after Ctrl-C."""
    os.environ.setdefault("SHARED", _shared())
    machines("up", str(COUNT))
    try:
        for machine in range(1, COUNT + 1):
            start_ray(machine)
        yield
    finally:
        subprocess.run([MACHINES, "down"], check=False)


def _shared() -> str:
    """Return the folder below /tmp that the checkout is in: machines have a /tmp of their own."""
    parts = ROOT.parts
    return "/".join(parts[:3]).replace("//", "/") if parts[1] == "tmp" else ""


class Started:
    """A `coordlab` command on machine 1, whose lines can be waited for."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            on(1, sys.executable, "-m", "coordlab", *words),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.lines: list[str] = []
        self._began_s = time.monotonic()

    def wait_for(self, text: str) -> None:
        """Read until a line has `text`. Raises: CaseFailed if none comes."""
        for line in self._read():
            if text in line:
                return
        raise CaseFailed(f"the command ended without `{text}`: {' '.join(self.lines[-3:])}")

    def end(self) -> int:
        """Read to the end; return the exit code. Raises: CaseFailed after a traceback."""
        for _ in self._read():
            continue
        code = self._process.wait()
        if any(line.startswith("Traceback") for line in self.lines):
            raise CaseFailed("a traceback was printed")
        return code

    def kill(self) -> None:
        """`kill -9` the driver itself."""
        subprocess.run(on(1, "pkill", "-9", "-f", "coordlab run"), check=False)
        self._process.wait()

    def _read(self) -> Iterator[str]:
        if self._process.stdout is None:
            return
        for line in self._process.stdout:
            self.lines.append(line.strip())
            yield line
            if time.monotonic() - self._began_s > CASE_S:
                self._process.send_signal(signal.SIGTERM)
                raise CaseFailed(f"not done after {CASE_S:.0f} s")


def run(experiment: str, *words: str) -> Started:
    """Start a run on the Ray of the three machines."""
    address = ("--ray-address", f"{HEAD}:{PORT}", "--no-analyze", "--runs", RUNS)
    return Started("run", experiment, "--seed", "1", *FEW, *words, *address)


def ended(command: Started, *codes: int) -> str:
    """Return how a run ended. Raises: CaseFailed if its exit code is none of `codes`."""
    code = command.end()
    verdict = next((line for line in command.lines if line[:7].isupper()), "")
    if code not in codes:
        raise CaseFailed(f"exit code {code}: {verdict} {' '.join(command.lines[-2:])}")
    return f"exit code {code}; {verdict}"


def plain_run() -> str:
    """Run coordinator_crash with nothing else happening."""
    return ended(run("coordinator_crash"), 0)


def machine_on_purpose() -> str:
    """Run machine_crash."""
    return ended(run("machine_crash"), 0)


def machine_by_accident() -> str:
    """Kill machine 3 while a fault is in force, and start it again for the next case."""
    command = run("coordinator_crash")
    command.wait_for("in force")
    machines("kill", "3")
    came = ended(command, 2)
    if not any("was lost" in line for line in command.lines):
        raise CaseFailed(f"nothing is said of the lost machine: {came}")
    return came


def machine_in_a_cut() -> str:
    """Cut machine 2 off for 12 s."""
    command = run("coordinator_crash")
    command.wait_for("in force")
    machines("cut", "2")
    time.sleep(12)
    machines("mend", "2")
    came = ended(command, 0, 2)
    said = next((line for line in command.lines if "was disturbed from" in line), None)
    if said is None:
        raise CaseFailed(f"nothing is said of the cut: {came}")
    return f"{came}; {said}"


def killed_driver() -> str:
    """Kill the driver of a run; its processes end by themselves."""
    command = run("coordinator_crash")
    command.wait_for("in force")
    command.kill()
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        left = [
            machine
            for machine in (1, 2)
            if subprocess.run(
                on(machine, "pgrep", "-f", "ray::_(Node|Agent)Actor"),
                capture_output=True,
                check=False,
            ).returncode
            == 0
        ]
        if not left:
            return "no process is left"
        time.sleep(1)
    raise CaseFailed(f"node processes are left on machines {left}")


CASES = (
    Case(name="coordinator_crash", expects="pass", play=plain_run),
    Case(name="machine_crash", expects="pass", play=machine_on_purpose),
    Case(name="machine cut off for 12 s", expects="disturbed", play=machine_in_a_cut),
    Case(name="driver killed", expects="nothing is left", play=killed_driver),
    Case(name="machine killed", expects="unknown, exit code 2", play=machine_by_accident),
)
"""In this order: a machine that was killed stays away."""


@click.command()
@click.option("--only", multiple=True, help="Words of the cases to play; default: all.")
def main(only: tuple[str, ...]) -> None:
    """Play the cases on three machines and print a table."""
    console = Console()
    table = Table("case", "expected", "came", "seconds", title="three machines")
    wrong = 0
    try:
        with three_machines():
            for case in CASES:
                if only and not any(word in case.name for word in only):
                    continue
                began_s = time.monotonic()
                try:
                    came = case.play()
                except CaseFailed as error:
                    came, wrong = f"FAILED: {error}", wrong + 1
                table.add_row(case.name, case.expects, came, f"{time.monotonic() - began_s:.0f}")
                console.print(f"{case.name}: {came}")
    except CaseFailed as error:
        console.print(f"[red]error:[/red] {error}")
        raise SystemExit(3) from error
    console.print(table)
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
