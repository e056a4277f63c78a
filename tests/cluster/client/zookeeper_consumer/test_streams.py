"""The streams of a consumer of Kafka 0.8, over which an application iterates to get its records.

Behind a stream there is a queue. A fetcher, which is a task of the consumer, fetches records from
the brokers. It puts the records of one Fetch into the queue as one chunk, and waits if the queue is
full. The stream takes the chunks out of the queue, and gives the records to the application.

ZK-34 and ZK-35 are rules of docs/kafka/ZOOKEEPER_CONSUMER.md, which the docstrings quote.
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

        async def fetch() -> None:
            # Put five chunks, of one record each. No Interrupt is set, so each put waits for a
            # free place.
            for offset in range(5):
                await queue.put(Chunk(info, first=offset, last=offset), Interrupt())
                queued.append(offset)

        host.spawn(fetch(), name="fetch")
        await lab.runtime.sleep(SECOND)
        assert queued == [0, 1]

        # The test takes a chunk, as the stream does. Then the queue has a free place again.
        chunk = await queue.take()
        await lab.runtime.sleep(SECOND)
        assert chunk is not None
        assert chunk.first == 0
        assert queued == [0, 1, 2]

    run_ensemble(scenario)


def test_commit_covers_the_record_that_is_being_processed() -> None:
    """The iterator moves the consumed offset before the application handles the message (ZK-35).

    So a commit can cover a message still in hand. If the consumer crashes then, the message is
    lost. In the test the application needs 3 s for a record, and the consumer commits every second.
    """
    config = ZooKeeperConsumerConfig(auto_commit_interval_ms=1_000, auto_offset_reset="smallest")

    async def scenario(lab: GroupLab) -> None:
        await lab.runtime.sleep(10 * SECOND)  # about three records, and ten commits

    lab = GroupLab(
        members=1, partitions=1, config=config, process_us=3 * SECOND, records_per_second=1
    ).run(scenario)

    commits_before_processing = []
    for commit in lab.of(TraceKind.ZOOKEEPER_OFFSET_COMMITTED):
        assert commit.offset is not None
        last_covered = commit.offset - 1  # a commit of offset n covers the records up to n - 1
        processed = {row.offset for row in lab.processed() if row.time_us <= commit.time_us}
        if last_covered not in processed:
            commits_before_processing.append(commit)
    assert commits_before_processing != []
