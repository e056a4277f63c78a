"""Brokers that learn of an election at different times.

`lab` is a cluster of three brokers in virtual time. Partition n of each topic has the replicas n,
n + 1 and n + 2 (modulo 3), and broker n leads it first. A rule with the effect Cut holds messages
between nodes back until it is withdrawn.

- Broker OLD first leads the group's offsets partition, whose number is PARTITION.
- Broker NEW leads this partition after a shutdown of OLD.
- Broker OTHER follows.

In docs/kafka, BEHAVIOUR 6.2 describes Kafka's elections, and BEHAVIOUR 6.4 describes coordinators
that were replaced.
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
    """Return the error of the only partition in the answer."""
    return response.topics[0].partitions[0].error_code


async def heal(lab: BrokerLab) -> None:
    """Withdraw all rules of links, so that all messages pass again."""
    await lab.runtime.set_link_rules([])


@pytest.mark.parametrize("late", [NEW, OTHER])
def test_commits_wait_a_fetch_backoff_if_the_follower_learns_of_an_election_before_the_leader(
    late: int,
) -> None:
    """In a real cluster some moves of a leader take 1 s longer (docs/kafka, MEASURED_FAILOVER 5).

    1. A follower fetches from the new leader, which does not know yet that it leads.
    2. The Fetch is refused. The follower repeats it after replica.fetch.backoff.ms, a second.
    3. Until then no record is acknowledged, because the follower does not have it.

    If the leader learns of the election first, no commit waits. `late` is the broker that learns of
    the election last: the new leader, NEW, or the follower, OTHER.
    """

    async def end_long_polls(lab: BrokerLab) -> None:
        """For 0.1 s, append records that end every long poll of the followers of broker NEW.

        A long poll is a Fetch that waits for records. A follower has one Fetch at a time to each
        broker, for all partitions that this broker leads. So the follower can add the offsets
        partition only after its waiting Fetch has ended.
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
        await end_long_polls(lab)  # the election happens; its metadata do not reach `late`
        await heal(lab)
        await end_long_polls(lab)  # now the metadata reach `late`, too
        assert error_of(await lab.client.commit(NEW, GROUP, 1)) is ErrorCode.NONE
        return lab.runtime.now_us() - begun_us

    waited_us = BrokerLab(broker_cluster()).run(story)
    # The two rounds of `end_long_polls` take 0.2 s together, and all messages less than 0.1 s.
    if late == NEW:  # NEW is the new leader, OTHER the follower
        assert 1_000_000 < waited_us < 1_300_000  # the backoff of 1 s comes on top
    else:
        assert waited_us < 300_000


def test_publish_jitter_delays_metadata_by_a_different_time_on_each_broker() -> None:
    """Brokers must not all learn of an election at the same time.

    Metadata reach a broker after a fixed time, here 40 ms, and a random time, here up to 80 ms.
    Each broker draws its own random time. In a real cluster a broker's log shows an election 42 to
    169 ms after the controller's decision.
    """
    publish_us, jitter_us = 40_000, 80_000
    messages_us = 2_000  # more than the time of the messages of the shutdown and of the metadata

    async def story(lab: BrokerLab) -> list[int]:
        begun_us = lab.runtime.now_us()
        await lab.runtime.shut_down(broker_name(OLD))
        await lab.seconds(1)
        # A broker that applies the election writes one of these rows.
        applied = [
            row
            for kind in (TraceKind.BECAME_LEADER, TraceKind.BECAME_FOLLOWER)
            for row in lab.events(kind)
            if row.partition == str(OFFSETS) and row.time_us > begun_us
        ]
        return sorted(row.time_us - begun_us for row in applied)

    costs = CostModel(publish_us=publish_us, publish_jitter_us=jitter_us)
    times_us = BrokerLab(msgspec.structs.replace(broker_cluster(), costs=costs)).run(story)
    assert len(times_us) == 3  # the broker that stops learns of the election, too
    first_us, last_us = times_us[0], times_us[-1]
    assert publish_us <= first_us < last_us <= publish_us + jitter_us + messages_us
    # The difference is more than the time of the messages, so the draws differ.
    assert last_us - first_us > 5_000
