"""The agent's part on its machine, without Ray: signals to real processes, and files to fetch."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.machine_files import (
    ProcessRef,
    is_alive,
    kill,
    own_process,
    send_signal,
    start_ticks,
    wait_gone,
)
from cluster.ray_services import AgentService


@pytest.fixture
def child() -> Iterator["subprocess.Popen[bytes]"]:
    """A process that waits for its input to end."""
    code = "import sys; sys.stdout.write('up'); sys.stdout.flush(); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.read(2) == b"up"
        try:
            yield process
        finally:
            process.kill()


def ref_of(child: "subprocess.Popen[bytes]") -> ProcessRef:
    ticks = start_ticks(child.pid)
    assert ticks is not None
    return ProcessRef(pid=child.pid, start_ticks=ticks)


def test_kill_returns_when_the_process_is_gone(child: "subprocess.Popen[bytes]") -> None:
    """One that only waits to be reaped by its parent is gone: it says and holds nothing."""
    process = ref_of(child)
    assert is_alive(process)
    asyncio.run(kill(process, 10.0))
    assert not is_alive(process)
    assert child.wait() == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        asyncio.run(kill(process, 10.0))


def test_signal_spares_a_process_that_got_the_number_of_a_dead_one(
    child: "subprocess.Popen[bytes]",
) -> None:
    """The system gives numbers anew: a fault must never hit somebody else's process."""
    process = ref_of(child)
    other = ProcessRef(pid=process.pid, start_ticks=process.start_ticks - 1)
    with pytest.raises(ProcessLookupError):
        send_signal(other, signal.SIGKILL)
    assert is_alive(process)


def test_wait_gone_names_who_is_still_there() -> None:
    """What does not end is a failure of the run, with a pid to look for."""
    myself = own_process()
    assert asyncio.run(wait_gone([myself], 0.0)) == (myself,)
    assert asyncio.run(wait_gone([], 0.0)) == ()


def test_agent_on_the_drivers_machine_uses_the_run_directory(tmp_path: Path) -> None:
    """What is written there need not be fetched; only the disks are thrown away."""

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


def test_agent_on_another_machine_offers_its_files_and_leaves_nothing(tmp_path: Path) -> None:
    """Traces and logs travel to the driver; the machine is left as it was found."""

    async def main() -> None:
        agent = AgentService("coordinator_crash/2026")
        directory = Path(await agent.prepare(str(tmp_path / "not-here"), "marker"))
        (directory / "trace").mkdir()
        (directory / "trace" / "broker-0-0.frames").write_bytes(b"0123456789")
        (directory / "disks").mkdir()
        (directory / "disks" / "orders-0.log").write_bytes(b"not to be fetched")
        assert await agent.files_to_fetch() == (("trace/broker-0-0.frames", 10),)
        assert await agent.read_piece("trace/broker-0-0.frames", 4) == b"456789"
        with pytest.raises(ValueError, match="outside"):
            await agent.read_piece("../../etc/passwd", 0)
        await agent.clean_up()
        assert not directory.exists()

    asyncio.run(main())
