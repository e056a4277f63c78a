"""The log cleaner on the brokers of a cluster.

The tests commit offsets of one group, and watch how the brokers clean the group's offsets partition
meanwhile. A cleaning removes each record whose key has a newer record. In most tests all commits
are for the same partition of `orders`. So all their records have the same key, and a cleaning
leaves only one of these records.

Every log.cleaner.backoff.ms, here 1 s, a broker looks for logs to clean. It never cleans the active
segment: this is the end of the log, into which the broker still writes. It cleans the rest of a log
only if at least half of the rest is dirty. The dirty records are those that no earlier cleaning has
read. They begin at the first dirty offset, which the broker keeps in a checkpoint file.

`lab` is a cluster of three brokers in virtual time, and `lab.storages` has their disks.
`ask_as_admin(move_leader, ...)` makes another broker the leader of a partition. That broker then
loads the partition's groups, in less than the second for which the tests wait.
"""

import json

import msgspec
import pytest

from cluster.broker.replication.log_cleaner import CLEANER_OFFSET_CHECKPOINT
from cluster.client.admin.orders import delete_topics, move_leader
from cluster.spec import ClusterSpec, PreloadSpec, TopicSpec
from partition_log.checkpoints import decode_offset_checkpoint
from protocol.config import BrokerConfig
from protocol.errors import ErrorCode
from protocol.ids import (
    CONSUMER_OFFSETS,
    BrokerId,
    NodeName,
    Offset,
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
BROKERS = 3
"""The number of brokers, and also the number of offsets partitions: broker n leads partition n."""
COORDINATOR = partition_for(GROUP, BROKERS)
"""The broker that coordinates the group, and also the number of the group's offsets partition."""
PARTITION = offsets_partition(COORDINATOR)
"""The group's offsets partition, which COORDINATOR leads."""
FOLLOWER_1 = BrokerId((COORDINATOR + 1) % BROKERS)
FOLLOWER_2 = BrokerId((COORDINATOR + 2) % BROKERS)
"""The two brokers that follow in PARTITION."""
COMMITS = 60
"""The number of commits in most tests. They fill several segments of 2,000 bytes."""


def compacting_cluster(config: BrokerConfig | None = None, **more: object) -> ClusterSpec:
    """Return a cluster whose offsets topic is compacted, by default in segments of 2,000 bytes."""
    default = msgspec.structs.replace(
        NO_BALANCING, offsets_topic_segment_bytes=2_000, log_cleaner_backoff_ms=1_000
    )
    base = broker_cluster(config=config or default, **more)  # type: ignore[arg-type]
    topics = tuple(
        compacted(topic) if topic.name == CONSUMER_OFFSETS else topic for topic in base.topics
    )
    return msgspec.structs.replace(base, topics=topics)


def compacted(topic: TopicSpec) -> TopicSpec:
    """Return the topic with the setting cleanup.policy=compact."""
    return msgspec.structs.replace(
        topic, config=msgspec.structs.replace(topic.config, cleanup_policy="compact")
    )


async def commit(lab: BrokerLab, count: int, *, coordinator: int = COORDINATOR) -> None:
    """Commit the offsets 1 to `count` of orders-0, one after the other."""
    for offset in range(1, count + 1):
        answer = await lab.client.commit(coordinator, GROUP, offset)
        assert answer.topics[0].partitions[0].error_code is ErrorCode.NONE


async def committed_offset(lab: BrokerLab, coordinator: int) -> int:
    """Ask the broker `coordinator` for the group's committed offset of orders-0."""
    answer = await lab.client.call(coordinator, offset_fetch((ORDERS, 0), group_id=GROUP))
    assert isinstance(answer, OffsetFetchResponse)
    assert answer.groups[0].error_code is ErrorCode.NONE
    return answer.groups[0].topics[0].partitions[0].committed_offset


def numbers_of(row: TraceRow) -> dict[str, int]:
    """Return the numbers in a row's detail, which is JSON."""
    numbers: dict[str, int] = json.loads(row.detail or "{}")
    return numbers


def last_load(lab: BrokerLab, broker_id: int) -> dict[str, int]:
    """Return the numbers of a broker's last load of PARTITION.

    Example: `{"records": 45, "groups": 1, "bytes": 4_500, ...}`.
    """
    rows = [
        row
        for row in lab.events(TraceKind.LOAD_COMPLETED, broker_name(broker_id))
        if row.partition == str(PARTITION)
    ]
    return numbers_of(rows[-1])


def cleaner_checkpoint(lab: BrokerLab, broker_id: int) -> dict[TopicPartition, Offset]:
    """Return a broker's checkpoint file: the first dirty offset of each log.

    The result is empty if the broker has no such file.
    """
    content = lab.storages[broker_name(broker_id)].read_checkpoint(CLEANER_OFFSET_CHECKPOINT)
    return decode_offset_checkpoint(content or b"")


def first_dirty_offset(lab: BrokerLab, broker_id: int) -> int:
    """Return the first dirty offset that a broker's checkpoint has for PARTITION."""
    return cleaner_checkpoint(lab, broker_id)[PARTITION]


def end_of_log(lab: BrokerLab, broker_id: int) -> int:
    """Return the end of a broker's log of PARTITION: the offset of its next record."""
    log = lab.storages[broker_name(broker_id)].log(PARTITION)
    return log.batch(len(log) - 1).next_offset


async def cut_log_and_kill(lab: BrokerLab, broker_id: int) -> int:
    """Cut a broker's log of PARTITION after the first batch, kill the broker, return the log end.

    The broker does not notice the cut, because it dies at once.
    """
    lab.storages[broker_name(broker_id)].log(PARTITION).truncate(1)
    await lab.kill(broker_id)
    return end_of_log(lab, broker_id)


def test_every_replica_is_cleaned_and_a_load_reads_the_remaining_records() -> None:
    """Compaction limits the number of records that a load must read.

    All commits have the same key, so only the newest of the cleaned records remains.
    """

    async def story(lab: BrokerLab) -> None:
        await commit(lab, COMMITS)
        await lab.seconds(3)  # the cleaner runs three times
        cleaned = lab.events(TraceKind.LOG_CLEANED)
        assert sorted({row.node for row in cleaned}) == [broker_name(i) for i in range(3)]
        assert {row.partition for row in cleaned} == {str(PARTITION)}

        first_cleaning = numbers_of(cleaned[0])
        assert first_cleaning["records"] == 1
        # The cleaning has read at least one full segment: 2,000 bytes, which are over 15 commits.
        assert first_cleaning["removed_records"] >= 15
        # The offset of the row is the end of the cleaned part, which begins at 0.
        read_records = first_cleaning["records"] + first_cleaning["removed_records"]
        assert cleaned[0].offset == read_records

        await lab.runtime.ask_as_admin(move_leader, PARTITION, FOLLOWER_1)
        await lab.seconds(1)
        # The load reads at most the commits that the first cleaning did not remove, and one more
        # record.
        kept_by_first_cleaning = COMMITS - first_cleaning["removed_records"]
        assert last_load(lab, FOLLOWER_1)["records"] <= kept_by_first_cleaning + 1
        assert await committed_offset(lab, FOLLOWER_1) == COMMITS

    BrokerLab(compacting_cluster()).run(story)


def test_log_within_one_segment_is_not_cleaned() -> None:
    """The active segment is not cleaned. A short run does not fill a segment of 100 MB."""

    async def story(lab: BrokerLab) -> None:
        await commit(lab, COMMITS)
        await lab.seconds(5)  # the cleaner runs five times
        assert lab.events(TraceKind.LOG_CLEANED) == []

    config = msgspec.structs.replace(NO_BALANCING, log_cleaner_backoff_ms=1_000)
    BrokerLab(compacting_cluster(config)).run(story)


@pytest.mark.parametrize("is_enabled", [False, True])
def test_cleaner_that_is_disabled_or_has_no_compacted_topic_does_nothing(is_enabled: bool) -> None:
    """The cleaner does nothing in two cases.

    Without `is_enabled`, log.cleaner.enable is off, and the offsets topic is compacted. With
    `is_enabled`, the setting is on, but no topic has cleanup.policy=compact.
    """
    config = msgspec.structs.replace(
        NO_BALANCING,
        offsets_topic_segment_bytes=2_000,
        log_cleaner_backoff_ms=1_000,
        log_cleaner_enable=is_enabled,
    )

    async def story(lab: BrokerLab) -> None:
        await commit(lab, COMMITS)
        await lab.seconds(3)  # time for three runs of the cleaner
        assert lab.events(TraceKind.LOG_CLEANED) == []

    cluster = broker_cluster(config=config) if is_enabled else compacting_cluster(config)
    BrokerLab(cluster).run(story)


def test_restarted_follower_copies_the_holes_and_can_lead() -> None:
    """A log has holes after a cleaning, that is, offsets without a record.

    A follower that was away fetches from its log end, and the leader has no record at this offset
    any more. The follower must copy the records that follow, with their offsets.
    """

    async def story(lab: BrokerLab) -> None:
        await commit(lab, 5)
        await lab.kill(FOLLOWER_1)
        await lab.until(lambda status: len(status.partitions[PARTITION].isr) == 2)

        await commit(lab, 80)
        await lab.seconds(3)  # the cleaner runs three times
        assert lab.events(TraceKind.LOG_CLEANED, broker_name(COORDINATOR))

        await lab.restart(FOLLOWER_1)
        await lab.until(lambda status: len(status.partitions[PARTITION].isr) == 3)
        copy = lab.storages[broker_name(FOLLOWER_1)].log(PARTITION)
        # The leader wrote 5 + 80 = 85 batches, one for each commit. The copy has far fewer, because
        # the batches in the holes are missing.
        assert len(copy) < 60
        assert copy.batch(len(copy) - 1).next_offset == 85

        await lab.runtime.ask_as_admin(move_leader, PARTITION, FOLLOWER_1)
        await lab.seconds(1)
        assert await committed_offset(lab, FOLLOWER_1) == 80

        # The new leader can also append to its log with holes. It gets three commits, which begin
        # with offset 1 again. Another broker copies these commits and loads them.
        await commit(lab, 3, coordinator=FOLLOWER_1)
        await lab.runtime.ask_as_admin(move_leader, PARTITION, FOLLOWER_2)
        await lab.seconds(1)
        assert await committed_offset(lab, FOLLOWER_2) == 3

    BrokerLab(compacting_cluster()).run(story)


def test_restarted_broker_reads_the_cleaned_offset_from_its_checkpoint() -> None:
    """A restarted broker knows from its checkpoint which part of the log is clean already.

    So the broker finds too few dirty records, and does not clean the log again.
    """

    async def story(lab: BrokerLab) -> None:
        await commit(lab, COMMITS)
        await lab.seconds(3)  # the cleaner runs three times
        name = broker_name(FOLLOWER_2)
        # At least one segment is clean, and a segment has over 15 commits.
        assert first_dirty_offset(lab, FOLLOWER_2) > 15

        cleanings_before = len(lab.events(TraceKind.LOG_CLEANED, name))
        await lab.kill(FOLLOWER_2)
        await lab.restart(FOLLOWER_2)
        await lab.seconds(15)  # the broker's old session of 9 s ends, and it registers again
        assert len(lab.events(TraceKind.LOG_CLEANED, name)) == cleanings_before

        await lab.runtime.ask_as_admin(move_leader, PARTITION, FOLLOWER_2)
        await lab.seconds(1)
        assert await committed_offset(lab, FOLLOWER_2) == COMMITS

    BrokerLab(compacting_cluster()).run(story)


def test_first_dirty_offset_goes_back_if_a_disk_has_lost_cleaned_records() -> None:
    """A broker has lost the end of its log, and fetches records for the lost offsets again.

    These records are dirty. So the broker must lower the first dirty offset to its new log end, and
    does this when it starts. The first run of the cleaner would be too late, because the log may be
    longer again by then.
    """

    async def story(lab: BrokerLab) -> None:
        await commit(lab, COMMITS)
        await lab.seconds(3)  # the cleaner runs three times
        log_end = await cut_log_and_kill(lab, FOLLOWER_2)
        assert log_end < first_dirty_offset(lab, FOLLOWER_2)

        await lab.restart(FOLLOWER_2)
        # The cleaner first runs a second after the start, so only the start can lower the offset.
        await lab.seconds(0.5)
        assert first_dirty_offset(lab, FOLLOWER_2) == log_end

    BrokerLab(compacting_cluster()).run(story)


def test_first_dirty_offset_goes_back_if_a_follower_truncates_cleaned_records() -> None:
    """A follower that truncates its log must lower its first dirty offset at once.

    1. The followers die. The leader, the last in-sync replica, dies and loses cleaned records.
    2. The leader restarts, and leads again.
    3. A follower restarts, and truncates its log to the end of the leader's log.
    4. Now the follower's checkpoint has this end as its first dirty offset.
    """

    async def story(lab: BrokerLab) -> None:
        await commit(lab, COMMITS)
        await lab.seconds(3)  # the cleaner runs three times
        for follower in (FOLLOWER_1, FOLLOWER_2):
            await lab.kill(follower)
        await lab.until(lambda status: status.partitions[PARTITION].isr == (COORDINATOR,))
        log_end = await cut_log_and_kill(lab, COORDINATOR)
        assert log_end < first_dirty_offset(lab, FOLLOWER_1)

        await lab.restart(COORDINATOR)
        # The leader epoch was 0. The leader's death and its return each add 1, so it leads at 2.
        await lab.until(lambda status: status.partitions[PARTITION].leader_epoch >= 2)
        await lab.restart(FOLLOWER_1)
        await lab.until(lambda status: len(status.partitions[PARTITION].isr) == 2)
        assert end_of_log(lab, FOLLOWER_1) == log_end
        assert first_dirty_offset(lab, FOLLOWER_1) == log_end

    BrokerLab(compacting_cluster()).run(story)


def test_preloaded_log_is_cleaned_like_any_other() -> None:
    """The offsets partition can have commits before the cluster starts, here 20,000.

    They are commits of 20 groups for 50 partitions each, so there are 20 * 50 = 1,000 keys. A
    cleaning leaves one record of each key, and the records of the active segment remain, too. All
    these are fewer than a quarter of the commits.
    """
    preload = PreloadSpec(partition=COORDINATOR, commit_records=20_000)
    config = msgspec.structs.replace(
        NO_BALANCING, offsets_topic_segment_bytes=100_000, log_cleaner_backoff_ms=1_000
    )

    async def story(lab: BrokerLab) -> None:
        before_cleaning = last_load(lab, COORDINATOR)
        assert before_cleaning["records"] == 20_000
        await lab.seconds(3)  # the cleaner runs three times
        await lab.runtime.ask_as_admin(move_leader, PARTITION, FOLLOWER_1)
        await lab.seconds(1)
        after_cleaning = last_load(lab, FOLLOWER_1)
        assert after_cleaning["records"] < 5_000
        assert after_cleaning["bytes"] < before_cleaning["bytes"] / 3
        assert after_cleaning["groups"] == before_cleaning["groups"] == 20

    BrokerLab(compacting_cluster(config, preload=(preload,))).run(story)


def test_deleted_topic_is_forgotten_by_the_cleaner() -> None:
    """A topic is deleted while the cleaner may be busy with its log.

    The cleaner must not write this log to the disk again.

    The commits fill several segments, so the cleaner has something to clean.
    """

    async def story(lab: BrokerLab) -> None:
        await commit(lab, COMMITS)
        await lab.runtime.ask_as_admin(delete_topics, [CONSUMER_OFFSETS])
        await lab.seconds(5)  # time for five runs of the cleaner
        # The disk has only the logs of the topic orders.
        assert lab.storages[NodeName("broker-0")].partitions() == tuple(
            TopicPartition(ORDERS, index) for index in range(3)
        )

    BrokerLab(compacting_cluster()).run(story)


def test_deleted_topic_is_no_longer_in_the_checkpoint() -> None:
    """The cleaner forgets the first dirty offset of a deleted topic.

    Otherwise a new topic with this name would count as clean below the old offset.
    """

    async def story(lab: BrokerLab) -> None:
        await commit(lab, COMMITS)
        await lab.seconds(3)  # the cleaner runs three times
        assert first_dirty_offset(lab, FOLLOWER_2) > 0
        await lab.runtime.ask_as_admin(delete_topics, [CONSUMER_OFFSETS])
        await lab.seconds(1)
        assert cleaner_checkpoint(lab, FOLLOWER_2) == {}

    BrokerLab(compacting_cluster()).run(story)


def test_batch_larger_than_a_segment_is_refused() -> None:
    """The client gets INVALID_COMMIT_OFFSET_SIZE.

    The log refuses the batch with RECORD_LIST_TOO_LARGE. The coordinator translates this error.

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
