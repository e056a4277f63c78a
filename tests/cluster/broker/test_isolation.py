"""Brokers that learn of an election at different times.

`lab` is a cluster of three brokers in virtual time. Partition n of each topic has the replicas n,
n + 1 and n + 2 (modulo 3), and broker n is its first leader.

- Broker OLD first leads the group's offsets partition, which has the number PARTITION.
- Broker NEW leads it after a shutdown of OLD.
- Broker OTHER follows.

Election and zombie coordinators: docs/kafka, BEHAVIOUR 6.2 and 6.4.
"""

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
OLD, NEW, OTHER = PARTITION, (PARTITION + 1) % 3, (PARTITION + 2) % 3
"""Brokers with a replica of the group's offsets partition, in the order of its assignment."""
OFFSETS = offsets_partition(PARTITION)


def error_of(response: OffsetCommitResponse) -> ErrorCode:
    """Return the error of the only partition."""
    return response.topics[0].partitions[0].error_code


async def heal(lab: BrokerLab) -> None:
    """Withdraw all rules of links, so that messages pass again."""
    await lab.runtime.set_link_rules([])


# -- follower and leader learn of an election at different times --


@pytest.mark.parametrize("late", [NEW, OTHER])
def test_commits_wait_a_fetch_backoff_if_the_follower_learns_of_an_election_before_the_leader(
    late: int,
) -> None:
    """In a real cluster some moves of a leader take 1 s longer (docs/kafka, MEASURED_FAILOVER 5).

    1. A follower fetches from the new leader, which has not applied its leadership yet.
    2. The Fetch is refused, and the follower retries after replica.fetch.backoff.ms, a second.
    3. Until then no record is acknowledged.

    If the leader applies the metadata first, no commit waits. The broker `late` gets the metadata
    last.
    """

    async def end_long_polls(lab: BrokerLab) -> None:
        """For 0.1 s, append records that end every long poll of the followers of broker NEW.

        A follower has one Fetch at a time to each broker, for all partitions that this broker
        leads. It adds the offsets partition with its next Fetch, so the parked Fetch has to end.
        """
        partition = NEW  # broker n leads partition n of orders
        for _ in range(10):
            await lab.client.produce(NEW, b"x", partition=partition, acks=1)
            await lab.seconds(0.01)

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
        await end_long_polls(lab)  # the election, whose metadata do not reach the broker `late`
        await heal(lab)
        await end_long_polls(lab)  # the metadata reach the broker `late`, too
        assert error_of(await lab.client.commit(NEW, GROUP, 1)) is ErrorCode.NONE
        return lab.runtime.now_us() - begun_us

    waited_us = BrokerLab(broker_cluster()).run(story)
    # 0.3 s: both rounds of `end_long_polls` take 0.2 s, all messages together less than 0.1 s.
    if late == NEW:  # NEW is the new leader, OTHER the follower
        assert 1_000_000 < waited_us < 1_300_000  # the backoff of 1 s, too
    else:
        assert waited_us < 300_000


def test_publish_jitter_delays_metadata_by_a_different_time_on_each_broker() -> None:
    """A real cluster needs 42 to 169 ms from the decision to the election's line in a broker's log.

    So the time has a fixed part and a random part. Here each broker needs 40 ms, and a random time
    of up to 80 ms more, which it draws for itself.
    """
    publish_us, jitter_us = 40_000, 80_000
    messages_us = 2_000  # more than the messages of the shutdown and of the metadata need

    async def story(lab: BrokerLab) -> list[int]:
        begun_us = lab.runtime.now_us()
        await lab.runtime.shut_down(broker_name(OLD))
        await lab.seconds(1)
        applied = [  # one row of each broker
            row
            for kind in (TraceKind.BECAME_LEADER, TraceKind.BECAME_FOLLOWER)
            for row in lab.events(kind)
            if row.partition == str(OFFSETS) and row.time_us > begun_us
        ]
        return sorted(row.time_us - begun_us for row in applied)

    costs = CostModel(publish_us=publish_us, publish_jitter_us=jitter_us)
    times_us = BrokerLab(msgspec.structs.replace(broker_cluster(), costs=costs)).run(story)
    assert len(times_us) == 3  # the broker that stops applies the election, too
    first_us, last_us = times_us[0], times_us[-1]
    assert publish_us <= first_us < last_us <= publish_us + jitter_us + messages_us
    assert last_us - first_us > 5_000  # far more than the messages need: the draws differ
