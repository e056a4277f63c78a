"""`python -m coordlab run` on a local Ray: real kills, Ctrl-C, and two runs on one machine.

Here every broker and every consumer (a node) has a process of its own, which Ray starts. The
process of the command is called the driver. It injects the faults, and writes each of them into the
run's journal.

The timeouts are scaled down, so that a run takes half a minute. `make soak` has the real timeouts.
The exit code of an interrupted run is 130. The exit code 255 means that coordlab itself failed.
"""

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.checkers.context import detail_of
from chaos.experiment.structs import Experiment
from chaos.results.manifest import experiment_of
from chaos.results.run_directory import PastRun, list_runs
from cluster.ray.leavings import OWNER_FILE
from cluster.realtime.machine_processes import is_stopped, start_ticks
from cluster.trace.files import FrameReader
from pipeline.engine.java import JavaProblem, find_java
from protocol.trace import TraceKind, TraceRow
from results_schema.manifest import RunStatus
from results_schema.results import RunOutcome, Verdict
from tests.support.harness.command_line import CommandLine
from tests.support.harness.programs import left_after, processes, rays_own
from tests.support.harness.small_disk import small_disk
from tests.support.worlds.acceptance import (
    RESUME_MAX_US,
    coordinator_failover,
    lost_commits,
    rows_of_run,
)

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(300)]

GROUP = "orders-readers"
SESSION_US, HEARTBEAT_US = 3_000_000, 500_000
"""The session of a broker, and the interval of its heartbeats."""
# Options that make a run short: short timeouts, a small group, an early fault, and no analysis.
SCALED_DOWN = (
    "--no-analyze",
    f"--var=cluster.config.broker.session.timeout.ms={SESSION_US // 1_000}",
    f"--var=cluster.config.broker.heartbeat.interval.ms={HEARTBEAT_US // 1_000}",
    "--var=cluster.config.group.initial.rebalance.delay.ms=500",
    f"--var=groups.{GROUP}.members=4",
    "--var=topics.orders.partitions=4",
    "--var=faults[0].at=1s",
)
# The next three options change the experiment's only fault, the crash of the coordinator. ENDLESS
# lets the fault last until the run is interrupted.
SHORT = ("--var=faults[0].duration=6s", "--var=run.after_faults=1s")
ENDLESS = ("--var=faults[0].duration=100s",)
PAUSE_INSTEAD = ("--var=faults[0].fault=pause",)
PATIENCE_S = 120.0
"""Limit for waiting on other processes, generous because two Rays on a busy machine are slow."""


def wait_until(condition: Callable[[], bool], what: str, *, limit_s: float = PATIENCE_S) -> None:
    """Poll until `condition` holds. The condition depends on another process.

    `what` names the awaited event in the message of a failure.
    """
    deadline_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {limit_s} s: {what}"
        time.sleep(0.05)


def node_pids(rows: list[TraceRow]) -> dict[str, int]:
    """Return the process id of each life of each node, such as {"broker-0/0": 4711, ...}.

    The number behind the slash, the incarnation, counts the lives of the node from 0. A restarted
    broker has another incarnation and another process.
    """
    return {
        f"{row.node}/{row.incarnation}": int(str(detail_of(row)["pid"]))
        for row in rows
        if row.kind == TraceKind.NODE_STARTED and "pid" in detail_of(row)
    }


def check_no_process_is_left(command_line: CommandLine) -> None:
    """Wait until all processes of a run have ended.

    The processes of Ray end a moment after the command itself.
    """
    wait_until(lambda: command_line.processes() == [], "the last process of a run to go")


def living_nodes(past: PastRun) -> dict[str, int]:
    """Return the process id of each node of a run that still lives, such as {"broker-0/0": 4711}.

    While a run goes on, the nodes write their rows into files in its folder `trace`. The first row
    of each node has the id of its process.
    """
    files = sorted((past.path / "trace").glob("*.frames"))
    pids = node_pids([row for file in files for row in FrameReader(file)])
    return {node: pid for node, pid in pids.items() if start_ticks(pid) is not None}


def in_force(command_line: CommandLine) -> bool:
    """Return True if the journal says that a fault has been injected and not yet healed."""
    return any(fault.in_force for run in command_line.runs() for fault in run.journal())


def test_two_runs_side_by_side_pass_and_do_not_touch_each_other(tmp_path: Path) -> None:
    """Two runs at the same time on one machine have their own Rays, ports and directories."""
    one, other = CommandLine(tmp_path / "one"), CommandLine(tmp_path / "other")
    one.folder.mkdir()
    other.folder.mkdir()
    arguments = ("run", "coordinator_crash", *SCALED_DOWN, *SHORT)
    with one.started(*arguments) as process_of_one, other.started(*arguments) as process_of_other:
        processes_of_both = (process_of_one, process_of_other)
        outputs = [process.communicate(timeout=PATIENCE_S) for process in processes_of_both]

    assert [process.returncode for process in processes_of_both] == [0, 0], outputs
    pids_of_runs: list[set[int]] = []
    for command_line in (one, other):
        (past,) = command_line.runs()
        rows = rows_of_run(past.path)
        check_run(past, experiment_of(past.manifest), rows)
        pids_of_runs.append(set(node_pids(rows).values()))
        check_no_process_is_left(command_line)
    pids_of_one, pids_of_other = pids_of_runs
    assert pids_of_one.isdisjoint(pids_of_other)


def check_run(past: PastRun, experiment: Experiment, rows: list[TraceRow]) -> None:
    """Check the verdict of a run, its killed process, and how long its failover took."""
    results = past.results()
    assert results is not None
    assert results.reasons == ()
    assert results.verdict is Verdict.PASS
    # All checks must pass, with four exceptions. `administration` and `stability` apply only in
    # virtual time. `fencing` and `recovery` may have nothing to judge, by chance: `fencing` needs
    # an append that waited for the dead leader, and `recovery` needs a replica that recovers when
    # the fault is undone.
    not_passed = {report.check for report in results.checks if report.outcome != "pass"}
    of_virtual_time = {"administration", "stability"}
    assert of_virtual_time <= not_passed <= {"fencing", "recovery", *of_virtual_time}
    assert past.manifest.status is RunStatus.COMPLETED
    assert {row.run for row in rows} == {past.manifest.run}
    # A connection may be refused by a broker that restarts and does not serve yet, but by no broker
    # of the other run.
    refusals = [row for row in rows if row.kind == TraceKind.CONNECTION_REFUSED]
    assert {detail_of(row)["reason"] for row in refusals} <= {"does not serve"}

    (fault,) = past.journal()
    pids = node_pids(rows)
    assert fault.pid is not None
    assert fault.pid == pids[f"{fault.node}/0"]
    assert start_ticks(fault.pid) is None  # the killed process has ended
    assert pids[f"{fault.node}/1"] != fault.pid  # the restarted broker is another process

    failover = coordinator_failover(rows, experiment, GROUP)
    assert failover.victim == fault.node
    # The session of the broker begins at its last heartbeat, at most one interval before the kill.
    # The upper bound allows half a second more: the controller looks at sessions only from time to
    # time, and real processes have to wait for a processor.
    assert SESSION_US - HEARTBEAT_US <= failover.detect_us <= SESSION_US + 500_000
    assert failover.rebalances == 0
    # Each of the four members kept its member id and generation.
    assert [len(member.identities) for member in failover.members] == [1, 1, 1, 1]
    assert len(failover.resumes_us()) == 4
    assert failover.resumes_us()[-1] <= RESUME_MAX_US
    for member in failover.members:
        assert set(member.answers_before_detection) == {failover.victim}
    assert lost_commits(rows, experiment, GROUP) == []


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """Run an experiment until its fault is in force, then press Ctrl-C."""
    command_line = CommandLine(tmp_path_factory.mktemp("interrupted"))
    with command_line.started("run", "coordinator_crash", *SCALED_DOWN, *ENDLESS) as process:
        # If the process ends too early, the wait ends, too, and the next line shows its output.
        wait_until(lambda: process.poll() is not None or in_force(command_line), "the fault")
        assert process.poll() is None, process.communicate()
        # A terminal sends the signal to all processes of the command, also to Ray's processes.
        os.killpg(process.pid, signal.SIGINT)
        output, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, output + errors
    assert "Traceback" not in output + errors
    assert process.pid not in owners_of_sessions()  # the folder of its Ray is removed
    return command_line


def owners_of_sessions() -> set[int]:
    """Return the ids of the processes that started a Ray whose session folder still exists.

    In such a folder, the owner file has two words: the host and the id of the process that started
    the Ray.
    """
    owner_files = Path(tempfile.gettempdir(), "ray").glob(f"session_*/{OWNER_FILE}")
    return {int(path.read_text().split()[1]) for path in owner_files}


def test_ctrl_c_heals_and_stops_and_leaves_a_readable_run(interrupted: CommandLine) -> None:
    """The verdict of an interrupted run is unknown. Its fault is healed, and its trace complete."""
    (past,) = interrupted.runs()
    assert past.manifest.status is RunStatus.INTERRUPTED
    assert past.incomplete
    results = past.results()
    assert results is not None
    assert (results.outcome, results.exit_code) == (RunOutcome.INTERRUPTED, 130)
    assert results.verdict is Verdict.UNKNOWN
    (fault,) = past.journal()
    assert (fault.outcome, fault.healed_by) == ("hit", "end")
    rows = rows_of_run(past.path)
    kinds = {row.kind for row in rows}
    assert {TraceKind.FAULT_INJECTED, TraceKind.FAULT_HEALED, TraceKind.NODE_STOPPED} <= kinds
    assert [row.node for row in rows if row.kind == TraceKind.TASK_FAILED] == []
    # The healing of the crash started the broker again, and no other node.
    restarted_nodes = [
        row.node for row in rows if row.kind == TraceKind.NODE_STARTED and row.incarnation == 1
    ]
    assert restarted_nodes == [fault.node]


def test_ctrl_c_leaves_no_process(interrupted: CommandLine) -> None:
    """Neither a node nor the Ray of the run remains."""
    (past,) = interrupted.runs()
    pids = node_pids(rows_of_run(past.path))
    # The run had eight nodes. With only a few in its trace, the test would prove little.
    assert len(pids) >= 5
    check_no_process_is_left(interrupted)
    assert [name for name, pid in pids.items() if start_ticks(pid) is not None] == []


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """Run an experiment until its fault has paused a broker, then kill the driver by SIGKILL."""
    command_line = CommandLine(tmp_path_factory.mktemp("killed"))
    arguments = ("run", "coordinator_crash", *SCALED_DOWN, *PAUSE_INSTEAD, *ENDLESS)
    with command_line.started(*arguments) as run:
        wait_until(lambda: run.poll() is not None or in_force(command_line), "the fault")
        (past,) = command_line.runs()
        (fault,) = past.journal()
        assert fault.pid is not None
        nodes = living_nodes(past)
        assert len(nodes) >= 8, "three brokers, the controller and four members"
        # The fault has paused its broker.
        assert is_stopped(*processes([fault.pid]))
        processes_of_ray = rays_own(run.pid)
        assert len(processes_of_ray) == 2  # gcs_server and raylet
        run.kill()
        run.wait()
        # All processes end within some seconds, and none is left after that.
        assert left_after([*processes(nodes.values()), *processes_of_ray]) == []
        yield command_line
    # Helpers of Ray remain for a minute.
    command_line.kill_everything()


def test_run_whose_driver_was_killed_leaves_no_process(killed: CommandLine) -> None:
    """The driver cannot handle SIGKILL, so nodes and Ray must end by themselves.

    Even the process of the paused node ends; the fixture `killed` asserts this. `list` then shows
    that the run was killed.
    """
    (past,) = killed.runs()
    assert past.incomplete
    listed = killed.run("list")
    assert past.manifest.run in listed.stdout
    assert " killed " in listed.stdout


def test_disk_that_fills_is_one_message_and_keeps_the_traced_rows(tmp_path: Path) -> None:
    """The traces of the nodes fill a small disk. The run fails, and none of its nodes remains.

    The disk has 4.6 MB. A run reserves 4 MB of it, to be able to complete its files when the disk
    is full. About half a MB is left for the traces, and the run fills it in a moment.
    """
    command_line = CommandLine(tmp_path)
    with small_disk(tmp_path / "disk", "4600k") as disk:
        done = command_line.run("run", "coordinator_crash", *SCALED_DOWN, "--runs", str(disk))
        (sentence,) = done.stderr.splitlines()
        (past,) = list_runs(disk)
        assert done.returncode == 255
        assert sentence.startswith(f"The run could not be recorded: {past.path}")
        assert "No space left on device; kept in " in sentence
        assert "PASS" not in done.stdout
        results = past.results()
        assert results is not None
        assert (results.exit_code, results.reasons) == (255, (sentence,))
        assert past.manifest.status is RunStatus.FAILED
        assert len(rows_of_run(past.path)) > 100
        listed = command_line.run("list", "--runs", str(disk))
        assert " failed " in listed.stdout
    check_no_process_is_left(command_line)


@pytest.mark.spark
def test_interrupted_or_failed_runs_can_be_analysed(
    interrupted: CommandLine, killed: CommandLine
) -> None:
    """Each run has tables of the events up to its end. The output says how the run ended."""
    java = find_java()
    if isinstance(java, JavaProblem):
        pytest.skip(java.found)
    (interrupted_run,) = interrupted.runs()
    (killed_run,) = killed.runs()

    done = interrupted.run("analyze", str(interrupted_run.path), str(killed_run.path))

    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{interrupted_run.manifest.run}: " in done.stdout
    assert f"{killed_run.manifest.run}: " in done.stdout
    assert "events (interrupted)" in done.stdout
    assert "its driver was killed" in done.stdout
    assert "this run is incomplete" in done.stdout
    assert "crash-0" in done.stdout
    assert "pause-0" in done.stdout
    for past in (interrupted_run, killed_run):
        assert list((past.path / "tables").iterdir())
