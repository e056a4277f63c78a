"""The reading of committed offsets at the end of a run.

The checks compare these offsets with the acknowledged commits. First, a single request asks for the
offsets of all partitions of a group. But a coordinator refuses this request as long as one of the
partitions has an offset in an open transaction. If the request is refused until it times out, each
partition is read by a request of its own.
"""

import asyncio
from typing import cast

import pytest

from chaos.run.verification import read_committed_offsets
from cluster.runtime import Runtime
from protocol.ids import TopicPartition
from protocol.trace import TraceEvent, TraceKind
from tests.support.builders.experiments import experiment


class _Cluster:
    """A cluster that answers requests for offsets as a test wants.

    A request for more than `at_once` partitions times out. So does each request for the partition
    `stuck`. `asked` has the number of partitions of each request.
    """

    def __init__(self, at_once: int, stuck: TopicPartition | None = None) -> None:
        self._at_once = at_once
        self._stuck = stuck
        self.asked: list[int] = []
        self.rows: list[TraceEvent] = []

    async def ask_as_admin(
        self, _question: object, group_id: str, partitions: list[TopicPartition]
    ) -> None:
        self.asked.append(len(partitions))
        if len(partitions) > self._at_once or self._stuck in partitions:
            raise TimeoutError(f"no answer for the offsets of {group_id}")

    def trace(self, event: TraceEvent) -> None:
        self.rows.append(event)


ORDERS_1 = TopicPartition("orders", 1)
"""The second of the three partitions."""


@pytest.mark.parametrize(
    ("cluster", "asked", "unreadable"),
    [
        # One request reads all three partitions.
        (_Cluster(at_once=3), [3], []),
        # Each partition is readable at some time, but never all of them at the same time, because
        # some member of the group always has an open transaction.
        (_Cluster(at_once=1), [3, 1, 1, 1], []),
        # The first unreadable partition ends the reading, because each timeout takes 60 s.
        (_Cluster(at_once=3, stuck=ORDERS_1), [3, 1, 1], ["orders-1"]),
    ],
)
def test_offsets_are_unreadable_if_one_partition_alone_is(
    cluster: _Cluster, asked: list[int], unreadable: list[str]
) -> None:
    """A row of the trace names the partition that could not be read, and the group.

    `asked` has the number of partitions of each request. For example, [3, 1, 1] are a request for
    all three partitions, and then two requests for one partition each.
    """
    own_experiment = experiment(
        topics={"orders": {"partitions": 3, "replication.factor": 3}},
        groups={"readers": {"members": 1, "topics": ["orders"]}},
    )

    failures = asyncio.run(read_committed_offsets(own_experiment, cast(Runtime, cluster)))

    assert cluster.asked == asked
    assert [(row.kind, row.group, row.partition) for row in cluster.rows] == [
        (TraceKind.OFFSETS_UNREADABLE, "readers", partition) for partition in unreadable
    ]
    assert len(failures) == len(unreadable)
