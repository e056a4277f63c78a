"""Faults of the virtual runtime: deaths, pauses, shutdowns, disturbed links, moved leaders.

The virtual runtime runs a whole cluster in one process, on a simulated clock. Most tests use a
`Run`: a cluster of three fake brokers and four fake consumers. The consumers send heartbeats, and a
fake broker appends a batch to its disk for each heartbeat. The broker class `SlowToStop` also
appends batches, but flushes them only once, and needs 0.5 s for a shutdown.

Everything that happens becomes a row of the trace, `run.rows`. A row has the node that it is about.
The rows of the faults have the node "driver", because the driver of the run injects them.
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

    A fake broker reports this number in its status as the generation of group g.
    """
    batch_counts = {group.coordinator: group.generation for group in status.groups["g"]}
    return batch_counts[BrokerId(broker)]


def driver_rows(rows: list[TraceRow]) -> list[tuple[str, str | None, str | None]]:
    """Return kind, peer and cause of each row of the driver."""
    return [(row.kind, row.peer, row.cause) for row in rows if row.node == "driver"]


# -- lives ----------------------------------------------------------------------------------------


def test_a_late_node_is_started_by_the_run() -> None:
    """A node with `starts_later` waits for `start_node`.

    Before its start the node has no rows and no status, and a fault of this node is an error.
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
    """The status has the state of every node, even of dead ones.

    Groups and members are in the status only if their node can report them. A node that is down or
    paused cannot.
    """
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
        (
            lambda runtime: runtime.shut_down(CONSUMER),
            "consumer-0 is paused and cannot be shut down",
        ),
        (lambda runtime: runtime.restart(CONSUMER), "consumer-0 is paused and cannot be restarted"),
        (lambda runtime: runtime.pause(NodeName("broker-9")), "no node broker-9"),
        (lambda runtime: runtime.reset_links((NodeName("x"),), (BROKER,)), "no node x"),
    ],
)
def test_an_act_on_a_node_in_the_wrong_state_raises_and_changes_nothing(
    act: Callable[[VirtualRuntime], Coroutine[Any, Any, object]], message: str
) -> None:
    """The error message names the node, its state, and the act that is impossible."""
    run = Run()

    async def main() -> None:
        await run.runtime.crash(OTHER)
        await run.runtime.pause(CONSUMER)
        rows_before = len(run.rows)
        states_before = (await run.runtime.status()).nodes
        with pytest.raises(UnknownNode, match=message):
            await act(run.runtime)
        assert len(run.rows) == rows_before
        assert (await run.runtime.status()).nodes == states_before

    run.run(main())


def test_a_power_loss_loses_unflushed_data_and_a_crash_does_not() -> None:
    """After the crash of a process its machine still has all writes, in the page cache.

    A power loss empties the page cache, so only flushed data is left. SlowToStop flushes once, at
    0.5 s. After 2 s one broker loses its power, and another one crashes.
    """
    run = Run(broker=SlowToStop)
    runtime = run.runtime
    batches_after_restart: dict[NodeName, int] = {}  # broker -> number of batches on its disk

    async def main() -> None:
        await runtime.sleep(2 * SECOND_US)
        incarnation_hit = await runtime.power_loss(BROKER)
        assert incarnation_hit.node == BROKER
        assert incarnation_hit.incarnation == 0
        assert incarnation_hit.pid is None
        await runtime.crash(OTHER)
        for broker in (BROKER, OTHER):
            await runtime.restart(broker)
            batches_after_restart[broker] = batches_on(await runtime.status(), int(broker[-1]))

    run.run(main())
    append_times_us = {
        broker: [row.time_us for row in run.rows_of(broker, TraceKind.APPEND_STARTED)]
        for broker in (BROKER, OTHER)
    }
    assert batches_after_restart[OTHER] == len(append_times_us[OTHER])
    # The batches before the flush are on the disk. The later ones are lost.
    flushed = [time_us for time_us in append_times_us[BROKER] if time_us < 500 * MS]
    assert batches_after_restart[BROKER] == len(flushed)
    assert flushed != []  # without a flushed batch the test would show nothing
    assert driver_rows(run.rows) == [
        (TraceKind.NODE_KILLED, BROKER, "power loss"),
        (TraceKind.NODE_KILLED, OTHER, None),
    ]


def test_a_restart_on_an_empty_disk_finds_nothing() -> None:
    """With `empty_disk` a node returns without its data, as after the loss of its machine."""
    run = Run()
    batch_counts: list[int] = []

    async def main() -> None:
        await run.runtime.sleep(SECOND_US)
        # The third restart keeps the disk, and shows that the second restart emptied it for good.
        for empty_disk in (False, True, False):
            await run.runtime.crash(BROKER)
            await run.runtime.restart(BROKER, empty_disk=empty_disk)
            # Ask before the restarted broker can append anything.
            batch_counts.append(batches_on(await run.runtime.status(), 0))

    run.run(main())
    assert batch_counts[0] > 10  # the heartbeats of one second
    assert batch_counts[1:] == [0, 0]


def test_a_shutdown_takes_its_time_and_peers_learn_of_its_end_at_once() -> None:
    """As after SIGTERM, a node first finishes its work. Then its process ends.

    The kernel of the node's machine closes its connections. So peers need not wait for a timeout.
    """
    run = Run(broker=SlowToStop)
    runtime = run.runtime

    async def main() -> None:
        await runtime.sleep(SECOND_US)
        incarnation_hit = await runtime.shut_down(BROKER)
        assert incarnation_hit.node == BROKER
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
    rows_of_first_life = [row for row in run.rows_of(BROKER) if row.incarnation == 0]
    last_row = rows_of_first_life[-1]
    # The shutdown was requested at 1 s and took 0.5 s. Meanwhile the broker served requests.
    assert last_row.kind == TraceKind.NODE_STOPPED
    assert last_row.time_us == 1_500 * MS
    assert [row for row in rows_of_first_life if row.time_us > SECOND_US + 100 * MS]

    failed = [
        row
        for row in run.rows
        if row.kind == TraceKind.REQUEST_FAILED and row.peer == BROKER and row.time_us > SECOND_US
    ]
    assert failed
    assert {row.error for row in failed} == {"DISCONNECTED"}
    # The reset of a connection arrives within one latency, long before the timeout of 50 ms.
    assert min(row.time_us for row in failed) < 1_500 * MS + 10 * MS


def test_a_shutdown_that_a_crash_has_ended_does_not_stop_the_restarted_node() -> None:
    """The broker crashes during its shutdown, and restarts.

    The old shutdown would have ended after 0.5 s. Its timer must not stop the restarted broker.
    """
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


def test_a_node_ends_only_after_the_callback_in_which_its_shutdown_ends() -> None:
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
    """The rows NODE_PAUSED and NODE_RESUMED of the driver follow each other without a row between.

    Requests to the paused node time out.
    """
    run = Run()

    async def main() -> None:
        await run.runtime.sleep(SECOND_US)
        incarnation_hit = await run.runtime.pause(BROKER)
        # A node in virtual time has no process of its own, so it has no pid.
        assert incarnation_hit.node == BROKER
        assert incarnation_hit.incarnation == 0
        assert incarnation_hit.pid is None
        await run.runtime.sleep(SECOND_US)
        await run.runtime.resume(BROKER)
        await run.runtime.sleep(SECOND_US)

    run.run(main())
    # The rows of the paused broker and of the driver, in the order of the trace.
    order = [(row.node, row.kind) for row in run.rows if row.node in (BROKER, "driver")]
    paused_at = order.index(("driver", TraceKind.NODE_PAUSED))
    assert order[paused_at + 1] == ("driver", TraceKind.NODE_RESUMED)
    # Both rows of the driver are about the broker.
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
    """Link rules apply to every life of a node until they are withdrawn.

    The slow link delays by 20 s, which is longer than the run. So with both rules no request
    arrives at the broker.
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
    """After a cut a timer delivers the frames that were held back.

    If a bug in the receiver raises then, the exception passes through this timer. The timer must
    not report it a second time.
    """
    run = Run(FailsOnAnAnswer)

    async def main() -> None:
        def broker_has_answered() -> bool:
            answers = run.rows_of(BROKER, TraceKind.RESPONSE_SENT)
            return any(row.peer == CONSUMER for row in answers)

        # Cut the link while the answer is on its way.
        while not broker_has_answered():
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

    Each of the four consumers has one connection to a broker, with the purpose "coordinator". There
    are no connections between brokers, and none with the purpose "fetch".
    """
    run = Run()
    runtime = run.runtime

    async def main() -> None:
        await runtime.sleep(SECOND_US)
        failures_before = len([row for row in run.rows if row.kind == TraceKind.REQUEST_FAILED])
        counts = [
            await runtime.reset_links(CONSUMERS, BROKERS),
            await runtime.reset_links(BROKERS, BROKERS),
            await runtime.reset_links(CONSUMERS, BROKERS, ("fetch",)),
        ]
        assert counts == [4, 0, 0]
        await runtime.sleep(1)
        failed = [row for row in run.rows if row.kind == TraceKind.REQUEST_FAILED][failures_before:]
        # Requests that were in flight have failed with this error. There may have been none.
        assert {row.error for row in failed} <= {"DISCONNECTED"}

        await runtime.sleep(SECOND_US)
        # The consumers have connected again. Here both sets contain both ends of each connection,
        # but a connection still counts once.
        assert await runtime.reset_links((BROKER, *CONSUMERS), (*CONSUMERS, *BROKERS)) == 4
        assert await runtime.reset_links((), BROKERS) == 0

    run.run(main())


# -- an end after anything, and determinism -------------------------------------------------------


def play_everything(seed: int, *, copy_messages: bool = False) -> tuple[Run, str]:
    """Play a run with every kind of fault. Return the run and a hash of its trace."""
    run = Run(broker=SlowToStop, seed=seed, copy_messages=copy_messages)
    run.run(everything(run.runtime))
    return run, run.digest.hexdigest()


def test_a_run_may_end_after_any_fault(recwarn: pytest.WarningsRecorder) -> None:
    """The faults leave some nodes paused, cut off or stopping. At the end all of them stop.

    After the end no node writes a row.
    """
    run, _ = play_everything(seed=1)
    started = {row.node for row in run.rows if row.kind == TraceKind.NODE_STARTED}
    stopped = {row.node for row in run.rows if row.kind == TraceKind.NODE_STOPPED}
    assert stopped == started
    assert run.runtime.failures() == ()

    rows_at_the_end = len(run.rows)
    run.runtime.run(run.runtime.sleep(60 * SECOND_US))
    run.runtime.run(run.runtime.stop())
    assert len(run.rows) == rows_at_the_end
    # Python would warn, for example, about a coroutine that was never awaited.
    assert not list(recwarn)


def test_a_seed_with_every_fault_gives_one_trace() -> None:
    """The same seed gives the same trace, byte for byte, and another seed gives another trace.

    With `copy_messages` a receiver gets a copy of each message. This must not change the trace
    either.
    """
    _, digest = play_everything(seed=1)
    assert play_everything(seed=1)[1] == digest
    assert play_everything(seed=1, copy_messages=True)[1] == digest
    assert play_everything(seed=2)[1] != digest


def test_rules_and_pauses_that_are_undone_at_once_leave_a_run_unchanged() -> None:
    """No time passes between the faults and their end, so no frame is held back.

    Then the run with the faults must be the same as one without them. Only the rows of the driver
    differ.
    """

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
    """An administrator of the cluster moves leaders with requests to the controller.

    1. The administrator moves a partition from its first leader to another broker. This broker is
       the preferred leader from then on.
    2. The new leader crashes, and a third broker becomes leader.
    3. The new leader restarts. The administrator asks for preferred leaders, and the partition
       returns to this broker.
    """
    partition = TopicPartition(TOPIC, 0)

    async def main(runtime: VirtualRuntime) -> None:
        async def leader() -> int:
            return (await runtime.status()).partitions[partition].leader

        first_leader = await leader()
        new_leader = next(broker_id for broker_id in range(3) if broker_id != first_leader)
        await runtime.ask_as_admin(move_leader, partition, BrokerId(new_leader))
        assert await leader() == new_leader

        # The controller fences a dead broker (counts it as dead) after 2 s in this cluster.
        await runtime.crash(NodeName(f"broker-{new_leader}"))
        await runtime.sleep(5 * SECOND_US)
        assert await leader() != new_leader

        await runtime.restart(NodeName(f"broker-{new_leader}"))
        await runtime.sleep(5 * SECOND_US)
        await runtime.ask_as_admin(elect_preferred_leaders, None)  # None stands for all partitions
        assert await leader() == new_leader

    rows = real_run(main)
    # One administrator sends both requests. It is a node that starts at the first request.
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
