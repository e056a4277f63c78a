"""The queue between fetchers and streams of a consumer, and the offset that a commit covers.

A chunk is the records of one Fetch of a partition, from a first to a last offset. A fetcher puts
each chunk into the queue of a stream, and waits if the queue is full; an Interrupt ends this wait.
The application iterates over the stream. ZK-34 is a rule of docs/kafka/ZOOKEEPER_CONSUMER.md.
"""

from cluster.client.zookeeper_consumer.streams import (
    Chunk,
    ChunkQueue,
    Interrupt,
    PartitionTopicInfo,
)
from protocol.config import ZooKeeperConsumerConfig
from protocol.ids import NodeName, TopicPartition
from protocol.trace import TraceKind
from tests.support.harness.ensemble import EnsembleRun, run_ensemble
from tests.support.harness.zookeeper_group import SECOND, GroupLab


def test_queue_holds_two_chunks_beside_the_one_being_iterated() -> None:
    """The limit is `queued.max.message.chunks` (2); the chunk being iterated is extra (ZK-34)."""

    async def scenario(lab: EnsembleRun) -> None:
        host = lab.hosts[NodeName("client-0")]
        queue = ChunkQueue(host, ZooKeeperConsumerConfig().queued_max_message_chunks)
        info = PartitionTopicInfo(
            TopicPartition("t", 0), queue, consumed_offset=0, fetched_offset=0
        )
        queued: list[int] = []

        # A fetcher with five chunks of one record each.
        async def fetch() -> None:
            for first in range(5):
                await queue.put(Chunk(info, first, last=first), Interrupt())
                queued.append(first)

        host.spawn(fetch(), name="fetch")
        await lab.runtime.sleep(SECOND)
        assert queued == [0, 1]

        # The queue has a free place again as soon as a chunk is taken.
        chunk = await queue.take()
        await lab.runtime.sleep(SECOND)
        assert chunk is not None
        assert chunk.first == 0
        assert queued == [0, 1, 2]

    run_ensemble(scenario)


def test_commit_covers_the_record_that_is_being_processed() -> None:
    """The iterator moves the consumed offset before the application handles the message (ZK-35).

    So a commit can cover a message still in hand. If the consumer crashes during the processing,
    the message is lost.
    """
    config = ZooKeeperConsumerConfig(auto_commit_interval_ms=1_000, auto_offset_reset="smallest")

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.sleep(10 * SECOND)

    lab = GroupLab(
        members=1, partitions=1, config=config, process_us=3 * SECOND, records_per_second=1
    ).run(scenario)

    processed: list[tuple[int, int]] = []
    for row in lab.processed():
        assert row.offset is not None
        processed.append((row.time_us, row.offset))
    # A commit of offset n covers the records up to n - 1. These are the offsets of commits whose
    # last record was not processed yet.
    in_hand = [
        row.offset
        for row in lab.of(TraceKind.ZOOKEEPER_OFFSET_COMMITTED)
        if row.offset is not None
        and (row.offset - 1) not in {offset for at_us, offset in processed if at_us <= row.time_us}
    ]
    assert in_hand != []
