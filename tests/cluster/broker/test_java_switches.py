"""Brokers whose coordinator has switches for its log: cut off, or with too few replicas."""

import msgspec
import pytest

from cluster.links.rules import Cut, LinkRule, Selector
from protocol.config import Guards, JavaSwitches
from protocol.errors import ErrorCode
from protocol.ids import broker_name
from protocol.messages.offset import (
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from protocol.partitioner import partition_for
from protocol.trace import TraceKind
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster

GROUP = "group"
PARTITION = partition_for(GROUP, 3)
OLD = PARTITION
NEW = (PARTITION + 1) % 3
OTHER = (PARTITION + 2) % 3
COMMITS = JavaSwitches(commits_apply_on_append=True)
SHORT_S = 7
"""Shorter than broker.session.timeout.ms, longer than offsets.commit.timeout.ms."""


def lab(java: JavaSwitches, guards: Guards | None = None) -> BrokerLab:
    return BrokerLab(msgspec.structs.replace(broker_cluster(guards=guards), java=java))


def error_of(response: OffsetCommitResponse) -> ErrorCode:
    return response.topics[0].partitions[0].error_code


async def cut_off(lab: BrokerLab) -> None:
    """Cut the coordinator's broker from the controller and the other brokers."""
    old = (broker_name(OLD),)
    others = (lab.controller, broker_name(NEW), broker_name(OTHER))
    await lab.runtime.set_link_rules(
        [
            LinkRule(
                rule_id=rule_id,
                selector=Selector(sources=sources, destinations=destinations),
                effect=Cut(),
            )
            for rule_id, sources, destinations in (("out", old, others), ("in", others, old))
        ]
    )


async def heal(lab: BrokerLab) -> None:
    await lab.runtime.set_link_rules([])


async def fetch(lab: BrokerLab, *, require_stable: bool = False) -> int | ErrorCode:
    """Return the offset that the old coordinator tells, or why not."""
    topics = (OffsetFetchRequestTopics(name=ORDERS, partition_indexes=(0,)),)
    response = await lab.client.call(
        OLD,
        OffsetFetchRequest(
            groups=(OffsetFetchRequestGroup(group_id=GROUP, topics=topics),),
            require_stable=require_stable,
        ),
    )
    assert isinstance(response, OffsetFetchResponse)
    group = response.groups[0]
    if group.error_code is not ErrorCode.NONE:
        return group.error_code
    partition = group.topics[0].partitions[0]
    return partition.error_code if partition.error_code.value else partition.committed_offset


@pytest.mark.parametrize(("java", "offset"), [(COMMITS, 41), (JavaSwitches(), 40)])
def test_commit_that_timed_out_counts_when_its_leader_is_back_in_time(
    java: JavaSwitches, offset: int
) -> None:
    """Nobody else was elected, and the record is replicated; the Scala coordinator forgot it."""

    async def story(lab: BrokerLab) -> tuple[ErrorCode, int | ErrorCode, int | ErrorCode]:
        await lab.client.commit(OLD, GROUP, 40)
        await cut_off(lab)
        error = error_of(await lab.client.commit(OLD, GROUP, 41))
        await lab.seconds(SHORT_S - 5)
        before = await fetch(lab)
        await heal(lab)
        await lab.seconds(5)
        assert lab.events(TraceKind.BROKER_FENCED) == []
        return error, before, await fetch(lab)

    told = (
        ErrorCode.COORDINATOR_NOT_AVAILABLE
        if java.commits_apply_on_append
        else ErrorCode.REQUEST_TIMED_OUT
    )
    assert lab(java).run(story) == (told, 40, offset)


@pytest.mark.parametrize(
    ("java", "told"), [(COMMITS, ErrorCode.NOT_COORDINATOR), (JavaSwitches(), 40)]
)
def test_stable_offsets_of_a_leader_that_is_cut_off(
    java: JavaSwitches, told: int | ErrorCode
) -> None:
    """BEHAVIOUR 6.4: stale ones from memory, or none while anything is uncommitted."""

    async def story(lab: BrokerLab) -> tuple[int | ErrorCode, int, int | ErrorCode]:
        await lab.client.commit(OLD, GROUP, 40)
        await cut_off(lab)
        await lab.client.commit(OLD, GROUP, 41)
        begun_us = lab.runtime.now_us()
        answer = await fetch(lab, require_stable=True)
        waited_s = (lab.runtime.now_us() - begun_us) // 1_000_000
        return answer, waited_s, await fetch(lab)

    waited_s = 5 if java.commits_apply_on_append else 0
    assert lab(java).run(story) == (told, waited_s, 40)


@pytest.mark.parametrize(("java", "offset"), [(COMMITS, 42), (JavaSwitches(), 40)])
def test_commit_below_min_insync_replicas(java: JavaSwitches, offset: int) -> None:
    """BEHAVIOUR 6.1: refused at once; or written, and refused after 5 s."""

    async def story(lab: BrokerLab) -> tuple[ErrorCode, int, int | ErrorCode]:
        await lab.client.commit(OLD, GROUP, 40)
        await lab.kill(NEW)
        await lab.kill(OTHER)
        await lab.seconds(15)
        begun_us = lab.runtime.now_us()
        error = error_of(await lab.client.commit(OLD, GROUP, 42))
        waited_s = (lab.runtime.now_us() - begun_us) // 1_000_000
        await lab.restart(NEW)
        await lab.seconds(15)
        return error, waited_s, await fetch(lab)

    waited_s = 5 if java.commits_apply_on_append else 0
    assert lab(java).run(story) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, waited_s, offset)


def test_who_waits_is_told_when_the_leader_learns_that_it_was_replaced() -> None:
    """5.5 [J]: at once, and not after the 5 s."""

    async def story(lab: BrokerLab) -> tuple[int | ErrorCode, int]:
        async def heal_later() -> None:
            await lab.client.host.sleep(2_000_000)
            await heal(lab)

        await cut_off(lab)
        await lab.seconds(10)
        await lab.client.commit(OLD, GROUP, 41)
        lab.client.host.spawn(heal_later(), name="heal-later")
        begun_us = lab.runtime.now_us()
        answer = await fetch(lab, require_stable=True)
        return answer, (lab.runtime.now_us() - begun_us) // 1_000_000

    answer, waited_s = lab(COMMITS).run(story)
    assert answer is ErrorCode.NOT_COORDINATOR
    assert 2 <= waited_s < 5


def test_without_the_high_watermark_gate_nothing_waits() -> None:
    """Guard off: what the local log has counts as committed, for whoever waits as well."""

    async def story(lab: BrokerLab) -> tuple[ErrorCode, int | ErrorCode]:
        await lab.client.commit(OLD, GROUP, 40)
        await cut_off(lab)
        error = error_of(await lab.client.commit(OLD, GROUP, 41))
        return error, await fetch(lab, require_stable=True)

    guards = Guards(high_watermark_gate=False)
    assert lab(COMMITS, guards).run(story) == (ErrorCode.NONE, 41)
