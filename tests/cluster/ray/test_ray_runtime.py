"""RayRuntime with fake nodes: real kills, restarts on the same disk, and failures.

RayRuntime runs the controller and each broker in a process of its own, and all clients in one
process. Here the processes are real, but the nodes in them are fakes: a fake consumer sends
heartbeats to the brokers, and a fake broker appends a batch to its disk for each heartbeat.

A node that is killed and started again has the next incarnation number: 0, 1, and so on.
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
"""The client and the broker that are killed and restarted."""


class BrokenBroker(FakeBroker):
    """A broker with a bug: its timer raises an exception after 0.1 s."""

    def fail(self) -> None:
        raise ZeroDivisionError("planted bug")

    def start(self) -> None:
        super().start()
        self.host.after(100_000, self.fail)


class DyingBroker(FakeBroker):
    """A broker whose process kills itself. The system does the same when memory is short."""

    def start(self) -> None:
        super().start()
        self.host.after(100_000, os.kill, os.getpid(), signal.SIGKILL)


class UnstartableBroker(FakeBroker):
    """A broker with a bug: its start raises an exception."""

    def start(self) -> None:
        raise ZeroDivisionError("planted bug")


class PatientConsumer(FakeConsumer):
    """A consumer that waits a minute for each answer.

    So in these tests its requests fail only if their connection is closed.

    The usual FakeConsumer waits for 50 ms. On a busy machine an answer can take longer.
    """

    request_timeout_us = 60 * SECOND_US


def build_broken(spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
    """Build a node: a BrokenBroker for a broker, and else the usual fake node."""
    if isinstance(spec, BrokerSpec):
        return BrokenBroker(host, spec)
    return fake_builder()(spec, cluster, host)


def build_dying(spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
    """Build a node: a DyingBroker for a broker, and else the usual fake node."""
    if isinstance(spec, BrokerSpec):
        return DyingBroker(host, spec)
    return fake_builder()(spec, cluster, host)


def build_unstartable(spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
    """Build a node: an UnstartableBroker for a broker, and else the usual fake node."""
    if isinstance(spec, BrokerSpec):
        return UnstartableBroker(host, spec)
    return fake_builder()(spec, cluster, host)


def rows_of(rows: list[TraceRow], kind: TraceKind, node: str) -> list[TraceRow]:
    """Return the rows of one kind that a node has written."""
    return [row for row in rows if row.kind == kind and row.node == node]


@dataclass(frozen=True)
class Story:
    """The results of a run in which a broker and a client were killed and restarted."""

    runtime: RayRuntime
    run_dir: Path
    rows: list[TraceRow]
    """The trace, that is, all recorded events."""
    batches_before_kill: int
    """The number of batches on the disk of the broker, just before its kill."""
    batches_after_restart: int
    """The number of batches that the restarted broker found on its disk, and perhaps some more."""
    killed_broker: HitNode
    process_had_ended: bool
    """True if the broker's process had ended when `crash` returned."""
    status_after_kill: ClusterStatus
    killed_client: HitNode
    pids: tuple[int, ...]
    """The process ids of all processes at the end of the story."""


@pytest.fixture(scope="module")
def story(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Run the cluster once for all tests that use the story, because its start takes long."""
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

    async def batches_of_victim() -> int:
        # A fake broker has no groups, but it reports a group `g`, whose generation is the number of
        # its batches.
        status = await runtime.status()
        return sum(group.generation for group in status.groups["g"] if group.coordinator == 1)

    async def experiment() -> Story:
        await runtime.start()
        while (batches_before_kill := await batches_of_victim()) < 10:
            await runtime.sleep(20_000)

        killed_broker = await runtime.crash(VICTIM)
        # `start_ticks` returns the start time of a process, or None if no process has this pid.
        process_had_ended = start_ticks(killed_broker.pid or 0) is None
        with pytest.raises(UnknownNode, match="broker-1 is down"):
            await runtime.crash(VICTIM)
        status_after_kill = await runtime.status()

        await runtime.sleep(SECOND_US)
        with pytest.raises(UnknownNode, match="broker-0 is up and cannot"):
            await runtime.restart(broker_name(0))
        await runtime.restart(VICTIM)
        batches_after_restart = await batches_of_victim()

        killed_client = await runtime.crash(CONSUMER)
        await runtime.restart(CONSUMER)
        return Story(
            runtime=runtime,
            run_dir=run_dir,
            rows=rows,
            batches_before_kill=batches_before_kill,
            batches_after_restart=batches_after_restart,
            killed_broker=killed_broker,
            process_had_ended=process_had_ended,
            status_after_kill=status_after_kill,
            killed_client=killed_client,
            pids=runtime.pids(),
        )

    try:
        return runtime.run(experiment())
    finally:
        runtime.run(runtime.stop())
        # The second stop must change nothing.
        runtime.run(runtime.stop())


def started_nodes(story: Story) -> list[tuple[str, int]]:
    """Return each start of a node: its name and its incarnation number."""
    started = [row for row in story.rows if row.kind == TraceKind.NODE_STARTED]
    return [(row.node, row.incarnation) for row in started]


def test_crash_on_ray_ends_the_real_process(story: Story) -> None:
    """The process must have ended when `crash` returns.

    After the kill only broker 0 answers, so the status has only its report of the group g.
    """
    assert story.killed_broker.pid is not None
    assert story.process_had_ended
    assert story.killed_broker.incarnation == 0
    assert story.status_after_kill.brokers_alive == {BrokerId(0): True, BrokerId(1): False}
    assert [group.coordinator for group in story.status_after_kill.groups["g"]] == [0]


def test_restart_on_ray_finds_batches_appended_before_the_kill(story: Story) -> None:
    """A kill loses no data that the process has written, because the kernel keeps these data.

    The same holds for Kafka, whose brokers write into the kernel's page cache.
    """
    assert story.batches_before_kill >= 10
    assert story.batches_after_restart >= story.batches_before_kill
    assert started_nodes(story).count((VICTIM, 0)) == 1
    assert started_nodes(story).count((VICTIM, 1)) == 1


def test_peers_of_a_killed_process_are_disconnected_at_once(story: Story) -> None:
    """A client learns of a kill from its closed connection, long before any timeout."""
    # The run itself writes its rows as the node "driver". It killed the broker first, and then the
    # consumer.
    (broker_killed, _consumer_killed) = rows_of(story.rows, TraceKind.NODE_KILLED, "driver")
    failed_requests = [
        row
        for row in story.rows
        if row.kind == TraceKind.REQUEST_FAILED
        and row.peer == VICTIM
        and row.time_us >= broker_killed.time_us
    ]
    assert failed_requests[0].error == "DISCONNECTED"
    assert failed_requests[0].time_us - broker_killed.time_us < SECOND_US


def test_client_in_a_shared_process_is_crashed_and_restarted_alone(story: Story) -> None:
    """consumer-0 shares a process with consumer-1, which must not be restarted.

    So the process is not killed, and the killed node has no pid.
    """
    assert story.killed_client == HitNode(node=CONSUMER, incarnation=0, pid=None)
    started = started_nodes(story)
    assert [(node, number) for node, number in started if node.startswith("consumer")] == [
        ("consumer-0", 0),
        ("consumer-1", 0),
        ("consumer-0", 1),
    ]


def test_stop_on_ray_leaves_no_process_and_returns_the_whole_trace(story: Story) -> None:
    """The trace has each row of each incarnation once, in order of time.

    This also holds for the incarnations that were killed.
    """
    assert len(story.pids) == 4  # the controller, two brokers, and the process of all clients
    assert [pid for pid in story.pids if start_ticks(pid) is not None] == []
    assert story.runtime.failures() == ()
    report = story.runtime.trace_report
    assert report is not None
    assert (report.rows, report.lost) == (len(story.rows), {})
    in_order = sorted(story.rows, key=lambda row: (row.time_us, row.node, row.incarnation, row.seq))
    assert story.rows == in_order
    stopped = [row.node for row in story.rows if row.kind == TraceKind.NODE_STOPPED]
    assert sorted(stopped) == ["broker-0", "broker-1", "consumer-0", "consumer-1", "controller-100"]
    # All processes have the clock of one machine, so their clocks cannot differ.
    assert set(story.runtime.clock_bounds_us.values()) == {0}
    assert not (story.run_dir / "disks").exists()


@pytest.mark.parametrize(
    ("build", "message"),
    [(build_broken, "planted bug"), (build_dying, "died by itself")],
    ids=["exception", "death of the process"],
)
def test_failure_of_a_node_ends_the_run_and_is_reported(
    tmp_path: Path, build: NodeBuilder, message: str
) -> None:
    """A failing node is a bug of ours. If the run went on, it could look like Kafka's behaviour."""
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
            await runtime.sleep(100 * SECOND_US)  # the failure of the node cancels this sleep
        finally:
            await asyncio.sleep(0)  # the cleanup of an ended run can still await
            cleaned_up.append("main")

    try:
        with pytest.raises(NodeTaskFailed, match=message):
            runtime.run(experiment())
    finally:
        runtime.run(runtime.stop())
    assert cleaned_up == ["main"]
    assert message in runtime.failures()[0]
    # A process that kills itself writes no row about its failure.
    if build is build_broken:
        assert len(rows_of(rows, TraceKind.TASK_FAILED, "broker-0")) == 1


def test_node_that_cannot_start_is_reported_and_all_others_are_stopped(tmp_path: Path) -> None:
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
