"""`coordlab doctor`: is everything here that a run, an analysis and the tests need?

Looks and says what is missing and how to get it; it changes nothing and starts nothing.
"""

import importlib.metadata
import platform
import resource
import shutil
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.java import JavaProblem, find_java

MIN_PYTHON = (3, 11)
MIN_MEMORY_BYTES = 4 * 1024**3
MIN_DISK_BYTES = 2 * 1024**3
MIN_OPEN_FILES = 1024
REQUIRED_DISTRIBUTIONS = ("ray", "pyspark", "pyarrow", "msgspec", "tenacity", "rich", "click")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing looked at. `advice` says how to get it and is empty when all is well.

    `needed_for` names what does not work without it.
    """

    name: str
    found: str
    needed_for: str
    ok: bool
    advice: str = ""


def check_python() -> Check:
    """Look at the interpreter."""
    ok = sys.version_info >= MIN_PYTHON
    return Check(
        name="python",
        found=f"Python {platform.python_version()}",
        needed_for="everything",
        ok=ok,
        advice="" if ok else "install Python 3.11 or newer",
    )


def check_packages() -> Check:
    """Look for the distributions that coordlab runs on."""
    versions: list[str] = []
    missing: list[str] = []
    for name in REQUIRED_DISTRIBUTIONS:
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    return Check(
        name="packages",
        found=", ".join(versions),
        needed_for="everything",
        ok=not missing,
        advice=f"missing: {', '.join(missing)}; run `make setup`" if missing else "",
    )


def check_java() -> Check:
    """Look for the Java that Spark needs."""
    java = find_java()
    if isinstance(java, JavaProblem):
        return Check(
            name="java",
            found=java.found,
            needed_for="analysis with Spark (a run itself works without and can be analysed later)",
            ok=False,
            advice=java.advice,
        )
    return Check(
        name="java", found=f"Java {java.version} ({java.path})", needed_for="analysis", ok=True
    )


def check_memory() -> Check:
    """Look at the memory that is free for a local Ray and Spark."""
    available = _available_memory_bytes()
    ok = available is None or available >= MIN_MEMORY_BYTES
    found = "unknown" if available is None else f"{available / 1024**3:.1f} GiB available"
    return Check(
        name="memory",
        found=found,
        needed_for="Ray and Spark on this machine",
        ok=ok,
        advice="" if ok else "4 GiB should be available: stop other programs, or use --ray-address",
    )


def check_disk() -> Check:
    """Look at the space where runs are written."""
    free = shutil.disk_usage(Path.cwd()).free
    ok = free >= MIN_DISK_BYTES
    return Check(
        name="disk",
        found=f"{free / 1024**3:.1f} GiB free here",
        needed_for="run directories",
        ok=ok,
        advice="" if ok else "2 GiB should be free: delete old runs, or use --runs DIR",
    )


def check_open_files() -> Check:
    """Look at the limit of open files and sockets."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ok = soft >= MIN_OPEN_FILES
    return Check(
        name="open files",
        found=f"limit {soft}, may be raised to {hard}",
        needed_for="clusters with many consumers on Ray",
        ok=ok,
        advice="" if ok else f"ulimit -n {min(hard, 65536)}",
    )


def check_loopback() -> Check:
    """Look whether a node could listen on a free loopback port."""
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
    except OSError as error:
        return Check(
            name="ports",
            found=str(error),
            needed_for="runs on Ray",
            ok=False,
            advice="allow processes to listen on 127.0.0.1",
        )
    return Check(
        name="ports", found=f"loopback works (tried {port})", needed_for="runs on Ray", ok=True
    )


def check_other_ray() -> Check:
    """Look for another Ray on this machine: it is never joined, but shares the cores."""
    processes = _processes_named("gcs_server")
    return Check(
        name="other ray",
        found=f"{len(processes)} other Ray on this machine" if processes else "none",
        needed_for="undisturbed timings",
        ok=True,
        advice="a run starts its own Ray beside it; join one with --ray-address" * bool(processes),
    )


CHECKS: dict[str, Callable[[], Check]] = {
    "python": check_python,
    "packages": check_packages,
    "java": check_java,
    "memory": check_memory,
    "disk": check_disk,
    "open-files": check_open_files,
    "ports": check_loopback,
    "other-ray": check_other_ray,
}


def _available_memory_bytes() -> int | None:
    """Return Linux's MemAvailable, None where /proc does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _processes_named(name: str) -> list[int]:
    """Return the pids whose command is `name`, on systems with /proc."""
    pids = []
    proc = Path("/proc")
    if not proc.is_dir():
        return []
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            command = (entry / "comm").read_text(encoding="utf-8").strip()
        except OSError:
            continue
        if command == name[:15]:
            pids.append(int(entry.name))
    return pids
