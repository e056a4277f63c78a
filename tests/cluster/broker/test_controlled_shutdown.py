"""A broker stops as on SIGTERM: leaders first, then the process (MEASURED_FAILOVER term)."""

import json

from cluster.runtime import ClusterStatus, NodeState
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, broker_name, offsets_partition
from protocol.messages.group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from protocol.partitioner import partition_for
from protocol.trace import TraceKind, TraceRow
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster

GROUP = "group"
PARTITION = partition_for(GROUP, 3)
OLD = PARTITION
NEW = (PARTITION + 1) % 3
OTHER = (PARTITION + 2) % 3
OFFSETS = str(offsets_partition(PARTITION))


def is_down(status: ClusterStatus) -> bool:
    return status.nodes[broker_name(OLD)] is NodeState.DOWN


def is_whole(status: ClusterStatus) -> bool:
    """Whether every replica is in its ISR again."""
    return all(len(partition.isr) == 3 for partition in status.partitions.values())


def detail(row: TraceRow) -> dict[str, object]:
    assert row.detail is not None
    loaded = json.loads(row.detail)
    assert isinstance(loaded, dict)
    return loaded


def unloads(lab: BrokerLab) -> list[TraceRow]:
    """Return what the broker unloaded after it had led."""
    return [
        row
        for row in lab.events(TraceKind.UNLOAD_COMPLETED, broker_name(OLD))
        if row.leader_epoch == 1
    ]


async def shut_down(lab: BrokerLab) -> int:
    """Shut the coordinator's broker down and return when that began."""
    begun_us = lab.runtime.now_us()
    await lab.runtime.shut_down(broker_name(OLD))
    return begun_us


def test_shutdown_moves_the_coordinator_within_tens_of_milliseconds() -> None:
    """Decided at once, without waiting for a session; the old one unloads as the new one loads."""

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

    decided_us, loaded_us, apart_us, fenced_us = BrokerLab(broker_cluster()).run(story)
    assert decided_us < 20_000
    assert loaded_us < 200_000
    assert apart_us < 100_000
    # The others report what they have applied with their next heartbeat, which is due within 2 s;
    # this broker asks after 50 ms, and then every 2 s.
    assert 50_000 < fenced_us < 4_500_000


def test_shutting_broker_serves_until_it_may_stop_and_says_not_coordinator() -> None:
    """Its connections stay open, so that clients are told instead of being reset."""

    async def story(lab: BrokerLab) -> list[ErrorCode]:
        errors = []
        await lab.client.commit(OLD, GROUP, 40)
        await shut_down(lab)
        await lab.seconds(0.3)
        answer = await lab.client.commit(OLD, GROUP, 41)
        errors.append(answer.topics[0].partitions[0].error_code)
        named = await lab.client.find_coordinator(OLD, GROUP)
        assert named.node_id == NEW
        produced = await lab.client.produce(OLD, b"late", partition=OLD)
        errors.append(produced.error_code)
        answer = await lab.client.commit(NEW, GROUP, 42)
        errors.append(answer.topics[0].partitions[0].error_code)
        return errors

    assert BrokerLab(broker_cluster()).run(story) == [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NONE,
    ]


def test_parked_join_is_answered_not_coordinator_when_the_group_is_unloaded() -> None:
    """BEHAVIOUR 5.5: whoever waits for a rebalance is sent to look for the new coordinator."""

    async def story(lab: BrokerLab) -> JoinGroupResponse:
        await shut_down_soon(lab)
        response = await lab.client.call(
            OLD,
            JoinGroupRequest(
                group_id=GROUP,
                session_timeout_ms=45_000,
                protocol_type="consumer",
                protocols=(JoinGroupRequestProtocol("range", b"\x00\x00"),),
            ),
            api_version=3,
        )
        assert isinstance(response, JoinGroupResponse)
        return response

    async def shut_down_soon(lab: BrokerLab) -> None:
        async def later() -> None:
            await lab.client.host.sleep(100_000)
            await shut_down(lab)

        lab.client.host.spawn(later(), name="shut-down-soon")

    assert BrokerLab(broker_cluster()).run(story).error_code is ErrorCode.NOT_COORDINATOR


def test_stopped_broker_is_let_in_again_at_once_and_rejoins_every_isr() -> None:
    """It was fenced when it left: no session of nine seconds has to end first."""

    async def story(lab: BrokerLab) -> int:
        await shut_down(lab)
        await lab.until(is_down)
        await lab.client.produce(NEW, b"while it was away", partition=NEW)
        back_us = lab.runtime.now_us()
        await lab.restart(OLD)
        await lab.until(is_whole)
        return lab.runtime.now_us() - back_us

    assert BrokerLab(broker_cluster()).run(story) < 3_000_000


def test_shutdown_without_a_controller_ends_after_five_minutes() -> None:
    """KafkaBroker.shutdown: it leads and serves until then, and its groups are not unloaded."""

    async def story(lab: BrokerLab) -> tuple[int, ErrorCode]:
        await lab.runtime.crash(lab.controller)
        begun_us = await shut_down(lab)
        await lab.seconds(290)
        answer = await lab.client.commit(OLD, GROUP, 1)
        await lab.until(is_down)
        assert unloads(lab) == []
        return lab.runtime.now_us() - begun_us, answer.topics[0].partitions[0].error_code

    lasted_us, error = BrokerLab(broker_cluster()).run(story)
    assert 300_000_000 <= lasted_us < 300_100_000
    assert error is ErrorCode.NONE


def test_shutdown_is_granted_by_a_controller_that_returns_in_time() -> None:
    """It keeps asking; the groups wait only for the controller."""

    async def story(lab: BrokerLab) -> ClusterStatus:
        await lab.runtime.crash(lab.controller)
        await shut_down(lab)
        await lab.seconds(20)
        await lab.runtime.restart(lab.controller)
        await lab.until(is_down, at_most_s=15)
        assert [row.peer for row in lab.events(TraceKind.BROKER_FENCED)] == [broker_name(OLD)]
        return await lab.runtime.status()

    status = BrokerLab(broker_cluster()).run(story)
    assert status.partitions[offsets_partition(PARTITION)].leader == BrokerId(NEW)


def test_shutdown_of_a_starting_broker_ends_at_once() -> None:
    """It leads nothing and has told nobody that it serves."""

    async def story(lab: BrokerLab) -> int:
        await lab.kill(OLD)
        await lab.restart(OLD)
        begun_us = await shut_down(lab)
        await lab.until(is_down)
        return lab.runtime.now_us() - begun_us

    assert BrokerLab(broker_cluster()).run(story) < 30_000


def test_what_a_stopped_broker_wrote_survives_a_power_loss() -> None:
    """LogManager.shutdown flushes: only a crash leaves the disk to the system."""

    async def story(lab: BrokerLab) -> list[int]:
        await lab.client.produce(OLD, b"a", b"b", partition=OLD)
        await lab.seconds(0.1)
        await shut_down(lab)
        await lab.until(is_down)
        storage = lab.storages[broker_name(OLD)]
        logs = [storage.log(name) for name in storage.partitions() if name.topic == ORDERS]
        return [len(log) - log.flushed_length for log in logs]

    assert BrokerLab(broker_cluster()).run(story) == [0, 0, 0]
