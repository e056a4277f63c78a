"""What one join and one death cost on Kafka 1.1.1, and the formula for the reads of ZooKeeper.

The counts are medians of three runs with one broker, one topic and 64 partitions (docs/kafka,
MEASURED_ZOOKEEPER 1 and 2). The requests to a coordinator do not include commits and heartbeats.

The number of reads follows from the algorithm of the consumer (docs/kafka, ZOOKEEPER_CONSUMER 13).
In the formula for it, C is the number of members, T the number of topics, B the number of brokers,
and P the number of partitions. The report's charts call this formula a law.
"""

from collections.abc import Mapping

from pipeline.report.two_designs.sides import ChangeKind

SERIES_NAMES = ("ZooKeeper writes", "ZooKeeper reads", "coordinator requests", "notifications")
"""Names of the four things that are counted. The legend of the chart has them in this order, from
the largest count of a small group to the smallest: when a second member joins, there are 358
writes, 171 reads, 7 requests and 1 notification.
"""
WRITES, READS, REQUESTS, NOTIFICATIONS = SERIES_NAMES

MEASURED: Mapping[ChangeKind, Mapping[str, Mapping[int, int]]] = {
    "join": {
        READS: {2: 171, 4: 179, 8: 234, 32: 1506},
        WRITES: {2: 358, 4: 344, 8: 326, 32: 276},
        NOTIFICATIONS: {2: 1, 4: 3, 8: 7, 32: 31},
        REQUESTS: {2: 7, 4: 13, 8: 25, 32: 97},
    },
    "death": {
        READS: {2: 78, 4: 112, 8: 204, 32: 1428},
        WRITES: {2: 128, 4: 160, 8: 176, 32: 188},
        NOTIFICATIONS: {2: 1, 4: 3, 8: 7, 32: 31},
        REQUESTS: {2: 3, 4: 9, 8: 21, 32: 93},
    },
}
"""The measured counts by the number of members, which includes the member that joins or dies. For
example, when the fourth member joined, there were 179 reads.
"""
MEASURED_BROKERS = 1
"""Number of brokers in the measurements."""


def reads_of_join(members: int, topics: int, brokers: int, partitions: int) -> int:
    """Return the number of reads of a join without failed attempts: C(C + T + 3B + 9) + P + 1 + T.

    The last two terms are the reads with which the new member starts.
    """
    reads_per_member = members + topics + 3 * brokers + 9
    return members * reads_per_member + partitions + 1 + topics


def reads_of_death(members: int, topics: int, brokers: int, partitions: int) -> int:
    """Return the number of reads after a death, without failed attempts.

    The dead member reads nothing, so only the other C - 1 members count.
    """
    staying = members - 1
    return staying * (staying + topics + 3 * brokers + 9) + partitions
