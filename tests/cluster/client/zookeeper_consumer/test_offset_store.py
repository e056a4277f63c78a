"""How often each part of a consumer on ZooKeeper tries a commit to Kafka that fails.

Three parts commit: the auto-commit thread at its interval, the step of a rebalance that stops the
fetchers (R3), and the shutdown. ZK-65 is a rule of docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

import pytest

from cluster.links.rules import Cut
from protocol.config import ZooKeeperConsumerConfig
from protocol.trace import TraceKind
from tests.support.harness.zookeeper_group import SECOND, GroupLab, member_name

# Offsets are stored in Kafka only. A commit that gets no answer fails after 0.5 s.
KAFKA = ZooKeeperConsumerConfig(
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

    R3 and shutdown get one; the test shows the shutdown. A cut of all OffsetCommits makes every try
    fail.
    """

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        brokers = [name for name in lab.nodes if name.startswith("broker-")]
        await lab.rule(Cut(), [member_name(0)], brokers, apis=("OffsetCommit",))
        if by_shutdown:
            await lab.runtime.shut_down(member_name(0))
        await lab.runtime.sleep(35 * SECOND)  # the interval of 20 s, and six tries

    lab = GroupLab(members=1, partitions=1, config=KAFKA).run(scenario)

    sent = [
        row
        for row in lab.of(TraceKind.REQUEST_SENT, after_us=lab.change_began_us, node=member_name(0))
        if row.api == "OffsetCommit"
    ]
    assert len(sent) == tries


def test_last_try_of_a_commit_is_not_followed_by_a_wait() -> None:
    """The shutdown tries once, for 0.5 s; `offsets.channel.backoff.ms` (1 s) is between tries."""

    async def scenario(lab: GroupLab) -> None:
        lab.change_began_us = lab.runtime.now_us()
        brokers = [name for name in lab.nodes if name.startswith("broker-")]
        await lab.rule(Cut(), [member_name(0)], brokers, apis=("OffsetCommit",))
        await lab.runtime.shut_down(member_name(0))
        await lab.runtime.sleep(5 * SECOND)

    lab = GroupLab(members=1, partitions=1, config=KAFKA).run(scenario)

    (stopped, *_) = lab.of(
        TraceKind.NODE_STOPPED, after_us=lab.change_began_us, node=member_name(0)
    )
    assert stopped.time_us - lab.change_began_us < SECOND
