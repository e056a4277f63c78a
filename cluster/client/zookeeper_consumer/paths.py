"""Znodes of a consumer group on ZooKeeper, and what they hold.

Source: Kafka 1.1 `ZKGroupDirs`, `ZkUtils`, `TopicCount`; section 2 of the rules.
"""

import json
from collections.abc import Mapping

from cluster.zookeeper.bootstrap import BROKER_TOPICS, CONSUMERS
from protocol.ids import TopicPartition


class GroupPaths:
    """Where a group's znodes are."""

    def __init__(self, group_id: str) -> None:
        self.group = f"{CONSUMERS}/{group_id}"
        self.ids = f"{self.group}/ids"

    def member(self, consumer_id: str) -> str:
        """Return the path of a consumer's registration."""
        return f"{self.ids}/{consumer_id}"

    def owner(self, partition: TopicPartition) -> str:
        """Return the path of a partition's owner."""
        return f"{self.group}/owners/{partition.topic}/{partition.partition}"

    def offset(self, partition: TopicPartition) -> str:
        """Return the path of a partition's offset."""
        return f"{self.group}/offsets/{partition.topic}/{partition.partition}"


def topic_path(topic: str) -> str:
    """Return the path of a topic's partition map."""
    return f"{BROKER_TOPICS}/{topic}"


def registration(streams: Mapping[str, int], timestamp_ms: int) -> str:
    """Return what a consumer registers: its topics, and how many streams read each."""
    content = {
        "version": 1,
        "subscription": dict(streams),
        "pattern": "static",
        "timestamp": str(timestamp_ms),
    }
    return json.dumps(content, separators=(",", ":"))


def streams_of(registered: str) -> dict[str, int]:
    """Return the number of streams by topic of a registration."""
    streams: dict[str, int] = json.loads(registered)["subscription"]
    return streams


def partitions_in_znode(topic: str, content: str) -> tuple[TopicPartition, ...]:
    """Return the partitions in a topic's znode, in the order of their numbers."""
    numbers = sorted(int(number) for number in json.loads(content)["partitions"])
    return tuple(TopicPartition(topic, number) for number in numbers)
