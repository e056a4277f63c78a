"""RayRuntime with fake nodes: real kills, restarts on the same disk, and failures.

RayRuntime runs the controller and each broker in a process of its own. All clients share one
process. The processes are real. The nodes in them are fakes, which do less than Kafka's nodes:

- A fake consumer sends heartbeats to the brokers.
- A fake broker appends a batch to its disk for each heartbeat. It has no groups. It reports the
  number of its batches in the field of the generation of a group `g`.

An incarnation is one life of a node. A node that is killed and started again has a new incarnation.
In the trace (the recorded events) the rows of the node "driver" are those of the run itself.
"""

import asyncio
import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from cluster.host.host import Host
from cluster.lives import NodeBuilder
from cluster.node_factory import Node
from cluster.ray.runtime import RayRuntime
from cluster.realtime.machine_processes import start_ticks
from cluster.runtime import (
    ClusterStartError,
    ClusterStatus,
    HitNode,
    NodeTaskFailed,
    UnknownNode,
)
from cluster.spec import BrokerSpec, ClusterSpec, NodeSpec
from protocol.ids import BrokerId, NodeName, broker_name
from protocol.trace import TraceKind, TraceRow
from tests.support.harness.fake_cluster import (
    FakeBroker,
    FakeConsumer,
    fake_builder,
    fake_spec,
)

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]

SECOND_US = 1_000_000
CONSUMER, VICTIM = NodeName("consumer-0"), broker_name(1)


class BrokenBroker(FakeBroker):
    """A broker with a timer that soon raises."""

    def report_and_fail(self) -> None:
        raise ZeroDivisionError("planted bug")

    def start(self) -> None:
        super().start()
        self.host.after(100_000, self.report_and_fail)


class DyingBroker(FakeBroker):
    """A broker whose process kills itself, as the system kills processes for lack of memory."""

    def start(self) -> None:
        super().start()
        self.host.after(100_000, os.kill, os.getpid(), signal.SIGKILL)


class UnstartableBroker(FakeBroker):
    """A broker whose start raises."""

    def start(self) -> None:
        raise ZeroDivisionError("planted bug")


class PatientConsumer(FakeConsumer):
    """A consumer whose requests end by an answer or by a closed connection.

    On a busy machine, an answer can take longer than the 50 ms of a FakeConsumer.
    """

    request_timeout_us = 60 * SECOND_US


def build_broken(spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
    """Build fake nodes, in which each broker is a BrokenBroker."""
    if isinstance(spec, BrokerSpec):
        return BrokenBroker(host, spec)
    return fake_builder()(spec, cluster, host)


def build_dying(spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
    """Build fake nodes, in which each broker is a DyingBroker."""
    if isinstance(spec, BrokerSpec):
        return DyingBroker(host, spec)
    return fake_builder()(spec, cluster, host)


def build_unstartable(spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
    """Build fake nodes, in which each broker is an UnstartableBroker."""
    if isinstance(spec, BrokerSpec):
        return UnstartableBroker(host, spec)
    return fake_builder()(spec, cluster, host)


def rows_of(rows: list[TraceRow], kind: TraceKind, node: str) -> list[TraceRow]:
    """Return the rows of one kind that a node has written."""
    return [row for row in rows if row.kind == kind and row.node == node]


@dataclass(frozen=True)
class Story:
    """The facts of one run, in which a broker and a client are killed and restarted.

    `appended_before` and `appended_after` count the batches of the killed broker, before the kill
    and after the restart.
    """

    runtime: RayRuntime
    run_dir: Path
    rows: list[TraceRow]
    appended_before: int
    appended_after: int
    killed: HitNode
    pid_was_gone: bool
    status_after_kill: ClusterStatus
    client_killed: HitNode
    pids: tuple[int, ...]


@pytest.fixture(scope="module")
def story(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Play the story once for all tests, because starting processes takes long."""
    run_dir = tmp_path_factory.mktemp("run")
    rows: list[TraceRow] = []
    runtime = RayRuntime(
        fake_spec(brokers=2, consumers=2),
        seed=1,
        run_id="run",
        run_dir=run_dir,
        build=fake_builder(consumer=PatientConsumer),
        observers=[rows.append],
    )

    async def appended() -> int:
        # The number of batches of VICTIM, which is broker 1.
        status = await runtime.status()
        return sum(g.generation for g in status.groups["g"] if g.coordinator == 1)

    async def experiment() -> Story:
        await runtime.start()
        while (before := await appended()) < 10:
            await runtime.sleep(20_000)

        killed = await runtime.crash(VICTIM)
        # `start_ticks` returns the start time of a process, or None if no process has this pid.
        was_gone = start_ticks(killed.pid or 0) is None
        with pytest.raises(UnknownNode, match="broker-1 is down"):
            await runtime.crash(VICTIM)
        status_after_kill = await runtime.status()

        await runtime.sleep(SECOND_US)
        with pytest.raises(UnknownNode, match="broker-0 is up and cannot"):
            await runtime.restart(broker_name(0))
        await runtime.restart(VICTIM)
        after = await appended()

        client_killed = await runtime.crash(CONSUMER)
        await runtime.restart(CONSUMER)
        return Story(
            runtime=runtime,
            run_dir=run_dir,
            rows=rows,
            appended_before=before,
            appended_after=after,
            killed=killed,
            pid_was_gone=was_gone,
            status_after_kill=status_after_kill,
            client_killed=client_killed,
            pids=runtime.pids(),
        )

    try:
        return runtime.run(experiment())
    finally:
        runtime.run(runtime.stop())
        # The second stop must change nothing.
        runtime.run(runtime.stop())


def test_crash_on_ray_ends_the_real_process(story: Story) -> None:
    """The process must have ended when `crash` returns. The run records its pid.

    The status after the kill has no report of the killed broker.
    """
    assert story.killed.pid is not None
    assert story.pid_was_gone
    assert story.killed.incarnation == 0
    assert story.status_after_kill.brokers_alive == {BrokerId(0): True, BrokerId(1): False}
    assert [g.coordinator for g in story.status_after_kill.groups["g"]] == [0]


def test_restart_on_ray_finds_batches_appended_before_the_kill(story: Story) -> None:
    """A kill loses no data that the process has written, because the kernel keeps them.

    The same holds for Kafka, whose brokers write into the kernel's page cache.
    """
    assert story.appended_before >= 10
    assert story.appended_after >= story.appended_before
    started = [(r.node, r.incarnation) for r in story.rows if r.kind == TraceKind.NODE_STARTED]
    assert started.count((VICTIM, 0)) == 1
    assert started.count((VICTIM, 1)) == 1


def test_peers_of_a_killed_process_are_disconnected_at_once(story: Story) -> None:
    """A client learns of a kill from its closed connection, long before any timeout."""
    # The broker was killed first, and the consumer second.
    (killed_row, _) = rows_of(story.rows, TraceKind.NODE_KILLED, "driver")
    lost = [
        row
        for row in story.rows
        if row.kind == TraceKind.REQUEST_FAILED
        and row.peer == VICTIM
        and row.time_us >= killed_row.time_us
    ]
    assert lost[0].error == "DISCONNECTED"
    assert lost[0].time_us - killed_row.time_us < SECOND_US


def test_client_in_a_shared_process_is_crashed_and_restarted_alone(story: Story) -> None:
    """consumer-0 shares a process with consumer-1, which must stay in its first incarnation.

    No process is killed, so the fault has no pid.
    """
    assert story.client_killed == HitNode(node=CONSUMER, incarnation=0, pid=None)
    started = [(r.node, r.incarnation) for r in story.rows if r.kind == TraceKind.NODE_STARTED]
    assert [s for s in started if s[0].startswith("consumer")] == [
        ("consumer-0", 0),
        ("consumer-1", 0),
        ("consumer-0", 1),
    ]


def test_stop_on_ray_leaves_no_process_and_returns_the_whole_trace(story: Story) -> None:
    """The trace has the rows of all incarnations, also of killed ones, once and in one order."""
    assert len(story.pids) == 4  # the controller, two brokers, and the process of all clients
    assert [pid for pid in story.pids if start_ticks(pid) is not None] == []
    assert story.runtime.failures() == ()
    report = story.runtime.trace_report
    assert report is not None
    assert (report.rows, report.lost) == (len(story.rows), {})
    assert story.rows == sorted(story.rows, key=lambda r: (r.time_us, r.node, r.incarnation, r.seq))
    stopped = [r.node for r in story.rows if r.kind == TraceKind.NODE_STOPPED]
    assert sorted(stopped) == ["broker-0", "broker-1", "consumer-0", "consumer-1", "controller-100"]
    # All processes have the clock of one machine, so the clocks have no error.
    assert set(story.runtime.clock_bounds_us.values()) == {0}
    assert not (story.run_dir / "disks").exists()


@pytest.mark.parametrize(
    ("build", "message"),
    [(build_broken, "planted bug"), (build_dying, "died by itself")],
    ids=["task", "process"],
)
def test_failure_of_the_tool_ends_the_run_and_is_reported(
    tmp_path: Path, build: NodeBuilder, message: str
) -> None:
    """A bug of ours in a node must end the run, or it would look like a behaviour of Kafka."""
    rows: list[TraceRow] = []
    runtime = RayRuntime(
        fake_spec(brokers=1, consumers=1),
        seed=1,
        run_id="run",
        run_dir=tmp_path,
        build=build,
        observers=[rows.append],
    )
    cleaned_up: list[str] = []

    async def experiment() -> None:
        try:
            await runtime.start()
            await runtime.sleep(100 * SECOND_US)
        finally:
            await asyncio.sleep(0)  # shows that the cleanup of an ended run can still await
            cleaned_up.append("main")

    try:
        with pytest.raises(NodeTaskFailed, match=message):
            runtime.run(experiment())
    finally:
        runtime.run(runtime.stop())
    assert cleaned_up == ["main"]
    assert message in runtime.failures()[0]
    # A process that was killed has written no row.
    if build is build_broken:
        assert len(rows_of(rows, TraceKind.TASK_FAILED, "broker-0")) == 1


def test_node_that_cannot_start_is_named_and_all_others_are_stopped(tmp_path: Path) -> None:
    """A run must not continue with only a part of its cluster, and must leave no processes."""
    runtime = RayRuntime(
        fake_spec(brokers=1, consumers=1),
        seed=1,
        run_id="run",
        run_dir=tmp_path,
        build=build_unstartable,
    )
    with pytest.raises(ClusterStartError, match=r"broker-0 could not be started: .*planted bug"):
        runtime.run(runtime.start())
    assert runtime.pids() == ()
