"""A consumer of Kafka 0.8 commits its offsets to Kafka, and the commits fail.

Such a consumer commits on three occasions: from time to time by its auto-commit thread, in a
rebalance when it stops its fetchers (step R3 of a rebalance), and when it is shut down. The number
of tries of a failing commit depends on the occasion, by the rule ZK-65 of
docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

import pytest

from cluster.links.rules import Cut
from protocol.config import ZooKeeperConsumerConfig
from protocol.trace import TraceKind
from tests.support.harness.zookeeper_group import SECOND, GroupLab, member_name

# The offsets are stored in Kafka only, and not in ZooKeeper. A commit without an answer fails after
# 0.5 s.
OFFSETS_IN_KAFKA = ZooKeeperConsumerConfig(
    auto_commit_interval_ms=20_000,
    offsets_storage="kafka",
    dual_commit_enabled=False,
    offsets_channel_socket_timeout_ms=500,
)


@pytest.mark.parametrize(("by_shutdown", "tries"), [(False, 6), (True, 1)])
def test_automatic_commit_is_tried_six_times_and_the_others_once(
    by_shutdown: bool, tries: int
) -> None:
    """The auto-commit thread gets 1 + `offsets.commit.max.retries` (5) tries (ZK-65).

    R3 and shutdown get one. The test has no case for R3. No OffsetCommit reaches a broker, so every
    try fails.
    """

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        brokers = [name for name in lab.nodes if name.startswith("broker-")]
        await lab.rule(Cut(), [member_name(0)], brokers, apis=("OffsetCommit",))
        if by_shutdown:
            await lab.runtime.shut_down(member_name(0))
        # Enough for the interval of 20 s, and then six tries of 0.5 s, with 1 s between two tries.
        await lab.runtime.sleep(35 * SECOND)

    lab = GroupLab(members=1, partitions=1, config=OFFSETS_IN_KAFKA).run(scenario)

    sent = [
        row
        for row in lab.of(TraceKind.REQUEST_SENT, after_us=lab.change_began_us, node=member_name(0))
        if row.api == "OffsetCommit"
    ]
    assert len(sent) == tries


def test_last_try_of_a_commit_is_not_followed_by_a_wait() -> None:
    """The wait of 1 s (`offsets.channel.backoff.ms`) is only between two tries.

    The shutdown tries once, which fails after 0.5 s. So the consumer stops in less than a second.
    """

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        brokers = [name for name in lab.nodes if name.startswith("broker-")]
        await lab.rule(Cut(), [member_name(0)], brokers, apis=("OffsetCommit",))
        await lab.runtime.shut_down(member_name(0))
        await lab.runtime.sleep(5 * SECOND)

    lab = GroupLab(members=1, partitions=1, config=OFFSETS_IN_KAFKA).run(scenario)

    (stopped, *_) = lab.of(
        TraceKind.NODE_STOPPED, after_us=lab.change_began_us, node=member_name(0)
    )
    assert stopped.time_us - lab.change_began_us < SECOND
