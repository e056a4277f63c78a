"""A broker stops as after SIGTERM: its leaderships move to other brokers, then its process ends.

In this controlled shutdown the broker asks the controller for permission to stop. The controller
first elects other leaders for the broker's partitions, in leader epoch 1. The controller agrees
when all active brokers know these leaders. It then fences the broker, that is, counts it as dead.
For the times of a real cluster, see the measurement `term` in docs/kafka/MEASURED_FAILOVER.md.

`lab` is a cluster of three brokers in virtual time. At first broker n leads partition n of the
offsets topic. So the number of the group's offsets partition is also the number of the broker that
coordinates the group, OLD.
"""

import json

import pytest

from cluster.broker.replication.log_flusher import LogFlusher
from cluster.runtime import ClusterStatus, NodeState, NodeTaskFailed
from protocol.ids import broker_name, offsets_partition
from protocol.partitioner import partition_for
from protocol.trace import TraceKind, TraceRow
from tests.support.harness.brokers import BrokerLab, broker_cluster

GROUP = "group"
PARTITION = partition_for(GROUP, num_partitions=3)
"""The number of the group's offsets partition."""
OLD = PARTITION
"""The broker that coordinates the group until it is shut down."""
OFFSETS = str(offsets_partition(PARTITION))
"""The name of the group's offsets partition."""


def is_down(status: ClusterStatus) -> bool:
    """Return True once the process of the stopping broker has ended."""
    return status.nodes[broker_name(OLD)] is NodeState.DOWN


def detail(row: TraceRow) -> dict[str, object]:
    """Return the detail of a row, which is JSON."""
    assert row.detail is not None
    loaded = json.loads(row.detail)
    assert isinstance(loaded, dict)
    return loaded


def unloads(lab: BrokerLab) -> list[TraceRow]:
    """Return the rows of the unloads with which OLD dropped its groups from memory.

    These rows have leader epoch 1, in which the next broker leads.
    """
    return [
        row
        for row in lab.events(TraceKind.UNLOAD_COMPLETED, broker_name(OLD))
        if row.leader_epoch == 1
    ]


async def shut_down(lab: BrokerLab) -> int:
    """Shut the coordinator's broker down, and return the time at which the shutdown began."""
    begun_us = lab.runtime.now_us()
    await lab.runtime.shut_down(broker_name(OLD))
    return begun_us


def test_shutdown_moves_the_coordinator_within_tens_of_milliseconds() -> None:
    """The election need not wait for the end of the broker's session, as it must after a kill.

    The old coordinator unloads the groups at about the time at which the new coordinator loads
    them.
    """

    async def story(lab: BrokerLab) -> tuple[int, int, int, int]:
        begun_us = await shut_down(lab)
        await lab.until(is_down)

        (elected,) = [
            row
            for row in lab.events(TraceKind.LEADER_ELECTED)
            if row.partition == OFFSETS and row.leader_epoch == 1
        ]
        assert detail(elected)["reason"] == "controlled shutdown"

        (loaded,) = [row for row in lab.events(TraceKind.LOAD_COMPLETED) if row.leader_epoch == 1]
        (unloaded,) = unloads(lab)

        (fenced,) = lab.events(TraceKind.BROKER_FENCED)
        assert detail(fenced)["reason"] == "controlled shutdown"
        assert fenced.peer == broker_name(OLD)
        return (
            elected.time_us - begun_us,
            loaded.time_us - elected.time_us,
            abs(unloaded.time_us - loaded.time_us),
            fenced.time_us - begun_us,
        )

    times_us = BrokerLab(broker_cluster()).run(story)
    until_elected_us, until_loaded_us, between_unload_and_load_us, until_fenced_us = times_us
    # None of these three steps waits for a heartbeat (every 2 s) or for a session's end (9 s).
    assert until_elected_us < 20_000
    assert until_loaded_us < 200_000
    assert between_unload_and_load_us < 100_000
    # The fencing waits for heartbeats. The other brokers report with their next heartbeats, within
    # 2 s, that they know the new leaders. The stopping broker asks for permission after 50 ms, and
    # then every 2 s. So this broker gets the permission at the latest after about 2 s + 2 s.
    assert 50_000 < until_fenced_us < 4_500_000


def test_shutdown_of_a_starting_broker_ends_at_once() -> None:
    """The restarted broker leads no partition yet, so it need not ask for permission."""

    async def story(lab: BrokerLab) -> int:
        await lab.kill(OLD)
        await lab.restart(OLD)
        begun_us = await shut_down(lab)
        await lab.until(is_down)
        return lab.runtime.now_us() - begun_us

    # A few messages take less than 30 ms. The next heartbeat would come after 2 s.
    assert BrokerLab(broker_cluster()).run(story) < 30_000


def test_broker_that_exits_without_flushing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test plants a bug: a broker that stops does not flush its logs.

    Then a power loss after the stop could remove records.
    """
    monkeypatch.setattr(LogFlusher, "flush_all", lambda _flusher: None)
    lab = BrokerLab(broker_cluster())

    async def story(lab: BrokerLab) -> None:
        # The commit is a record that no flush has written to the disk.
        await lab.client.commit(OLD, GROUP, offset=5)
        # From now on the runtime checks the invariants of a node before its process exits.
        lab.runtime._checks_invariants = True
        await shut_down(lab)
        await lab.until(is_down)

    with pytest.raises(NodeTaskFailed, match="has flushed its logs"):
        lab.run(story)
