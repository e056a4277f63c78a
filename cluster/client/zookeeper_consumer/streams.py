"""Queues between fetchers and streams, and the iterator of a stream.

A stream is a thread of the application that processes records; fetchers put chunks (ranges of
records of one partition) into its queue. The module holds the records that were fetched and not yet
processed (ZK-34), and two offsets of each partition: the next to fetch, and the next to process.
The offset to process advances before the application gets the record (ZK-35). Ids such as ZK-34
name rules in docs/kafka/ZOOKEEPER_CONSUMER.md.
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

    consumed_offset: the next offset to process; the value that a commit stores.
    fetched_offset: the next offset to fetch.
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

    Invariant: no more than `capacity` chunks wait. One more may be `current`. Several fetchers put
    chunks into one queue; a single stream takes them.
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
        """Chunk that the stream took last; None before the first chunk, and after `clear`."""

    async def put(self, chunk: Chunk, interrupt: "Interrupt") -> bool:
        """Wait for room and add a chunk; return False if the fetcher was interrupted meanwhile."""
        # Several fetchers may wait for one queue, so each waits with a wakeup of its own. An
        # interrupt sets the same wakeup, so that it ends this wait, too.
        while len(self._chunks) >= self._capacity and not interrupt.is_set:
            wakeup = Wakeup(self._host)
            self._emptied.append(wakeup)
            interrupt.wakes = wakeup
            await wakeup.wait(None)
        if interrupt.is_set:
            return False
        self._chunks.append(chunk)
        self._filled.set()
        return True

    async def take(self) -> Chunk | None:
        """Wait for a chunk and return it; None once the connector is shut down."""
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
        """End the stream, because the connector is shut down."""
        self._is_closed = True
        self.clear()
        self._filled.set()

    def _wake_fetchers(self) -> None:
        """Wake all fetchers that wait for room; each checks again whether there is room."""
        emptied, self._emptied = self._emptied, []
        for wakeup in emptied:
            wakeup.set()


class Interrupt:
    """Ends the waits of one thread: Java's `interrupt`."""

    def __init__(self) -> None:
        self.is_set = False
        self.wakes: Wakeup | None = None
        """Wakeup of the thread's present or last wait; None if an interrupt ends no wait."""

    def set(self) -> None:
        """Interrupt the thread."""
        self.is_set = True
        if self.wakes is not None:
            self.wakes.set()
