"""ThisMachine: memory, cores, limits, Ray processes and system of the machine, for `doctor`.

The values come from Linux's /proc and from control groups, which limit the resources of processes,
for instance in containers. Only version 2 of control groups is read. If a source does not exist,
its value is None. Each source is a field of ThisMachine, so that tests can replace it. Nothing on
the machine is changed.
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
    "debian": "debian",
    "ubuntu": "debian",
    "fedora": "fedora",
    "rhel": "fedora",
    "centos": "fedora",
    "arch": "arch",
    "alpine": "alpine",
}
"""Key of _JAVA_COMMANDS, by a Linux distribution's ID in the file os-release."""


def open_file_limits() -> tuple[int, int] | None:
    """Return the soft and the hard limit of a process's open files; None if they are unknown."""
    try:
        import resource  # noqa: PLC0415 - Windows has no such module
    except ImportError:
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)


def installed_version(distribution: str) -> str | None:
    """Return the version of a Python package; None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def loopback_problem() -> str | None:
    """Return the error of listening on a free port of 127.0.0.1; None if there is no error."""
    try:
        with socket.socket() as listener:
            # Port 0 means any free port.
            listener.bind(("127.0.0.1", 0))
            listener.listen()
    except OSError as error:
        return str(error)
    return None


def usable_cores() -> int:
    """Return the number of cores on which this process is allowed to run (its affinity).

    Control groups can grant less; `ThisMachine.cores` takes them into account.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisMachine:
    """Sources of the checks, and the values that are read from them.

    A value is None if its source does not exist. Memory and disk space are in bytes.
    """

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
        """Return the command that installs Java on this system; None if the system is unknown."""
        if self.system == "Darwin":
            return _JAVA_COMMANDS["macos"]
        with suppress(OSError):
            release = self.os_release()
            for word in (release.get("ID", ""), *release.get("ID_LIKE", "").split()):
                if word in _FAMILIES:
                    return _JAVA_COMMANDS[_FAMILIES[word]]
        return None

    def disk_free(self) -> int | None:
        """Return the free space on the disk with the current folder."""
        try:
            return shutil.disk_usage(self.folder).free
        except OSError:
            return None

    def folder_is_writable(self) -> bool:
        """Return True if a run directory can be made in the current folder."""
        return os.access(self.folder, os.W_OK | os.X_OK)

    def memory_available(self) -> int | None:
        """Return the memory that programs can still allocate on the machine and in control groups.

        Source: /proc/meminfo's MemAvailable.
        """
        limits = (self._meminfo(), self.memory_granted())
        return min((limit for limit in limits if limit is not None), default=None)

    def _meminfo(self) -> int | None:
        """Return MemAvailable in bytes; the file has it in KiB."""
        with suppress(OSError, ValueError, IndexError):
            for line in (self.proc / "meminfo").read_text(encoding="ascii").splitlines():
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
        return None

    def memory_granted(self) -> int | None:
        """Return the memory that this process's control groups still grant; None if unlimited.

        Each group from this process's own up to the root may have a limit. A group still grants its
        limit minus the used memory; the smallest of these numbers counts. The kernel counts the
        page cache (copies of files in memory) as used memory, but frees it when memory is short. So
        the cache (`inactive_file`) is added again.
        Source: the kernel's cgroup-v2.rst (memory.max, memory.current).
        """
        left_by_group = []
        for group in self._groups():
            limit, used = _number(group / "memory.max"), _number(group / "memory.current")
            if limit is not None and used is not None:
                cache = _stat(group / "memory.stat", "inactive_file") or 0
                left_by_group.append(limit - used + cache)
        # A group may use more than its limit for a moment, so the difference can be negative.
        return max(min(left_by_group), 0) if left_by_group else None

    def cores(self) -> float:
        """Return the number of cores for this process; a container may grant fractions of one.

        Source: the kernel's cgroup-v2.rst (cpu.max).
        """
        granted = [float(self.cores_allowed())]
        for group in self._groups():
            # On an error the group has no limit. The file then does not exist, or it has the
            # word `max` in place of a quota.
            with suppress(OSError, ValueError):
                quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
                granted.append(int(quota) / int(period))
        return min(granted)

    def _groups(self) -> Iterator[Path]:
        """Yield the folders of this process's control group (version 2) and of all groups above."""
        with suppress(OSError, UnicodeDecodeError):
            for line in (self.proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
                # The line of version 2 is "0::" and the path of the group.
                if line.startswith("0::/"):
                    own_group = Path(line.removeprefix("0::/"))
                    yield from (self.cgroup / group for group in (own_group, *own_group.parents))

    def ray_servers(self) -> tuple[str, ...] | None:
        """Return the address of every Ray on this machine; None if /proc does not show it."""
        try:
            entries = sorted(entry for entry in self.proc.iterdir() if entry.name.isdigit())
        except OSError:
            return None
        found = []
        for entry in entries:
            # An error means that the process has ended, or is another user's.
            with suppress(OSError, UnicodeDecodeError):
                # Each Ray cluster has one process of this name, on its head node.
                if (entry / "comm").read_text(encoding="utf-8").strip() == "gcs_server":
                    words = (entry / "cmdline").read_text(encoding="utf-8").split("\0")
                    found.append(_ray_text(entry.name, words))
        return tuple(found) if entries else None


def _ray_text(pid: str, command: Sequence[str]) -> str:
    """Return a Ray's address and pid, as far as the command line of its server has them."""
    # Words have the form --name=value. The slice takes name and value, without the "=".
    options = dict(word.lstrip("-").partition("=")[::2] for word in command)
    host, port = options.get("node-ip-address"), options.get("gcs_server_port")
    address = "" if host is None else f" at {host}"
    if address and port not in {None, "0"}:
        address += f":{port}"
    return f"Ray{address} (pid {pid})"


def _number(path: Path) -> int | None:
    """Return the number in a file; None if there is no such file, or it contains `max`."""
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


def _stat(path: Path, name: str) -> int | None:
    """Return the number after `name` in a file with lines of names and numbers."""
    with suppress(OSError, ValueError):
        for line in path.read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return None
