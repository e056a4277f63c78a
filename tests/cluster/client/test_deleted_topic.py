"""A topic is deleted while a consumer group reads it, on real brokers in virtual time.

`cluster(members=2)` has the group `g` with two members, and the topic `t` with 12 partitions,
which the members read.
"""

import json

import msgspec

from cluster.client.admin.orders import delete_topics
from cluster.runtime import ClusterStatus
from cluster.spec import TopicSpec
from cluster.virtual.runtime import VirtualRuntime
from protocol.trace import TraceKind, TraceRow
from tests.support.worlds.measured_cluster import SECOND, cluster

GONE = "gone"


def test_group_continues_with_the_remaining_topics() -> None:
    """The leading member notices the change in its metadata, and causes a rebalance.

    The members of this test commit nothing. A commit for the deleted topic would be repeated for
    default.api.timeout.ms, 60 s, because UNKNOWN_TOPIC_OR_PARTITION is retriable, and would delay
    the rebalance.
    """
    base = cluster(members=2)
    spec = msgspec.structs.replace(
        base,
        topics=(*base.topics, TopicSpec(name=GONE, partitions=2, replication_factor=3)),
        consumers=tuple(
            msgspec.structs.replace(
                consumer, topics=(*consumer.topics, GONE), commit_interval_ms=None
            )
            for consumer in base.consumers
        ),
        producers=(),
    )
    rows: list[TraceRow] = []
    # The test reads no rows about messages.
    runtime = VirtualRuntime(
        spec, seed=7, run_id="test", observers=(rows.append,), trace_messages=False
    )

    async def main() -> tuple[ClusterStatus, ClusterStatus]:
        await runtime.start()
        await runtime.sleep(15 * SECOND)
        before = await runtime.status()
        await runtime.ask_as_admin(delete_topics, [GONE])
        await runtime.sleep(10 * SECOND)
        after = await runtime.status()
        await runtime.stop()
        return before, after

    before, after = runtime.run(main())
    assert runtime.failures() == ()
    assert topics_of(before) == [GONE, "t"]
    assert topics_of(after) == ["t"]

    (group,) = after.groups["g"]
    assert (group.state, group.generation) == ("Stable", 2)
    # The first rebalance, of the start, was over before the deletion at 15 s.
    (started,) = [
        row for row in rows if row.kind == TraceKind.REBALANCE_STARTED and row.time_us > 15 * SECOND
    ]
    assert json.loads(started.detail or "{}") == {"client_reason": "cached metadata has changed"}

    assigned = [
        json.loads(row.detail or "")["partitions"]
        for row in rows
        if row.kind == TraceKind.PARTITIONS_ASSIGNED and row.generation == 2
    ]
    assert sum(map(len, assigned)) == 12  # the partitions of t


def topics_of(status: ClusterStatus) -> list[str]:
    """Return the topics of the partitions that the members have, in order."""
    return sorted({p.topic for member in status.members.values() for p in member.assigned})
