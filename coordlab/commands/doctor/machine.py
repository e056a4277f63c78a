"""Finds out what this machine has, for `doctor`: its memory, cores, limits and so on.

Most values come from Linux's folder /proc, and from control groups (version 2), with which a
container limits the resources of its processes. A value that cannot be found is None. This module
changes nothing on the machine.
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
_FAMILY_OF_DISTRIBUTION = {
    "debian": "debian",
    "ubuntu": "debian",
    "fedora": "fedora",
    "rhel": "fedora",
    "centos": "fedora",
    "arch": "arch",
    "alpine": "alpine",
}
"""ID of a Linux distribution in its file os-release -> the key in _JAVA_COMMANDS."""


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
            # Port 0 stands for any free port.
            listener.bind(("127.0.0.1", 0))
            listener.listen()
    except OSError as error:
        return str(error)
    return None


def usable_cores() -> int:
    """Return the number of cores on which the system lets this process run.

    A container may grant less than the whole time of these cores; see `ThisMachine.cores`.
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisMachine:
    """The values of this machine that the checks need. Memory and disk space are in bytes.

    The fields are the places and functions from which the values come. Tests replace these fields.
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
        """Return the command that installs Java on this system; None if it is not known.

        The file os-release of a Linux distribution has an ID, such as `ubuntu`. If this ID is not
        known here, the file may also name similar distributions: `ID_LIKE=rhel fedora`.
        """
        if self.system == "Darwin":
            return _JAVA_COMMANDS["macos"]
        with suppress(OSError):
            release = self.os_release()
            for distribution in (release.get("ID", ""), *release.get("ID_LIKE", "").split()):
                if distribution in _FAMILY_OF_DISTRIBUTION:
                    return _JAVA_COMMANDS[_FAMILY_OF_DISTRIBUTION[distribution]]
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
        """Return the memory that machine and container can still give to this process.

        Source: /proc/meminfo's MemAvailable.
        """
        limits = (self._memory_of_machine(), self.memory_granted())
        return min((limit for limit in limits if limit is not None), default=None)

    def _memory_of_machine(self) -> int | None:
        with suppress(OSError, ValueError, IndexError):
            for line in (self.proc / "meminfo").read_text(encoding="ascii").splitlines():
                if line.startswith("MemAvailable:"):
                    kibibytes = int(line.split()[1])  # `MemAvailable:    7421160 kB`
                    return kibibytes * 1024
        return None

    def memory_granted(self) -> int | None:
        """Return the memory that this process's control groups still grant; None without a limit.

        Control groups are nested, and each group may have a limit. A group still grants its limit
        minus the memory in use. The kernel counts cached copies of files (`inactive_file`) as
        memory in use, but drops them when memory is short. So their size is added again.
        Source: the kernel's cgroup-v2.rst (memory.max, memory.current).
        """
        left_by_group = []
        for group in self._control_groups():
            limit = _number_in_file(group / "memory.max")
            used = _number_in_file(group / "memory.current")
            if limit is not None and used is not None:
                cache = _named_number_in_file(group / "memory.stat", "inactive_file") or 0
                left_by_group.append(limit - used + cache)
        if not left_by_group:
            return None
        # A group may use more than its limit for a moment, so the difference can be negative.
        return max(min(left_by_group), 0)

    def cores(self) -> float:
        """Return the number of cores for this process, such as 1.5 in a container.

        Source: the kernel's cgroup-v2.rst (cpu.max).
        """
        granted = [float(self.cores_allowed())]
        for group in self._control_groups():
            # A group without a limit has no such file, or has `max` in the place of the quota.
            with suppress(OSError, ValueError):
                quota, period = (group / "cpu.max").read_text(encoding="ascii").split()
                granted.append(int(quota) / int(period))
        return min(granted)

    def _control_groups(self) -> Iterator[Path]:
        """Yield the folder of this process's control group, and then those of the outer groups."""
        with suppress(OSError, UnicodeDecodeError):
            for line in (self.proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
                # In version 2 the line is `0::/system.slice/docker.service` for instance.
                if line.startswith("0::/"):
                    own_group = Path(line.removeprefix("0::/"))
                    for group in (own_group, *own_group.parents):
                        yield self.cgroup / group

    def ray_servers(self) -> tuple[str, ...] | None:
        """Return a text such as `Ray at 10.0.0.1:6379 (pid 4711)` for every Ray on this machine.

        Return None if /proc does not show the processes.
        """
        try:
            entries = sorted(entry for entry in self.proc.iterdir() if entry.name.isdigit())
        except OSError:
            return None
        servers = []
        for entry in entries:
            # An error means that the process has just ended, or belongs to another user.
            with suppress(OSError, UnicodeDecodeError):
                # Each Ray has exactly one process with this name.
                if (entry / "comm").read_text(encoding="utf-8").strip() == "gcs_server":
                    words = (entry / "cmdline").read_text(encoding="utf-8").split("\0")
                    servers.append(_describe_ray(entry.name, words))
        return tuple(servers) if entries else None


def _describe_ray(pid: str, command: Sequence[str]) -> str:
    """Return a text with the pid of a Ray, and its address if the command line has the address.

    `command`: the words of the command line of Ray's process gcs_server.
    """
    options = {}
    for word in command:  # such as --node-ip-address=10.0.0.1
        name, _, value = word.lstrip("-").partition("=")
        options[name] = value
    host, port = options.get("node-ip-address"), options.get("gcs_server_port")
    address = "" if host is None else f" at {host}"
    if address and port not in {None, "0"}:
        address += f":{port}"
    return f"Ray{address} (pid {pid})"


def _number_in_file(path: Path) -> int | None:
    """Return the number in a file; None if there is no such file, or it has the word `max`."""
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


def _named_number_in_file(path: Path, name: str) -> int | None:
    """Return the number after `name` in a file with lines such as `inactive_file 4096`."""
    with suppress(OSError, ValueError):
        for line in path.read_text(encoding="ascii").splitlines():
            key, _, value = line.partition(" ")
            if key == name:
                return int(value)
    return None
