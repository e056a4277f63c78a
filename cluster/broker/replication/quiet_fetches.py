"""QuietFetches: keeps each follower's last Fetch, so that only changed partitions are read again.

A follower fetches all its partitions after every append, although only one of them has new records.
So the leader remembers for each partition the position in the follower's last Fetch (mainly the
fetch offset) and the answer. Kafka has fetch sessions for this (KIP-227); but here, requests still
contain all partitions. A partition is *quiet* for a follower, and need not be read again, if:

1. the follower's Fetch has the same position as its previous Fetch,
2. the answer to the previous Fetch had no new records, and
3. the partition has not changed since. Code that changes a partition must call `changed`.

Otherwise it is *stirred*.

The leader must also remember when each follower last fetched, because it decides from this whether
the follower is in sync. To *count* a Fetch means to record its time, in the FollowerState of each
partition. All quiet partitions of a topic share one object with the time (SharedFetchTime), so that
a single assignment counts the Fetch for all of them. A stirred partition has a time of its own.
"""

from collections.abc import Iterator, Mapping

from partition_log.follower_state import FollowerState, SharedFetchTime
from partition_log.replica import Partition
from protocol.ids import BrokerEpoch, BrokerId, TopicPartition
from protocol.messages.log import FetchableTopicResponse, FetchTopic, PartitionData

UNREAD = PartitionData(partition_index=-1)
"""Placeholder for the answer of a partition that was not read yet; it is never sent."""


class QuietTopic:
    """A follower's positions in one topic, with the answers of quiet partitions.

    `answers` are in the order of `topic.partitions`. The keys of `stirred` are the indices of the
    partitions that must be read.
    """

    __slots__ = ("_counted", "_index_of", "_shared", "_whole", "answers", "stirred", "topic")

    def __init__(self, topic: FetchTopic) -> None:
        self.topic = topic
        count = len(topic.partitions)
        self.answers = [UNREAD] * count
        self.stirred: dict[int, None] = dict.fromkeys(range(count))
        self._counted: list[FollowerState | None] = [None] * count
        """State of the follower in each quiet partition, None in a stirred one."""
        self._index_of = {
            position.partition: index for index, position in enumerate(topic.partitions)
        }
        self._shared = SharedFetchTime()
        """Time of the last Fetch, for all quiet partitions."""
        self._whole: FetchableTopicResponse | None = None
        """The last result of `whole_answer`; None once a partition is stirred or becomes quiet."""

    def ask(self, topic: FetchTopic) -> bool:
        """Take the positions of the next Fetch, and stir the partitions whose position differs.

        Returns False if the Fetch names other partitions: then a new QuietTopic is needed.
        """
        if topic is self.topic:  # the same object: no position has moved
            return True
        before = self.topic.partitions
        if len(before) != len(topic.partitions):
            return False
        for index, (old, new) in enumerate(zip(before, topic.partitions, strict=True)):
            if old is new or old == new:  # `is` first: cheaper, and mostly true in virtual time
                continue
            if old.partition != new.partition:
                return False
            self.stir(index)
        self.topic = topic
        return True

    def count(self, now_us: int) -> None:
        """Record `now_us` as the time of the last Fetch of every quiet partition."""
        self._shared.time_us = now_us

    def keep(
        self, index: int, answer: PartitionData, partition: Partition, replica_id: int
    ) -> None:
        """Make a partition quiet, and keep `answer`, which has no new records, for later Fetches.

        From now on `count` counts the follower's Fetches of the partition, with one time for all
        quiet partitions.
        """
        follower = partition.follower_counted_with(replica_id, self._shared)
        # None means that the sender of the Fetch is not a follower of this partition.
        if follower is not None:
            self.answers[index] = answer
            self._counted[index] = follower
            del self.stirred[index]
            self._whole = None

    def changed(self, partition_index: int) -> None:
        """Stir a partition that has changed, so that the next Fetch reads it."""
        index = self._index_of.get(partition_index)
        if index is not None:
            self.stir(index)

    def stir(self, index: int) -> None:
        """End the quiet of the partition at `index`: the next Fetch reads it."""
        follower = self._counted[index]
        if follower is not None:  # None means that the partition is stirred already.
            follower.count_alone()  # the partition has a time of its own again
            self._counted[index] = None
            self.stirred[index] = None
            self._whole = None

    def forget(self) -> None:
        """Give each quiet partition a time of its own, because this object is no longer used."""
        for follower in self._counted:
            if follower is not None:
                follower.count_alone()

    def whole_answer(self) -> FetchableTopicResponse:
        """Return the answer for all partitions, which must be quiet.

        Later calls return the same object, until a partition changes.
        """
        if self._whole is None:
            self._whole = FetchableTopicResponse(
                topic=self.topic.topic, partitions=tuple(self.answers)
            )
        return self._whole


class QuietFetches:
    """The QuietTopics of all followers of a broker.

    `eligible` has the present broker epoch of each broker that may be in an ISR. A follower's Fetch
    with a lower epoch was sent before a restart of the follower. Its answers are not used again.
    """

    def __init__(self, eligible: Mapping[BrokerId, BrokerEpoch]) -> None:
        self._eligible = eligible
        self._topics: dict[str, dict[int, tuple[int, QuietTopic]]] = {}
        """Topic -> broker id of a follower -> the broker epoch in the follower's last Fetch, and
        the QuietTopic of that Fetch."""

    def topic(
        self, topic: FetchTopic, replica_id: int, replica_epoch: int, *, is_new: bool
    ) -> QuietTopic | None:
        """Return the QuietTopic of a follower's `topic`; None if all partitions must be read.

        `is_new` is False if a parked Fetch is read again. Its positions are known already.
        """
        followers = self._topics.get(topic.topic)
        if followers is None:
            followers = self._topics[topic.topic] = {}
        quiet: QuietTopic | None = None
        # The broker epoch in the follower's previous Fetch; if there is none, that of this Fetch.
        epoch = replica_epoch
        if replica_id in followers:
            epoch, quiet = followers[replica_id]

        # True if this Fetch and the previous one have the same epoch, and this broker knows no
        # newer epoch of the follower. (-1 stands for a follower that is not in `eligible`.)
        is_current = (
            epoch == replica_epoch and self._eligible.get(BrokerId(replica_id), -1) <= replica_epoch
        )
        if not is_new:
            # If the follower has sent a newer Fetch since, the kept answers are for the positions
            # of the newer Fetch, and not for the positions of this parked Fetch.
            is_asked = quiet is not None and quiet.topic is topic
            return quiet if is_asked and is_current else None
        # `ask` returns False if the Fetch names other partitions than the previous Fetch.
        if quiet is not None and not (is_current and quiet.ask(topic)):
            quiet.forget()
            del followers[replica_id]
            quiet = None
        if quiet is None:
            quiet = QuietTopic(topic)
            followers[replica_id] = (replica_epoch, quiet)
        return quiet

    def changed(self, partition: TopicPartition) -> None:
        """Make every follower's next Fetch read `partition`."""
        for quiet in self._of(partition.topic):
            quiet.changed(partition.partition)

    def _of(self, topic: str) -> Iterator[QuietTopic]:
        """Yield the QuietTopic of each follower for `topic`."""
        for _, quiet in self._topics.get(topic, {}).values():
            yield quiet
