"""The work of an agent on its machine, without Ray: signals to real processes, and files.

A run on Ray has an agent on each machine. The agent stops, resumes and kills the processes of the
run on its machine. The driver is the process that runs the experiment. At the end of the run the
agent sends the files of its machine to the driver.

A process is named by a ProcessRef: its pid and the time at which it started, in clock ticks. The
pid alone is not enough, because the system may later give the pid of an ended process to another
process. The functions `kill`, `stop` and `wait_gone` have a timeout in seconds as their last
argument.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.realtime.machine_processes import (
    ProcessRef,
    disk_of,
    is_alive,
    is_stopped,
    kill,
    own_process,
    remove_disk,
    send_signal,
    start_ticks,
    stop,
    wait_gone,
)
from cluster.realtime.services import AgentService

ROOT = Path(__file__).resolve().parents[3]
"""The folder of the project, in which a program can import `cluster`."""


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    """Yield a process that waits until its input ends."""
    # The process writes "up" when it runs, and then reads its input to the end.
    code = "import sys; sys.stdout.write('up'); sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(2) == b"up"  # from now on the process runs its own code
        try:
            yield process
        finally:
            process.kill()


def ref_of(child: "subprocess.Popen[bytes]") -> ProcessRef:
    """Return the ProcessRef of a child, which must be alive."""
    ticks = start_ticks(child.pid)
    assert ticks is not None
    return ProcessRef(pid=child.pid, start_ticks=ticks)


def test_kill_returns_when_the_process_has_ended(child: "subprocess.Popen[bytes]") -> None:
    """`kill` does not wait until the parent of the killed process collects its exit status.

    Until then the process is a zombie: it sends nothing, and has no socket and no file. So it
    counts as ended. Its parent is this test, which collects it with `child.wait`.
    """
    process = ref_of(child)
    assert is_alive(process)
    asyncio.run(kill(process, 10.0))
    assert not is_alive(process)
    assert child.wait() == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        asyncio.run(kill(process, 10.0))


def test_signal_spares_a_process_with_the_pid_of_an_ended_one(
    child: "subprocess.Popen[bytes]",
) -> None:
    """The pid of an ended process may now belong to someone else's process, here the child.

    A fault that is meant for the ended process must not hit the child.
    """
    process = ref_of(child)
    # It had the same pid, and had started a tick earlier.
    ended_process = ProcessRef(pid=process.pid, start_ticks=process.start_ticks - 1)
    with pytest.raises(ProcessLookupError):
        send_signal(ended_process, signal.SIGKILL)
    assert is_alive(process)


def test_stop_returns_when_the_process_stands_still(child: "subprocess.Popen[bytes]") -> None:
    """`stop` waits until the process stands still.

    If it returned earlier, a paused broker could answer once more.
    """
    process = ref_of(child)
    assert not is_stopped(process)
    asyncio.run(stop(process, 10.0))
    assert is_stopped(process)
    assert is_alive(process)  # a stopped process is alive

    send_signal(process, signal.SIGCONT)
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(10) == 0  # the process has run on to its normal end
    with pytest.raises(ProcessLookupError):
        asyncio.run(stop(process, 10.0))

    with pytest.raises(ProcessLookupError):
        is_stopped(process)


def test_stopped_process_can_be_killed(child: "subprocess.Popen[bytes]") -> None:
    """The crash of a paused broker must not need a resume."""
    process = ref_of(child)
    asyncio.run(stop(process, 10.0))
    asyncio.run(kill(process, 10.0))
    assert not is_alive(process)


def test_process_dies_with_its_parent_also_while_it_is_stopped() -> None:
    """If the driver is killed, nobody is left who could resume a stopped broker or end it.

    So each process of a run calls `die_with_parent`, which asks the kernel to kill the process
    together with its parent. Here a parent starts a child. The child calls `die_with_parent`, and
    then stops itself.
    """
    child_code = (
        "import os, signal, sys; from cluster.realtime.machine_processes import die_with_parent;"
        "die_with_parent(); print(os.getpid(), flush=True); os.kill(os.getpid(), signal.SIGSTOP)"
    )
    parent_code = (
        "import subprocess, sys;"
        f"subprocess.Popen([sys.executable, '-c', {child_code!r}]); sys.stdin.read()"
    )

    with subprocess.Popen(
        [sys.executable, "-c", parent_code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())  # the child prints its pid
        child = ProcessRef(pid=pid, start_ticks=start_ticks(pid) or 0)

        async def kill_parent_of_stopped_child() -> tuple[ProcessRef, ...]:
            await stop(child, 10.0)
            parent.kill()
            return await wait_gone([child], 10.0)

        remaining = asyncio.run(kill_parent_of_stopped_child())
        assert remaining == ()


def test_remove_disk_deletes_only_the_directory_of_one_node(tmp_path: Path) -> None:
    """The disks of other nodes stay. It is no error if the node has no disk."""
    for name in ("disks/broker-0/orders-0.log", "disks/broker-1/orders-0.log"):
        path = tmp_path / name
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x")
    remove_disk(tmp_path, "broker-0")
    remove_disk(tmp_path, "broker-2")
    assert not disk_of(tmp_path, "broker-0").exists()
    assert (disk_of(tmp_path, "broker-1") / "orders-0.log").exists()


def test_wait_gone_names_the_remaining_processes() -> None:
    """`wait_gone` returns the processes that have not ended in time, here the process of the test.

    A run whose processes do not end fails, and names these processes.
    """
    this_process = own_process()
    assert asyncio.run(wait_gone([this_process], 0.0)) == (this_process,)
    assert asyncio.run(wait_gone([], 0.0)) == ()


def test_agent_on_the_drivers_machine_uses_the_run_directory(tmp_path: Path) -> None:
    """On the driver's machine the agent has no files to send, and only deletes the disks.

    The driver has put a file with the name `marker` into the run directory. If the agent finds this
    file, it is on the driver's machine.
    """

    async def main() -> None:
        (tmp_path / "marker").touch()
        (tmp_path / "trace").mkdir()
        (tmp_path / "trace" / "broker-0-0.frames").write_bytes(b"x")
        (tmp_path / "disks" / "broker-0").mkdir(parents=True)

        agent = AgentService("run")
        assert await agent.prepare(str(tmp_path), "marker") == str(tmp_path)
        assert await agent.files_to_fetch() == ()
        await agent.clean_up()
        assert not (tmp_path / "disks").exists()
        assert (tmp_path / "trace" / "broker-0-0.frames").exists()

    asyncio.run(main())


def test_agent_on_another_machine_sends_its_files_and_leaves_nothing(tmp_path: Path) -> None:
    """The files of the run are sent to the driver, but not the disks. Then everything is deleted.

    The agent does not find the run directory of the driver, here `not-here`. So the agent must be
    on another machine, and makes a directory of its own.
    """

    async def main() -> None:
        agent = AgentService("coordinator_crash/2026")
        directory = Path(await agent.prepare(str(tmp_path / "not-here"), "marker"))
        (directory / "trace").mkdir()
        (directory / "trace" / "broker-0-0.frames").write_bytes(b"0123456789")
        (directory / "disks").mkdir()
        (directory / "disks" / "orders-0.log").write_bytes(b"not to be fetched")

        assert await agent.files_to_fetch() == (("trace/broker-0-0.frames", 10),)
        # The driver reads the file in pieces. This piece begins at position 4.
        assert await agent.read_piece("trace/broker-0-0.frames", 4) == b"456789"
        with pytest.raises(ValueError, match="outside"):
            await agent.read_piece("../../etc/passwd", 0)

        await agent.clean_up()
        assert not directory.exists()

    asyncio.run(main())
