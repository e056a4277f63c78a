"""Faults of the virtual runtime: lives of nodes, links, elections, and the end of the run.

- The virtual runtime runs a cluster in one process on a simulated clock.
- `Run` plays a cluster of three fake brokers and four fake consumers, which send heartbeats. A fake
  broker appends a batch to its disk for each heartbeat.
- `SlowToStop` is a fake broker whose shutdown takes 0.5 s.
- The trace has the recorded events of a run. The driver is the run itself: its rows are the faults.
- An incarnation is one life of a node.
- A frame is one message of a connection. A purpose says what a connection is used for. A link is
  healed when its rules are withdrawn.
"""

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest

from cluster.client.admin.orders import elect_preferred_leaders, move_leader
from cluster.host.host import Disconnected, RequestTimedOut
from cluster.links.rules import Cut, Slow
from cluster.runtime import ClusterStatus, NodeState, NodeTaskFailed, UnknownNode
from cluster.virtual.runtime import VirtualRuntime
from protocol.api import AnyResponse
from protocol.ids import BrokerId, NodeName, TopicPartition
from protocol.trace import TraceEvent, TraceKind, TraceRow
from tests.support.harness.fake_cluster import MS, FakeBroker, FakeConsumer, fake_spec
from tests.support.harness.real_cluster import GROUP, TOPIC, real_spec
from tests.support.harness.virtual_hosts import heartbeat
from tests.support.harness.virtual_runs import Run
from tests.support.random_worlds.fault_mix import BROKERS, CONSUMERS, SlowToStop, everything, rule

SECOND_US = 1_000_000
BROKER = NodeName("broker-0")
OTHER = NodeName("broker-1")
CONSUMER = NodeName("consumer-0")


def batches_on(status: ClusterStatus, broker: int) -> int:
    """Return the number of batches on a fake broker's disk.

    A fake broker reports this number as the generation of group g.
    """
    sizes = {group.coordinator: group.generation for group in status.groups["g"]}
    return sizes[BrokerId(broker)]


def driver_rows(rows: list[TraceRow]) -> list[tuple[str, str | None, str | None]]:
    """Return kind, peer and cause of each row of the driver."""
    return [(row.kind, row.peer, row.cause) for row in rows if row.node == "driver"]


# -- lives ----------------------------------------------------------------------------------------


def test_a_late_node_is_started_by_the_run() -> None:
    """A node with `starts_later` waits for `start_node`.

    Before its start the node has no rows and no status. A fault that would hit it raises an error.
    """
    spec = fake_spec()
    late = msgspec.structs.replace(spec.consumers[3], starts_later=True)
    run = Run(spec=msgspec.structs.replace(spec, consumers=(*spec.consumers[:3], late)))
    runtime = run.runtime

    async def main() -> None:
        await runtime.sleep(SECOND_US)
        status = await runtime.status()
        assert status.nodes[late.name] is NodeState.NOT_STARTED
        assert late.name not in status.members
        with pytest.raises(UnknownNode, match="not started and cannot be restarted"):
            await runtime.restart(late.name)
        with pytest.raises(UnknownNode, match="not started already and cannot be killed"):
            await runtime.crash(late.name)

        await runtime.start_node(late.name)
        with pytest.raises(UnknownNode, match="up and cannot be started"):
            await runtime.start_node(late.name)
        await runtime.sleep(SECOND_US)
        # The consumer works: its heartbeats are acknowledged.
        assert (await runtime.status()).members[late.name].commits_acknowledged > 10

    run.run(main())
    assert min(row.time_us for row in run.rows_of(late.name)) == SECOND_US


def test_every_node_has_a_state_in_the_status() -> None:
    """The status has the state of every node. Only nodes that are up and not paused report more."""
    run = Run(broker=SlowToStop)
    runtime = run.runtime

    async def main() -> None:
        await runtime.sleep(SECOND_US)
        await runtime.crash(BROKERS[0])
        await runtime.pause(BROKERS[1])
        await runtime.shut_down(BROKERS[2])
        await runtime.pause(CONSUMER)
        await runtime.sleep(1)  # the shutdown begins, and needs half a second
        status = await runtime.status()
        assert status.nodes == {
            NodeName("controller-100"): NodeState.UP,
            BROKERS[0]: NodeState.DOWN,
            BROKERS[1]: NodeState.PAUSED,
            BROKERS[2]: NodeState.STOPPING,
            CONSUMER: NodeState.PAUSED,
            **dict.fromkeys(CONSUMERS[1:], NodeState.UP),
        }

        # A paused broker counts as alive, but it reports no groups.
        assert status.brokers_alive == {0: False, 1: True, 2: True}
        assert [group.coordinator for group in status.groups["g"]] == [2]
        assert list(status.members) == list(CONSUMERS[1:])

        # A pause also stops a shutdown.
        await runtime.pause(BROKERS[2])
        assert (await runtime.status()).nodes[BROKERS[2]] is NodeState.PAUSED
        await runtime.sleep(SECOND_US)
        await runtime.resume(BROKERS[2])
        assert (await runtime.status()).nodes[BROKERS[2]] is NodeState.STOPPING
        # The timer of the shutdown became due during the pause, and fires after the resume.
        await runtime.sleep(1)
        assert (await runtime.status()).nodes[BROKERS[2]] is NodeState.DOWN

    run.run(main())


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda runtime: runtime.resume(BROKER), "broker-0 is up and cannot be resumed"),
        (lambda runtime: runtime.pause(OTHER), "broker-1 is down and cannot be paused"),
        (lambda runtime: runtime.shut_down(OTHER), "broker-1 is down and cannot be shut down"),
        (lambda runtime: runtime.power_loss(OTHER), "broker-1 is down already"),
        (lambda runtime: runtime.pause(CONSUMER), "consumer-0 is paused and cannot be paused"),
        (lambda runtime: runtime.shut_down(CONSUMER), "consumer-0 is paused and cannot be shut"),
        (lambda runtime: runtime.restart(CONSUMER), "consumer-0 is paused and cannot be rest"),
        (lambda runtime: runtime.pause(NodeName("broker-9")), "no node broker-9"),
        (lambda runtime: runtime.reset_links((NodeName("x"),), (BROKER,)), "no node x"),
    ],
)
def test_an_act_on_a_node_in_the_wrong_state_is_misuse_and_changes_nothing(
    act: Callable[[VirtualRuntime], Coroutine[Any, Any, object]], message: str
) -> None:
    """The error message names the node, its state, and the act that is impossible."""
    run = Run()

    async def main() -> None:
        await run.runtime.crash(OTHER)
        await run.runtime.pause(CONSUMER)
        rows, nodes = len(run.rows), (await run.runtime.status()).nodes
        with pytest.raises(UnknownNode, match=message):
            await act(run.runtime)
        assert len(run.rows) == rows
        assert (await run.runtime.status()).nodes == nodes

    run.run(main())


def test_a_power_loss_truncates_the_disk_to_flushed_data_a_crash_does_not() -> None:
    """A crash ends the process, and the page cache remains. A power loss ends the machine.

    SlowToStop flushes once, at 0.5 s.
    """
    run = Run(broker=SlowToStop)
    runtime = run.runtime
    sizes: dict[NodeName, int] = {}

    async def main() -> None:
        await runtime.sleep(2 * SECOND_US)
        hit = await runtime.power_loss(BROKER)
        assert (hit.node, hit.incarnation, hit.pid) == (BROKER, 0, None)
        await runtime.crash(OTHER)
        for broker in (BROKER, OTHER):
            await runtime.restart(broker)
            sizes[broker] = batches_on(await runtime.status(), int(broker[-1]))

    run.run(main())
    append_times_us = {
        broker: [row.time_us for row in run.rows_of(broker, TraceKind.APPEND_STARTED)]
        for broker in (BROKER, OTHER)
    }
    # Batches before the flush are on the disk. The later ones are lost.
    flushed = [time_us for time_us in append_times_us[BROKER] if time_us < 500 * MS]
    assert sizes[OTHER] == len(append_times_us[OTHER])
    assert sizes[BROKER] == len(flushed)
    assert flushed != []  # without a flushed batch the test would show nothing
    assert driver_rows(run.rows) == [
        (TraceKind.NODE_KILLED, BROKER, "power loss"),
        (TraceKind.NODE_KILLED, OTHER, None),
    ]


def test_a_restart_on_an_empty_disk_finds_nothing() -> None:
    """With `empty_disk` a node returns without its data, as after the loss of its machine."""
    run = Run()
    sizes: list[int] = []

    async def main() -> None:
        await run.runtime.sleep(SECOND_US)
        # The third restart keeps the disk, and shows that the second restart emptied it for good.
        for empty_disk in (False, True, False):
            await run.runtime.crash(BROKER)
            await run.runtime.restart(BROKER, empty_disk=empty_disk)
            # Ask before the restarted broker can append anything.
            sizes.append(batches_on(await run.runtime.status(), 0))

    run.run(main())
    assert sizes[0] > 10  # the heartbeats of one second
    assert sizes[1:] == [0, 0]


def test_a_controlled_shutdown_ends_with_the_node_and_its_peers_learn_it_at_once() -> None:
    """As after SIGTERM, a node first finishes its work. Then its connections are closed.

    The kernel of the node's machine closes them, so peers need not wait for a timeout.
    """
    run = Run(broker=SlowToStop)
    runtime = run.runtime

    async def main() -> None:
        await runtime.sleep(SECOND_US)
        hit = await runtime.shut_down(BROKER)
        assert hit.node == BROKER
        # The shutdown of SlowToStop needs 0.5 s.
        await runtime.sleep(500 * MS - 1)
        assert (await runtime.status()).nodes[BROKER] is NodeState.STOPPING
        await runtime.sleep(1)
        assert (await runtime.status()).nodes[BROKER] is NodeState.DOWN
        await runtime.sleep(SECOND_US)
        await runtime.restart(BROKER)
        assert batches_on(await runtime.status(), 0) > 10  # the disk is kept

    run.run(main())
    assert driver_rows(run.rows) == [(TraceKind.NODE_STOPPING, BROKER, None)]
    first = [row for row in run.rows_of(BROKER) if row.incarnation == 0]
    # The shutdown was requested at 1 s and took 0.5 s. Meanwhile the broker served requests.
    assert (first[-1].kind, first[-1].time_us) == (TraceKind.NODE_STOPPED, 1_500 * MS)
    assert [row for row in first if row.time_us > SECOND_US + 100 * MS]

    failed = [
        row
        for row in run.rows
        if row.kind == TraceKind.REQUEST_FAILED and row.peer == BROKER and row.time_us > SECOND_US
    ]
    assert failed
    assert {row.error for row in failed} == {"DISCONNECTED"}
    # The reset of a connection arrives within one latency, long before the timeout of 50 ms.
    assert min(row.time_us for row in failed) < 1_500 * MS + 10 * MS


def test_a_node_that_dies_during_its_shutdown_is_dead() -> None:
    """The crash ends the shutdown. The end of the shutdown must not stop the next incarnation."""
    run = Run(broker=SlowToStop)

    async def main() -> None:
        await run.runtime.shut_down(BROKER)
        await run.runtime.sleep(1)
        await run.runtime.crash(BROKER)
        await run.runtime.restart(BROKER)
        await run.runtime.sleep(SECOND_US)
        assert (await run.runtime.status()).nodes[BROKER] is NodeState.UP

    run.run(main())
    assert len(run.rows_of(BROKER, TraceKind.NODE_STOPPED)) == 1  # the one at the end of the run


class HasALastWord(FakeBroker):
    """A broker that still writes a trace row in the callback in which its shutdown ends."""

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Report the end of the shutdown, and then write a row."""
        on_done()
        self.host.trace(TraceEvent(kind=TraceKind.RUN_STAGE))


def test_a_node_finishes_the_step_in_which_it_is_done() -> None:
    """A node that reports the end of its shutdown may still write rows in the same callback.

    The process of a real node also ends only after that callback.
    """
    run = Run(broker=HasALastWord)

    async def main() -> None:
        await run.runtime.shut_down(BROKER)
        await run.runtime.sleep(1)

    run.run(main())
    kinds = [row.kind for row in run.rows_of(BROKER)]
    assert kinds[-2:] == [TraceKind.RUN_STAGE, TraceKind.NODE_STOPPED]


class CannotStop(FakeBroker):
    """A broker whose shutdown raises, because of a bug."""

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Raise."""
        raise LookupError("a bug")


def test_a_shutdown_that_raises_is_a_failure_of_the_node() -> None:
    """The failure of a node's shutdown ends the run, as any failure of a node does.

    `shut_down` of the runtime only requests the shutdown, so this call returns without an error.
    """
    run = Run(broker=CannotStop)

    async def main() -> None:
        await run.runtime.shut_down(BROKER)
        await run.runtime.sleep(SECOND_US)

    with pytest.raises(NodeTaskFailed, match=r"broker-0 .*a bug"):
        run.run(main())
    assert len(run.runtime.failures()) == 1


def test_a_paused_node_writes_no_row_until_it_is_resumed() -> None:
    """Between its NODE_PAUSED and NODE_RESUMED a node writes no row. Requests to it time out."""
    run = Run()

    async def main() -> None:
        await run.runtime.sleep(SECOND_US)
        hit = await run.runtime.pause(BROKER)
        assert (hit.node, hit.incarnation, hit.pid) == (BROKER, 0, None)
        await run.runtime.sleep(SECOND_US)
        await run.runtime.resume(BROKER)
        await run.runtime.sleep(SECOND_US)

    run.run(main())
    order = [(row.node, row.kind) for row in run.rows if row.node in (BROKER, "driver")]
    paused_at = order.index(("driver", TraceKind.NODE_PAUSED))
    assert order[paused_at + 1] == ("driver", TraceKind.NODE_RESUMED)
    assert [row.peer for row in run.rows if row.node == "driver"] == [BROKER, BROKER]

    rows_after_resume = [node for node, _ in order[paused_at:] if node == BROKER]
    assert len(rows_after_resume) > 10  # the broker works again

    errors = {row.error for row in run.rows if row.kind == TraceKind.REQUEST_FAILED}
    assert errors == {"TIMED_OUT"}


# -- links ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", [Cut(), Slow(delay_us=20 * SECOND_US)])
def test_a_restarted_node_has_the_rules_from_its_first_frame_on(
    effect: Cut | Slow,
) -> None:
    """Link rules apply to every incarnation of a node until they are withdrawn.

    The slow link delays by 20 s, which is longer than the run.
    """
    run = Run()
    runtime = run.runtime

    async def main() -> None:
        await runtime.set_link_rules([rule(effect, CONSUMERS, (BROKER,))])
        await runtime.crash(CONSUMER)
        await runtime.restart(CONSUMER)
        await runtime.sleep(SECOND_US)
        assert not run.rows_of(BROKER, TraceKind.REQUEST_RECEIVED)
        await runtime.set_link_rules([])
        await runtime.sleep(SECOND_US)

    run.run(main())
    served = {row.peer for row in run.rows_of(BROKER, TraceKind.REQUEST_RECEIVED)}
    assert served == set(CONSUMERS)


class FailsOnAnAnswer(FakeConsumer):
    """Consumer 0 sends one request and raises at its answer; the other consumers do nothing."""

    def start(self) -> None:
        """Send one request."""
        if self.spec.index == 0:
            connection = self.host.connect(BROKER, "coordinator", setup_timeout_us=SECOND_US)
            self.host.after(
                500 * MS,
                lambda: connection.send(
                    heartbeat(), timeout_us=10 * SECOND_US, on_response=self.fail
                ),
            )

    def fail(self, outcome: AnyResponse | Disconnected | RequestTimedOut) -> None:
        """Raise, as a bug would."""
        raise LookupError(f"a bug: {type(outcome).__name__}")


def test_a_failure_in_frames_that_healing_delivers_is_reported_once() -> None:
    """A timer of a healed link delivers the frames that the link has held back.

    A bug in the receiver then raises through this timer, which must not report the bug a second
    time.
    """
    run = Run(FailsOnAnAnswer)

    async def main() -> None:
        # Wait for a broker's answer, and cut the link before the answer arrives.
        while not [r for r in run.rows_of(BROKER, TraceKind.RESPONSE_SENT) if r.peer == CONSUMER]:
            await run.runtime.sleep(50)
        await run.runtime.set_link_rules([rule(Cut(), BROKERS, CONSUMERS)])
        await run.runtime.sleep(500 * MS)
        await run.runtime.set_link_rules([])
        await run.runtime.sleep(SECOND_US)

    with pytest.raises(NodeTaskFailed, match="a bug: HeartbeatResponse"):
        run.run(main())
    assert len(run.runtime.failures()) == 1
    assert len([row for row in run.rows if row.kind == TraceKind.TASK_FAILED]) == 1


def test_reset_links_counts_each_connection_once() -> None:
    """`reset_links` ends the connections between two sets of nodes, and returns their number.

    The order of the two sets does not matter. Each of the four consumers has one connection, of
    purpose "coordinator".
    """
    run = Run()
    runtime = run.runtime

    async def main() -> None:
        await runtime.sleep(SECOND_US)
        failures_before = len([row for row in run.rows if row.kind == TraceKind.REQUEST_FAILED])
        counts = [
            await runtime.reset_links(CONSUMERS, BROKERS),
            await runtime.reset_links(BROKERS, BROKERS),
            await runtime.reset_links(CONSUMERS, BROKERS, ("fetch",)),  # connections for fetching
        ]
        assert counts == [4, 0, 0]
        await runtime.sleep(1)
        failed = [row for row in run.rows if row.kind == TraceKind.REQUEST_FAILED][failures_before:]
        # If requests were in flight, they have failed with this error.
        assert {row.error for row in failed} <= {"DISCONNECTED"}

        await runtime.sleep(SECOND_US)
        # The consumers have connected again. Both sets contain both ends of each connection.
        assert await runtime.reset_links((BROKER, *CONSUMERS), (*CONSUMERS, *BROKERS)) == 4
        assert await runtime.reset_links((), BROKERS) == 0

    run.run(main())


# -- an end after anything, and determinism -------------------------------------------------------


def play_everything(seed: int, *, copy_messages: bool = False) -> tuple[Run, str]:
    """Play every fault; return the run and the digest (hash) of its trace."""
    run = Run(broker=SlowToStop, seed=seed, copy_messages=copy_messages)
    run.run(everything(run.runtime))
    return run, run.digest.hexdigest()


def test_a_run_may_end_after_any_fault(recwarn: pytest.WarningsRecorder) -> None:
    """`everything` leaves some nodes paused, cut off or stopping. At the end all of them stop.

    After the end no node writes a row.
    """
    run, _ = play_everything(seed=1)
    alive = {row.node for row in run.rows if row.kind == TraceKind.NODE_STARTED}
    stopped = {row.node for row in run.rows if row.kind == TraceKind.NODE_STOPPED}
    assert stopped == alive
    assert run.runtime.failures() == ()

    rows = len(run.rows)
    run.runtime.run(run.runtime.sleep(60 * SECOND_US))
    run.runtime.run(run.runtime.stop())
    assert len(run.rows) == rows
    assert not list(recwarn)


def test_a_seed_with_every_fault_gives_one_trace() -> None:
    """The same seed gives the same trace, byte for byte, also if messages are copied.

    Another seed gives another trace.
    """
    _, digest = play_everything(seed=1)
    assert play_everything(seed=1)[1] == digest
    assert play_everything(seed=1, copy_messages=True)[1] == digest
    assert play_everything(seed=2)[1] != digest


def test_rules_and_pauses_that_are_undone_at_once_leave_a_run_unchanged() -> None:
    """No frame was held back and no random latency drawn, so only the driver's rows differ."""

    def played(*, with_faults: bool) -> list[TraceRow]:
        run = Run()
        runtime = run.runtime

        async def main() -> None:
            await runtime.sleep(SECOND_US)
            if with_faults:
                await runtime.pause(BROKER)
                await runtime.resume(BROKER)
                await runtime.set_link_rules([rule(Cut(), BROKERS, CONSUMERS)])
                await runtime.set_link_rules([])
            await runtime.sleep(SECOND_US)

        run.run(main())
        return [row for row in run.rows if row.node != "driver"]

    assert played(with_faults=True) == played(with_faults=False)


# -- with real nodes ----------------------------------------------------------------------------


def real_run(main: Callable[[VirtualRuntime], Coroutine[Any, Any, None]]) -> list[TraceRow]:
    """Play `main` on a cluster of real nodes: three brokers and three consumers.

    Before `main` the cluster runs for 5 s, so that the group is stable. Return the trace.
    """
    rows: list[TraceRow] = []
    runtime = VirtualRuntime(
        real_spec(consumers=3), seed=1, run_id="test", observers=(rows.append,)
    )

    async def whole() -> None:
        await runtime.start()
        await runtime.sleep(5 * SECOND_US)
        await main(runtime)
        await runtime.stop()

    runtime.run(whole())
    assert runtime.failures() == ()
    return rows


def test_leaders_move_and_come_back_through_the_clusters_own_network() -> None:
    """An administrator moves a leadership to `other`, which then crashes and restarts.

    The administrator's next request moves the leadership to `other` again. Both requests travel
    through the cluster's own network.
    """
    partition = TopicPartition(TOPIC, 0)

    async def main(runtime: VirtualRuntime) -> None:
        first = (await runtime.status()).partitions[partition].leader
        other = next(broker_id for broker_id in range(3) if broker_id != first)
        await runtime.ask_as_admin(move_leader, partition, BrokerId(other))
        assert (await runtime.status()).partitions[partition].leader == other

        # After a crash the brokers of this cluster are fenced (counted as dead) after 2 s.
        await runtime.crash(NodeName(f"broker-{other}"))
        await runtime.sleep(5 * SECOND_US)
        assert (await runtime.status()).partitions[partition].leader != other

        await runtime.restart(NodeName(f"broker-{other}"))
        await runtime.sleep(5 * SECOND_US)
        await runtime.ask_as_admin(elect_preferred_leaders, None)
        assert (await runtime.status()).partitions[partition].leader == other

    rows = real_run(main)
    # One administrator sends both requests. Its host is created at the first request.
    started = [row.node for row in rows if row.kind == TraceKind.NODE_STARTED]
    assert started.count("admin-0") == 1


def test_a_consumer_that_is_shut_down_leaves_its_group() -> None:
    """The member sends LeaveGroup, so the group need not wait for the end of its session."""

    async def main(runtime: VirtualRuntime) -> None:
        members = (await runtime.status()).groups[GROUP][0].members
        assert len(members) == 3
        await runtime.shut_down(NodeName(f"consumer-{GROUP}-0"))
        await runtime.sleep(SECOND_US)
        status = await runtime.status()
        assert status.nodes[NodeName(f"consumer-{GROUP}-0")] is NodeState.DOWN
        assert len(status.groups[GROUP][0].members) == 2

    rows = real_run(main)
    assert not [row for row in rows if row.kind == TraceKind.TASK_FAILED]
