"""A live broker that others take for dead: paused, or cut off (BEHAVIOUR 6.2, 6.4)."""

import msgspec
import pytest

from cluster.links.rules import Cut, LinkRule, Selector
from cluster.spec import CostModel
from protocol.errors import ErrorCode
from protocol.ids import broker_name, offsets_partition
from protocol.messages.offset import OffsetCommitResponse
from protocol.partitioner import partition_for
from protocol.trace import TraceKind
from tests.support.harness.brokers import BrokerLab, broker_cluster

GROUP = "group"
PARTITION = partition_for(GROUP, 3)
OLD = PARTITION
NEW = (PARTITION + 1) % 3
OTHER = (PARTITION + 2) % 3
OFFSETS = offsets_partition(PARTITION)


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


# -- follower and leader learn of an election at different times --


@pytest.mark.parametrize("late", [NEW, OTHER])
def test_commits_wait_a_fetch_backoff_where_the_follower_learns_of_the_leader_first(
    late: int,
) -> None:
    """The slower moves of MEASURED_FAILOVER 5: replica.fetch.backoff.ms.

    1. A follower fetches from the new leader, which has not applied its leadership yet.
    2. The Fetch is refused, and the follower retries after a second.
    3. Until then no record is acknowledged.

    Where the leader applies the metadata first, no commit waits.
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
        """For 0.1 s, append records that end every long poll of the followers of NEW."""
        for _ in range(10):
            await lab.client.produce(NEW, b"x", partition=NEW, acks=1)
            await lab.seconds(0.01)

    waited_us = BrokerLab(broker_cluster()).run(story)
    if late == NEW:
        assert 1_000_000 < waited_us < 1_300_000
    else:
        assert waited_us < 300_000


def test_publish_jitter_delays_metadata_by_a_different_time_on_each_broker() -> None:
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
