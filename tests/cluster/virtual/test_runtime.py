"""The virtual runtime: lives of nodes, crashes, order of events, failures, and the network.

The virtual runtime runs a whole cluster in one process, on a simulated clock. Most tests use a
`Run`: a cluster of one controller, three fake brokers and four fake consumers. The consumers send
heartbeats, and a fake broker appends a batch to its disk for each heartbeat. Everything that
happens becomes a row of the trace, `run.rows`. A row has the node that it is about; the rows of
crashes and other faults have the node "driver". If a node is restarted, its next life has the next
incarnation: 0, 1, ...

Other tests need only hosts, which come from a `HostLab`. A host is all that a node can touch: its
clock, timers, connections, disk and trace.
"""

import asyncio
import os
import signal
from collections.abc import Callable

import pytest

from cluster.host.host import Connection, Disconnected, HostDead
from cluster.host.randomness import stream
from cluster.runtime import ClusterStartError, ClusterStatus, NodeTaskFailed, UnknownNode
from cluster.spec import LinkModel
from cluster.virtual.clock import WALL_EPOCH_US, NodeClock
from cluster.virtual.loop import Deadlock
from cluster.virtual.network import Link
from cluster.virtual.runtime import VirtualRuntime
from protocol.errors import SimulationError
from protocol.ids import BrokerId, NodeName, offsets_partition
from protocol.records.batch import RecordBatch
from protocol.trace import TraceEvent, TraceKind, TraceRow
from tests.support.harness.fake_cluster import MS, FakeConsumer, fake_builder, fake_spec
from tests.support.harness.virtual_hosts import LATENCY_US, EchoServer, HostLab, forever, heartbeat
from tests.support.harness.virtual_runs import Run

SECOND_US = 1_000_000
BROKER = NodeName("broker-0")
CONSUMER = NodeName("consumer-0")
WORK_OF_A_SECOND = 10
"""A fake node that runs for a second writes more than this number of rows, and of batches."""
PURPOSE = "x"
"""The purpose of the connections that the tests open. The value does not matter."""
BATCH = RecordBatch(
    base_offset=0, partition_leader_epoch=0, last_offset_delta=0, max_timestamp_ms=0, records=b""
)
"""A batch without records, for a test that counts batches."""


def test_nodes_start_in_order_run_in_virtual_time_and_stop() -> None:
    """Nodes start in the order controller, brokers, consumers, and all of them work.

    Ten seconds of virtual time pass.
    """
    run = Run()

    async def main() -> None:
        await run.runtime.sleep(10 * SECOND_US)
        status = await run.runtime.status()
        assert status.brokers_alive == {0: True, 1: True, 2: True}
        assert len(status.members) == 4
        for consumer in status.members.values():
            # A fake consumer reports its answered heartbeats as acknowledged commits.
            assert consumer.commits_acknowledged > 10 * WORK_OF_A_SECOND

    run.run(main())
    assert run.runtime.now_us() == 10 * SECOND_US
    started = [row.node for row in run.rows if row.kind == "node_started"]
    assert started == [
        "controller-100",
        *(f"broker-{i}" for i in range(3)),
        *(f"consumer-{i}" for i in range(4)),
    ]
    assert started == [row.node for row in run.rows if row.kind == "node_stopped"]
    assert [row.time_us for row in run.rows] == sorted(row.time_us for row in run.rows)
    # The rows of each node are numbered without a gap.
    for node in started:
        assert [row.seq for row in run.rows_of(node)] == list(range(len(run.rows_of(node))))


def test_a_crash_is_final_for_the_incarnation_and_keeps_its_disk() -> None:
    """After its crash a broker writes no row. When it is restarted, it finds its batches."""
    run = Run()
    appended_before_crash = 0
    found_after_restart = 0

    async def main() -> None:
        nonlocal appended_before_crash, found_after_restart
        await run.runtime.sleep(SECOND_US)
        killed = await run.runtime.crash(BROKER)
        # A node in virtual time has no process of its own, so it has no pid.
        assert killed.node == BROKER
        assert killed.incarnation == 0
        assert killed.pid is None
        status = await run.runtime.status()
        assert status.brokers_alive == {0: False, 1: True, 2: True}
        # Each fake broker that is alive reports itself as a coordinator of group g.
        assert [group.coordinator for group in status.groups["g"]] == [1, 2]
        await run.runtime.sleep(SECOND_US)
        appended_before_crash = len(run.rows_of(BROKER, TraceKind.APPEND_STARTED))

        await run.runtime.restart(BROKER)
        status = await run.runtime.status()
        # A fake broker reports the number of batches on its disk as the generation of group g.
        found_after_restart = status.groups["g"][0].generation
        await run.runtime.sleep(SECOND_US)

    run.run(main())
    assert appended_before_crash > WORK_OF_A_SECOND
    assert found_after_restart == appended_before_crash
    killed_at = [row.time_us for row in run.rows_of("driver", TraceKind.NODE_KILLED)]
    assert killed_at == [SECOND_US]
    rows_of_first_life = [row for row in run.rows_of(BROKER) if row.incarnation == 0]
    rows_of_second_life = [row for row in run.rows_of(BROKER) if row.incarnation == 1]
    assert max(row.time_us for row in rows_of_first_life) <= SECOND_US
    assert min(row.time_us for row in rows_of_second_life) == 2 * SECOND_US
    assert len(rows_of_second_life) > WORK_OF_A_SECOND
    # The consumer noticed the crash.
    assert run.rows_of(CONSUMER, TraceKind.REQUEST_FAILED)


def test_crash_and_restart_of_the_wrong_node_raise() -> None:
    """The runtime refuses a name that it does not know, and a node in the wrong state."""
    run = Run()

    async def main() -> None:
        with pytest.raises(UnknownNode, match="broker-9"):
            await run.runtime.crash(NodeName("broker-9"))
        with pytest.raises(UnknownNode, match="is up and cannot be restarted"):
            await run.runtime.restart(BROKER)
        await run.runtime.crash(BROKER)
        with pytest.raises(UnknownNode, match="down already"):
            await run.runtime.crash(BROKER)

    run.run(main())


class LastWords(FakeConsumer):
    """A consumer whose task has a `finally` block, which counts its executions."""

    cleaned_up = 0

    async def run(self) -> None:
        """Wait for an hour; the cleanup awaits something and writes a row."""
        try:
            await self.host.sleep(3_600 * SECOND_US)
        finally:
            type(self).cleaned_up += 1
            self.host.trace(TraceEvent(kind=TraceKind.RUN_STAGE))
            await self.host.sleep(1)


def test_a_crashed_task_runs_no_cleanup_and_leaves_no_warning(
    recwarn: pytest.WarningsRecorder,
) -> None:
    """A killed process runs no `finally` block, so a killed consumer must not run one either.

    In such a block a consumer would leave its group, for example. Python itself runs the blocks
    when it disposes of the tasks. That is after the end of the run, when they can write no row.
    """
    LastWords.cleaned_up = 0
    run = Run(LastWords)

    async def main() -> None:
        await run.runtime.sleep(SECOND_US)
        await run.runtime.crash(CONSUMER)
        await run.runtime.sleep(SECOND_US)
        assert LastWords.cleaned_up == 0

    run.run(main())
    assert LastWords.cleaned_up == 4  # once for each of the four consumers
    assert not [row for row in run.rows if row.kind == TraceKind.RUN_STAGE]
    assert run.runtime.failures() == ()
    assert not list(recwarn)


def test_a_timer_due_at_the_instant_of_the_crash_does_not_wake_its_task() -> None:
    """Three events are due at 100 us: the crash of a node, the end of its sleep, and a timer.

    The crash comes first, so the sleeping task of the crashed node does not wake. The timer belongs
    to another node, and fires.
    """
    lab = HostLab()
    host = lab.host("victim")
    seen: list[str] = []

    async def wait() -> None:
        await host.sleep(100)
        seen.append("woke")

    host.spawn(wait(), name="wait")
    # `wait` begins to run only in `run_for`. So the crash is posted before the timer of the sleep.
    lab.loop.post_at(100, host.crash)
    lab.run_for(50)
    bystander = lab.host("bystander")
    bystander.after(50, lambda: seen.append("bystander"))
    lab.run_for(1_000)
    assert seen == ["bystander"]
    host.dispose()  # ends the dead host's task, so that Python does not warn


def test_a_callback_in_which_its_node_crashes_can_no_longer_act() -> None:
    """The rest of the callback still runs, because Python cannot stop it there.

    But each of its calls to the host or to a connection raises HostDead. The task that the callback
    wakes does not run, and neither does another timer of the node.
    """
    lab = HostLab()
    EchoServer(lab.host("broker-0"))
    host = lab.host("victim")
    connection = host.connect(BROKER, PURPOSE, setup_timeout_us=10 * MS)
    event = asyncio.Event()
    seen: list[str] = []

    async def waiter() -> None:
        await event.wait()
        seen.append("woken after death")

    def crash_and_go_on() -> None:
        host.crash()
        event.set()
        for call in (
            host.now_us,
            host.wall_us,
            host.create_future,
            lambda: host.after(1, lambda: None),
            lambda: host.trace(TraceEvent(kind=TraceKind.RUN_STAGE)),
            lambda: host.log("x"),
            lambda: host.connect(BROKER, PURPOSE, setup_timeout_us=1),
            lambda: host.serve(lambda _request: None),
            lambda: host.spawn(forever(), name="late"),
            lambda: connection.send(heartbeat(), timeout_us=1, on_response=lambda _o: None),
            connection.close,
        ):
            with pytest.raises(HostDead):
                call()
            seen.append("refused")
        host.now_us()  # HostDead ends the callback, and does not count as a failure of the node

    host.spawn(waiter(), name="waiter")
    host.after(10 * LATENCY_US, crash_and_go_on)
    host.after(10 * LATENCY_US, lambda: seen.append("another timer"))

    lab.run_for(20 * LATENCY_US)
    assert seen == ["refused"] * 11  # once for each call in the loop
    assert lab.failures == []
    host.dispose()  # ends the dead host's task, so that Python does not warn


def test_an_observer_may_kill_the_node_that_wrote_a_row() -> None:
    """An observer gets each row while the node writes it, so it can crash the node in that moment.

    Here it kills the first broker that appends offset 5. The batch is on the disk then, but the
    rest of the broker's callback has no effect.
    """
    run = Run()
    killed_brokers: list[str] = []

    def kill_first_at_offset_5(row: TraceRow) -> None:
        if row.kind == TraceKind.APPEND_STARTED and row.offset == 5 and not killed_brokers:
            killed_brokers.append(row.node)
            runtime.crash_now(NodeName(row.node))

    runtime = run.runtime = VirtualRuntime(
        fake_spec(),
        seed=1,
        run_id="test",
        observers=(run.rows.append, kill_first_at_offset_5),
        build=fake_builder(),
    )

    async def main() -> None:
        await runtime.sleep(SECOND_US)
        (killed,) = killed_brokers
        await runtime.restart(NodeName(killed))
        status = await runtime.status()
        # A fake broker reports the number of batches on its disk as the generation of group g.
        batch_counts = {group.coordinator: group.generation for group in status.groups["g"]}
        assert batch_counts[BrokerId(int(killed[-1]))] == 6  # offsets 0 to 5

    run.run(main())
    assert runtime.failures() == ()


class WritesAfterDeath(FakeConsumer):
    """A consumer that appends to its disk once before and once after it is killed.

    The second append is in the `finally` block of the callback in which the consumer is killed.
    """

    def start(self) -> None:
        """Open the disk. In the first incarnation, also set a timer for the two appends."""
        self.log = self.host.storage.log(offsets_partition(0))
        if self.host.incarnation == 0:
            self.host.after(SECOND_US, self.append_twice)

    def append_twice(self) -> None:
        """Append a batch, write the row at which an observer kills the node, and append again."""
        self.log.append(BATCH)
        try:
            self.host.trace(TraceEvent(kind=TraceKind.RUN_STAGE))
        finally:
            self.log.append(BATCH)

    def shut_down(self, on_done: Callable[[], None]) -> None:
        """Stop at once."""
        on_done()

    def report(self, status: ClusterStatus) -> None:
        """Report the number of batches on the disk in place of produced records."""
        status.records_produced += len(self.log)


def test_writes_of_a_callback_after_its_nodes_death_are_not_on_the_disk() -> None:
    """The disk keeps the batch that was appended before the kill, not the one appended after it."""
    run = Run()

    def kill(row: TraceRow) -> None:
        if row.kind == TraceKind.RUN_STAGE:
            runtime.crash_now(NodeName(row.node))

    runtime = VirtualRuntime(
        fake_spec(consumers=1),
        seed=1,
        run_id="test",
        observers=(run.rows.append, kill),
        build=fake_builder(WritesAfterDeath),
    )
    run.runtime = runtime

    async def main() -> None:
        await runtime.sleep(2 * SECOND_US)
        await runtime.restart(CONSUMER)
        assert (await runtime.status()).records_produced == 1

    run.run(main())
    assert runtime.failures() == ()


class FailingConsumer(FakeConsumer):
    """Consumer 1's task raises after a second."""

    async def run(self) -> None:
        """Raise, or wait for ever."""
        if self.spec.index == 1:
            await self.host.sleep(SECOND_US)
            raise LookupError("a bug")
        await forever()


class FailingCallback(FakeConsumer):
    """Consumer 1's timer raises after a second."""

    def start(self) -> None:
        """Set the timer."""
        if self.spec.index == 1:
            self.host.after(SECOND_US, self.fail)

    def fail(self) -> None:
        """Raise."""
        raise LookupError("a bug")


@pytest.mark.parametrize(
    ("consumer", "failed"), [(FailingConsumer, "heartbeats"), (FailingCallback, "callback")]
)
def test_a_task_or_callback_that_raises_fails_the_run(
    consumer: type[FakeConsumer], failed: str
) -> None:
    """The exception is traced and reported, and `run` raises an error at once.

    Before `run` raises, it cancels `main`, which can clean up. The cleanup takes 1 us here.
    """
    run = Run(consumer)
    seen: list[str] = []

    async def main() -> None:
        try:
            await run.runtime.sleep(3_600 * SECOND_US)
        finally:
            seen.append("cleanup")
            await run.runtime.sleep(1)
            seen.append("cleaned up")

    with pytest.raises(NodeTaskFailed, match=rf"consumer-1 .*{failed} died.*a bug"):
        run.run(main())
    assert seen == ["cleanup", "cleaned up"]
    assert run.runtime.now_us() == SECOND_US + 1
    assert len(run.runtime.failures()) == 1
    assert [row.node for row in run.rows if row.kind == "task_failed"] == ["consumer-1"]
    run.runtime.run(run.runtime.stop())


def test_a_node_that_cannot_start_stops_the_others() -> None:
    """If one node cannot start, the nodes that have started already are stopped."""

    class Unstartable(FakeConsumer):
        def start(self) -> None:
            if self.spec.index == 2:
                raise LookupError("no such topic")
            super().start()

    run = Run(Unstartable)
    with pytest.raises(ClusterStartError, match="consumer-2"):
        run.runtime.run(run.runtime.start())
    stopped = [row.node for row in run.rows if row.kind == "node_stopped"]
    # One controller, three brokers, and the two consumers that started before consumer-2.
    assert stopped[-1] == "consumer-1"
    assert len(stopped) == 6


def test_ctrl_c_ends_main_with_its_cleanup_and_the_run_can_go_on() -> None:
    """After Ctrl-C an experiment must still stop its cluster, so the loop can be used again."""
    run = Run()
    seen: list[str] = []

    async def main() -> None:
        await run.runtime.start()
        try:
            await run.runtime.sleep(SECOND_US)
            os.kill(os.getpid(), signal.SIGINT)
            await run.runtime.sleep(3_600 * SECOND_US)
        finally:
            seen.append("cleanup")

    with pytest.raises(KeyboardInterrupt):
        run.runtime.run(main())
    assert seen == ["cleanup"]
    assert run.runtime.now_us() < 2 * SECOND_US
    run.runtime.run(run.runtime.stop())
    assert [row for row in run.rows if row.kind == "node_stopped"]
    # During a run the runtime handles Ctrl-C. Afterwards the handler is Python's own again.
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_waiting_for_an_event_that_cannot_come_is_a_deadlock() -> None:
    """No node has been started, so no event can come that would end the wait."""
    run = Run()
    with pytest.raises(Deadlock):
        run.runtime.run(forever())


def test_the_same_seed_gives_the_same_trace_also_through_the_codec() -> None:
    """Another seed gives another trace.

    Nodes normally get the message object itself. With `copy_messages` each message is encoded to
    bytes and decoded again, which must not change the trace.
    """

    def digest(seed: int, *, copy_messages: bool = False) -> tuple[str, int]:
        run = Run(seed=seed, copy_messages=copy_messages)

        async def main() -> None:
            await run.runtime.sleep(2 * SECOND_US)
            await run.runtime.crash(BROKER)
            await run.runtime.sleep(2 * SECOND_US)

        run.run(main())
        return run.digest.hexdigest(), run.digest.rows

    assert digest(7) == digest(7) == digest(7, copy_messages=True)
    assert digest(7) != digest(8)


def test_message_tracing_does_not_change_a_run() -> None:
    """A user repeats a failing seed with message tracing, and the seed must fail again."""

    def appends(*, trace_messages: bool) -> list[tuple[int, str]]:
        run = Run(trace_messages=trace_messages)
        run.run(run.runtime.sleep(2 * SECOND_US))
        return [(row.time_us, row.node) for row in run.rows if row.kind == "append_started"]

    assert appends(trace_messages=True) == appends(trace_messages=False)


def test_a_log_line_carries_time_and_node() -> None:
    """Log lines are for people to read, and are not part of the trace."""

    class Talker(FakeConsumer):
        def start(self) -> None:
            if self.spec.index == 0:
                self.host.after(7, self.host.log, "hello")

    run = Run(Talker)
    run.run(run.runtime.sleep(10))
    assert run.lines == [(7, CONSUMER, "hello")]  # written after 7 us


def test_restarted_node_has_another_random_stream() -> None:
    """With the same random numbers, a restarted client would draw the same member ids again."""
    draws: list[tuple[str, float]] = []

    class Drawer(FakeConsumer):
        def start(self) -> None:
            draws.append((self.host.name, self.host.rng.random()))

    run = Run(Drawer)

    async def main() -> None:
        await run.runtime.crash(CONSUMER)
        await run.runtime.restart(CONSUMER)

    run.run(main())
    # Four consumers, one of which was restarted, have drawn five different numbers.
    assert len(draws) == 5
    assert len({value for _, value in draws}) == 5


# -- the network ------------------------------------------------------------------------------


def test_a_link_is_fifo_and_its_latencies_follow_the_model() -> None:
    """Each frame takes 100 us, plus a random jitter below 50 us. This is the model of the link.

    About one frame in ten also gets a tail, a further random delay below 1,000 us. The link keeps
    the order of its frames (first in, first out), so a late frame delays later ones.
    """
    model = LinkModel(base_us=100, jitter_us=50, tail_us=1_000, tail_one_in=10)
    # `stream(seed, label)` is a source of random numbers that follow from the seed and the label.
    link = Link(model, stream(3, "link"), cross_rack=False)
    # There are 5,000 frames. They are so far apart that no frame delays the next.
    latencies = [link.draw_arrival_us(now_us) - now_us for now_us in range(0, 50_000_000, 10_000)]
    assert min(latencies) >= 100
    assert max(latencies) < 100 + 50 + 1_000
    with_tail = sum(latency >= 100 + 50 for latency in latencies)
    assert 400 < with_tail < 600  # about a tenth of 5,000

    # One frame in each microsecond: without the rule of order many frames would overtake others.
    link = Link(model, stream(3, "link"), cross_rack=False)
    arrivals = [link.draw_arrival_us(now_us) for now_us in range(1_000)]
    assert arrivals == sorted(arrivals)


def test_every_frame_takes_two_draws_whatever_happens_to_it() -> None:
    """A frame draws two random numbers, jitter and tail, even if the link has no tail.

    So a link with a tail and one without have the same jitters, and differ only in the tails.
    """
    with_tail = Link(LinkModel(tail_one_in=2, tail_us=9), stream(5, "link"), cross_rack=False)
    without_tail = Link(LinkModel(tail_one_in=0), stream(5, "link"), cross_rack=False)
    tails_us = [
        with_tail.draw_arrival_us(now_us) - without_tail.draw_arrival_us(now_us)
        for now_us in range(0, 10_000_000, 100_000)
    ]
    assert min(tails_us) >= 0
    assert 0 < max(tails_us) < 9


def test_frames_to_another_rack_take_longer() -> None:
    """A link between two racks adds `cross_rack_us`, which is 0 by default."""
    model = LinkModel(jitter_us=0, tail_us=0, cross_rack_us=700)
    near = Link(model, stream(1, "l"), cross_rack=False)
    far = Link(model, stream(1, "l"), cross_rack=True)
    assert far.draw_arrival_us(0) - near.draw_arrival_us(0) == 700
    assert fake_spec().links.cross_rack_us == 0


def test_frames_of_one_link_never_overtake_each_other() -> None:
    """Requests sent in a burst arrive in the order in which they were sent."""
    lab = HostLab(LinkModel(base_us=10, jitter_us=500, tail_us=5_000, tail_one_in=3))
    server = EchoServer(lab.host(BROKER))
    client = lab.host("client")
    connection: Connection = client.connect(BROKER, PURPOSE, setup_timeout_us=SECOND_US)
    for i in range(200):
        connection.send(heartbeat(str(i)), timeout_us=SECOND_US, on_response=lambda _outcome: None)
    lab.run_for(SECOND_US // 2)
    assert server.served_groups == [str(i) for i in range(200)]


def test_frames_of_a_node_that_died_still_arrive() -> None:
    """What a node has sent before its death arrives, and only then the report of the death.

    The broker answers the first request, and dies 1 us later.
    """
    lab = HostLab()
    host = lab.host(BROKER)
    EchoServer(host)
    client = lab.host("client")

    async def main() -> str:
        connection = client.connect(BROKER, PURPOSE, setup_timeout_us=SECOND_US)
        # The broker answers after three latencies: the open, its acceptance, and the request.
        lab.loop.post_at(3 * LATENCY_US + 1, host.crash)
        answer = await connection.call(heartbeat(), timeout_us=SECOND_US)
        with pytest.raises(Disconnected):
            await connection.call(heartbeat(), timeout_us=SECOND_US)
        return type(answer).__name__

    assert lab.run(main()) == "HeartbeatResponse"
    # The report of the death arrives one latency after the death, and so 1 us after the answer.
    assert lab.loop.now_us() == 4 * LATENCY_US + 1


# -- clocks -----------------------------------------------------------------------------------


def test_a_drifting_clock_shows_other_times_and_fires_timers_accordingly() -> None:
    """Each node has a clock of its own. If it gains 10 %, the node's timers fire too early."""
    lab = HostLab()
    clock = NodeClock(lab.loop)
    host = lab.host("fast", clock=clock)
    lab.run_for(SECOND_US)
    clock.set_drift(100_000)  # parts per million: the clock gains 10 % from now on
    assert host.now_us() == SECOND_US

    fired: list[tuple[int, int]] = []
    host.after(1_100_000, lambda: fired.append((lab.loop.now_us(), host.now_us())))
    lab.run_for(5 * SECOND_US)
    # The timer was set when both clocks showed 1 s. Since then 1 s of the run has passed, which was
    # 1.1 s for the node.
    assert fired == [(2 * SECOND_US, 2_100_000)]

    clock.set_drift(0)
    before_us = host.now_us()
    lab.run_for(SECOND_US)
    assert host.now_us() == before_us + SECOND_US

    # A clock that loses a million parts per million stands still.
    with pytest.raises(ValueError, match="does not advance"):
        clock.set_drift(-1_000_000)


def test_a_timer_never_fires_before_its_time_on_the_nodes_own_clock() -> None:
    """Times are rounded to microseconds. The rounding must not make a timeout fire early."""
    lab = HostLab()
    clock = NodeClock(lab.loop)
    host = lab.host("odd", clock=clock)
    # How long after its time each timer fired. A negative number would be too early.
    delays_us: list[int] = []

    def fire(due_us: int) -> None:
        delays_us.append(host.now_us() - due_us)

    for drift_ppm in (333_333, -333_333, 7):
        clock.set_drift(drift_ppm)
        for delay_us in (1, 2, 3, 999, 1_000_001):
            host.after(delay_us, fire, host.now_us() + delay_us)
        lab.run_for(3 * SECOND_US)
    assert len(delays_us) == 15  # three drifts times five timers
    assert min(delays_us) >= 0


def test_the_wall_clock_starts_at_a_fixed_epoch_and_may_jump() -> None:
    """A run must not depend on the day on which it is made, so its wall clock starts in 2025."""
    lab = HostLab()
    clock = NodeClock(lab.loop)
    host = lab.host("n", clock=clock)
    lab.run_for(5)
    assert WALL_EPOCH_US == 1_735_689_600_000_000  # 1 January 2025
    assert host.wall_us() == WALL_EPOCH_US + 5
    clock.jump_wall(-100)
    assert host.wall_us() == WALL_EPOCH_US - 95
    assert host.now_us() == 5


# -- randomness -------------------------------------------------------------------------------


def test_random_streams_are_named_and_independent() -> None:
    """Streams with the same seed and the same labels are equal, and all others differ.

    The labels ("a", "bc"), ("ab", "c") and ("abc",) give different streams, although their joined
    text is the same. The number 1 and the text "1" give different streams, too.
    """
    assert stream(1, "link", "a", "b").random() == stream(1, "link", "a", "b").random()
    values = {
        stream(1, "a", "bc").random(),
        stream(1, "ab", "c").random(),
        stream(1, "abc").random(),
        stream(2, "abc").random(),
        stream(1, "node", 1).random(),
        stream(1, "node", "1").random(),
        stream(11, "node").random(),
    }
    assert len(values) == 7


def test_random_streams_are_the_same_on_every_machine() -> None:
    """A failing run is recorded by its seed, so each seed must give the same numbers for ever.

    Therefore the test compares a drawn number with a recorded one.
    """
    assert stream(7, "link", "broker-0", "consumer-1").randrange(10**9) == 867_259_941


def test_status_and_failures_of_a_run_that_never_started_are_empty() -> None:
    """An experiment may end before it has started its cluster, and still needs its report."""
    run = Run()

    async def main() -> ClusterStatus:
        return await run.runtime.status()

    status = run.runtime.run(main())
    assert status.brokers_alive == {0: False, 1: False, 2: False}
    assert run.runtime.failures() == ()
    run.runtime.run(run.runtime.stop())
    assert issubclass(NodeTaskFailed, SimulationError)


@pytest.mark.parametrize(("invariants_every", "answers_are_checked"), [(None, False), (1000, True)])
def test_hosts_check_their_answers_where_nodes_check_their_invariants(
    invariants_every: int | None, answers_are_checked: bool
) -> None:
    """With `invariants_every`, nodes check their own state after this number of events.

    In such a run the hosts also check each answer that they get, with `check_answer`. One function
    makes all hosts, so the test checks only the host of the administrator.
    """
    runtime = VirtualRuntime(
        fake_spec(),
        seed=1,
        run_id="test",
        build=fake_builder(),
        invariants_every=invariants_every,
    )
    checks_answers = runtime.admin_host().endpoint.check_answer is not None
    assert checks_answers is answers_are_checked
