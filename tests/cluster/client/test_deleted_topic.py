"""A topic is deleted while a consumer group reads it.

The test runs a whole cluster in virtual time, which is a simulated clock. `cluster(members=2)` has
a group `g` of two members, which read the topic `t` with its 12 partitions. The test adds a second
topic, "gone". The members read this topic, too, until the test deletes it.
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
PARTITIONS_OF_T = 12


def test_group_continues_with_the_remaining_topics() -> None:
    """The member that leads the group sees that its metadata lack the topic, and rejoins.

    The members commit nothing here, because a commit would delay the rebalance. For the deleted
    topic the commit would get the error UNKNOWN_TOPIC_OR_PARTITION. A member takes this error for a
    temporary one, and repeats the commit for a minute (default.api.timeout.ms).
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
    runtime = VirtualRuntime(
        spec, seed=7, run_id="test", observers=(rows.append,), trace_messages=False
    )

    async def main() -> tuple[ClusterStatus, ClusterStatus]:
        await runtime.start()
        await runtime.sleep(15 * SECOND)
        before_deletion = await runtime.status()
        await runtime.ask_as_admin(delete_topics, [GONE])
        await runtime.sleep(10 * SECOND)
        after_deletion = await runtime.status()
        await runtime.stop()
        return before_deletion, after_deletion

    before_deletion, after_deletion = runtime.run(main())
    assert runtime.failures() == ()
    assert topics_of(before_deletion) == [GONE, "t"]
    assert topics_of(after_deletion) == ["t"]

    (group,) = after_deletion.groups["g"]  # one broker has the group
    assert group.state == "Stable"
    assert group.generation == 2
    # There are two rebalances, one at the start and one after the deletion at 15 s.
    (started,) = [
        row for row in rows if row.kind == TraceKind.REBALANCE_STARTED and row.time_us > 15 * SECOND
    ]
    assert json.loads(started.detail or "{}") == {"client_reason": "cached metadata has changed"}

    assigned = [
        json.loads(row.detail or "")["partitions"]
        for row in rows
        if row.kind == TraceKind.PARTITIONS_ASSIGNED and row.generation == 2
    ]
    assert sum(map(len, assigned)) == PARTITIONS_OF_T


def topics_of(status: ClusterStatus) -> list[str]:
    """Return the topics of which the members have partitions, in the order of their names."""
    return sorted(
        {partition.topic for member in status.members.values() for partition in member.assigned}
    )
