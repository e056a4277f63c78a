"""`coordlab doctor`: is everything here that a run, an analysis and a report need?

Looks and says what is missing, how to get it here, and what works without; it changes nothing and
starts nothing but `java -version`. `CHECKS` has every check by the name that `--only` takes.
"""

import platform
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from coordlab.commands.doctor.machine import Machine, Process
from pipeline.engine.java import JavaProblem, find_java

MIN_PYTHON = (3, 11)
MIN_MEMORY_BYTES = 4 * 1024**3
MIN_DISK_BYTES = 2 * 1024**3
MIN_OPEN_FILES = 1024
MIN_CORES = 2
ENOUGH_OPEN_FILES = 65_536
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
_JAVA_COMMANDS = {
    "debian": "`apt-get install openjdk-17-jre-headless` (or openjdk-21-jre-headless)",
    "fedora": "`dnf install java-17-openjdk-headless` (or java-21-openjdk-headless)",
    "arch": "`pacman -S jre17-openjdk-headless`",
    "alpine": "`apk add openjdk17-jre-headless`",
    "macos": "`brew install openjdk@17`",
}
_VIRTUAL = "`run --runtime virtual`"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at. `advice` says how to get it, or what to know of it where it is there.

    `needed_for` names what does not work without it, `without` the commands that do.
    """

    name: str
    found: str
    needed_for: str
    ok: bool
    advice: str = ""
    without: str = ""


def check_system(machine: Machine) -> Check:
    """Look at the operating system."""
    known = {"Linux": "", "Darwin": "runs on Ray are made and tested on Linux only"}
    return Check(
        name="system",
        found=f"{machine.system} ({platform.machine()})",
        needed_for="everything",
        ok=machine.system in known,
        advice=known.get(machine.system, "use Linux; on Windows, the Windows Subsystem for Linux"),
    )


def check_python(machine: Machine) -> Check:
    """Look at the interpreter."""
    ok = machine.python[:2] >= MIN_PYTHON
    return Check(
        name="python",
        found=f"Python {'.'.join(map(str, machine.python))}",
        needed_for="everything",
        ok=ok,
        advice="" if ok else "install Python 3.11 or newer, and `make setup` with it",
    )


def check_packages(machine: Machine) -> Check:
    """Look for the distributions that coordlab runs on."""
    versions = {name: machine.version_of(name) for name in REQUIRED_DISTRIBUTIONS}
    missing = [name for name, version in versions.items() if version is None]
    found = [f"{name} {version}" for name, version in versions.items() if version is not None]
    return Check(
        name="packages",
        found=", ".join(found) or "none",
        needed_for="everything",
        ok=not missing,
        advice=f"missing: {', '.join(missing)}; run `make setup`" if missing else "",
    )


def check_java(machine: Machine) -> Check:
    """Look for the Java that Spark needs."""
    java = find_java(machine.environ)
    if isinstance(java, JavaProblem):
        command = _JAVA_COMMANDS.get(machine.family)
        return Check(
            name="java",
            found=java.found,
            needed_for="`analyze`, `report` and the analysis at the end of `run`",
            ok=False,
            advice=java.advice if command is None else f"{java.advice}\nHere: {command}",
            without="`run` works, and its run can be analysed later; so do `list`, `validate`, "
            "`init` and `schema`",
        )
    return Check(
        name="java", found=f"Java {java.version} ({java.path})", needed_for="analysis", ok=True
    )


def check_memory(machine: Machine) -> Check:
    """Look at the memory that is free for a local Ray and Spark."""
    available, granted = machine.memory_available(), machine.memory_granted()
    ok = available is None or available >= MIN_MEMORY_BYTES
    found = "not told here" if available is None else f"{_gib(available)} available"
    limited = granted is not None and available is not None and granted <= available
    if limited:
        found += ", which is what a control group leaves to this process"
    raise_it = "give the container more (`--memory 4g`)" if limited else "stop other programs"
    return Check(
        name="memory",
        found=found,
        needed_for="Ray and Spark on this machine",
        ok=ok,
        advice="" if ok else f"4 GiB should be available: {raise_it}, or use --ray-address",
        without="" if ok else f"{_VIRTUAL} with `--no-analyze` needs a few 100 MB",
    )


def check_cores(machine: Machine) -> Check:
    """Look at the cores that nodes share."""
    cores = machine.cores()
    few = cores < MIN_CORES
    return Check(
        name="cores",
        found=f"{cores:g} for this process",
        needed_for="timings on Ray that are Kafka's, not the machine's",
        ok=True,
        advice=f"with less than {MIN_CORES} cores the phases of a run on Ray include waiting for "
        f"the processor: measure in virtual time ({_VIRTUAL}), or use --ray-address"
        if few
        else "",
    )


def check_disk(machine: Machine) -> Check:
    """Look at the space where runs are written."""
    free = machine.disk_free()
    writable = machine.folder_is_writable()
    ok = writable and (free is None or free >= MIN_DISK_BYTES)
    found = "not told here" if free is None else f"{_gib(free)} free here"
    return Check(
        name="disk",
        found=found if writable else f"{found}, but this folder cannot be written to",
        needed_for="run directories",
        ok=ok,
        advice=""
        if ok
        else "2 GiB should be free in a folder that may be written to: delete old runs, or use "
        "--runs DIR",
    )


def check_open_files(machine: Machine) -> Check:
    """Look at the limit of open files and sockets."""
    limits = machine.open_files()
    if limits is None:
        soft, hard = ENOUGH_OPEN_FILES, ENOUGH_OPEN_FILES
        found = "not told here"
    else:
        # -1 is what the system calls no limit.
        soft, hard = (_NO_LIMIT if limit < 0 else limit for limit in limits)
        found = f"limit {_limit(soft)}, may be raised to {_limit(hard)}"
    ok = soft >= MIN_OPEN_FILES
    reachable = min(hard, ENOUGH_OPEN_FILES)
    advice = f"`ulimit -n {reachable}`"
    if reachable < MIN_OPEN_FILES:
        advice = (
            f"raise the hard limit to {ENOUGH_OPEN_FILES}: `nofile` in /etc/security/limits.conf, "
            f"or `--ulimit nofile={ENOUGH_OPEN_FILES}` of the container"
        )
    return Check(
        name="open files",
        found=found,
        needed_for="clusters with many consumers on Ray",
        ok=ok,
        advice="" if ok else advice,
        without="" if ok else f"{_VIRTUAL} opens a few files",
    )


_NO_LIMIT = 2**62


def check_loopback(machine: Machine) -> Check:
    """Look whether a node could listen on a free loopback port."""
    problem = machine.loopback()
    return Check(
        name="ports",
        found="processes can listen on 127.0.0.1" if problem is None else problem,
        needed_for="runs on Ray, and Spark",
        ok=problem is None,
        advice="" if problem is None else "allow processes to listen on 127.0.0.1",
        without="" if problem is None else f"{_VIRTUAL} with `--no-analyze` opens no port",
    )


def check_other_ray(machine: Machine) -> Check:
    """Look for another Ray on this machine: it is never joined, but shares the cores."""
    servers = machine.processes_named("gcs_server")
    if servers is None:
        found = "not told here: /proc cannot be read"
    else:
        found = "; ".join(_ray_of(server) for server in servers) or "none"
    return Check(
        name="other ray",
        found=found,
        needed_for="undisturbed timings",
        ok=True,
        advice="a run starts its own Ray beside it and shares the cores; join one with "
        "--ray-address instead"
        if servers
        else "",
    )


def check_ray_token(machine: Machine) -> Check:
    """Look for the token that a local Ray leaves, which a later head demands.

    Source: `cluster.ray.environment`.
    """
    token = machine.home / ".ray" / "auth_token"
    mode = machine.environ.get("RAY_AUTH_MODE")
    there = token.exists()
    advice = ""
    if there and mode is None:
        advice = (
            "a Ray head that was started on this machine demands it; with --ray-address it is "
            "shown (RAY_AUTH_MODE=token); for a cluster without it set RAY_AUTH_MODE=disabled"
        )
    found = f"{token}" if there else "none"
    return Check(
        name="ray token",
        found=found if mode is None else f"{found}; RAY_AUTH_MODE={mode}",
        needed_for="joining a Ray with --ray-address",
        ok=True,
        advice=advice,
    )


CHECKS: dict[str, Callable[[Machine], Check]] = {
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
}


def examine(machine: Machine, names: Sequence[str] = ()) -> tuple[Check, ...]:
    """Return the checks of these names, or all of them."""
    return tuple(CHECKS[name](machine) for name in names or CHECKS)


_RAY_DISTRIBUTION = re.compile(r"ray-([0-9][^-]*)\.dist-info")


def _ray_of(server: Process) -> str:
    """Name a Ray by its server process: version and address, as far as its command tells."""
    options = dict(word.lstrip("-").partition("=")[::2] for word in server.command[1:])
    host, port = options.get("node-ip-address"), options.get("gcs_server_port")
    version = None if not server.command else _version_beside(Path(server.command[0]))
    parts = ["Ray" if version is None else f"Ray {version}"]
    if host is not None:
        parts.append(f"at {host}" if port in {None, "0"} else f"at {host}:{port}")
    return f"{' '.join(parts)} (pid {server.pid})"


def _version_beside(program: Path) -> str | None:
    """Return the version of the Ray whose package holds `program`.

    Shape: `.../site-packages/ray/core/src/ray/gcs/gcs_server`.
    """
    for parent in program.parents:
        if parent.name == "ray" and (parent / "core").is_dir():
            names = sorted(path.name for path in parent.parent.glob("ray-*.dist-info"))
            found = [match[1] for name in names if (match := _RAY_DISTRIBUTION.fullmatch(name))]
            return found[-1] if found else None
    return None


def _gib(count: int) -> str:
    return f"{count / 1024**3:.1f} GiB"


def _limit(count: int) -> str:
    return "any number" if count >= _NO_LIMIT else str(count)
