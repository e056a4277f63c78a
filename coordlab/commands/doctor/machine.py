"""This machine as the doctor sees it: memory, cores, limits, processes, and what it runs on.

Reads Linux's /proc and control groups where they are, and says None where nothing tells. Every
source is a field, so that a test can hand in another machine. It changes nothing.
"""

import importlib.metadata
import os
import platform
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

_GIGANTIC = 2**60
"""From here on a limit of memory is none: control groups of version 1 print a huge number."""


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
class Process:
    """A process of this machine; `command` is empty where it cannot be read."""

    pid: int
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What there is, and where to look for it. Units: bytes."""

    system: str = field(default_factory=platform.system)
    python: tuple[int, ...] = field(default_factory=lambda: tuple(sys.version_info[:3]))
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    home: Path = field(default_factory=Path.home)
    folder: Path = field(default_factory=Path.cwd)
    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    os_release: Path = Path("/etc/os-release")
    open_files: Callable[[], tuple[int, int] | None] = open_file_limits
    cores_allowed: Callable[[], int] = usable_cores
    version_of: Callable[[str], str | None] = installed_version
    loopback: Callable[[], str | None] = loopback_problem

    @property
    def family(self) -> str:
        """The word by which hints are chosen: debian, fedora, arch, alpine, macos, or other."""
        if self.system == "Darwin":
            return "macos"
        words = self._os_release_words() if self.system == "Linux" else ()
        families = {"debian": "debian", "ubuntu": "debian", "fedora": "fedora", "rhel": "fedora"}
        families |= {"centos": "fedora", "arch": "arch", "alpine": "alpine"}
        return next((families[word] for word in words if word in families), "other")

    def _os_release_words(self) -> tuple[str, ...]:
        """Return a Linux distribution's name and those that it is like."""
        found: dict[str, str] = {}
        with suppress(OSError, UnicodeDecodeError):
            for line in self.os_release.read_text(encoding="utf-8").splitlines():
                key, _, value = line.partition("=")
                found[key] = value.strip().strip("\"'")
        return (found.get("ID", ""), *found.get("ID_LIKE", "").split())

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
        Source: the kernel's cgroup-v2.rst (memory.max, memory.current) and v1's memory.rst.
        """
        left = []
        names = (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        )
        for group in self._groups("memory"):
            for limit_name, usage_name, cache_name in names:
                limit, used = _number(group / limit_name), _number(group / usage_name)
                if limit is None or used is None or limit >= _GIGANTIC:
                    continue
                left.append(limit - used + (_stat(group / "memory.stat", cache_name) or 0))
        return max(min(left), 0) if left else None

    def cores(self) -> float:
        """Return how many cores this process may use; a container may grant parts of one.

        Source: the kernel's cgroup-v2.rst (cpu.max), and v1's cpu.cfs_quota_us.
        """
        granted = [float(self.cores_allowed())]
        for group in self._groups("cpu"):
            quota, period = _pair(group / "cpu.max")
            if quota is None:
                quota = _number(group / "cpu.cfs_quota_us")
                period = _number(group / "cpu.cfs_period_us")
            if quota is not None and period is not None and quota > 0 and period > 0:
                granted.append(quota / period)
        return min(granted)

    def _groups(self, controller: str) -> Iterator[Path]:
        """Yield the folders of this process's control groups, each with those above it."""
        with suppress(OSError, UnicodeDecodeError):
            for line in (self.proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
                _, controllers, path = (*line.split(":", 2), "", "")[:3]
                if controllers and controller not in controllers.split(","):
                    continue
                root = self.cgroup / controller if controllers else self.cgroup
                below = Path(path.lstrip("/"))
                yield from (root / part for part in (below, *below.parents))

    def processes_named(self, name: str) -> tuple[Process, ...] | None:
        """Return the processes whose program has this name; None where /proc does not tell.

        The kernel keeps 15 characters of a name.
        """
        try:
            entries = sorted(entry for entry in self.proc.iterdir() if entry.name.isdigit())
        except OSError:
            return None
        found = []
        for entry in entries:
            with suppress(OSError, UnicodeDecodeError):  # it ended, or is another user's
                if (entry / "comm").read_text(encoding="utf-8").strip() == name[:15]:
                    found.append(Process(pid=int(entry.name), command=_command(entry)))
        return tuple(found) if entries else None


def _command(entry: Path) -> tuple[str, ...]:
    try:
        words = (entry / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return ()
    return tuple(word.decode(errors="replace") for word in words if word)


def _number(path: Path) -> int | None:
    """Return the number in a file; None where it is not there or says `max`."""
    try:
        return int(path.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _pair(path: Path) -> tuple[int | None, int | None]:
    """Return the two numbers in a file such as cpu.max; None for `max`, or without a file."""
    try:
        first, second = path.read_text(encoding="ascii").split()
        return (None if first == "max" else int(first)), int(second)
    except (OSError, ValueError):
        return None, None


def _stat(path: Path, name: str) -> int | None:
    """Return one figure of a file of names and numbers."""
    with suppress(OSError, ValueError):
        for line in path.read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return None
