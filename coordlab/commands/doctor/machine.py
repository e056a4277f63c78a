"""This machine as the doctor sees it: memory, cores, limits, processes, and what it runs on.

Reads Linux's /proc and control groups (version 2) where they are, and says None where nothing
tells. Every source is a field, so that a test can pass another machine. It changes nothing.
"""

import importlib.metadata
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_JAVA_COMMANDS = {
    "debian": "`apt-get install openjdk-17-jre-headless` (or openjdk-21-jre-headless)",
    "fedora": "`dnf install java-17-openjdk-headless` (or java-21-openjdk-headless)",
    "arch": "`pacman -S jre17-openjdk-headless`",
    "alpine": "`apk add openjdk17-jre-headless`",
    "macos": "`brew install openjdk@17`",
}
_FAMILIES = {
    **{"debian": "debian", "ubuntu": "debian", "arch": "arch", "alpine": "alpine"},
    **{"fedora": "fedora", "rhel": "fedora", "centos": "fedora"},
}
"""Linux distributions by the words of os-release, and whose command installs Java there."""


def open_file_limits() -> tuple[int, int] | None:
    """Return how many files a process may open, now and if it asks; None where nothing tells."""
    try:
        import resource  # noqa: PLC0415 - Windows has no such module
    except ImportError:
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, None if it is not there."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def loopback_problem() -> str | None:
    """Return why a process cannot listen on a free port of 127.0.0.1, None if it can."""
    try:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
    except OSError as error:
        return str(error)
    return None


def usable_cores() -> int:
    """Return on how many cores this process may run, whatever a control group grants it of them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisMachine:
    """Sources of the checks, and readings of them; None where no source tells. Units: bytes."""

    system: str = field(default_factory=platform.system)
    python: tuple[int, ...] = field(default_factory=lambda: tuple(sys.version_info[:3]))
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    home: Path = field(default_factory=Path.home)
    folder: Path = field(default_factory=Path.cwd)
    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    os_release: Callable[[], Mapping[str, str]] = platform.freedesktop_os_release
    open_files: Callable[[], tuple[int, int] | None] = open_file_limits
    cores_allowed: Callable[[], int] = usable_cores
    version_of: Callable[[str], str | None] = installed_version
    loopback: Callable[[], str | None] = loopback_problem

    def java_command(self) -> str | None:
        """Return the command that installs a Java here; None: the system is not known."""
        if self.system == "Darwin":
            return _JAVA_COMMANDS["macos"]
        with suppress(OSError):
            release = self.os_release()
            for word in (release.get("ID", ""), *release.get("ID_LIKE", "").split()):
                if word in _FAMILIES:
                    return _JAVA_COMMANDS[_FAMILIES[word]]
        return None

    def disk_free(self) -> int | None:
        """Return what is free where runs are written."""
        try:
            return shutil.disk_usage(self.folder).free
        except OSError:
            return None

    def folder_is_writable(self) -> bool:
        """Return whether a run directory could be made here."""
        return os.access(self.folder, os.W_OK | os.X_OK)

    def memory_available(self) -> int | None:
        """Return what programs can still take: the machine's, or less if a control group says so.

        Source: /proc/meminfo's MemAvailable.
        """
        known = [each for each in (self._meminfo(), self.memory_granted()) if each is not None]
        return min(known, default=None)

    def _meminfo(self) -> int | None:
        with suppress(OSError, ValueError, IndexError):
            for line in (self.proc / "meminfo").read_text(encoding="ascii").splitlines():
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
        return None

    def memory_granted(self) -> int | None:
        """Return what is left of what this process's control groups may use, None without a limit.

        The page cache counts as used, but is given back when memory runs short.
        Source: the kernel's cgroup-v2.rst (memory.max, memory.current).
        """
        left = []
        for group in self._groups():
            limit, used = _number(group / "memory.max"), _number(group / "memory.current")
            if limit is not None and used is not None:
                left.append(limit - used + (_stat(group / "memory.stat", "inactive_file") or 0))
        return max(min(left), 0) if left else None

    def cores(self) -> float:
        """Return how many cores this process may use; a container may grant parts of one.

        Source: the kernel's cgroup-v2.rst (cpu.max).
        """
        granted = [float(self.cores_allowed())]
        for group in self._groups():
            with suppress(OSError, ValueError):  # no such file, or `max`
                quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
                granted.append(int(quota) / int(period))
        return min(granted)

    def _groups(self) -> Iterator[Path]:
        """Yield the folder of this process's control group (version 2) and those above it."""
        with suppress(OSError, UnicodeDecodeError):
            for line in (self.proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
                if line.startswith("0::/"):
                    below = Path(line.removeprefix("0::/"))
                    yield from (self.cgroup / part for part in (below, *below.parents))

    def ray_servers(self) -> tuple[str, ...] | None:
        """Return every Ray that runs here, with its address; None where /proc does not tell."""
        try:
            entries = sorted(entry for entry in self.proc.iterdir() if entry.name.isdigit())
        except OSError:
            return None
        found = []
        for entry in entries:
            with suppress(OSError, UnicodeDecodeError):  # it ended, or is another user's
                if (entry / "comm").read_text(encoding="utf-8").strip() == "gcs_server":
                    words = (entry / "cmdline").read_text(encoding="utf-8").split("\0")
                    found.append(_ray_text(entry.name, words))
        return tuple(found) if entries else None


def _ray_text(pid: str, command: Sequence[str]) -> str:
    """Name a Ray by its server process: its address, as far as the command tells."""
    options = dict(word.lstrip("-").partition("=")[::2] for word in command)
    host, port = options.get("node-ip-address"), options.get("gcs_server_port")
    address = "" if host is None else f" at {host}"
    if address and port not in {None, "0"}:
        address += f":{port}"
    return f"Ray{address} (pid {pid})"


def _number(path: Path) -> int | None:
    """Return the number in a file; None where it is not there or says `max`."""
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


def _stat(path: Path, name: str) -> int | None:
    """Return one figure of a file of names and numbers."""
    with suppress(OSError, ValueError):
        for line in path.read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return None
