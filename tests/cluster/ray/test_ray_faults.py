"""Every fault that an experiment can contain, in one run on Ray, ten times as fast as real time.

Such a run takes long, so the fixture `story` plays it once for all tests, in chapters. Each chapter
is a function, such as `paused_broker`. A chapter carries out some acts, that is, begins and ends
faults, and stores in the `Story` what it has observed. The tests, at the end of this file, read the
story and the trace, that is, all recorded events of the run.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from cluster.client.admin.orders import (
    elect_preferred_leaders,
    fetch_committed_offsets,
    move_leader,
)
from cluster.links.rules import Cut, LinkRule, Selector
from cluster.ray.runtime import RayRuntime
from cluster.realtime.machine_processes import ProcessRef, is_alive, is_stopped, start_ticks
from cluster.runtime import ClusterStatus, HitNode, NodeState, UnknownNode
from cluster.spec import (
    BrokerSpec,
    ClusterSpec,
    ConsumerSpec,
    ControllerSpec,
    ProducerSpec,
    TopicSpec,
)
from protocol.config import BrokerConfig, ConsumerConfig, TopicConfig
from protocol.ids import CONSUMER_OFFSETS, BrokerId, NodeName, TopicPartition, broker_name
from protocol.trace import TraceKind, TraceRow

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.usefixtures("local_ray")]

SECOND_US = 1_000_000
TIME_SCALE = 10.0
"""The clock of the run goes ten times as fast as real time."""
GROUP, TOPIC = "readers", "orders"
CONTROLLER = NodeName("controller-100")
BROKERS = tuple(broker_name(i) for i in range(3))
SHARED, LATE, ISOLATED = NodeName("consumer-0"), NodeName("consumer-2"), NodeName("consumer-3")
"""ISOLATED has its own process; the other consumers share one. LATE and ISOLATED start later."""
CONSUMERS = (SHARED, NodeName("consumer-1"), LATE, ISOLATED)
PATIENCE_US = 600 * SECOND_US
"""The longest wait for a state of the cluster.

600 s of the run are a minute of real time, which is enough even on a busy machine.
"""

PAUSE_TAKES_US = 10 * SECOND_US
"""The longest time from the row of a pause to the moment at which the node stops.

The row of a pause is written before the node stops. 10 s here are a second of real time.
"""


def story_spec() -> ClusterSpec:
    """Return a cluster of three brokers, four consumers and a producer."""
    return ClusterSpec(
        controllers=(ControllerSpec(node_id=100),),
        brokers=tuple(BrokerSpec(broker_id=i) for i in range(3)),
        topics=(
            TopicSpec(
                name=CONSUMER_OFFSETS,
                partitions=1,
                replication_factor=3,
                config=TopicConfig(cleanup_policy="compact"),
            ),
            TopicSpec(name=TOPIC, partitions=4, replication_factor=3),
        ),
        consumers=tuple(
            ConsumerSpec(
                name=name,
                group_id=GROUP,
                index=index,
                topics=(TOPIC,),
                config=ConsumerConfig(enable_auto_commit=False, auto_offset_reset="earliest"),
                isolate=name == ISOLATED,
                starts_later=name in (LATE, ISOLATED),
            )
            for index, name in enumerate(CONSUMERS)
        ),
        producers=(ProducerSpec(name=NodeName("producer-0"), topic=TOPIC, records_per_second=5),),
        broker_config=BrokerConfig(
            offsets_topic_num_partitions=1,
            min_insync_replicas=2,
            auto_leader_rebalance_enable=False,  # only the chapters move leaders
        ),
    )


class PlantedError(Exception):
    """The error with which the last chapter ends the run in the middle."""


def process_of(hit: HitNode) -> ProcessRef:
    """Return the process of a node that an act has hit."""
    assert hit.pid is not None
    return process_with(hit.pid)


def process_with(pid: int) -> ProcessRef:
    """Return the process that has this pid now."""
    # If the process is dead already, `start_ticks` returns None. No process has the start time 0.
    return ProcessRef(pid=pid, start_ticks=start_ticks(pid) or 0)


@dataclass
class Story:
    """What the chapters of the run have stored for the tests."""

    runtime: RayRuntime
    rows: list[TraceRow]
    states: dict[str, NodeState] = field(default_factory=dict)
    """States of nodes, for example `{"broker paused": NodeState.PAUSED}`."""
    facts: dict[str, object] = field(default_factory=dict)
    """Other observations, for example `{"broker stopped": True, "resets": 12}`."""
    running_at_the_end: list[ProcessRef] = field(default_factory=list)
    """The processes that run when the last chapter ends the run by an exception."""

    async def until(self, condition: Callable[[ClusterStatus], bool], what: str) -> ClusterStatus:
        """Query the status once a second until `condition` holds, and return the status.

        `what` describes the condition in the error message, as in "not fenced: ...".
        """
        deadline_us = self.runtime.now_us() + PATIENCE_US
        while True:
            status = await self.runtime.status()
            if condition(status):
                return status
            assert self.runtime.now_us() < deadline_us, f"not {what}: {status}"
            await self.runtime.sleep(SECOND_US)

    async def until_stable(self, members: int) -> None:
        """Wait until the group is Stable at a broker, with this number of members."""

        def is_stable(status: ClusterStatus) -> bool:
            groups = status.groups.get(GROUP, [])  # one entry for each broker that has the group
            return any(
                group.state == "Stable" and len(group.members) == members for group in groups
            )

        await self.until(is_stable, f"stable with {members} members")

    async def until_in_sync(self) -> None:
        """Wait until all replicas are in sync and no broker is fenced."""

        def is_in_sync(status: ClusterStatus) -> bool:
            if any(status.brokers_fenced.values()):
                return False
            return all(len(partition.isr) == 3 for partition in status.partitions.values())

        await self.until(is_in_sync, "in sync")

    async def state_of(self, node: NodeName) -> NodeState:
        """Return the present state of a node, as the runtime has it."""
        return (await self.runtime.status()).nodes[node]


async def late_and_paused_consumers(story: Story) -> None:
    """Two consumers start late. Then SHARED, which shares its process, and ISOLATED are paused."""
    runtime = story.runtime
    story.states["late before"] = await story.state_of(LATE)
    await story.until_stable(2)
    await runtime.start_node(LATE)
    await runtime.start_node(ISOLATED)
    with pytest.raises(UnknownNode, match="consumer-2 is up and cannot be started"):
        await runtime.start_node(LATE)
    await story.until_stable(4)

    shared, isolated = await runtime.pause(SHARED), await runtime.pause(ISOLATED)
    story.facts["pid of a shared consumer"] = shared.pid
    story.facts["isolated consumer stopped"] = is_stopped(process_of(isolated))
    story.states["shared paused"] = await story.state_of(SHARED)
    with pytest.raises(UnknownNode, match="consumer-0 is paused"):
        await runtime.pause(SHARED)

    await runtime.resume(SHARED)
    await runtime.resume(ISOLATED)
    story.facts["isolated consumer goes on"] = not is_stopped(process_of(isolated))
    with pytest.raises(UnknownNode, match="consumer-0 is up and cannot be resumed"):
        await runtime.resume(SHARED)


async def paused_broker(story: Story) -> None:
    """The group's coordinator is paused, fenced (counted as dead), and resumed.

    While its process is stopped, other acts on the cluster must not wait for it.
    """
    runtime = story.runtime
    status = await story.until(lambda status: bool(status.groups.get(GROUP)), "coordinated")
    coordinator = status.groups[GROUP][0].coordinator
    hit = await runtime.pause(broker_name(coordinator))

    # The time of these calls shows whether one of them has waited for the stopped process.
    calls_began = time.monotonic()
    status = await runtime.status()
    rule = LinkRule(
        rule_id="unused",
        selector=Selector(sources=(BROKERS[0],), destinations=(BROKERS[1],)),
        effect=Cut(),
    )
    await runtime.set_link_rules([rule])
    await runtime.set_link_rules([])
    story.facts["resets while stopped"] = await runtime.reset_links(CONSUMERS, [hit.node])
    story.facts["seconds waited for a stopped process"] = time.monotonic() - calls_began

    story.states["broker paused"] = status.nodes[hit.node]
    story.facts["alive while paused"] = status.brokers_alive[coordinator]
    story.facts["broker stopped"] = is_stopped(process_of(hit))

    await story.until(lambda status: status.brokers_fenced.get(coordinator, False), "fenced")
    await runtime.resume(hit.node)
    story.states["broker resumed"] = await story.state_of(hit.node)
    await story.until_in_sync()


async def cut_broker(story: Story) -> None:
    """A broker is cut off from all nodes in both directions. Then connections are reset."""
    runtime = story.runtime
    others = (CONTROLLER, BROKERS[0], BROKERS[2], *CONSUMERS)
    outgoing = Selector(sources=(BROKERS[1],), destinations=others)
    incoming = Selector(sources=others, destinations=(BROKERS[1],))
    await runtime.set_link_rules(
        [
            LinkRule(rule_id="1/outgoing", selector=outgoing, effect=Cut()),
            LinkRule(rule_id="1/incoming", selector=incoming, effect=Cut()),
        ]
    )
    await story.until(lambda status: status.brokers_fenced.get(BrokerId(1), False), "fenced")
    story.states["broker behind the cut"] = await story.state_of(BROKERS[1])

    await runtime.set_link_rules([])
    await story.until_in_sync()
    story.facts["resets"] = await runtime.reset_links(CONSUMERS, BROKERS)
    story.facts["resets of an unused purpose"] = await runtime.reset_links(
        CONSUMERS, BROKERS, ["gossip"]
    )


async def stopped_and_killed_brokers(story: Story) -> None:
    """One broker is shut down, another loses power, and a third is killed while it is paused."""
    runtime = story.runtime
    process = process_of(await runtime.shut_down(BROKERS[2]))
    story.states["shutting down"] = await story.state_of(BROKERS[2])
    await story.until(lambda status: status.nodes[BROKERS[2]] is NodeState.DOWN, "down")
    story.facts["broker that was shut down is alive"] = is_alive(process)
    await runtime.restart(BROKERS[2])
    await story.until_in_sync()

    story.facts["power loss"] = await runtime.power_loss(BROKERS[0])
    story.states["without power"] = await story.state_of(BROKERS[0])
    await runtime.restart(BROKERS[0])
    await story.until_in_sync()

    process = process_of(await runtime.pause(BROKERS[1]))
    await runtime.crash(BROKERS[1])
    story.facts["broker that was killed in a pause is alive"] = is_alive(process)
    await runtime.restart(BROKERS[1], empty_disk=True)
    await story.until_in_sync()

    partition = TopicPartition(TOPIC, 0)
    await runtime.ask_as_admin(move_leader, partition, BrokerId(1))
    await story.until(lambda status: status.partitions[partition].leader == 1, "moved")
    await runtime.ask_as_admin(elect_preferred_leaders, None)  # None stands for all partitions
    await story.until_stable(4)
    story.facts["committed"] = await runtime.ask_as_admin(fetch_committed_offsets, GROUP)


async def exception_in_the_middle(story: Story) -> None:
    """An exception ends the run while nodes are paused, a rule is in force, and a broker stops."""
    runtime = story.runtime
    await runtime.set_link_rules(
        [
            LinkRule(
                rule_id="2",
                selector=Selector(sources=(CONTROLLER,), destinations=BROKERS),
                effect=Cut(),
            )
        ]
    )
    story.running_at_the_end = [process_with(pid) for pid in runtime.pids()]
    await runtime.pause(BROKERS[0])
    await runtime.pause(ISOLATED)
    await runtime.pause(SHARED)
    await runtime.shut_down(BROKERS[2])
    raise PlantedError


async def play_all_chapters(story: Story) -> None:
    """Start the cluster and play all chapters. The last one raises PlantedError."""
    await story.runtime.start()
    chapters: tuple[Callable[[Story], Awaitable[None]], ...] = (
        late_and_paused_consumers,
        paused_broker,
        cut_broker,
        stopped_and_killed_brokers,
        exception_in_the_middle,
    )
    for chapter in chapters:
        await chapter(story)


@pytest.fixture(scope="module")
def story(local_ray: None, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Play the story once for all tests, because starting processes takes long."""
    rows: list[TraceRow] = []
    runtime = RayRuntime(
        story_spec(),
        seed=1,
        run_id="run",
        run_dir=tmp_path_factory.mktemp("run"),
        time_scale=TIME_SCALE,
        observers=[rows.append],
    )
    played = Story(runtime, rows)
    try:
        with pytest.raises(PlantedError):
            runtime.run(play_all_chapters(played))
    finally:
        runtime.run(runtime.stop())
    return played


def test_state_of_a_node_follows_from_the_acts_of_the_runtime(story: Story) -> None:
    """For example, a broker that is cut off is UP, although the controller counts it as dead."""
    assert story.states == {
        "late before": NodeState.NOT_STARTED,
        "shared paused": NodeState.PAUSED,
        "broker paused": NodeState.PAUSED,
        "broker resumed": NodeState.UP,
        "broker behind the cut": NodeState.UP,
        "shutting down": NodeState.STOPPING,
        "without power": NodeState.DOWN,
    }


def test_pause_stops_the_process_of_an_isolated_node(story: Story) -> None:
    """Only a node with a process of its own can be stopped by SIGSTOP.

    A consumer in a shared process is paused within the process, so that the other nodes there run
    on. The paused node then has no pid.
    """
    assert story.facts["pid of a shared consumer"] is None
    assert story.facts["isolated consumer stopped"] is True
    assert story.facts["isolated consumer goes on"] is True
    assert story.facts["broker stopped"] is True
    assert story.facts["alive while paused"] is True


def test_runtime_does_not_wait_for_a_stopped_process(story: Story) -> None:
    """A run queries the status each second, and must not hang on a paused node."""
    waited_s = story.facts["seconds waited for a stopped process"]
    assert isinstance(waited_s, float)
    # With a wait for the stopped process, the status alone would take 2 s, and the rules 10 s.
    assert waited_s < 1.5


def test_resets_count_connections_once(story: Story) -> None:
    """A connection counts once, although it has two ends. Each consumer has at least one.

    The connections to a stopped process are reset, too.
    """
    resets, resets_while_stopped = story.facts["resets"], story.facts["resets while stopped"]
    assert isinstance(resets, int)
    assert isinstance(resets_while_stopped, int)
    assert resets >= len(CONSUMERS)
    assert resets_while_stopped >= len(CONSUMERS)
    assert story.facts["resets of an unused purpose"] == 0


def test_process_has_ended_after_a_shutdown_and_after_a_kill(story: Story) -> None:
    """The process of a broker has ended when its shutdown is over, and when `crash` returns.

    A kill also ends a process that is stopped by a pause.
    """
    assert story.facts["broker that was shut down is alive"] is False
    assert story.facts["broker that was killed in a pause is alive"] is False
    killed = [row for row in story.rows if row.kind == TraceKind.NODE_KILLED]
    assert [(row.peer, row.cause) for row in killed] == [
        (BROKERS[0], "power loss"),
        (BROKERS[1], None),  # by `crash`
    ]


def test_driver_traces_its_acts_on_nodes(story: Story) -> None:
    """The driver, the process that carries out the acts, writes a row before each act.

    So the effects of the act follow in the trace.
    """
    kinds = (TraceKind.NODE_PAUSED, TraceKind.NODE_RESUMED, TraceKind.NODE_STOPPING)
    acts = [row for row in story.rows if row.kind in kinds]
    assert {row.node for row in acts} == {"driver"}
    # Three nodes were resumed: the shared consumer, the isolated consumer, and the coordinator.
    assert [row.kind for row in acts].count(TraceKind.NODE_RESUMED) == 3
    # BROKERS[2] was shut down twice. Only the first shutdown ended before the end of the run.
    assert [row.peer for row in acts if row.kind == TraceKind.NODE_STOPPING] == [BROKERS[2]] * 2
    stopped = [
        row
        for row in story.rows
        if row.kind == TraceKind.NODE_STOPPED and (row.node, row.incarnation) == (BROKERS[2], 0)
    ]
    assert len(stopped) == 1


def test_paused_process_traces_nothing_before_it_is_resumed(story: Story) -> None:
    """From a pause to its end, that is, a resume, kill or stop, a node writes no row."""
    ends_of_pauses = (TraceKind.NODE_RESUMED, TraceKind.NODE_KILLED, TraceKind.NODE_STOPPED)
    pauses = [row for row in story.rows if row.kind == TraceKind.NODE_PAUSED]
    for pause in pauses:
        node = pause.peer
        later = [row for row in story.rows if row.time_us > pause.time_us]
        # The end of the pause is a row of the driver about the node, or a row of the node itself.
        end_us = next(
            row.time_us
            for row in later
            if row.kind in ends_of_pauses and node in (row.node, row.peer)
        )
        stopped_us = pause.time_us + PAUSE_TAKES_US
        rows_in_pause = [
            row for row in later if row.node == node and stopped_us < row.time_us < end_us
        ]
        assert rows_in_pause == []
    # There were three pauses in the first two chapters, one before the kill of a paused broker, and
    # three at the end.
    assert len(pauses) == 7


def test_committed_offsets_are_readable_after_all_faults(story: Story) -> None:
    """The cluster works again: all four partitions have committed offsets."""
    committed = story.facts["committed"]
    assert isinstance(committed, dict)
    assert sorted(committed) == [TopicPartition(TOPIC, i) for i in range(4)]


def test_exception_in_the_middle_leaves_no_process(story: Story) -> None:
    """All processes are ended, including those of paused nodes and of a broker that shuts down."""
    # The processes are of the controller, three brokers, the shared clients, and ISOLATED.
    assert len(story.running_at_the_end) == 6
    assert [process for process in story.running_at_the_end if is_alive(process)] == []
    assert story.runtime.failures() == ()
    assert story.runtime.losses == ()  # no part of the trace is missing
