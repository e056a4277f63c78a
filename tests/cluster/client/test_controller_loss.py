"""Groups and data go on while the cluster's only controller is away, and when it comes back.

The controller does the work of Kafka's KRaft controller: it elects leaders, and it fences a broker
(counts the broker as dead) after 9 s without a heartbeat. These 9 s are the broker's session. A
broker sends a heartbeat every 2 s. Kafka's behaviour is in docs/kafka/BEHAVIOUR.md 6.2.

The cluster of the tests has three brokers and a group of three members. It runs in virtual time,
so minutes of a cluster take seconds. Each test defines an action, for example a crash of the
controller. `play` carries out the action on a running cluster, and returns the events that the
nodes have recorded since the beginning of the action.
"""

from collections.abc import Awaitable, Callable

import pytest

from cluster.runtime import ClusterStatus
from cluster.virtual.runtime import VirtualRuntime
from protocol.ids import broker_name, controller_name
from protocol.trace import TraceRow
from tests.support.worlds.measured_cluster import SECOND, cluster

pytestmark = pytest.mark.slow

CONTROLLER = controller_name(100)
BROKER_EVENTS = ("broker_fenced", "broker_registered", "leader_elected", "isr_changed")
"""Kinds of events in which the controller changes the state of brokers or of partitions."""
UNDISTURBED_GAP_US_MAX = 600_000
"""Upper bound for the time between two commits of a member, as long as nothing disturbs it."""

Action = Callable[[VirtualRuntime], Awaitable[None]]


def play(action: Action, *, after_s: int) -> tuple[list[TraceRow], ClusterStatus]:
    """Wait until the group is stable, carry out `action`, and wait `after_s` seconds more.

    Return the rows of the trace since the beginning of the action, and the status of the cluster
    at the end. The trace is the list of events that the nodes record.
    """
    rows: list[TraceRow] = []
    # No test here reads rows about messages, and a run without these rows is faster.
    runtime = VirtualRuntime(
        cluster(members=3), seed=3, run_id="test", observers=(rows.append,), trace_messages=False
    )

    async def main() -> tuple[int, ClusterStatus]:
        await runtime.start()
        await runtime.sleep(12 * SECOND)
        began_us = runtime.now_us()
        await action(runtime)
        await runtime.sleep(after_s * SECOND)
        status = await runtime.status()
        await runtime.stop()
        return began_us, status

    began_us, status = runtime.run(main())
    assert runtime.failures() == ()
    return [row for row in rows if row.time_us >= began_us], status


def of_kinds(rows: list[TraceRow], *kinds: str) -> list[TraceRow]:
    """Return the rows of these kinds."""
    return [row for row in rows if row.kind in kinds]


def largest_commit_gap_us(rows: list[TraceRow]) -> int:
    """Return the longest time between two acknowledged commits of the same member."""
    gaps = [0]
    last_commit_us: dict[str, int] = {}
    for row in of_kinds(rows, "offsets_committed"):
        gaps.append(row.time_us - last_commit_us.get(row.node, row.time_us))
        last_commit_us[row.node] = row.time_us
    assert len(last_commit_us) == 3  # each member has committed
    return max(gaps)


@pytest.mark.parametrize("away_s", [5, 20])
@pytest.mark.parametrize("loses_power", [False, True], ids=["crash", "power-loss"])
def test_restarted_controller_fences_no_broker_and_moves_no_leader(
    away_s: int, loses_power: bool
) -> None:
    """A restarted controller does not know which brokers are alive.

    So it gives every broker a new session of 9 s, however long the controller was away. Within
    these 9 s every broker sends a heartbeat. The test tries an absence of 5 s, which is less than a
    session, and an absence of 20 s, which is more.
    """

    async def lose(runtime: VirtualRuntime) -> None:
        if loses_power:
            await runtime.power_loss(CONTROLLER)
        else:
            await runtime.crash(CONTROLLER)
        await runtime.sleep(away_s * SECOND)
        await runtime.restart(CONTROLLER)

    # The wait is longer than the full session of 9 s, at whose end a broker would be fenced.
    rows, status = play(lose, after_s=25)
    assert of_kinds(rows, *BROKER_EVENTS, "rebalance_started", "commit_failed") == []
    assert largest_commit_gap_us(rows) < UNDISTURBED_GAP_US_MAX
    assert set(status.brokers_fenced.values()) == {False}
    assert status.controller == CONTROLLER


def test_groups_continue_without_a_controller() -> None:
    """Without a controller nobody fences brokers or elects leaders. The present leaders stay."""

    async def lose(runtime: VirtualRuntime) -> None:
        await runtime.crash(CONTROLLER)

    rows, status = play(lose, after_s=60)
    assert of_kinds(rows, *BROKER_EVENTS, "rebalance_started", "commit_failed") == []
    assert largest_commit_gap_us(rows) < UNDISTURBED_GAP_US_MAX
    assert status.controller is None


def test_broker_that_died_without_a_controller_is_fenced_a_session_after_its_restart() -> None:
    """The restarted controller gives even the dead broker a full session of 9 s.

    The dead broker was the group's coordinator. After it is fenced, another broker loads the group
    and becomes its coordinator. The members do not join again, so the group still has its first
    generation at the end.
    """
    controller_restarted_us = 0

    async def lose_both(runtime: VirtualRuntime) -> None:
        nonlocal controller_restarted_us
        await runtime.crash(CONTROLLER)
        (group,) = (await runtime.status()).groups["g"]
        await runtime.crash(broker_name(group.coordinator))
        await runtime.sleep(20 * SECOND)
        await runtime.restart(CONTROLLER)
        controller_restarted_us = runtime.now_us()

    rows, status = play(lose_both, after_s=20)
    (fenced,) = of_kinds(rows, "broker_fenced")
    fenced_after_us = fenced.time_us - controller_restarted_us
    assert 9 * SECOND <= fenced_after_us <= 9 * SECOND + 1_000  # at most 1 ms late
    assert of_kinds(rows, "rebalance_started") == []
    (group,) = status.groups["g"]
    assert group.state == "Stable"
    assert group.generation == 1


def test_broker_restarted_without_a_controller_is_unfenced_when_there_is_one() -> None:
    """A broker that restarts must register with the controller again, and is fenced until then.

    The broker had a session before its restart. As long as this old session goes on, the controller
    refuses the registration with DUPLICATE_BROKER_REGISTRATION. A restarted controller begins the
    old session anew. So the broker registers 9 s after the restart of the controller.
    """

    async def lose_both(runtime: VirtualRuntime) -> None:
        await runtime.crash(CONTROLLER)
        await runtime.crash(broker_name(0))
        await runtime.restart(broker_name(0))
        await runtime.sleep(10 * SECOND)
        await runtime.restart(CONTROLLER)

    rows, status = play(lose_both, after_s=25)
    assert [row.peer for row in of_kinds(rows, "broker_registered")] == ["broker-0"]
    assert set(status.brokers_fenced.values()) == {False}
    assert all(len(partition.isr) == 3 for partition in status.partitions.values())


def test_resumed_controller_fences_all_brokers_and_unfences_them_at_once() -> None:
    """A paused controller receives nothing for 20 s, so all sessions have ended when it resumes.

    1. The controller first handles the timers that are due. So it fences all brokers, one after the
       other. Kafka 3.9 does this in maybeFenceReplicas.
    2. Then it handles the heartbeats that have arrived during the pause. These heartbeats unfence
       the brokers.

    The fencing has moved leaderships without need, but no group rebalances.
    """
    resumed_us = 0

    async def stop_for_20_s(runtime: VirtualRuntime) -> None:
        nonlocal resumed_us
        await runtime.pause(CONTROLLER)
        await runtime.sleep(20 * SECOND)
        resumed_us = runtime.now_us()
        await runtime.resume(CONTROLLER)

    rows, status = play(stop_for_20_s, after_s=15)
    fenced = of_kinds(rows, "broker_fenced")
    assert sorted(row.peer or "" for row in fenced) == ["broker-0", "broker-1", "broker-2"]
    assert {row.time_us for row in fenced} == {resumed_us}
    assert set(status.brokers_fenced.values()) == {False}
    assert all(len(partition.isr) == 3 for partition in status.partitions.values())
    assert of_kinds(rows, "rebalance_started") == []
    # Commits go on soon, although leaderships have moved.
    assert largest_commit_gap_us(rows) < 2 * SECOND


def test_controller_paused_for_less_than_a_session_fences_no_broker() -> None:
    """After a pause of 5 s no session has ended, because a session takes 9 s."""

    async def stop_for_5_s(runtime: VirtualRuntime) -> None:
        await runtime.pause(CONTROLLER)
        await runtime.sleep(5 * SECOND)
        await runtime.resume(CONTROLLER)

    rows, _ = play(stop_for_5_s, after_s=15)
    assert of_kinds(rows, *BROKER_EVENTS, "rebalance_started", "commit_failed") == []
