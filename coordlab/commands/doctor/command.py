"""`doctor`: checks whether this machine has what runs, analyses and reports need.

For each thing that is missing, the command prints how to get it, and what works without it:

    missing  java      no `java` on the PATH
    ok       memory    7.1 GiB available

    java: needed for `analyze`, `report` and the analysis at the end of `run`.
      install Java 17 or newer
      Without it: `run` works, and its run can be analysed later; ...

The command changes nothing on the machine. Each check is a function in this module and an entry of
CHECKS.
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

# The smallest values with which the checks pass. (With fewer cores, there is only a remark.)
MIN_PYTHON = (3, 11)
MIN_MEMORY_BYTES = 4 * 1024**3
MIN_DISK_BYTES = 2 * 1024**3
MIN_OPEN_FILES = 1024
MIN_CORES = 2
EXIT_SOMETHING_MISSING = 1
"""The exit code if a check fails."""
ENOUGH_OPEN_FILES = 65_536
"""The limit that the user is advised to set if the present limit is below MIN_OPEN_FILES."""
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
_RUN_IN_VIRTUAL_TIME = "`run --runtime virtual`"
_UNLIMITED = 2**62
"""The number that stands for no limit of open files. It is larger than any real limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """The result of one check.

    - `name`: what was checked, such as "java".
    - `found`: what this machine has, such as `Java 17 (/usr/bin/java)`.
    - `needed_for`: the parts of coordlab that do not work if the check fails.
    - `ok`: False if the check fails.
    - `advice`: how to get what is missing. If the check passes, this is a remark, or "".
    - `without`: the parts of coordlab that work although the check fails, or "".
    """

    name: str
    found: str
    needed_for: str
    ok: bool
    advice: str = ""
    without: str = ""


def check_system(machine: ThisMachine) -> HealthCheck:
    """Check the operating system."""
    remark_by_supported_system = {
        "Linux": "",
        "Darwin": "runs on Ray are made and tested on Linux only",
    }
    return HealthCheck(
        name="system",
        found=f"{machine.system} ({platform.machine()})",
        needed_for="everything",
        ok=machine.system in remark_by_supported_system,
        advice=remark_by_supported_system.get(
            machine.system, "use Linux; on Windows, the Windows Subsystem for Linux"
        ),
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
    """Check that all Python packages that coordlab depends on are installed."""
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
    if not isinstance(java, JavaProblem):
        found = f"Java {java.version} ({java.path})"
        return HealthCheck(name="java", found=found, needed_for="analysis", ok=True)
    advice = java.advice
    command = machine.java_command()
    if command is not None:
        advice += f"\nHere: {command}"
    return HealthCheck(
        name="java",
        found=java.found,
        needed_for="`analyze`, `report` and the analysis at the end of `run`",
        ok=False,
        advice=advice,
        without="`run` works, and its run can be analysed later; so do `list`, `validate`, "
        "`init` and `schema`",
    )


def check_memory(machine: ThisMachine) -> HealthCheck:
    """Check the memory that is free for Ray and Spark on this machine."""
    available, granted = machine.memory_available(), machine.memory_granted()
    ok = available is None or available >= MIN_MEMORY_BYTES
    found = "not known" if available is None else f"{_gib(available)} available"
    # In a container, the process may use only the memory that its control group still grants.
    # `available` is the smaller of two values: this memory (`granted`), and the machine's free
    # memory. So the container is the limit if `granted` is not larger than `available`.
    control_group_is_the_limit = (
        granted is not None and available is not None and granted <= available
    )
    how_to_get_more = "stop other programs"
    if control_group_is_the_limit:
        found += ", the rest of this process's control group"
        how_to_get_more = "give the container more (`--memory 4g`)"
    advice = without = ""
    if not ok:
        advice = f"4 GiB should be available: {how_to_get_more}, or use --ray-address"
        without = f"{_RUN_IN_VIRTUAL_TIME} with `--no-analyze` needs a few 100 MB"
    return HealthCheck(
        name="memory",
        found=found,
        needed_for="Ray and Spark on this machine",
        ok=ok,
        advice=advice,
        without=without,
    )


def check_cores(machine: ThisMachine) -> HealthCheck:
    """Remark on the cores, which all nodes of a cluster share. The check never fails."""
    cores = machine.cores()
    advice = ""
    if cores < MIN_CORES:
        advice = (
            f"with less than {MIN_CORES} cores the phases of a run on Ray include waiting for "
            f"the processor: measure in virtual time ({_RUN_IN_VIRTUAL_TIME}), or use --ray-address"
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
    if not writable:
        found += ", but this folder cannot be written to"
    advice = ""
    if not ok:
        advice = "2 GiB should be free in a writable folder: delete old runs, or use --runs DIR"
    return HealthCheck(name="disk", found=found, needed_for="run directories", ok=ok, advice=advice)


def check_open_files(machine: ThisMachine) -> HealthCheck:
    """Check how many files and sockets a process may open.

    The soft limit is in force. A user can raise it with `ulimit`, but not beyond the hard limit.
    """
    limits = machine.open_files()
    if limits is None:
        # A limit that is not known may be high enough. So let the check pass.
        soft = hard = ENOUGH_OPEN_FILES
        found = "not known"
    else:
        soft, hard = map(_limit_or_unlimited, limits)
        found = f"limit {_limit_text(soft)}, may be raised to {_limit_text(hard)}"
    ok = soft >= MIN_OPEN_FILES
    advice = without = ""
    if not ok:
        without = f"{_RUN_IN_VIRTUAL_TIME} opens a few files"
        highest_possible = min(hard, ENOUGH_OPEN_FILES)
        if highest_possible >= MIN_OPEN_FILES:
            advice = f"`ulimit -n {highest_possible}`"
        else:
            advice = (
                f"raise the hard limit to {ENOUGH_OPEN_FILES}: `nofile` in "
                "/etc/security/limits.conf, "
                f"or `--ulimit nofile={ENOUGH_OPEN_FILES}` of the container"
            )
    return HealthCheck(
        name="open files",
        found=found,
        needed_for="clusters with many consumers on Ray",
        ok=ok,
        advice=advice,
        without=without,
    )


def check_loopback(machine: ThisMachine) -> HealthCheck:
    """Check that a process can listen at 127.0.0.1. Nodes of a run on Ray do this."""
    found = "processes can listen on 127.0.0.1"
    advice = without = ""
    problem = machine.loopback()
    if problem is not None:
        found = problem
        advice = "allow processes to listen on 127.0.0.1"
        without = f"{_RUN_IN_VIRTUAL_TIME} with `--no-analyze` opens no port"
    return HealthCheck(
        name="ports",
        found=found,
        needed_for="runs on Ray, and Spark",
        ok=problem is None,
        advice=advice,
        without=without,
    )


def check_other_ray(machine: ThisMachine) -> HealthCheck:
    """Remark on another Ray on this machine, because a run would share the cores with it.

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
    """Remark on a token that an earlier Ray has left in the home folder.

    If a Ray is started on this machine later, it demands this token from everyone who joins it. The
    check never fails, because most runs join no Ray.
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
    if mode is not None:
        found += f"; RAY_AUTH_MODE={mode}"
    return HealthCheck(
        name="ray token",
        found=found,
        needed_for="joining a Ray with --ray-address",
        ok=True,
        advice=advice,
    )


def check_compiled(machine: ThisMachine) -> HealthCheck:
    """Remark on the hot modules, in which a run spends most of its time.

    `make fast` compiles these modules. The check never fails, because Python also runs the modules
    when they are not compiled, only slower.
    """
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
"""The checks by the names that --only accepts, in the order of the output."""


def examine(machine: ThisMachine, names: Sequence[str] = ()) -> tuple[HealthCheck, ...]:
    """Run the checks with these names; without names, run all. Return the results."""
    chosen = names if names else tuple(CHECKS)
    return tuple(CHECKS[name](machine) for name in chosen)


def _gib(count: int) -> str:
    return f"{count / 1024**3:.1f} GiB"


def _limit_or_unlimited(limit: int) -> int:
    """Return a limit. The system returns a negative number if there is none: then _UNLIMITED."""
    return _UNLIMITED if limit < 0 else limit


def _limit_text(count: int) -> str:
    return "any number" if count >= _UNLIMITED else str(count)


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
    return EXIT_PASS if all(check.ok for check in checks) else EXIT_SOMETHING_MISSING


def print_examination(console: Console, checks: Sequence[HealthCheck]) -> None:
    """Print a row for each check, then advice on failed checks, then remarks on other checks."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("", no_wrap=True)
    table.add_column("check", no_wrap=True)
    table.add_column("found")
    for check in checks:
        table.add_row(_status_text(check), check.name, Text(check.found))
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


def _status_text(check: HealthCheck) -> Text:
    """Return the word at the beginning of a check's row."""
    if not check.ok:
        return Text("missing", style="bold red")
    if check.advice:
        return Text("note", style="yellow")
    return Text("ok", style="green")
