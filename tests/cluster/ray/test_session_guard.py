"""SessionGuard ends the processes of Ray that outlive a killed driver, and no others.

- The driver is the process that has started Ray.
- The raylet is Ray's daemon on a machine, and starts other processes of Ray, such as agents.
- A session is the time from a start of Ray to its end. Each session has a folder.
- The guard is a separate process, which reads from a pipe. The driver holds the other end. A driver
  that ends in order writes a byte first. If the driver is killed, the pipe ends without this byte.
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
    """Start a process that holds `file` open."""
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


# The parameter is the age of the agent: Ray gives an agent its title some time after its start.
@pytest.fixture(params=["just started", "titled"])
def agent(session: Path, request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[str]"]:
    """Yield an agent, which is a process that holds a file of the session open.

    A new agent has the variable RAY_RAYLET_PID, with any value. Later it has a title, and the
    variable may be gone, because Ray writes the title over the environment. A process of a user has
    neither.
    """
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
    """`processes_of` finds the agents of a session, and no processes of users or other sessions."""
    assert processes_of(session) == [agent.pid]


def test_killed_driver_leaves_no_agent_and_no_folder(
    session: Path, agent: "subprocess.Popen[str]", others: list["subprocess.Popen[str]"]
) -> None:
    """The driver starts a guard and kills itself.

    The guard then kills the agent and nothing else.
    """
    code = (
        "import os, sys; from pathlib import Path;"
        "from cluster.ray.session_guard import SessionGuard;"
        "guard = SessionGuard(Path(sys.argv[1])); print(guard._process.pid, flush=True);"
        "os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, str(session)], check=False, capture_output=True, text=True
    )
    assert killed.returncode == -9, killed.stderr  # a process ended by SIGKILL has -9
    assert agent.wait(30) == -9
    assert [process.poll() for process in others] == [None, None]

    # Wait for the end of the guard, which comes after it has removed the folder. The system may
    # list a process for a while after its end, in the state Z (zombie).
    guard = Path("/proc") / killed.stdout.strip()
    while guard.exists() and "State:\tZ" not in (guard / "status").read_text():
        os.sched_yield()
    assert not session.exists()


def test_orderly_end_kills_no_process(session: Path, agent: "subprocess.Popen[str]") -> None:
    """After an orderly end Ray itself ends its processes, so the guard must do nothing."""
    SessionGuard(session).close()  # returns when the guard has ended
    assert agent.poll() is None
    assert session.exists()
