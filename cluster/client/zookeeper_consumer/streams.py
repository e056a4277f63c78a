"""Queues between fetchers and streams.

A stream is a thread of the application that processes records. Fetchers put the fetched records
into its queue, as chunks: ranges of records of one partition (ZK-34).

For each partition, a commit stores the next offset to process. As in Kafka, this offset advances
before the application gets the record (ZK-35). So a commit may include a record that the
application has not processed yet.

Ids such as ZK-34 are rules in docs/kafka/ZOOKEEPER_CONSUMER.md.

Source: Kafka 1.1 `PartitionTopicInfo`, `FetchedDataChunk`, `ConsumerIterator`.
"""

from collections import deque
from dataclasses import dataclass

from cluster.client.net.futures import Wakeup
from cluster.host.host import Host
from protocol.ids import TopicPartition

INVALID_OFFSET = -1
"""No offset is stored: `auto.offset.reset` decides. Source: PartitionTopicInfo.InvalidOffset."""


@dataclass(slots=True, eq=False)
class PartitionTopicInfo:
    """A partition that this consumer considers its own (ZK-33).

    `consumed_offset` is the next offset to process, and what a commit stores. `fetched_offset` is
    the next offset to fetch.
    """

    partition: TopicPartition
    queue: "ChunkQueue"
    consumed_offset: int
    fetched_offset: int


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Fetched records `first .. last` of one partition."""

    info: PartitionTopicInfo
    first: int
    last: int


class ChunkQueue:
    """Chunks of one stream, in the order in which they were fetched.

    The stream works on one chunk, `current`. Besides it, at most `capacity` chunks wait in the
    queue. Several fetchers may put chunks into the queue; only one stream takes them.
    """

    def __init__(self, host: Host, capacity: int) -> None:
        self._capacity = capacity
        self._chunks: deque[Chunk] = deque()
        self._is_closed = False
        self._filled = Wakeup(host)
        """Set when a chunk was added, or the queue closed."""
        self._emptied: list[Wakeup] = []
        """Wakeups of the fetchers that wait for room."""
        self._host = host
        self.current: Chunk | None = None
        """The chunk that the stream took last; None at first and after `clear`."""

    async def put(self, chunk: Chunk, interrupt: "Interrupt") -> bool:
        """Wait for room and add a chunk; return False if the fetcher was interrupted meanwhile."""
        # Several fetchers may wait for room, and a Wakeup wakes only one coroutine. So each fetcher
        # waits with a new wakeup of its own. `interrupt` sets this wakeup, too, to end the wait. An
        # interrupt after the wait does no harm, because no coroutine waits with the wakeup then.
        while len(self._chunks) >= self._capacity and not interrupt.is_set:
            wakeup = Wakeup(self._host)
            self._emptied.append(wakeup)
            interrupt.wakes = wakeup
            await wakeup.wait(None)  # None: without a time limit
        if interrupt.is_set:
            return False
        self._chunks.append(chunk)
        self._filled.set()
        return True

    async def take(self) -> Chunk | None:
        """Wait for a chunk and return it; return None once the queue is closed."""
        # A call of `set` ends only one `wait`, so this loop does not spin.
        while not self._chunks and not self._is_closed:
            await self._filled.wait(None)
        if self._is_closed:
            return None
        chunk = self.current = self._chunks.popleft()
        self._wake_fetchers()
        return chunk

    def clear(self) -> None:
        """Drop the chunks that wait, and the rest of the chunk that the stream works on."""
        self._chunks.clear()
        self.current = None
        self._wake_fetchers()

    def close(self) -> None:
        """End the stream, because the consumer is shut down."""
        self._is_closed = True
        self.clear()
        self._filled.set()

    def _wake_fetchers(self) -> None:
        """Wake all fetchers that wait for room; each checks again whether there is room."""
        emptied, self._emptied = self._emptied, []
        for wakeup in emptied:
            wakeup.set()


class Interrupt:
    """What Java's `interrupt` does to a thread: it ends the waits of one fetcher."""

    def __init__(self) -> None:
        self.is_set = False
        self.wakes: Wakeup | None = None
        """The wakeup with which the thread waits, so that `set` can end the wait."""

    def set(self) -> None:
        """Interrupt the thread."""
        self.is_set = True
        if self.wakes is not None:
            self.wakes.set()
