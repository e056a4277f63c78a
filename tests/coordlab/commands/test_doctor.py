"""`coordlab doctor` tells what coordlab needs and this machine lacks, and how to install it.

The doctor has a number of checks, each for one part of the machine, such as Java or the memory. The
result of a check has these fields:

- `ok`: whether the part is good enough
- `found`: what was found, such as `16.0 GiB available`
- `advice`: what the user can do about it
- `without`: what works although the part is missing. For example, a run on Ray needs sockets, but a
  run in virtual time (with a simulated clock) needs none.

The tests run the checks on a made-up machine (`FakeMachine`).
"""

import io
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from coordlab.commands.doctor.command import (
    CHECKS,
    REQUIRED_DISTRIBUTIONS,
    HealthCheck,
    examine,
    print_examination,
)
from coordlab.commands.doctor.machine import ThisMachine

ROOT = Path(__file__).resolve().parents[3]
GIB = 1024**3
"""Bytes in a GiB."""
# Contents of /etc/os-release, the file in which a Linux system names itself.
DEBIAN = {"ID": "debian", "VERSION_ID": "12"}
POP_OS = {"ID": "pop", "ID_LIKE": "ubuntu debian"}
"""A system that says that it is like Debian."""
ROCKY = {"ID": "rocky", "ID_LIKE": "rhel"}


class FakeMachine:
    """A machine whose /proc, control groups and home are folders that a test fills.

    By a control group, the kernel limits the memory and processor time of a container. Values that
    are not in files, such as `open_files`, are arguments of the method `machine`.
    """

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.cgroup = folder / "cgroup"
        self.home = folder / "home"
        for path in (self.proc, self.cgroup, self.home):
            path.mkdir()
        self.write(self.proc / "meminfo", f"MemAvailable: {16 * GIB // 1024} kB\n")

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def add_process(self, pid: int, name: str, *command: str) -> None:
        """Add a process, as /proc shows it."""
        self.write(self.proc / str(pid) / "comm", f"{name}\n")
        self.write(self.proc / str(pid) / "cmdline", "".join(f"{word}\0" for word in command))

    def machine(self, **changes: object) -> ThisMachine:
        """Return the machine; by default Debian with 8 cores, 16 GiB and no Java."""
        fields: dict[str, object] = {
            "system": "Linux",
            "environ": {"PATH": ""},
            "home": self.home,
            "folder": self.home,
            "proc": self.proc,
            "cgroup": self.cgroup,
            "os_release": lambda: DEBIAN,
            "open_files": lambda: (65_536, 65_536),  # the soft limit and the hard limit
            "cores_allowed": lambda: 8,
            "version_of": lambda _: "1.0",
            "loopback": lambda: None,  # None: no error, sockets work
        }
        return ThisMachine(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture
def fake(tmp_path: Path) -> FakeMachine:
    """Return a fake machine with 16 GiB of memory and nothing else."""
    return FakeMachine(tmp_path)


def run_check(name: str, machine: ThisMachine) -> HealthCheck:
    """Return the result of one check."""
    (check,) = examine(machine, [name])
    return check


def test_every_check_of_this_machine_answers() -> None:
    """Each check has a result on any machine, and a failed check has an advice."""
    for check in examine(ThisMachine()):
        assert check.found, check.name
        assert check.ok or check.advice, check.name


def test_required_distributions_are_those_of_the_project() -> None:
    """The doctor's list has all dependencies in pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text()
    # The list begins after `dependencies = `, and ends with a bracket at the beginning of a line.
    toml_list = text.split("dependencies = ")[1].split("\n]")[0] + "\n]"
    requirements = yaml.safe_load(toml_list)  # a TOML list of strings is also a YAML list
    # A requirement is a name and a version, such as `ray>=2`.
    names = {requirement.split(">")[0] for requirement in requirements}
    assert set(REQUIRED_DISTRIBUTIONS) == names


@pytest.mark.parametrize(
    ("system", "release", "hint"),
    [
        ("Linux", DEBIAN, "apt-get install openjdk-17-jre-headless"),
        ("Linux", POP_OS, "apt-get install openjdk-17-jre-headless"),
        ("Linux", ROCKY, "dnf install java-17-openjdk-headless"),
        ("Darwin", {}, "brew install openjdk@17"),
    ],
)
def test_doctor_without_java_names_the_package_to_install_and_what_works_without(
    fake: FakeMachine, system: str, release: dict[str, str], hint: str
) -> None:
    """Everything except the analysis works without Java."""
    check = run_check("java", fake.machine(system=system, os_release=lambda: release))
    assert not check.ok
    assert check.advice.splitlines()[-1].startswith(f"Here: `{hint}")
    assert "`run` works" in check.without


def test_doctor_without_java_on_an_unknown_system_advises_for_all_systems(
    fake: FakeMachine,
) -> None:
    """On an unknown system, the doctor lists the advice for every known system.

    This list ends with a web page. A line `Here:`, for this system only, is missing.
    """

    def no_release() -> dict[str, str]:
        raise OSError

    check = run_check("java", fake.machine(os_release=no_release))
    assert "https://adoptium.net" in check.advice
    assert "Here:" not in check.advice


def test_doctor_names_missing_packages_and_the_command_that_installs_them(
    fake: FakeMachine,
) -> None:
    """An environment that was made before a newer checkout lacks new dependencies."""
    versions = {"ray": None, "altair": None}  # None: the package is not installed
    check = run_check("packages", fake.machine(version_of=lambda name: versions.get(name, "1.0")))
    assert (check.ok, check.advice) == (False, "missing: ray, altair; run `make setup`")


@pytest.mark.parametrize(
    ("soft_and_hard_limit", "ok", "advice"),
    [
        pytest.param((256, 4_096), False, "`ulimit -n 4096`", id="up to the hard limit"),
        pytest.param((256, 1_000_000), False, "`ulimit -n 65536`", id="up to what is enough"),
        # -1 stands for no limit.
        pytest.param((256, -1), False, "`ulimit -n 65536`", id="no hard limit"),
        pytest.param((256, 512), False, "/etc/security/limits.conf", id="hard limit too low"),
        pytest.param((-1, -1), True, "", id="no limit at all"),
        pytest.param(None, True, "", id="a system without such limits"),
    ],
)
def test_doctor_with_a_low_limit_of_open_files_names_the_command(
    fake: FakeMachine, soft_and_hard_limit: tuple[int, int] | None, ok: bool, advice: str
) -> None:
    """Ray fails in odd ways when it runs out of file descriptors.

    The advice is to raise the soft limit to the hard limit, or to 65536, which is enough. If the
    hard limit is too low, only limits.conf can change it.
    """
    check = run_check("open-files", fake.machine(open_files=lambda: soft_and_hard_limit))
    assert check.ok is ok
    assert advice in check.advice


def test_doctor_in_a_container_with_little_memory_reports_it(
    fake: FakeMachine, tmp_path: Path
) -> None:
    """/proc/meminfo has the machine's memory. The control group limits the container's memory.

    The container may use 3 GiB, and 2 GiB are in use. 1 GiB of these 2 GiB is used for pages of
    files, which the kernel gives back when memory is needed. So 3 - (2 - 1) = 2 GiB are available.
    """
    files = {
        # The line `0::` names the control group of this process. The other line is of version 1 of
        # control groups, and does not count.
        "proc/self/cgroup": "4:memory:/other\n0::/app\n",
        # The group /app itself has no limit.
        "cgroup/app/memory.max": "max\n",
        "cgroup/app/memory.current": "5\n",
        # The group that contains /app has a limit.
        "cgroup/memory.max": f"{3 * GIB}\n",
        "cgroup/memory.current": f"{2 * GIB}\n",
        "cgroup/memory.stat": f"anon 1\ninactive_file {GIB}\n",
    }
    for name, text in files.items():
        fake.write(tmp_path / name, text)
    check = run_check("memory", fake.machine())
    assert not check.ok
    assert check.found == "2.0 GiB available, the rest of this process's control group"
    assert "--memory 4g" in check.advice  # what to give the container
    assert "virtual" in check.without


def test_doctor_on_a_machine_with_enough_memory_reports_it_as_ok(fake: FakeMachine) -> None:
    """A control group that allows more memory than the machine has is no limit."""
    fake.write(fake.proc / "self" / "cgroup", "0::/\n")
    fake.write(fake.cgroup / "memory.max", f"{64 * GIB}\n")
    fake.write(fake.cgroup / "memory.current", "0\n")
    check = run_check("memory", fake.machine())
    assert (check.ok, check.found) == (True, "16.0 GiB available")


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        pytest.param("50000 100000\n", "0.5", id="half a core"),
        pytest.param("150000 100000\n", "1.5", id="one and a half cores"),
        pytest.param("max 100000\n", "8", id="no limit"),
    ],
)
def test_doctor_counts_the_cores_that_a_container_is_granted(
    fake: FakeMachine, text: str, cores: str
) -> None:
    """cpu.max has two numbers in us: the granted processor time in each period, and the period.

    150000 us of processor time in a period of 100000 us are 1.5 cores. `max` means that there is no
    limit, so all 8 cores of the machine count.

    With fewer than two cores, the processes of a run on Ray wait for each other, and the times that
    the run measures include these waits. So the doctor advises to measure in virtual time.
    """
    fake.write(fake.proc / "self" / "cgroup", "0::/\n")
    fake.write(fake.cgroup / "cpu.max", text)
    check = run_check("cores", fake.machine())
    assert check.found == f"{cores} for this process"
    assert check.ok
    assert ("measure in virtual time" in check.advice) is (float(cores) < 2)


def test_doctor_names_another_ray_with_its_address(fake: FakeMachine) -> None:
    """A run never joins another Ray by itself, but the two share the cores.

    The doctor finds a Ray by its process `gcs_server`, and reads the address from the command line
    of this process. In this test, process 41 has an address and a port. Process 42 has an address
    and port 0, which means that the port is not fixed. Process 43 has no options.
    """
    options = ("--gcs_server_port=6379", "--node-ip-address=192.0.2.7", "--log_dir=/tmp/ray")
    fake.add_process(41, "gcs_server", "/ray/gcs_server", *options)
    fake.add_process(42, "gcs_server", "gcs_server", "--gcs_server_port=0", "--node-ip-address=::1")
    fake.add_process(43, "gcs_server")
    fake.add_process(44, "python", "python")

    check = run_check("other-ray", fake.machine())

    assert check.found == ("Ray at 192.0.2.7:6379 (pid 41); Ray at ::1 (pid 42); Ray (pid 43)")
    assert check.ok  # another Ray is no fault; the advice is only a note
    assert "--ray-address" in check.advice


def test_doctor_without_a_readable_proc_reports_unknown_values(
    fake: FakeMachine, tmp_path: Path
) -> None:
    """A value that cannot be read is `not known`, which does not mean that the part is missing."""
    machine = fake.machine(proc=tmp_path / "nowhere")
    assert run_check("other-ray", machine).found == "not known: /proc cannot be read"
    memory = run_check("memory", machine)
    assert (memory.ok, memory.found) == (True, "not known")


@pytest.mark.parametrize(("mode", "has_advice"), [(None, True), ("token", False)])
def test_doctor_tells_of_a_token_that_a_ray_head_will_demand(
    fake: FakeMachine, mode: str | None, has_advice: bool
) -> None:
    """A local Ray leaves a token in the home folder. A Ray head that is started later demands it.

    Without RAY_AUTH_MODE, the doctor advises to disable tokens. With the mode `token`, the user
    wants tokens, so there is no advice.
    """
    fake.write(fake.home / ".ray" / "auth_token", "secret")
    environ = {"PATH": ""}
    if mode is not None:
        environ["RAY_AUTH_MODE"] = mode

    check = run_check("ray-token", fake.machine(environ=environ))

    assert check.ok
    assert ("RAY_AUTH_MODE=disabled" in check.advice) is has_advice
    assert "secret" not in f"{check}"  # the doctor must not print the token itself
    home_without_token = fake.proc  # any folder without `.ray`
    assert run_check("ray-token", fake.machine(home=home_without_token)).found == "none"


def test_doctor_in_a_read_only_folder_reports_it(fake: FakeMachine, tmp_path: Path) -> None:
    """A run writes its results into the current folder, unless --runs names another folder.

    The folder of this test does not exist, so nothing can be written into it either.
    """
    check = run_check("disk", fake.machine(folder=tmp_path / "gone"))
    assert not check.ok
    assert "cannot be written" in check.found
    assert "--runs DIR" in check.advice


def test_doctor_without_a_loopback_names_what_works_without(fake: FakeMachine) -> None:
    """A sandbox may forbid sockets, but a run in virtual time needs none."""
    check = run_check("ports", fake.machine(loopback=lambda: "Operation not permitted"))
    assert (check.ok, check.found) == (False, "Operation not permitted")
    assert "virtual" in check.without


@pytest.mark.parametrize(
    ("system", "ok"), [("Linux", True), ("Darwin", True), ("Windows", False), ("", False)]
)
def test_doctor_knows_the_systems_that_coordlab_runs_on(
    fake: FakeMachine, system: str, ok: bool
) -> None:
    """On Windows the doctor advises to use the Windows Subsystem for Linux."""
    check = run_check("system", fake.machine(system=system))
    assert check.ok is ok
    assert ("Windows Subsystem for Linux" in check.advice) is not ok


def test_output_has_advice_below_what_is_missing_and_notes_last(fake: FakeMachine) -> None:
    """The output fits into 60 columns; without a terminal it has no colours."""
    fake.write(fake.home / ".ray" / "auth_token", "")
    shown = Console(file=io.StringIO(), width=60)
    print_examination(shown, examine(fake.machine()))
    assert isinstance(shown.file, io.StringIO)
    text = shown.file.getvalue()
    assert max(len(line) for line in text.splitlines()) <= 60
    words = " ".join(text.split())
    assert "missing java no java on the PATH" in words
    # First comes a missing part, Java. Last come notes: a note is the advice of a check that is ok,
    # such as `ray token`.
    assert words.index("Install Java") < words.index("Without it") < words.index("ray token: ")
    assert "\x1b" not in text


def test_names_for_the_option_only_are_those_of_the_checks_with_hyphens() -> None:
    """`doctor --only NAME` runs one check: `--only open-files` runs the check `open files`."""
    assert [check.name.replace(" ", "-") for check in examine(ThisMachine())] == list(CHECKS)
