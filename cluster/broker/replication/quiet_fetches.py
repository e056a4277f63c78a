"""What a follower's last Fetch found in a topic, so that the next reads only what changed since.

A follower asks for all that it follows after every append, and lacks something of one partition.
The idea is KIP-227's: a fetch session remembers, per partition, what was asked and answered. Here
the requests stay whole, and only the leader's work is saved: a partition is quiet while it was
asked for the same position before, the answer was that there is nothing new, and nothing of it has
changed since. Whatever changes a partition must say so (`changed`).
"""

from collections.abc import Iterator, Mapping

from partition_log.follower_state import FollowerState, SharedFetchTime
from partition_log.replica import Partition
from protocol.ids import BrokerEpoch, BrokerId, TopicPartition
from protocol.messages.log import FetchableTopicResponse, FetchTopic, PartitionData

UNREAD = PartitionData(partition_index=-1)
"""Stands for the answer of a partition that was not read yet."""


class QuietTopic:
    """A follower's positions in one topic, and which of them are quiet.

    Shape: `answers` are in the order of `topic.partitions`; `stirred` has the indices of those that
    must be read, which are all the others than the quiet ones.
    """

    __slots__ = ("_counted", "_index_of", "_shared", "_whole", "answers", "stirred", "topic")

    def __init__(self, topic: FetchTopic) -> None:
        self.topic = topic
        count = len(topic.partitions)
        self.answers = [UNREAD] * count
        self.stirred: dict[int, None] = dict.fromkeys(range(count))
        self._counted: list[FollowerState | None] = [None] * count
        self._index_of = {
            position.partition: index for index, position in enumerate(topic.partitions)
        }
        self._shared = SharedFetchTime()
        self._whole: FetchableTopicResponse | None = None

    def ask(self, topic: FetchTopic) -> bool:
        """Take the positions of the next Fetch; return whether they are of the same partitions."""
        if topic is self.topic:
            return True
        before = self.topic.partitions
        if len(before) != len(topic.partitions):
            return False
        for index, (old, new) in enumerate(zip(before, topic.partitions, strict=True)):
            if old is new or old == new:
                continue
            if old.partition != new.partition:
                return False
            self.stir(index)
        self.topic = topic
        return True

    def count(self, now_us: int) -> None:
        """Count a Fetch for the partitions that are quiet."""
        self._shared.time_us = now_us

    def keep(
        self, index: int, answer: PartitionData, partition: Partition, replica_id: int
    ) -> None:
        """Take `answer`, that there is nothing new, as true until something changes."""
        follower = partition.follower_counted_with(replica_id, self._shared)
        if follower is not None:
            self.answers[index] = answer
            self._counted[index] = follower
            del self.stirred[index]
            self._whole = None

    def changed(self, partition_index: int) -> None:
        """Read a partition again with the next Fetch."""
        index = self._index_of.get(partition_index)
        if index is not None:
            self.stir(index)

    def stir(self, index: int) -> None:
        """Read the partition at `index` again with the next Fetch."""
        follower = self._counted[index]
        if follower is not None:
            follower.count_alone()
            self._counted[index] = None
            self.stirred[index] = None
            self._whole = None

    def forget(self) -> None:
        """End the counting."""
        for follower in self._counted:
            if follower is not None:
                follower.count_alone()

    def whole_answer(self) -> FetchableTopicResponse:
        """Return the answer while all partitions are quiet: the same object while it is true."""
        if self._whole is None:
            self._whole = FetchableTopicResponse(
                topic=self.topic.topic, partitions=tuple(self.answers)
            )
        return self._whole


class QuietFetches:
    """The QuietTopics of all followers of a broker, by topic and follower.

    `eligible` has the epochs that brokers are registered under: a Fetch of an earlier incarnation
    is never quiet.
    """

    def __init__(self, eligible: Mapping[BrokerId, BrokerEpoch]) -> None:
        self._eligible = eligible
        self._topics: dict[str, dict[int, tuple[int, QuietTopic]]] = {}
        """The epoch of the follower stands beside what it asked."""

    def topic(
        self, topic: FetchTopic, replica_id: int, replica_epoch: int, *, is_new: bool
    ) -> QuietTopic | None:
        """Return what is known of a follower's `topic`, None if it must be read as a whole.

        A Fetch that was parked is not new: it is not counted, and does not say what is asked.
        """
        followers = self._topics.get(topic.topic)
        if followers is None:
            followers = self._topics[topic.topic] = {}
        quiet: QuietTopic | None = None
        epoch = replica_epoch
        if replica_id in followers:
            epoch, quiet = followers[replica_id]
        is_current = (
            epoch == replica_epoch and self._eligible.get(BrokerId(replica_id), -1) <= replica_epoch
        )
        if not is_new:
            is_asked = quiet is not None and quiet.topic is topic
            return quiet if is_asked and is_current else None
        if quiet is not None and not (is_current and quiet.ask(topic)):
            quiet.forget()
            del followers[replica_id]
            quiet = None
        if quiet is None:
            quiet = QuietTopic(topic)
            followers[replica_id] = (replica_epoch, quiet)
        return quiet

    def changed(self, partition: TopicPartition) -> None:
        """Read `partition` for every follower's next Fetch."""
        for quiet in self._of(partition.topic):
            quiet.changed(partition.partition)

    def _of(self, topic: str) -> Iterator[QuietTopic]:
        for _, quiet in self._topics.get(topic, {}).values():
            yield quiet
