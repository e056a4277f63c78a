"""The log cleaner on real brokers: what remains, who reads it, and how often the cleaner runs.

- A cleaning removes each record whose key has a newer record. Records that no cleaning has read yet
  are dirty. The first dirty offset is thus the end of the cleaned part of a log.
- Every log.cleaner.backoff.ms, here 1 s, the cleaner looks for logs to clean: at least half of the
  log, without the active segment, must be dirty.
- The active segment is the end of the log, into which the broker still writes. It is never cleaned.
- `lab` is a cluster of three brokers in virtual time; `lab.storages` has their disks.
- `lab.until(condition)` waits until the cluster's status fulfils a condition.
- `ask_as_admin(move_leader, ...)` makes another broker the leader of a partition. That broker then
  loads the partition's groups, in less than the second for which the tests wait.
- The tests commit offsets of one group. The commits go to one partition of __consumer_offsets, the
  group's offsets partition. The tests watch the cleaning of this partition.
"""

import json

import msgspec
import pytest

from cluster.broker.replication.log_cleaner import CLEANER_OFFSET_CHECKPOINT
from cluster.client.admin.orders import delete_topics, move_leader
from cluster.spec import ClusterSpec, PreloadSpec
from partition_log.checkpoints import decode_offset_checkpoint
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode
from protocol.ids import (
    CONSUMER_OFFSETS,
    BrokerId,
    NodeName,
    TopicPartition,
    broker_name,
    offsets_partition,
)
from protocol.messages.offset import OffsetCommitResponse, OffsetFetchResponse
from protocol.partitioner import partition_for
from protocol.trace import TraceKind, TraceRow
from tests.support.builders.requests import offset_commit, offset_fetch
from tests.support.harness.brokers import ORDERS, BrokerLab, broker_cluster
from tests.support.harness.controllers import NO_BALANCING

GROUP = "group"
COORDINATOR = partition_for(GROUP, 3)
"""The group's offsets partition, and also the broker that leads it: partition n is on broker n."""
PARTITION = offsets_partition(COORDINATOR)
# The two brokers that follow the group's offsets partition.
NEXT = BrokerId((COORDINATOR + 1) % 3)
OTHER = BrokerId((COORDINATOR + 2) % 3)


def compacting_cluster(config: BrokerConfig | None = None, **more: object) -> ClusterSpec:
    """Return a cluster whose offsets topic is compacted, by default in segments of 2,000 bytes."""
    settings = config or msgspec.structs.replace(
        NO_BALANCING, offsets_topic_segment_bytes=2_000, log_cleaner_backoff_ms=1_000
    )
    base = broker_cluster(config=settings, **more)  # type: ignore[arg-type]
    return msgspec.structs.replace(
        base,
        topics=tuple(
            msgspec.structs.replace(
                topic, config=msgspec.structs.replace(topic.config, cleanup_policy="compact")
            )
            if topic.name == CONSUMER_OFFSETS
            else topic
            for topic in base.topics
        ),
    )


async def commit(lab: BrokerLab, count: int, *, at: int = COORDINATOR) -> None:
    """Commit the offsets 1 to `count` of orders-0 at broker `at`, one with each request."""
    for offset in range(1, count + 1):
        answer = await lab.client.commit(at, GROUP, offset)
        assert answer.topics[0].partitions[0].error_code is ErrorCode.NONE


async def committed(lab: BrokerLab, broker_id: int) -> int:
    """Ask a broker, which must be the coordinator, for the committed offset of orders-0."""
    answer = await lab.client.call(broker_id, offset_fetch((ORDERS, 0), group_id=GROUP))
    assert isinstance(answer, OffsetFetchResponse)
    assert answer.groups[0].error_code is ErrorCode.NONE
    return answer.groups[0].topics[0].partitions[0].committed_offset


def detail(row: TraceRow) -> dict[str, int]:
    """Return the numbers in a row's detail, which is JSON."""
    numbers: dict[str, int] = json.loads(row.detail or "{}")
    return numbers


def loaded(lab: BrokerLab, broker_id: int) -> dict[str, int]:
    """Return the detail of the row of a broker's last load of the group's partition."""
    rows = [
        row
        for row in lab.events(TraceKind.LOAD_COMPLETED, broker_name(broker_id))
        if row.partition == str(PARTITION)
    ]
    return detail(rows[-1])


def first_dirty(lab: BrokerLab, broker_id: int) -> int:
    """Return the first dirty offset of the group's partition, as a broker's disk has it."""
    content = lab.storages[broker_name(broker_id)].read_checkpoint(CLEANER_OFFSET_CHECKPOINT)
    return decode_offset_checkpoint(content or b"")[PARTITION]


def end_of_log(lab: BrokerLab, broker_id: int) -> int:
    """Return the end of a broker's log of the group's partition."""
    log = lab.storages[broker_name(broker_id)].log(PARTITION)
    return log.batch(len(log) - 1).next_offset


async def kill_and_cut(lab: BrokerLab, broker_id: int) -> int:
    """Kill a broker, and leave only the first batch of PARTITION on its disk; return the log's end.

    This models a disk that has lost the end of a log. The log is cut while the broker still runs;
    the crash does not change the disk further.
    """
    lab.storages[broker_name(broker_id)].log(PARTITION).truncate(1)
    await lab.kill(broker_id)
    return end_of_log(lab, broker_id)


def test_every_replica_is_cleaned_and_a_load_reads_the_remaining_records() -> None:
    """Compaction limits the number of records that a load must read.

    All 60 commits have the same key, so only the newest of the cleaned records remains.
    """

    async def story(lab: BrokerLab) -> None:
        await commit(lab, 60)
        await lab.seconds(3)  # the cleaner runs three times
        cleaned = lab.events(TraceKind.LOG_CLEANED)
        assert sorted({row.node for row in cleaned}) == [broker_name(i) for i in range(3)]
        assert {row.partition for row in cleaned} == {str(PARTITION)}

        counts = detail(cleaned[0])
        assert counts["records"] == 1
        # The cleaning has read at least one full segment of 2,000 bytes. A segment has more than 15
        # commits.
        assert counts["removed_records"] >= 15
        # The offset of the row is the end of the cleaned part, which begins at 0.
        assert (cleaned[0].offset or 0) == counts["records"] + counts["removed_records"]

        await lab.runtime.ask_as_admin(move_leader, PARTITION, NEXT)
        await lab.seconds(1)
        # The load reads the commits that the first cleaning did not remove. The bound has room for
        # one record more.
        assert loaded(lab, NEXT)["records"] < 60 - counts["removed_records"] + 2
        assert await committed(lab, NEXT) == 60

    BrokerLab(compacting_cluster()).run(story)


def test_log_within_one_segment_is_not_cleaned() -> None:
    """The active segment is not cleaned. A short run does not fill a segment of 100 MB."""

    async def story(lab: BrokerLab) -> None:
        await commit(lab, 60)
        await lab.seconds(5)  # the cleaner runs five times
        assert lab.events(TraceKind.LOG_CLEANED) == []

    config = msgspec.structs.replace(NO_BALANCING, log_cleaner_backoff_ms=1_000)
    BrokerLab(compacting_cluster(config)).run(story)


@pytest.mark.parametrize("off", ["cleaner", "policy"])
def test_cleaner_without_compacted_topics_or_switched_off_does_nothing(off: str) -> None:
    """`off` says what is off: log.cleaner.enable ("cleaner") or the topic's policy ("policy")."""
    config = msgspec.structs.replace(
        NO_BALANCING,
        offsets_topic_segment_bytes=2_000,
        log_cleaner_backoff_ms=1_000,
        log_cleaner_enable=off != "cleaner",
    )

    async def story(lab: BrokerLab) -> None:
        await commit(lab, 60)
        await lab.seconds(3)  # time for three runs of the cleaner
        assert lab.events(TraceKind.LOG_CLEANED) == []

    BrokerLab(
        compacting_cluster(config) if off == "cleaner" else broker_cluster(config=config)
    ).run(story)


def test_restarted_follower_copies_the_holes_and_can_lead() -> None:
    """A follower must follow a leader whose log has holes, because a cleaning removed records.

    The follower fetches from its log end. The leader's record at this offset was removed.
    """

    async def story(lab: BrokerLab) -> None:
        await commit(lab, 5)
        await lab.kill(NEXT)
        await lab.until(lambda status: len(status.partitions[PARTITION].isr) == 2)

        await commit(lab, 80)
        await lab.seconds(3)  # the cleaner runs three times
        assert lab.events(TraceKind.LOG_CLEANED, broker_name(COORDINATOR))

        await lab.restart(NEXT)
        await lab.until(lambda status: len(status.partitions[PARTITION].isr) == 3)
        copy = lab.storages[broker_name(NEXT)].log(PARTITION)
        # 85 batches were written, one for each commit. With fewer than 60 the copy has holes.
        assert len(copy) < 60
        assert copy.batch(len(copy) - 1).next_offset == 85  # the sum of 5 and 80 commits

        await lab.runtime.ask_as_admin(move_leader, PARTITION, NEXT)
        await lab.seconds(1)
        assert await committed(lab, NEXT) == 80

        # The new leader can also append to its log with holes: OTHER copies and loads the commits.
        await commit(lab, 3, at=NEXT)
        await lab.runtime.ask_as_admin(move_leader, PARTITION, OTHER)
        await lab.seconds(1)
        assert await committed(lab, OTHER) == 3

    BrokerLab(compacting_cluster()).run(story)


def test_restarted_broker_reads_the_cleaned_offset_from_its_checkpoint() -> None:
    """The checkpoint has the first dirty offset, which is the end of the cleaned part.

    The restarted broker reads this offset, and finds too few dirty records to clean the log again.
    """

    async def story(lab: BrokerLab) -> None:
        await commit(lab, 60)
        await lab.seconds(3)  # the cleaner runs three times
        name = broker_name(OTHER)
        # At least one segment is clean. A segment has more than 15 commits.
        assert first_dirty(lab, OTHER) > 15

        cleanings_before = len(lab.events(TraceKind.LOG_CLEANED, name))
        await lab.kill(OTHER)
        await lab.restart(OTHER)
        await lab.seconds(15)  # the broker's old session of 9 s ends, and it registers again
        assert len(lab.events(TraceKind.LOG_CLEANED, name)) == cleanings_before

        await lab.runtime.ask_as_admin(move_leader, PARTITION, OTHER)
        await lab.seconds(1)
        assert await committed(lab, OTHER) == 60

    BrokerLab(compacting_cluster()).run(story)


def test_end_that_a_disk_lost_is_dirty_again() -> None:
    """A disk lost cleaned records. The broker then fetches records that are not cleaned.

    So the first dirty offset must go back to the end of the shortened log. The broker lowers it at
    its start, because at the cleaner's first run the log may be longer again.
    """

    async def story(lab: BrokerLab) -> None:
        await commit(lab, 60)
        await lab.seconds(3)  # the cleaner runs three times
        end = await kill_and_cut(lab, OTHER)
        assert end < first_dirty(lab, OTHER)

        await lab.restart(OTHER)
        # The cleaner first runs a second after the start, so only the start can lower the offset.
        await lab.seconds(0.5)
        assert first_dirty(lab, OTHER) == end

    BrokerLab(compacting_cluster()).run(story)


def test_end_that_a_follower_truncates_is_dirty_again() -> None:
    """A follower that truncates its log must lower its first dirty offset with it.

    1. The last in-sync replica, the leader, loses cleaned records and restarts.
    2. A follower restarts, and also removes these records.
    3. From then on its checkpoint has the new end. A later run of the cleaner would be too late,
       because the log may then be longer again.
    """

    async def story(lab: BrokerLab) -> None:
        await commit(lab, 60)
        await lab.seconds(3)  # the cleaner runs three times
        for follower in (NEXT, OTHER):
            await lab.kill(follower)
        await lab.until(lambda status: status.partitions[PARTITION].isr == (COORDINATOR,))
        end = await kill_and_cut(lab, COORDINATOR)
        assert end < first_dirty(lab, NEXT)

        await lab.restart(COORDINATOR)
        # The leader epoch was 0 at first. COORDINATOR's death and its return each add 1, so at 2 it
        # leads again.
        await lab.until(lambda status: status.partitions[PARTITION].leader_epoch >= 2)
        await lab.restart(NEXT)
        await lab.until(lambda status: len(status.partitions[PARTITION].isr) == 2)
        assert end_of_log(lab, NEXT) == end
        assert first_dirty(lab, NEXT) == end

    BrokerLab(compacting_cluster()).run(story)


def test_preloaded_log_is_cleaned_like_any_other() -> None:
    """A preload writes commits into the offsets partition before the cluster starts.

    Here it writes 20,000 commits. They are of 20 groups with 50 partitions each, so there are 1,000
    keys. After a cleaning, fewer than a quarter of the commits remain to be loaded.
    """
    preload = PreloadSpec(partition=COORDINATOR, commit_records=20_000)
    config = msgspec.structs.replace(
        NO_BALANCING, offsets_topic_segment_bytes=100_000, log_cleaner_backoff_ms=1_000
    )

    async def story(lab: BrokerLab) -> None:
        first = loaded(lab, COORDINATOR)
        assert first["records"] == 20_000
        await lab.seconds(3)  # the cleaner runs three times
        await lab.runtime.ask_as_admin(move_leader, PARTITION, NEXT)
        await lab.seconds(1)
        second = loaded(lab, NEXT)
        assert second["records"] < 5_000
        assert second["bytes"] < first["bytes"] / 3
        assert second["groups"] == first["groups"] == 20

    BrokerLab(compacting_cluster(config, preload=(preload,))).run(story)


def test_deleted_topic_is_forgotten_by_the_cleaner() -> None:
    """The cleaner must not write a deleted topic's log again, even if it was cleaning this log.

    The commits fill several segments, so the cleaner has something to clean. After the deletion the
    disk has the logs of topic orders only.
    """

    async def story(lab: BrokerLab) -> None:
        await commit(lab, 60)
        await lab.runtime.ask_as_admin(delete_topics, [CONSUMER_OFFSETS])
        await lab.seconds(5)  # time for five runs of the cleaner
        assert lab.storages[NodeName("broker-0")].partitions() == tuple(
            TopicPartition(ORDERS, index) for index in range(3)
        )

    BrokerLab(compacting_cluster()).run(story)


def test_deleted_topic_is_no_longer_in_the_checkpoint() -> None:
    """The cleaner forgets the first dirty offset of a deleted topic.

    Otherwise a new topic with this name would count as clean below the old offset.
    """

    async def story(lab: BrokerLab) -> None:
        await commit(lab, 60)
        await lab.seconds(3)  # the cleaner runs three times
        assert first_dirty(lab, OTHER) > 0
        await lab.runtime.ask_as_admin(delete_topics, [CONSUMER_OFFSETS])
        await lab.seconds(1)
        content = lab.storages[broker_name(OTHER)].read_checkpoint(CLEANER_OFFSET_CHECKPOINT)
        assert decode_offset_checkpoint(content or b"") == {}

    BrokerLab(compacting_cluster()).run(story)


def test_batch_larger_than_a_segment_is_refused() -> None:
    """The broker's error is RECORD_LIST_TOO_LARGE; the client gets INVALID_COMMIT_OFFSET_SIZE.

    Source: BEHAVIOUR 5.8.
    """

    async def story(lab: BrokerLab) -> None:
        # Three times 1,000 bytes of metadata exceed a segment of 2,000 bytes.
        body = offset_commit({(ORDERS, index): 1 for index in range(3)}, metadata="m" * 1_000)
        answer = await lab.client.call(COORDINATOR, body)
        assert isinstance(answer, OffsetCommitResponse)
        errors = [p.error_code for topic in answer.topics for p in topic.partitions]
        assert errors == [ErrorCode.INVALID_COMMIT_OFFSET_SIZE] * 3

    BrokerLab(compacting_cluster()).run(story)
