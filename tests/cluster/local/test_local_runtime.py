"""LocalRuntime with fake nodes: lives of nodes in one process, their disks, and failures.

LocalRuntime runs all nodes of a cluster in one process (here the process of the test) and in real
time. The cluster of these tests has two brokers and two consumers, all of them fake. A fake
consumer sends heartbeats to one broker after the other. For each heartbeat a fake broker appends a
batch to its disk, and never flushes it. Each broker reports its number of batches in the status of
the cluster, as the generation of a group `g`.

The tests kill, pause or stop one of the brokers, the VICTIM. A node that is started again begins a
new life. Its lives have the numbers 0, 1, 2 and so on (the node's incarnations).
"""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from cluster.host.host import Host
from cluster.links.rules import Cut, LinkRule, Selector
from cluster.local.runtime import LocalRuntime
from cluster.node_factory import Node
from cluster.realtime.listeners_file import FILE_NAME, read_listeners
from cluster.runtime import (
    ClusterStartError,
    HitNode,
    NodeState,
    NodeTaskFailed,
    UnknownNode,
)
from cluster.spec import BrokerSpec, ClusterSpec, NodeSpec
from protocol.causes import KillCause
from protocol.ids import BrokerId, NodeName, broker_name
from protocol.trace import TraceKind, TraceRow
from tests.support.harness.fake_cluster import FakeBroker, fake_builder, fake_spec

SECOND_US = 1_000_000
MS = 1_000
CONSUMER, SURVIVOR, VICTIM = NodeName("consumer-0"), broker_name(0), broker_name(1)


class BrokenBroker(FakeBroker):
    """A broker with a timer that soon raises."""

    def fail(self) -> None:
        raise ZeroDivisionError("planted bug")

    def start(self) -> None:
        super().start()
        self.host.after(10 * MS, self.fail)


class UnstartableBroker(FakeBroker):
    """A broker whose start raises."""

    def start(self) -> None:
        raise ZeroDivisionError("planted bug")


def build_broken(spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
    """Build a node: a BrokenBroker for a broker, and the usual fake node for every other one."""
    if isinstance(spec, BrokerSpec):
        return BrokenBroker(host, spec)
    return fake_builder()(spec, cluster, host)


def build_unstartable(spec: NodeSpec, cluster: ClusterSpec, host: Host) -> Node:
    """Build a node: an UnstartableBroker for a broker, and else the usual fake node."""
    if isinstance(spec, BrokerSpec):
        return UnstartableBroker(host, spec)
    return fake_builder()(spec, cluster, host)


@dataclass(kw_only=True)
class Lab:
    """A run with two brokers and two consumers, whose clock is ten times as fast as real time.

    A test gives a story to `play`: a coroutine function that acts on the running cluster.
    """

    run_dir: Path
    rows: list[TraceRow] = field(default_factory=list)
    runtime: LocalRuntime = field(init=False)

    def __post_init__(self) -> None:
        self.runtime = LocalRuntime(
            fake_spec(brokers=2, consumers=2),
            seed=1,
            run_id="run",
            run_dir=self.run_dir,
            build=fake_builder(),
            time_scale=10.0,
            observers=[self.rows.append],
        )

    def play(self, story: Callable[["Lab"], Coroutine[Any, Any, None]]) -> None:
        """Start the cluster, play the story, and stop twice; the second stop must do nothing."""

        async def experiment() -> None:
            await self.runtime.start()
            await story(self)

        try:
            self.runtime.run(experiment())
        finally:
            self.runtime.run(self.runtime.stop())
            self.runtime.run(self.runtime.stop())
        assert self.runtime.failures() == ()

    async def appended(self, broker: NodeName) -> int:
        """Return the number of batches that a broker reports; 0 if the broker does not answer."""
        status = await self.runtime.status()
        return sum(
            group.generation
            for group in status.groups.get("g", [])
            if broker_name(group.coordinator) == broker
        )

    def bytes_on_disk(self, broker: NodeName) -> int:
        """Return the length of a broker's log file, in bytes."""
        return (self.run_dir / "disks" / broker / "__consumer_offsets-0.log").stat().st_size

    async def until_appended(self, count: int, broker: NodeName) -> int:
        """Wait until a broker has at least `count` batches, and return how many it has."""
        while (batches := await self.appended(broker)) < count:
            await self.runtime.sleep(20 * MS)
        return batches

    async def state_of(self, node: NodeName) -> NodeState:
        """Return the state that the runtime has for a node."""
        return (await self.runtime.status()).nodes[node]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    """Return a run that is not started yet."""
    return Lab(run_dir=tmp_path)


def test_a_crash_ends_one_node_and_its_disk_outlives_it(lab: Lab) -> None:
    """A crash ends only one node, and the process goes on.

    A node of a LocalRuntime has no process of its own, so the outcome of the crash has no pid.
    """

    async def story(lab: Lab) -> None:
        runtime = lab.runtime
        batches_before = await lab.until_appended(10, VICTIM)
        assert await runtime.crash(VICTIM) == HitNode(node=VICTIM, incarnation=0, pid=None)

        status = await runtime.status()
        assert status.brokers_alive == {BrokerId(0): True, BrokerId(1): False}
        # Only broker 0 still reports its batches.
        assert [group.coordinator for group in status.groups["g"]] == [0]
        with pytest.raises(UnknownNode, match="broker-1 is down already"):
            await runtime.crash(VICTIM)
        with pytest.raises(UnknownNode, match="broker-0 is up and cannot be restarted"):
            await runtime.restart(SURVIVOR)

        size_at_death = lab.bytes_on_disk(VICTIM)
        await runtime.sleep(SECOND_US)
        assert lab.bytes_on_disk(VICTIM) == size_at_death

        await runtime.restart(VICTIM)
        assert await lab.appended(VICTIM) >= batches_before
        await lab.until_appended(batches_before + 1, VICTIM)

    lab.play(story)
    lives_started = [
        (row.node, row.incarnation) for row in lab.rows if row.kind == TraceKind.NODE_STARTED
    ]
    assert lives_started.count((VICTIM, 0)) == 1
    assert lives_started.count((VICTIM, 1)) == 1

    # A client learns of the death from the end of its connection, before any timeout.
    killed = next(row for row in lab.rows if row.kind == TraceKind.NODE_KILLED)
    failed_request = next(
        row
        for row in lab.rows
        if row.kind == TraceKind.REQUEST_FAILED
        and row.peer == VICTIM
        and row.time_us >= killed.time_us
    )
    assert failed_request.error == "DISCONNECTED"
    assert failed_request.time_us - killed.time_us < SECOND_US


def test_a_paused_node_does_nothing_until_it_is_resumed(lab: Lab) -> None:
    """During a pause the node's timers and incoming messages wait, so its disk does not grow."""

    async def story(lab: Lab) -> None:
        runtime = lab.runtime
        await lab.until_appended(3, VICTIM)
        await runtime.pause(VICTIM)
        assert await lab.state_of(VICTIM) is NodeState.PAUSED
        assert await lab.appended(VICTIM) == 0  # a paused node does not answer
        with pytest.raises(UnknownNode, match="broker-1 is paused and cannot be paused"):
            await runtime.pause(VICTIM)

        size_at_pause = lab.bytes_on_disk(VICTIM)
        await runtime.sleep(SECOND_US)
        assert lab.bytes_on_disk(VICTIM) == size_at_pause

        await runtime.resume(VICTIM)
        with pytest.raises(UnknownNode, match="broker-1 is up and cannot be resumed"):
            await runtime.resume(VICTIM)
        await lab.until_appended(await lab.appended(VICTIM) + 3, VICTIM)

    lab.play(story)


def test_a_power_loss_keeps_only_flushed_data(lab: Lab) -> None:
    """Fake brokers never flush. So a power loss leaves no batch, while a crash leaves all."""

    async def story(lab: Lab) -> None:
        await lab.until_appended(3, VICTIM)
        await lab.runtime.power_loss(VICTIM)
        assert lab.bytes_on_disk(VICTIM) == 0
        await lab.runtime.restart(VICTIM)
        await lab.until_appended(1, VICTIM)

    lab.play(story)
    (killed,) = (row for row in lab.rows if row.kind == TraceKind.NODE_KILLED)
    assert killed.cause == KillCause.POWER_LOSS


def test_a_node_can_be_started_on_an_empty_disk(lab: Lab) -> None:
    """With `empty_disk` a broker returns without its data, as if its disk was replaced."""

    async def story(lab: Lab) -> None:
        await lab.until_appended(3, VICTIM)
        await lab.runtime.crash(VICTIM)
        await lab.runtime.restart(VICTIM, empty_disk=True)
        assert await lab.appended(VICTIM) == 0

    lab.play(story)


def test_a_node_that_is_asked_to_stop_is_down_when_it_has_finished(lab: Lab) -> None:
    """`shut_down` returns when the shutdown has begun. The node is down some time later.

    Then the test starts the node again, with incarnation 1.
    """

    async def story(lab: Lab) -> None:
        await lab.until_appended(1, VICTIM)
        assert await lab.runtime.shut_down(VICTIM) == HitNode(node=VICTIM, incarnation=0, pid=None)
        while await lab.state_of(VICTIM) is not NodeState.DOWN:
            await lab.runtime.sleep(20 * MS)
        await lab.runtime.restart(VICTIM)
        assert await lab.state_of(VICTIM) is NodeState.UP

    lab.play(story)
    stopped = [row.incarnation for row in lab.rows if row.kind == TraceKind.NODE_STOPPED]
    # Five nodes have stopped in their first life: VICTIM by its shutdown, and the other four at the
    # end of the run. They are the controller, the other broker and the two consumers.
    assert stopped.count(0) == 5


def test_link_rules_and_resets_reach_nodes_of_one_process(lab: Lab) -> None:
    """Nodes of one process talk without sockets, but a test can disturb their network all the same.

    A reset ends their connections, and a cut holds their messages back.
    """
    clients, brokers = (CONSUMER, NodeName("consumer-1")), (SURVIVOR, VICTIM)

    async def story(lab: Lab) -> None:
        runtime = lab.runtime
        await lab.until_appended(3, VICTIM)
        assert await runtime.reset_links(clients, brokers) >= 1
        # No connection is used for "gossip".
        assert await runtime.reset_links(clients, brokers, ["gossip"]) == 0

        cut = Selector(sources=clients, destinations=brokers)
        await runtime.set_link_rules([LinkRule(rule_id="1", selector=cut, effect=Cut())])
        await runtime.sleep(SECOND_US // 10)  # long enough for messages in flight to arrive
        sizes = [lab.bytes_on_disk(broker) for broker in brokers]
        await runtime.sleep(SECOND_US)
        assert [lab.bytes_on_disk(broker) for broker in brokers] == sizes

        await runtime.set_link_rules([])
        await lab.until_appended(await lab.appended(VICTIM) + 1, VICTIM)

    lab.play(story)


def test_clients_from_outside_learn_which_nodes_are_up(lab: Lab) -> None:
    """A client that is no part of the run reads the listeners file to find its nodes.

    The file has the nodes that are up, and is removed at the end of the run.
    """

    async def story(lab: Lab) -> None:
        assert VICTIM in read_listeners(lab.run_dir).directory
        await lab.runtime.crash(VICTIM)
        assert VICTIM not in read_listeners(lab.run_dir).directory
        assert SURVIVOR in read_listeners(lab.run_dir).directory

    lab.play(story)
    assert not (lab.run_dir / FILE_NAME).exists()


def test_stop_returns_the_whole_trace_once_and_leaves_no_process(lab: Lab) -> None:
    """The trace has every row once, in the order of time.

    That is so even if a node is dead or paused at the stop.

    `Lab.play` stops the cluster twice. The second stop must not repeat anything.
    """

    async def story(lab: Lab) -> None:
        await lab.until_appended(3, VICTIM)
        await lab.runtime.crash(CONSUMER)
        await lab.runtime.pause(SURVIVOR)

    lab.play(story)
    report = lab.runtime.trace_report
    assert report is not None
    assert report.rows == len(lab.rows)
    assert report.lost == {}  # no node has lost rows
    assert lab.rows == sorted(
        lab.rows, key=lambda row: (row.time_us, row.node, row.incarnation, row.seq)
    )
    stopped = [row.node for row in lab.rows if row.kind == TraceKind.NODE_STOPPED]
    # Every node has stopped, except consumer-0, which was killed.
    assert sorted(stopped) == ["broker-0", "broker-1", "consumer-1", "controller-100"]
    assert not (lab.run_dir / "disks").exists()
    # The runtime calls gc.freeze() at the start, and has undone this.
    assert gc.get_freeze_count() == 0


def test_exception_in_a_node_ends_the_run_and_is_reported(tmp_path: Path) -> None:
    """A bug in a node must end the run, or it would look like a behaviour of Kafka.

    The experiment is cancelled, and can clean up before `run` raises.
    """
    runtime = LocalRuntime(
        fake_spec(brokers=1, consumers=1),
        seed=1,
        run_id="run",
        run_dir=tmp_path,
        build=build_broken,
    )
    cleaned_up: list[str] = []

    async def experiment() -> None:
        try:
            await runtime.start()
            await runtime.sleep(100 * SECOND_US)  # the failure of the broker cancels this sleep
        finally:
            await asyncio.sleep(0)  # shows that a cleanup can still await
            cleaned_up.append("experiment")

    try:
        with pytest.raises(NodeTaskFailed, match="planted bug"):
            runtime.run(experiment())
    finally:
        runtime.run(runtime.stop())
    assert cleaned_up == ["experiment"]
    assert len(runtime.failures()) == 1


def test_node_that_cannot_start_is_named_and_all_others_are_stopped(tmp_path: Path) -> None:
    """A run must not continue with only a part of its cluster, so its start raises.

    By then the runtime has stopped the nodes that had started, and has removed their files.
    """
    runtime = LocalRuntime(
        fake_spec(brokers=1, consumers=1),
        seed=1,
        run_id="run",
        run_dir=tmp_path,
        build=build_unstartable,
    )
    with pytest.raises(ClusterStartError, match=r"broker-0 could not be started: .*planted bug"):
        runtime.run(runtime.start())
    assert not (tmp_path / "disks").exists()
    assert not (tmp_path / FILE_NAME).exists()
