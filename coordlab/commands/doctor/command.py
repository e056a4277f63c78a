"""`doctor`: checks whether this machine has what runs, analyses and reports need.

For each missing thing, the command prints how to install it, and the commands that work without it.
`doctor` changes nothing, and the only program that it starts is `java -version`. `CHECKS` has all
checks, by the names that `--only` accepts. The hot modules take most of a run's time; `make fast`
compiles them. A control group limits the resources of a process, as in a container.
"""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cluster.compiled import CompiledState, compiled_state
from coordlab.commands.doctor.machine import ThisMachine
from coordlab.console import print_document, print_lines, print_table
from coordlab.options import json_option, with_examples
from coordlab.parameters import OneOf
from pipeline.engine.java import JavaProblem, find_java
from results_schema.results import EXIT_PASS

MIN_PYTHON = (3, 11)
MIN_MEMORY_BYTES = 4 * 1024**3
MIN_DISK_BYTES = 2 * 1024**3
MIN_OPEN_FILES = 1024
MIN_CORES = 2
ENOUGH_OPEN_FILES = 65_536
"""The limit of open files that the advice recommends. The check fails only below MIN_OPEN_FILES."""
REQUIRED_DISTRIBUTIONS = (
    "ray",
    "pyspark",
    "pyarrow",
    "msgspec",
    "tenacity",
    "rich",
    "click",
    "numpy",
    "jsonschema",
    "pyyaml",
    "google-crc32c",
    "jinja2",
    "altair",
    "vl-convert-python",
)
"""The dependencies in pyproject.toml. A test compares the two lists."""
_VIRTUAL = "`run --runtime virtual`"
_NO_LIMIT = 2**62
"""Stands for "no limit" in comparisons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """The result of one check.

    - `found`: the value that was found.
    - `needed_for`: commands that do not work if the check fails.
    - `without`: commands that work although the check fails.
    - `advice`: how to install what is missing; if the check passes, a remark or "".
    """

    name: str
    found: str
    needed_for: str
    ok: bool
    advice: str = ""
    without: str = ""


def check_system(machine: ThisMachine) -> HealthCheck:
    """Check the operating system."""
    # The systems for which the check passes, each with a remark.
    known = {"Linux": "", "Darwin": "runs on Ray are made and tested on Linux only"}
    return HealthCheck(
        name="system",
        found=f"{machine.system} ({platform.machine()})",
        needed_for="everything",
        ok=machine.system in known,
        advice=known.get(machine.system, "use Linux; on Windows, the Windows Subsystem for Linux"),
    )


def check_python(machine: ThisMachine) -> HealthCheck:
    """Check the version of Python."""
    ok = machine.python[:2] >= MIN_PYTHON
    return HealthCheck(
        name="python",
        found=f"Python {'.'.join(map(str, machine.python))}",
        needed_for="everything",
        ok=ok,
        advice="" if ok else "install Python 3.11 or newer, and `make setup` with it",
    )


def check_packages(machine: ThisMachine) -> HealthCheck:
    """Check that all required distributions are installed."""
    versions = {name: machine.version_of(name) for name in REQUIRED_DISTRIBUTIONS}
    missing = [name for name, version in versions.items() if version is None]
    found = [f"{name} {version}" for name, version in versions.items() if version is not None]
    return HealthCheck(
        name="packages",
        found=", ".join(found) or "none",
        needed_for="everything",
        ok=not missing,
        advice=f"missing: {', '.join(missing)}; run `make setup`" if missing else "",
    )


def check_java(machine: ThisMachine) -> HealthCheck:
    """Check for the Java that Spark needs."""
    java = find_java(machine.environ)
    if isinstance(java, JavaProblem):
        command = machine.java_command()
        return HealthCheck(
            name="java",
            found=java.found,
            needed_for="`analyze`, `report` and the analysis at the end of `run`",
            ok=False,
            advice=java.advice if command is None else f"{java.advice}\nHere: {command}",
            without="`run` works, and its run can be analysed later; so do `list`, `validate`, "
            "`init` and `schema`",
        )
    return HealthCheck(
        name="java", found=f"Java {java.version} ({java.path})", needed_for="analysis", ok=True
    )


def check_memory(machine: ThisMachine) -> HealthCheck:
    """Check the memory that is free for a local Ray and Spark."""
    available, granted = machine.memory_available(), machine.memory_granted()
    ok = available is None or available >= MIN_MEMORY_BYTES
    found = "not known" if available is None else f"{_gib(available)} available"
    # `granted` is what the control group still grants. `available` is the minimum of this and of
    # what the machine has. So if both are equal, the control group is the limit.
    limited = granted is not None and available is not None and granted <= available
    if limited:
        found += ", the rest of this process's control group"
    raise_it = "give the container more (`--memory 4g`)" if limited else "stop other programs"
    return HealthCheck(
        name="memory",
        found=found,
        needed_for="Ray and Spark on this machine",
        ok=ok,
        advice="" if ok else f"4 GiB should be available: {raise_it}, or use --ray-address",
        without="" if ok else f"{_VIRTUAL} with `--no-analyze` needs a few 100 MB",
    )


def check_cores(machine: ThisMachine) -> HealthCheck:
    """Check the number of cores, which all nodes share. The check never fails."""
    cores = machine.cores()
    advice = ""
    if cores < MIN_CORES:
        advice = (
            f"with less than {MIN_CORES} cores the phases of a run on Ray include waiting for "
            f"the processor: measure in virtual time ({_VIRTUAL}), or use --ray-address"
        )
    return HealthCheck(
        name="cores",
        found=f"{cores:g} for this process",
        needed_for="timings on Ray that are Kafka's, not the machine's",
        ok=True,
        advice=advice,
    )


def check_disk(machine: ThisMachine) -> HealthCheck:
    """Check the disk space for run directories."""
    free = machine.disk_free()
    writable = machine.folder_is_writable()
    ok = writable and (free is None or free >= MIN_DISK_BYTES)
    found = "not known" if free is None else f"{_gib(free)} free here"
    advice = "2 GiB should be free in a writable folder: delete old runs, or use --runs DIR"
    return HealthCheck(
        name="disk",
        found=found if writable else f"{found}, but this folder cannot be written to",
        needed_for="run directories",
        ok=ok,
        advice="" if ok else advice,
    )


def check_open_files(machine: ThisMachine) -> HealthCheck:
    """Check the limit of open files and sockets."""
    limits = machine.open_files()
    if limits is None:
        # With these values the check passes, because an unknown limit may be high enough.
        soft, hard = ENOUGH_OPEN_FILES, ENOUGH_OPEN_FILES
        found = "not known"
    else:
        # The system returns -1 for "no limit".
        soft, hard = (_NO_LIMIT if limit < 0 else limit for limit in limits)
        found = f"limit {_limit(soft)}, may be raised to {_limit(hard)}"
    ok = soft >= MIN_OPEN_FILES
    reachable = min(hard, ENOUGH_OPEN_FILES)
    advice = f"`ulimit -n {reachable}`"
    if reachable < MIN_OPEN_FILES:
        # `ulimit` raises the soft limit, at most to the hard limit, which is too low here.
        advice = (
            f"raise the hard limit to {ENOUGH_OPEN_FILES}: `nofile` in /etc/security/limits.conf, "
            f"or `--ulimit nofile={ENOUGH_OPEN_FILES}` of the container"
        )
    return HealthCheck(
        name="open files",
        found=found,
        needed_for="clusters with many consumers on Ray",
        ok=ok,
        advice="" if ok else advice,
        without="" if ok else f"{_VIRTUAL} opens a few files",
    )


def check_loopback(machine: ThisMachine) -> HealthCheck:
    """Check that a node can listen on a free loopback port."""
    problem = machine.loopback()
    return HealthCheck(
        name="ports",
        found="processes can listen on 127.0.0.1" if problem is None else problem,
        needed_for="runs on Ray, and Spark",
        ok=problem is None,
        advice="" if problem is None else "allow processes to listen on 127.0.0.1",
        without="" if problem is None else f"{_VIRTUAL} with `--no-analyze` opens no port",
    )


def check_other_ray(machine: ThisMachine) -> HealthCheck:
    """Check for another Ray on this machine: a run does not join it, but shares cores with it.

    The check never fails.
    """
    servers = machine.ray_servers()
    found = "not known: /proc cannot be read"
    if servers is not None:
        found = "; ".join(servers) or "none"
    advice = (
        "a run starts its own Ray, which shares the cores with this one; --ray-address "
        "joins this one instead"
    )
    return HealthCheck(
        name="other ray",
        found=found,
        needed_for="undisturbed timings",
        ok=True,
        advice=advice if servers else "",
    )


def check_ray_token(machine: ThisMachine) -> HealthCheck:
    """Check for a token that a local Ray has left: a Ray head that starts later demands it.

    The check never fails, because the token matters only to a run that joins that head.
    Source: `cluster.ray.environment`.
    """
    token = machine.home / ".ray" / "auth_token"
    mode = machine.environ.get("RAY_AUTH_MODE")
    exists = token.exists()
    advice = ""
    if exists and mode is None:
        advice = (
            "a Ray head that was started on this machine demands it; with --ray-address a run "
            "sends it (RAY_AUTH_MODE=token); for a cluster without a token set "
            "RAY_AUTH_MODE=disabled"
        )
    found = f"{token}" if exists else "none"
    return HealthCheck(
        name="ray token",
        found=found if mode is None else f"{found}; RAY_AUTH_MODE={mode}",
        needed_for="joining a Ray with --ray-address",
        ok=True,
        advice=advice,
    )


def check_compiled(machine: ThisMachine) -> HealthCheck:
    """Check whether the hot modules are compiled (by `make fast`). The check never fails."""
    del machine  # unused; all checks have one signature
    state = compiled_state()
    advice = {
        CompiledState.NOT_BUILT: "`make fast` in a checkout compiles the hot modules",
        CompiledState.STALE: "`make fast` compiles them again",
        CompiledState.SWITCHED_OFF: "unset COORDLAB_COMPILED to use what `make fast` built",
    }
    return HealthCheck(
        name="hot modules",
        found=state.value,
        needed_for="speed of virtual time; digests are the same",
        ok=True,
        advice=advice.get(state, ""),
    )


CHECKS: dict[str, Callable[[ThisMachine], HealthCheck]] = {
    "system": check_system,
    "python": check_python,
    "packages": check_packages,
    "java": check_java,
    "memory": check_memory,
    "cores": check_cores,
    "disk": check_disk,
    "open-files": check_open_files,
    "ports": check_loopback,
    "other-ray": check_other_ray,
    "ray-token": check_ray_token,
    "hot-modules": check_compiled,
}


def examine(machine: ThisMachine, names: Sequence[str] = ()) -> tuple[HealthCheck, ...]:
    """Run the checks with these names, or all checks, and return their results."""
    return tuple(CHECKS[name](machine) for name in names or CHECKS)


def _gib(count: int) -> str:
    return f"{count / 1024**3:.1f} GiB"


def _limit(count: int) -> str:
    return "any number" if count >= _NO_LIMIT else str(count)


@click.command("doctor", cls=with_examples("doctor", "doctor --only java --only memory"))
@click.option(
    "--only",
    type=OneOf(tuple(CHECKS)),
    multiple=True,
    metavar="CHECK",
    help=f"Only these checks: {', '.join(CHECKS)}.",
)
@json_option("a list of checks (name, found, needed_for, ok, advice, without)")
def doctor_command(only: tuple[str, ...], json: bool) -> int:
    """List what this machine lacks for runs, analyses and reports, and how to install it.

    Each missing item has the commands that work without it. Exit code: 0 if nothing is missing,
    else 1.
    """
    checks = examine(ThisMachine(), only)
    console = Console()
    if json:
        print_document(console, checks)
    else:
        print_examination(console, checks)
    return EXIT_PASS if all(check.ok for check in checks) else 1


def print_examination(console: Console, checks: Sequence[HealthCheck]) -> None:
    """Print one row per check, then advice on missing things, then remarks."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("", no_wrap=True)
    table.add_column("check", no_wrap=True)
    table.add_column("found")
    for check in checks:
        table.add_row(_mark(check), check.name, Text(check.found))
    print_table(console, table)
    missing = [check for check in checks if not check.ok]
    for check in missing:
        console.print()
        print_lines(console, [f"{check.name}: needed for {check.needed_for}."], style="bold")
        print_lines(console, (f"  {line}" for line in check.advice.splitlines()))
        if check.without:
            print_lines(console, [f"  Without it: {check.without}."])
    notes = [check for check in checks if check.ok and check.advice]
    if notes:
        console.print()
        print_lines(console, (f"{check.name}: {check.advice}." for check in notes), style="dim")


def _mark(check: HealthCheck) -> Text:
    """Return the word at the beginning of a check's row."""
    if not check.ok:
        return Text("missing", style="bold red")
    return Text("note", style="yellow") if check.advice else Text("ok", style="green")
