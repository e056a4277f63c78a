"""Brokers that learn of an election at different times.

`lab` is a cluster of three brokers in virtual time. At first broker n leads partition n of each
topic. The tests shut down the broker that leads the group's offsets partition, so that another
broker is elected. The controller publishes the election to all brokers. A test can delay this
message to one broker by a link rule with the effect Cut. Such a rule holds messages back until it
is withdrawn.

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
PARTITION_NUMBER = partition_for(GROUP, 3)
"""Number of the partition of `__consumer_offsets` that has the commits of the group."""
OFFSETS_PARTITION = offsets_partition(PARTITION_NUMBER)
"""The group's offsets partition: the topic and the number."""
OLD = PARTITION_NUMBER
"""The broker that leads the group's offsets partition at first: broker n leads partition n."""
NEW = (OLD + 1) % 3
"""The broker that is elected as the leader when OLD is shut down."""
OTHER = (OLD + 2) % 3
"""The broker that follows NEW then."""


def commit_error(response: OffsetCommitResponse) -> ErrorCode:
    """Return the error of the only partition in the answer."""
    return response.topics[0].partitions[0].error_code


async def heal(lab: BrokerLab) -> None:
    """Withdraw all link rules, so that the messages that were held back arrive."""
    await lab.runtime.set_link_rules([])


@pytest.mark.parametrize("last_to_learn", [NEW, OTHER])
def test_commit_takes_a_second_longer_if_the_new_leader_learns_of_its_election_last(
    last_to_learn: int,
) -> None:
    """If the follower learns of the election first, a commit takes a second longer.

    1. The follower fetches from the new leader, which does not know yet that it leads.
    2. The Fetch is refused. The follower repeats it after replica.fetch.backoff.ms, a second.
    3. Until the repetition no new record is acknowledged, because the follower does not have the
       record.

    This happens in a real cluster, too: some moves of a leader take 1 s longer than others
    (docs/kafka, MEASURED_FAILOVER 5). If the new leader learns of the election first, no commit
    waits.
    """

    async def end_long_polls(lab: BrokerLab) -> None:
        """For 0.1 s, give each waiting Fetch at broker NEW a record, so that it is answered.

        OTHER sends only one Fetch at a time to NEW, for all partitions that NEW leads. While such a
        Fetch waits for new records, OTHER cannot begin to fetch the offsets partition from NEW. The
        length of this wait is up to chance, and would be added to the time that the test measures.
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
                    selector=Selector(
                        sources=(lab.controller,), destinations=(broker_name(last_to_learn),)
                    ),
                    effect=Cut(),
                )
            ]
        )
        await lab.runtime.shut_down(broker_name(OLD))
        await end_long_polls(lab)  # one of the two brokers learns of the election
        await heal(lab)
        await end_long_polls(lab)  # the other broker learns of it, too
        assert commit_error(await lab.client.commit(NEW, GROUP, 1)) is ErrorCode.NONE
        return lab.runtime.now_us() - begun_us

    waited_us = BrokerLab(broker_cluster()).run(story)
    # The two rounds of `end_long_polls` take 0.2 s together. All messages of the test take less
    # than 0.1 s together.
    if last_to_learn == NEW:
        assert 1_000_000 < waited_us < 1_300_000  # less than 0.2 s + 0.1 s + the backoff of 1 s
    else:
        assert waited_us < 300_000  # less than 0.2 s + 0.1 s


def test_publish_jitter_delays_metadata_by_a_different_time_on_each_broker() -> None:
    """As in a real cluster, the brokers do not all learn of an election at the same time.

    In a real cluster a broker's log shows an election 42 to 169 ms after the controller's decision.
    Here metadata reach a broker after a fixed time of 40 ms and a random time of up to 80 ms. The
    random time is drawn for each broker separately.
    """
    publish_us, jitter_us = 40_000, 80_000
    # This is more time than all messages of the shutdown and of the publication take together.
    messages_us = 2_000

    async def story(lab: BrokerLab) -> list[int]:
        begun_us = lab.runtime.now_us()
        await lab.runtime.shut_down(broker_name(OLD))
        await lab.seconds(1)
        # A broker that applies the election writes one of these rows.
        applied = [
            row
            for kind in (TraceKind.BECAME_LEADER, TraceKind.BECAME_FOLLOWER)
            for row in lab.events(kind)
            if row.partition == str(OFFSETS_PARTITION) and row.time_us > begun_us
        ]
        return sorted(row.time_us - begun_us for row in applied)

    costs = CostModel(publish_us=publish_us, publish_jitter_us=jitter_us)
    times_us = BrokerLab(msgspec.structs.replace(broker_cluster(), costs=costs)).run(story)
    # All three brokers apply the election. OLD does, too: it hands its partitions over before it
    # stops, and applies metadata until then.
    assert len(times_us) == 3
    first_us, last_us = times_us[0], times_us[-1]
    assert publish_us <= first_us < last_us <= publish_us + jitter_us + messages_us
    # The difference is more than the time of the messages, so the draws differ.
    assert last_us - first_us > 5_000
