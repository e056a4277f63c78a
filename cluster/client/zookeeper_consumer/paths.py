"""Paths and contents of the znodes of a consumer group on ZooKeeper.

A group `g` has three kinds of znodes:

- /consumers/g/ids/<consumer> is a consumer's *registration*. Its content says which topics the
  consumer reads, and with how many streams (threads that process records).
- /consumers/g/owners/<topic>/<partition> is the *owner* of a partition: it says which stream of
  which consumer has claimed the partition.
- /consumers/g/offsets/<topic>/<partition> has the offset that was last committed.

Source: Kafka 1.1 `ZKGroupDirs`, `ZkUtils`, `TopicCount`; docs/kafka/ZOOKEEPER_CONSUMER.md,
section 2.
"""

import json
import re
from collections.abc import Iterable, Mapping

from cluster.zookeeper.bootstrap import BROKER_TOPICS, CONSUMERS
from protocol.ids import TopicPartition

STATIC, WHITE_LIST, BLACK_LIST = "static", "white_list", "black_list"
"""Values of `pattern` in a registration.

A static registration names the topics that the consumer reads. Otherwise it has a regular
expression for the topics to read (white list), or for the topics to leave out (black list)."""


class GroupPaths:
    """Paths of one group's znodes."""

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
    """Return the path of a topic's znode, which has the partitions and their replicas."""
    return f"{BROKER_TOPICS}/{topic}"


def registration(streams: Mapping[str, int], timestamp_ms: int, pattern: str = STATIC) -> str:
    """Return the content of a registration: its topics, with the number of streams of each.

    If `pattern` is WHITE_LIST or BLACK_LIST, `streams` has only one key, the regular expression.
    """
    content = {
        "version": 1,
        "subscription": dict(streams),
        "pattern": pattern,
        "timestamp": str(timestamp_ms),
    }
    return json.dumps(content, separators=(",", ":"))


def has_filter(registered: str) -> bool:
    """Return True if a registration names a filter of topics instead of topics."""
    return bool(json.loads(registered)["pattern"] != STATIC)


def streams_of(registered: str, topics: Iterable[str] = ()) -> dict[str, int]:
    """Return a registration's number of streams for each topic.

    `topics` are all topics that exist. They are needed if the registration has a regular
    expression.
    """
    content = json.loads(registered)
    streams: dict[str, int] = content["subscription"]
    if content["pattern"] == STATIC:
        return streams
    ((regex, stream_count),) = streams.items()  # a filter's only key
    return dict.fromkeys(allowed_topics(content["pattern"], regex, topics), stream_count)


def allowed_topics(pattern: str, regex: str, topics: Iterable[str]) -> list[str]:
    """Return the topics that a filter allows, sorted. Source: Kafka 1.1 `TopicFilter`."""
    wanted = pattern == WHITE_LIST  # a black list allows the topics that do not match
    return sorted(topic for topic in topics if bool(re.fullmatch(regex, topic)) == wanted)


def partitions_in_znode(topic: str, content: str) -> tuple[TopicPartition, ...]:
    """Return the partitions in a topic's znode, in the order of their numbers."""
    numbers = sorted(int(number) for number in json.loads(content)["partitions"])
    return tuple(TopicPartition(topic, number) for number in numbers)
