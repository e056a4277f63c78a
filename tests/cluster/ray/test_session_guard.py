"""SessionGuard ends the processes of Ray that outlive a killed driver, and no others.

The driver is the process that has started Ray. Ray makes a folder for this session, and starts
other processes, such as agents. If the driver is killed, some agents live on.

The guard is a separate process, which reads from a pipe whose other end is in the driver. A driver
that ends in order writes a byte into the pipe. If the pipe ends without this byte, the driver was
killed. Then the guard kills the agents and removes the folder.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.ray.session_guard import SessionGuard, processes_of

pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's /proc")

# A program that opens the file in its argument, prints "open", and waits until its input ends.
HOLD = "import sys; file = open(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


def start_holder(
    file: Path, *, title: str = "holder", **environment: str
) -> "subprocess.Popen[str]":
    """Start a process with this title that holds `file` open.

    `environment` has more variables for the environment of the process.
    """
    process = subprocess.Popen(
        # A list of processes shows argv[0], the title. With -I and -S, Python reads no settings and
        # no packages of the user.
        [title, "-I", "-S", "-c", HOLD, str(file)],
        executable=os.path.realpath(sys.executable),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """Return the folder of a session, with a log in it.

    Beside it is the folder of another session, whose name begins with the same characters.
    """
    folder = tmp_path / "session_1"
    folder.mkdir()
    (folder / "agent.log").touch()
    (tmp_path / "session_10").mkdir()
    (tmp_path / "session_10" / "agent.log").touch()
    return folder


# Ray gives an agent its title only some time after its start.
@pytest.fixture(params=["just started", "titled"])
def agent(session: Path, request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[str]"]:
    """Yield an agent, that is, a process of Ray that holds a file of the session open.

    The guard must tell an agent from a user's process that reads the same file. A new agent has the
    environment variable RAY_RAYLET_PID. Later the agent has a title. Ray writes the title over the
    environment, so the variable may be gone then.
    """
    # The value of RAY_RAYLET_PID does not matter.
    if request.param == "titled":
        process = start_holder(session / "agent.log", title="ray::DashboardAgent")
    else:
        process = start_holder(session / "agent.log", RAY_RAYLET_PID="1")
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def others(session: Path) -> Iterator[list["subprocess.Popen[str]"]]:
    """Yield a process of a user that reads the same log, and an agent of another session."""
    started = [
        start_holder(session / "agent.log"),
        start_holder(session.parent / "session_10" / "agent.log", RAY_RAYLET_PID="1"),
    ]
    yield started
    for process in started:
        process.kill()
        process.communicate()


def test_processes_of_a_session_are_its_agents(
    session: Path, agent: "subprocess.Popen[str]", others: list["subprocess.Popen[str]"]
) -> None:
    """Processes of users and of other sessions must not be ended."""
    assert processes_of(session) == [agent.pid]


def test_killed_driver_leaves_no_agent_and_no_folder(
    session: Path, agent: "subprocess.Popen[str]", others: list["subprocess.Popen[str]"]
) -> None:
    """The guard kills the agent and nothing else."""
    # A driver that starts a guard, prints the guard's pid, and kills itself.
    driver_code = (
        "import os, sys; from pathlib import Path;"
        "from cluster.ray.session_guard import SessionGuard;"
        "guard = SessionGuard(Path(sys.argv[1])); print(guard._process.pid, flush=True);"
        "os.kill(os.getpid(), 9)"
    )
    driver = subprocess.run(
        [sys.executable, "-c", driver_code, str(session)],
        check=False,
        capture_output=True,
        text=True,
    )
    assert driver.returncode == -9, driver.stderr  # ended by SIGKILL
    assert agent.wait(timeout=30) == -9
    assert [process.poll() for process in others] == [None, None]  # both are still running

    # Wait for the end of the guard, whose last act is to remove the folder. A process that has
    # ended may still be listed for a while, in the state Z (zombie).
    guard = Path("/proc") / driver.stdout.strip()
    while guard.exists() and "State:\tZ" not in (guard / "status").read_text():
        os.sched_yield()
    assert not session.exists()


def test_orderly_end_kills_no_process(session: Path, agent: "subprocess.Popen[str]") -> None:
    """After an orderly end Ray itself ends its processes, so the guard must do nothing."""
    SessionGuard(session).close()  # returns when the guard has ended
    assert agent.poll() is None  # the agent is still running
    assert session.exists()
