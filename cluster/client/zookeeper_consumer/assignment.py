"""The assignment, as each consumer computes it alone from what it has read.

Pure functions of one consumer's view: two views give two assignments. Source: Kafka 1.1
`RangeAssignor`, `RoundRobinAssignor`; ZK-51 to ZK-54.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from protocol.ids import TopicPartition

_HASH_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """What a consumer has read of its group. The group may change between two reads (ZK-42).

    Shape: `streams` has every member's number of streams by topic, `partitions` those of each
    topic that any member reads.
    """

    streams: Mapping[str, Mapping[str, int]]
    partitions: Mapping[str, tuple[TopicPartition, ...]]

    def threads(self, topic: str) -> tuple[str, ...]:
        """Return the thread ids that read `topic`, in the order of their text (ZK-51)."""
        return tuple(
            sorted(
                thread_id(consumer_id, number)
                for consumer_id, streams in self.streams.items()
                for number in range(streams.get(topic, 0))
            )
        )


def thread_id(consumer_id: str, number: int) -> str:
    """Return the id of a consumer's stream (ZK-25)."""
    return f"{consumer_id}-{number}"


def assign(strategy: str, view: GroupView, consumer_id: str) -> dict[TopicPartition, str]:
    """Return the partitions of one consumer, and the thread that reads each."""
    dealt = _round_robin(view) if strategy == "roundrobin" else _range(view)
    own = {
        thread_id(consumer_id, number)
        for number in range(max(view.streams.get(consumer_id, {}).values(), default=0))
    }
    return {partition: thread for partition, thread in dealt.items() if thread in own}


def _range(view: GroupView) -> dict[TopicPartition, str]:
    """Give each thread consecutive partitions of each topic; a remainder goes to the first ones."""
    dealt: dict[TopicPartition, str] = {}
    for topic, partitions in view.partitions.items():
        threads = view.threads(topic)
        if not threads:
            continue
        each, with_one_more = divmod(len(partitions), len(threads))
        start = 0
        for index, thread in enumerate(threads):
            end = start + each + (1 if index < with_one_more else 0)
            dealt.update(dict.fromkeys(partitions[start:end], thread))
            start = end
    return dealt


def _round_robin(view: GroupView) -> dict[TopicPartition, str]:
    """Deal out all partitions, ordered by the Java hash of their text, to the threads (ZK-52).

    A thread that does not read the partition's topic is skipped, as in 0.10.2 and later.
    """
    ordered = sorted(
        (partition for partitions in view.partitions.values() for partition in partitions),
        key=lambda partition: java_hash(str(partition)),
    )
    readers = {topic: view.threads(topic) for topic in view.partitions}
    threads = sorted({thread for each in readers.values() for thread in each})
    dealt: dict[TopicPartition, str] = {}
    turn = 0
    for partition in ordered:
        if not readers[partition.topic]:
            continue
        while threads[turn % len(threads)] not in readers[partition.topic]:
            turn += 1
        dealt[partition] = threads[turn % len(threads)]
        turn += 1
    return dealt


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode` of an ASCII text."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) % (1 << _HASH_BITS)
    return value - (1 << _HASH_BITS) if value >> (_HASH_BITS - 1) else value
