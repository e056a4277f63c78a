"""A broker that lives while it is believed dead: paused, or cut off (BEHAVIOUR 6.2, 6.4)."""

import msgspec
import pytest

from cluster.client.admin.orders import move_leader
from cluster.links.rules import Cut, LinkRule, Selector
from cluster.runtime import ClusterStatus
from cluster.spec import CostModel
from protocol.errors import ErrorCode
from protocol.ids import BrokerId, TopicPartition, broker_name, offsets_partition
from protocol.messages.offset import OffsetCommitResponse
from protocol.partitioner import partition_for
from protocol.trace import TraceKind, TraceRow
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster, values_of

GROUP = "group"
PARTITION = partition_for(GROUP, 3)
OLD = PARTITION
NEW = (PARTITION + 1) % 3
OTHER = (PARTITION + 2) % 3
OFFSETS = offsets_partition(PARTITION)
DATA = TopicPartition(ORDERS, PARTITION)


def moved(status: ClusterStatus) -> bool:
    return status.partitions[OFFSETS].leader == NEW


def is_whole(status: ClusterStatus) -> bool:
    return all(len(partition.isr) == 3 for partition in status.partitions.values())


def error_of(response: OffsetCommitResponse) -> ErrorCode:
    return response.topics[0].partitions[0].error_code


async def cut_off(lab: BrokerLab) -> None:
    """Cut the coordinator's broker from the controller and the other brokers, not from clients."""
    old = broker_name(OLD)
    others = (lab.controller, broker_name(NEW), broker_name(OTHER))
    await lab.runtime.set_link_rules(
        [
            LinkRule(
                rule_id="out", selector=Selector(sources=(old,), destinations=others), effect=Cut()
            ),
            LinkRule(
                rule_id="in", selector=Selector(sources=others, destinations=(old,)), effect=Cut()
            ),
        ]
    )


async def heal(lab: BrokerLab) -> None:
    await lab.runtime.set_link_rules([])


def of_old(lab: BrokerLab, kind: TraceKind, since_us: int) -> list[TraceRow]:
    """Return what the old leader did after `since_us`."""
    return [row for row in lab.events(kind, broker_name(OLD)) if row.time_us >= since_us]


# -- paused --


def test_resumed_broker_learns_in_order_and_is_unfenced_without_a_new_registration() -> None:
    """Its broker epoch is valid still: a heartbeat that has caught up is all that it takes."""

    async def story(lab: BrokerLab) -> None:
        await lab.client.commit(OLD, GROUP, 40)
        await lab.runtime.pause(broker_name(OLD))
        await lab.seconds(20)
        assert moved(await lab.runtime.status())
        assert error_of(await lab.client.commit(NEW, GROUP, 41)) is ErrorCode.NONE
        resumed_us = lab.runtime.now_us()
        await lab.runtime.resume(broker_name(OLD))
        await lab.until(is_whole, at_most_s=10)
        assert len(lab.events(TraceKind.BROKER_REGISTERED)) == 3
        assert [row.peer for row in lab.events(TraceKind.BROKER_UNFENCED)][3:] == [broker_name(OLD)]
        (followed,) = [
            row
            for row in of_old(lab, TraceKind.BECAME_FOLLOWER, resumed_us)
            if row.partition == str(OFFSETS)
        ]
        (unloaded,) = of_old(lab, TraceKind.UNLOAD_COMPLETED, resumed_us)
        assert followed.time_us <= unloaded.time_us < resumed_us + 1_000_000
        assert error_of(await lab.client.commit(OLD, GROUP, 42)) is ErrorCode.NOT_COORDINATOR
        status = await lab.runtime.status()
        assert [group.coordinator for group in status.groups[GROUP]] == [NEW]

    BrokerLab(broker_cluster()).run(story)


def test_commit_that_waited_for_a_paused_broker_is_never_acknowledged() -> None:
    """It answers what it believes, but the append needs followers that are in a newer epoch."""

    async def story(lab: BrokerLab) -> ErrorCode:
        await lab.client.commit(OLD, GROUP, 40)
        await lab.runtime.pause(broker_name(OLD))
        resume_later(lab, after_us=15_000_000)
        return error_of(await lab.client.commit(OLD, GROUP, 41))

    def resume_later(lab: BrokerLab, *, after_us: int) -> None:
        async def later() -> None:
            await lab.client.host.sleep(after_us)
            await lab.runtime.resume(broker_name(OLD))

        lab.client.host.spawn(later(), name="resume-later")

    assert BrokerLab(broker_cluster()).run(story) is ErrorCode.NOT_COORDINATOR


def test_broker_paused_for_less_than_its_session_leads_on() -> None:
    """Nobody was told anything: it was only slow."""

    async def story(lab: BrokerLab) -> ErrorCode:
        await lab.runtime.pause(broker_name(OLD))
        await lab.seconds(6)
        await lab.runtime.resume(broker_name(OLD))
        assert lab.events(TraceKind.BROKER_FENCED) == []
        answer = error_of(await lab.client.commit(OLD, GROUP, 41))
        await lab.seconds(10)
        assert lab.events(TraceKind.BROKER_FENCED) == []
        return answer

    assert BrokerLab(broker_cluster()).run(story) is ErrorCode.NONE


# -- cut off --


@pytest.mark.parametrize("when_s", [1, 15, 40])
def test_cut_off_leader_never_acknowledges_because_its_isr_cannot_shrink(when_s: int) -> None:
    """Before and after detection, and after the 30 s of lag: the controller would have to agree."""

    async def story(lab: BrokerLab) -> tuple[ErrorCode, int]:
        await lab.client.commit(OLD, GROUP, 40)
        await cut_off(lab)
        await lab.seconds(when_s)
        begun_us = lab.runtime.now_us()
        error = error_of(await lab.client.commit(OLD, GROUP, 41))
        return error, lab.runtime.now_us() - begun_us

    error, waited_us = BrokerLab(broker_cluster()).run(story)
    assert error is ErrorCode.REQUEST_TIMED_OUT
    assert 5_000_000 <= waited_us < 5_100_000


def test_cut_off_broker_goes_on_naming_itself_while_the_others_name_the_new_one() -> None:
    """Each answers from its own metadata: which side a joiner ends on is whom it asks."""

    async def story(lab: BrokerLab) -> list[int]:
        await cut_off(lab)
        await lab.until(moved)
        await lab.seconds(0.5)
        return [
            (await lab.client.find_coordinator(broker_id, GROUP)).node_id
            for broker_id in (OLD, NEW, OTHER)
        ]

    assert BrokerLab(broker_cluster()).run(story) == [OLD, NEW, NEW]


@pytest.mark.parametrize("cut_s", [12, 25, 80])
def test_healed_broker_truncates_unloads_and_rejoins_every_isr(cut_s: int) -> None:
    """What it wrote alone is gone, what the new leader wrote is there; no new registration."""

    async def story(lab: BrokerLab) -> None:
        await lab.client.commit(OLD, GROUP, 40)
        await lab.client.produce(OLD, b"before", partition=OLD)
        await cut_off(lab)
        alone = await lab.client.produce(OLD, b"alone", partition=OLD, acks=1)
        assert alone.error_code is ErrorCode.NONE
        assert error_of(await lab.client.commit(OLD, GROUP, 41)) is ErrorCode.REQUEST_TIMED_OUT
        await lab.until(moved)
        await lab.seconds(cut_s - 8)
        assert error_of(await lab.client.commit(NEW, GROUP, 42)) is ErrorCode.NONE
        await lab.client.produce(NEW, b"new", partition=OLD)
        healed_us = lab.runtime.now_us()
        await heal(lab)
        await lab.until(is_whole, at_most_s=20)
        assert len(lab.events(TraceKind.BROKER_REGISTERED)) == 3
        truncated = {row.partition for row in of_old(lab, TraceKind.LOG_TRUNCATED, healed_us)}
        assert truncated == {str(OFFSETS), str(DATA)}
        assert len(of_old(lab, TraceKind.UNLOAD_COMPLETED, healed_us)) == 1
        assert error_of(await lab.client.commit(OLD, GROUP, 43)) is ErrorCode.NOT_COORDINATOR
        # Led by the healed broker again: its copy holds what was acknowledged and nothing else.
        await lab.runtime.ask_as_admin(move_leader, DATA, BrokerId(OLD))
        await lab.seconds(2)
        data = await lab.client.fetch(OLD, partition=OLD)
        assert values_of(data) == [b"before", b"new"]

    BrokerLab(broker_cluster()).run(story)


def test_broker_cut_from_the_controller_alone_is_fenced_and_cannot_rejoin_until_it_learns() -> None:
    """Others reach it, so it reads and is read; but its leaderships are gone and it knows not."""

    async def story(lab: BrokerLab) -> tuple[ErrorCode, bool]:
        old = broker_name(OLD)
        await lab.runtime.set_link_rules(
            [
                LinkRule(
                    rule_id="controller",
                    selector=Selector(sources=(old,), destinations=(lab.controller,)),
                    effect=Cut(),
                )
            ]
        )
        await lab.until(moved)
        await lab.seconds(2)
        error = error_of(await lab.client.commit(OLD, GROUP, 41))
        status = await lab.runtime.status()
        is_out = all(OLD not in p.isr for p in status.partitions.values())
        await heal(lab)
        await lab.until(is_whole, at_most_s=20)
        return error, is_out

    assert BrokerLab(broker_cluster()).run(story) == (ErrorCode.REQUEST_TIMED_OUT, True)


# -- who learns first --


@pytest.mark.parametrize("late", [NEW, OTHER])
def test_commits_wait_a_fetch_backoff_where_the_follower_learns_before_the_new_leader(
    late: int,
) -> None:
    """The slower moves of MEASURED_FAILOVER 5: replica.fetch.backoff.ms.

    A follower that asks a leader which does not know yet that it leads is refused, and comes back
    a second later; until then nothing is acknowledged. Where the leader learns first, nobody waits.
    """

    async def story(lab: BrokerLab) -> int:
        begun_us = lab.runtime.now_us()
        await lab.runtime.set_link_rules(
            [
                LinkRule(
                    rule_id="late",
                    selector=Selector(sources=(lab.controller,), destinations=(broker_name(late),)),
                    effect=Cut(),
                )
            ]
        )
        await lab.runtime.shut_down(broker_name(OLD))
        await busy(lab)
        await heal(lab)
        await busy(lab)
        assert error_of(await lab.client.commit(NEW, GROUP, 1)) is ErrorCode.NONE
        return lab.runtime.now_us() - begun_us

    async def busy(lab: BrokerLab) -> None:
        """Let 0.1 s pass in which records end every long poll of the followers of NEW."""
        for _ in range(10):
            await lab.client.produce(NEW, b"x", partition=NEW, acks=1)
            await lab.seconds(0.01)

    waited_us = BrokerLab(broker_cluster()).run(story)
    if late == NEW:
        assert 1_000_000 < waited_us < 1_300_000
    else:
        assert waited_us < 300_000


def test_publish_jitter_lets_brokers_learn_at_different_times() -> None:
    """Measured: 42 to 169 ms from the decision to the election's line in the broker's log."""

    async def story(lab: BrokerLab) -> list[int]:
        begun_us = lab.runtime.now_us()
        await lab.runtime.shut_down(broker_name(OLD))
        await lab.seconds(1)
        learnt = [
            row
            for kind in (TraceKind.BECAME_LEADER, TraceKind.BECAME_FOLLOWER)
            for row in lab.events(kind)
            if row.partition == str(OFFSETS) and row.time_us > begun_us
        ]
        return sorted(row.time_us - begun_us for row in learnt)

    costs = CostModel(publish_us=40_000, publish_jitter_us=80_000)
    times_us = BrokerLab(msgspec.structs.replace(broker_cluster(), costs=costs)).run(story)
    assert len(times_us) == 3
    assert 40_000 <= times_us[0] < times_us[-1] <= 122_000
    assert times_us[-1] - times_us[0] > 5_000
