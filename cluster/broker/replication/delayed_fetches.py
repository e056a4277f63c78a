"""Fetches that wait until there are enough bytes. Kafka calls this the fetch purgatory.

If there are not enough bytes for a Fetch, it is *parked*: it waits for an answer. A follower can
read to the end of the log, so its Fetch waits until a log grows. A consumer can read to the high
watermark, so its Fetch waits until the high watermark advances. At such an event, and when the
leader of a partition changes, the Fetch is read again. It is answered if there are enough bytes
now. After its max_wait_ms it is answered in any case.
"""

from cluster.broker.replication.fetch_reader import FetchRead, FetchReader, PartitionKey
from cluster.host.host import Host, Timer
from protocol.errors import InvariantViolation
from protocol.ids import RequestId, TopicPartition
from protocol.messages.log import FetchRequest


class _DelayedFetch:
    """A Fetch that waits. `read` is the result of its first read, which had too few bytes."""

    __slots__ = ("read", "request", "request_id", "timer")

    def __init__(
        self, request_id: RequestId, request: FetchRequest, read: FetchRead, timer: Timer
    ) -> None:
        self.request_id = request_id
        self.request = request
        self.read = read
        self.timer = timer


class DelayedFetches:
    """The parked Fetches of followers and consumers.

    There are few followers, and each follows most of the partitions that this broker leads. So
    whenever a log grows, the Fetches of all followers are read again. There may be many consumers,
    so `_watchers` has the Fetches of consumers by partition.
    """

    def __init__(self, host: Host, reader: FetchReader) -> None:
        self._host = host
        self._reader = reader
        # The parked Fetches of followers, and the parked Fetches of consumers.
        self._followers: dict[RequestId, _DelayedFetch] = {}
        self._consumers: dict[RequestId, _DelayedFetch] = {}
        self._watchers: dict[PartitionKey, dict[RequestId, None]] = {}
        """Partition -> the parked Fetches of consumers that name the partition, as the keys of the
        inner dict."""

    def park(self, request_id: RequestId, request: FetchRequest, read: FetchRead) -> None:
        """Keep a Fetch for which `read` is not enough, for `max_wait_ms` at most."""
        timer = self._host.after(request.max_wait_ms * 1_000, self._wait_ended, request_id)
        fetch = _DelayedFetch(request_id, request, read, timer)
        if request.replica_id >= 0:  # a follower's broker id; consumers have -1
            self._followers[request_id] = fetch
            return
        self._consumers[request_id] = fetch
        for key in _keys(request):
            self._watchers.setdefault(key, {})[request_id] = None

    def logs_grew(self) -> None:
        """Read the parked Fetches of all followers again; answer those that have enough bytes."""
        for fetch in list(self._followers.values()):  # a copy: an answered Fetch is removed
            self._try_to_complete(fetch)

    def high_watermark_advanced(self, partition: TopicPartition) -> None:
        """Answer the consumers' Fetches that wait for `partition` and have enough bytes now."""
        watchers = self._watchers.get(partition)  # a TopicPartition equals its PartitionKey
        if watchers:
            for request_id in list(watchers):  # a copy: an answered Fetch is removed
                fetch = self._consumers.get(request_id)
                if fetch is not None:
                    self._try_to_complete(fetch)

    def waiting(self) -> frozenset[RequestId]:
        """Return the parked Fetches."""
        return frozenset(self._followers.keys() | self._consumers.keys())

    def check_invariants(self) -> None:
        """Check that `_watchers` has exactly the parked Fetches of consumers.

        `_watchers` must have each parked Fetch at all its partitions, and no answered Fetch.
        Raises: InvariantViolation.
        """
        watched = {(request_id, key) for key, ids in self._watchers.items() for request_id in ids}
        parked = {
            (request_id, key)
            for request_id, fetch in self._consumers.items()
            for key in _keys(fetch.request)
        }
        if watched != parked:
            raise InvariantViolation(
                "fetch_is_found_by_its_partitions",
                f"watched and not parked: {sorted(watched - parked)}, parked and not watched: "
                f"{sorted(parked - watched)}",
            )

    def _try_to_complete(self, fetch: _DelayedFetch) -> None:
        """Read a Fetch again, and answer it if it has enough bytes now."""
        read = self._read(fetch)
        if read.is_complete:
            fetch.timer.cancel()
            self._forget(fetch)
            self._host.reply(fetch.request_id, read.response)

    def _wait_ended(self, request_id: RequestId) -> None:
        """Answer a Fetch after its max_wait_ms, even without enough bytes."""
        fetch = self._followers.get(request_id) or self._consumers[request_id]
        self._forget(fetch)
        self._host.reply(request_id, self._read(fetch).response)

    def _read(self, fetch: _DelayedFetch) -> FetchRead:
        return self._reader.read(fetch.request, self._host.now_us(), previous=fetch.read.response)

    def _forget(self, fetch: _DelayedFetch) -> None:
        """Remove a Fetch that is about to be answered."""
        request_id = fetch.request_id
        if fetch.request.replica_id >= 0:
            del self._followers[request_id]
            return
        del self._consumers[request_id]
        for key in _keys(fetch.request):
            # The default None is there for a request that names a partition twice: the second
            # `pop` finds nothing.
            self._watchers[key].pop(request_id, None)


def _keys(request: FetchRequest) -> list[PartitionKey]:
    """Return the partitions that a Fetch names."""
    return [
        (topic.topic, position.partition)
        for topic in request.topics
        for position in topic.partitions
    ]
