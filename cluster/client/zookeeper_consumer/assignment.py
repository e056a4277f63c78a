"""The assignment, as each consumer computes it alone from what it has read.

A consumer reads a topic with one or more threads, also called streams. Each thread has an id: the
consumer's id with a number behind it. Partitions are assigned to threads. The assignment depends
only on the consumer's *view*, which is what the consumer has read of its group. If two consumers
have different views, their assignments may contradict each other. Ids such as ZK-51 are rules in
the document below.

Source: Kafka 1.1 `RangeAssignor`, `RoundRobinAssignor`; rules ZK-51 to ZK-54 of
docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from protocol.ids import TopicPartition

_HASH_BITS = 32  # size of Java's int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """What one consumer has read of its group. The group may change between two reads (ZK-42).

    `streams` maps a consumer's id and then a topic to the number of streams with which the consumer
    reads the topic. `partitions` has the partitions of each topic that a consumer of the group
    reads.
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
    thread_by_partition = _round_robin(view) if strategy == "roundrobin" else _range(view)
    # A consumer with 2 streams for one topic and 3 for another has the threads 0, 1 and 2.
    own_threads = {
        thread_id(consumer_id, number)
        for number in range(max(view.streams.get(consumer_id, {}).values(), default=0))
    }
    return {
        partition: thread
        for partition, thread in thread_by_partition.items()
        if thread in own_threads
    }


def _range(view: GroupView) -> dict[TopicPartition, str]:
    """Give each thread consecutive partitions of each topic.

    If the partitions cannot be divided evenly, the first threads get one partition more.
    """
    thread_by_partition: dict[TopicPartition, str] = {}
    for topic, partitions in view.partitions.items():
        threads = view.threads(topic)
        if not threads:
            continue
        # Every thread gets `share` partitions, and each of the first `remainder` threads one more.
        share, remainder = divmod(len(partitions), len(threads))
        start = 0
        for index, thread in enumerate(threads):
            end = start + share + (1 if index < remainder else 0)
            thread_by_partition.update(dict.fromkeys(partitions[start:end], thread))
            start = end
    return thread_by_partition


def _round_robin(view: GroupView) -> dict[TopicPartition, str]:
    """Give the partitions, ordered by the Java hash of their text, to the threads in turn (ZK-52).

    A thread that does not read the partition's topic is skipped, as in 0.10.2 and later. Source:
    Kafka 1.1 `RoundRobinAssignor`.
    """
    ordered = sorted(
        (partition for partitions in view.partitions.values() for partition in partitions),
        key=lambda partition: java_hash(str(partition)),
    )
    readers = {topic: view.threads(topic) for topic in view.partitions}  # topic -> its threads
    threads = sorted({thread for topic_readers in readers.values() for thread in topic_readers})
    thread_by_partition: dict[TopicPartition, str] = {}
    turn = 0  # index of the next thread, modulo the number of threads
    for partition in ordered:
        if not readers[partition.topic]:
            continue  # no thread to assign to: the search below would not end
        # Skip threads that do not read the topic. For the next partition, go on after the chosen
        # thread.
        while threads[turn % len(threads)] not in readers[partition.topic]:
            turn += 1
        thread_by_partition[partition] = threads[turn % len(threads)]
        turn += 1
    return thread_by_partition


def java_hash(text: str) -> int:
    """Return Java's `String.hashCode` of an ASCII text."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) % (1 << _HASH_BITS)
    # Java's int is signed, so a value with the highest bit set is negative.
    return value - (1 << _HASH_BITS) if value >> (_HASH_BITS - 1) else value
