"""Loads and unloads of offsets partitions run one at a time, and check leader epochs.

A broker has a queue of tasks. When it becomes the leader of an offsets partition (a partition of
`__consumer_offsets`), it adds a load to the queue. A load reads the partition's groups into memory.
When the broker loses the leadership, it adds an unload, which drops these groups. A task may run
late, when the partition already has a newer leader epoch. Then the task must do no harm.

BEHAVIOUR 5.4 and FO-06 are a section and a case of docs/kafka/BEHAVIOUR.md.
"""

import json
import math

import msgspec

from cluster.broker.channels import BrokerIdentity, ControllerChannel
from cluster.broker.control.metadata_cache import MetadataCache
from cluster.broker.coordination.coordinator_tasks import CoordinatorTasks
from cluster.broker.coordination.group_coordination import GroupCoordination
from cluster.broker.coordination.log_loading import LOAD_TURN_BYTES
from cluster.broker.coordination.preload import preloaded_batches
from cluster.broker.replication.replica_manager import LocalLeadership, ReplicaManager
from cluster.spec import CostModel, PreloadSpec
from coordinator.coordinator import GroupCoordinator
from partition_log.batches import build_batch
from partition_log.compaction import Compaction
from partition_log.log import PartitionLog
from partition_log.memory_storage import MemoryLogStorage
from partition_log.outcomes import ReplicaConfig
from partition_log.replica import Partition
from partition_log.transaction_index import TransactionIndex
from protocol.config import JavaSwitches
from protocol.effects import Result
from protocol.ids import BrokerId, TopicPartition, offsets_partition
from protocol.records.batch import Record
from protocol.trace import TraceKind, TraceRow
from tests.support.harness.brokers import broker_cluster
from tests.support.harness.controllers import NO_BALANCING
from tests.support.harness.virtual_hosts import HostLab

ME = BrokerId(0)
"""The broker with the queue of tasks."""
REPLICAS = (BrokerId(0), BrokerId(1))
OFFSETS_PARTITIONS = 3
"""The number of partitions of `__consumer_offsets`."""
# The kinds of recorded events that are about a task of the queue.
TASK_KINDS = (
    TraceKind.LOAD_STARTED,
    TraceKind.LOAD_COMPLETED,
    TraceKind.LOAD_FAILED,
    TraceKind.LOAD_IGNORED,
    TraceKind.UNLOAD_COMPLETED,
    TraceKind.UNLOAD_IGNORED,
)


class TaskLab:
    """The task queue of broker 0. A test says which offsets partitions the broker leads.

    With `late_notices_us`, each task is added three more times, within this time after its first
    addition. `java` are switches for the behaviour of the Java coordinator. `load_buffer` is the
    number of bytes that a load reads at once. `costs` says how long a load takes.
    `check_interval_ms` is the time between two expiries of offsets.

    A test that waits until all loads have ended calls `run_for(1_000_000)`, a second of virtual
    time.
    """

    def __init__(
        self,
        *,
        late_notices_us: int = 0,
        java: JavaSwitches | None = None,
        load_buffer: int = 65_536,
        costs: CostModel | None = None,
        check_interval_ms: int = 600_000,
    ) -> None:
        self.hosts = HostLab()
        config = msgspec.structs.replace(
            NO_BALANCING,
            offsets_load_buffer_size=load_buffer,
            offsets_retention_check_interval_ms=check_interval_ms,
        )
        self.cluster = msgspec.structs.replace(
            broker_cluster(config=config),
            late_notices_us=late_notices_us,
            java=java or JavaSwitches(),
            costs=costs or CostModel(),
        )
        host = self.hosts.host("broker-0")
        identity = BrokerIdentity(broker_id=ME)
        cache = MetadataCache(num_offsets_partitions=OFFSETS_PARTITIONS)
        replicas = ReplicaManager(
            host,
            identity,
            self.cluster,
            cache,
            ControllerChannel(host, (self.cluster.controllers[0].name,), "alter-partition"),
        )
        self.coordinator = GroupCoordinator(
            config=self.cluster.broker_config,
            guards=self.cluster.guards,
            java=self.cluster.java,
            num_offsets_partitions=OFFSETS_PARTITIONS,
            new_uuid=lambda: "uuid",
        )
        coordination = GroupCoordination(host, self.cluster, replicas, cache, self.coordinator)
        self.tasks = CoordinatorTasks(host, self.cluster, replicas, coordination)
        self.partitions: dict[int, Partition] = {}
        self.tasks.start()
        self.run_for(1_000)  # the queue starts

    def run_for(self, duration_us: int) -> None:
        """Advance the virtual time."""
        self.hosts.run_for(duration_us)

    def partition(
        self, index: int, *last: Record, commit_records: int = 0, records_per_batch: int = 500
    ) -> Partition:
        """Return this broker's replica of an offsets partition; the first call creates it.

        The log begins with `commit_records` commits, in batches of `records_per_batch`. The records
        `last`, if there are any, follow in one batch.
        """
        if index not in self.partitions:
            storage = MemoryLogStorage()
            spec = PreloadSpec(
                partition=index,
                commit_records=commit_records,
                records_per_batch=records_per_batch,
            )
            for batch in preloaded_batches(spec, OFFSETS_PARTITIONS):
                storage.append(batch)
            if last:
                storage.append(build_batch(last, base_offset=commit_records, leader_epoch=0))
            name = offsets_partition(index)
            self.partitions[index] = Partition(
                name, ME, PartitionLog(name, storage), ReplicaConfig()
            )
        return self.partitions[index]

    def lead(self, *indexes: int, epoch: int) -> None:
        """Make this broker the leader of these offsets partitions, in one change of metadata."""
        for index in indexes:
            self.partition(index).make_leader(
                leader_epoch=epoch,
                partition_epoch=epoch,
                replicas=REPLICAS,
                isr=REPLICAS,
                now_us=self.hosts.loop.now_us(),
            )
        self.tasks.leadership_changed(
            LocalLeadership(
                became_leader=tuple(self.partition(index) for index in indexes), became_follower=()
            )
        )

    def follow(self, index: int, *, epoch: int) -> None:
        """Make this broker a follower of an offsets partition."""
        partition = self.partition(index)
        partition.make_follower(
            leader_id=BrokerId(1),
            leader_epoch=epoch,
            partition_epoch=epoch,
            replicas=REPLICAS,
            isr=REPLICAS,
        )
        self.tasks.leadership_changed(
            LocalLeadership(became_leader=(), became_follower=(partition,))
        )

    def task_events(self) -> list[tuple[str, str | None, int | None]]:
        """Return the recorded events about tasks: kind, partition and leader epoch of each.

        Example: `[("load_started", "__consumer_offsets-0", 1), ...]`.
        """
        return [
            (row.kind, row.partition, row.leader_epoch)
            for row in self.hosts.rows
            if row.kind in TASK_KINDS
        ]

    def row(self, kind: TraceKind) -> TraceRow:
        """Return the only trace row of one kind."""
        (row,) = [row for row in self.hosts.rows if row.kind == kind]
        return row


def test_loads_of_one_metadata_change_run_one_after_the_other() -> None:
    """Kafka has one thread for the tasks, so the second load waits (BEHAVIOUR 6.3)."""
    lab = TaskLab()
    lab.partition(0, commit_records=20_000)  # partition 1 is empty
    lab.lead(0, 1, epoch=1)
    lab.run_for(1_000_000)
    assert lab.task_events() == [
        ("load_started", "__consumer_offsets-0", 1),
        ("load_completed", "__consumer_offsets-0", 1),
        ("load_started", "__consumer_offsets-1", 1),
        ("load_completed", "__consumer_offsets-1", 1),
    ]
    first_wait_us, second_wait_us = [
        json.loads(row.detail or "{}")["wait_us"]
        for row in lab.hosts.rows
        if row.kind == TraceKind.LOAD_STARTED
    ]
    assert first_wait_us == 0
    assert second_wait_us >= CostModel().load_fixed_us  # every load takes this time at least


def test_load_takes_the_time_of_the_model_and_reads_every_record() -> None:
    """By the CostModel a load takes a fixed time, 300 ns per record and 4 ns per byte."""
    lab = TaskLab()
    lab.partition(0, commit_records=20_000)
    lab.lead(0, epoch=1)
    lab.run_for(1_000_000)

    completed = lab.row(TraceKind.LOAD_COMPLETED)
    detail = json.loads(completed.detail or "{}")
    # By default a PreloadSpec has commits of 20 groups.
    assert (detail["records"], detail["groups"], completed.offset) == (20_000, 20, 20_000)

    costs = CostModel()
    records_ns = detail["records"] * costs.load_ns_per_record
    bytes_ns = detail["bytes"] * costs.load_ns_per_byte
    expected_us = costs.load_fixed_us + (records_ns + bytes_ns) / 1_000
    took_us = completed.time_us - lab.row(TraceKind.LOAD_STARTED).time_us
    # A load reads in turns of LOAD_TURN_BYTES. The cost of each turn is rounded down to a
    # microsecond. So for each turn the load may be up to 1 us faster than the sum.
    turns = math.ceil(detail["bytes"] / LOAD_TURN_BYTES)
    assert expected_us - turns <= took_us <= expected_us


def test_load_delays_the_next_one_by_its_own_cost() -> None:
    """If a load costs ten times as much, the loads behind it wait ten times as long.

    1,200 ns per record is the cost of the Java coordinator (docs/kafka, MEASURED_FAILOVER
    load-rate). So the 20,000 records of partition 1 take 20,000 * 1,200 ns = 24 ms. The partitions
    2 and 0 are empty. Their loads take no time, so both wait for the first load only.
    """
    waits_us = []
    for load_ns_per_record in (1_200, 12_000):
        costs = CostModel(
            load_ns_per_record=load_ns_per_record, load_ns_per_byte=0, load_fixed_us=0
        )
        lab = TaskLab(costs=costs)
        lab.partition(1, commit_records=20_000)
        lab.lead(1, 2, 0, epoch=1)
        lab.run_for(1_000_000)
        started = [row for row in lab.hosts.rows if row.kind == TraceKind.LOAD_STARTED]
        assert [row.partition for row in started] == [
            f"__consumer_offsets-{index}" for index in (1, 2, 0)
        ]
        waits_us.append([json.loads(row.detail or "{}")["wait_us"] for row in started])
    assert waits_us == [[0, 24_000, 24_000], [0, 240_000, 240_000]]


def test_offset_expiry_waits_for_the_loads_before_it() -> None:
    """Loads and the expiry of offsets share one thread.

    The load takes 20,000 * 10,000 ns = 200 ms, and the expiry is due every 100 ms. The expiries
    that are due at 100 and 200 ms run only when the load has ended.
    """
    costs = CostModel(load_ns_per_record=10_000, load_ns_per_byte=0, load_fixed_us=0)
    lab = TaskLab(costs=costs, check_interval_ms=100)
    expiry_times_us: list[int] = []
    expire = lab.coordinator.expire_offsets

    def expire_offsets(now_us: int) -> Result:
        expiry_times_us.append(lab.hosts.loop.now_us())
        return expire(now_us)

    lab.coordinator.expire_offsets = expire_offsets  # type: ignore[method-assign]  # recorded

    lab.partition(0, commit_records=20_000)
    lab.lead(0, epoch=1)
    lab.run_for(450_000)
    completed_us = lab.row(TraceKind.LOAD_COMPLETED).time_us
    assert 200_000 <= completed_us < 210_000
    assert expiry_times_us == [completed_us, completed_us, 300_000, 400_000]


def test_groups_are_loading_until_the_whole_log_is_read() -> None:
    """During a load the coordinator shows no group, because a group may still lack offsets."""
    lab = TaskLab()
    lab.partition(0, commit_records=20_000)
    lab.lead(0, epoch=1)
    lab.run_for(8_000)  # the load, whose fixed part takes 5 ms, has begun to read
    assert lab.coordinator.is_loading(0)
    assert lab.coordinator.groups() == ()
    lab.run_for(1_000_000)
    assert lab.coordinator.is_owned(0)


def test_queue_runs_tasks_in_the_order_of_the_leader_epochs() -> None:
    """The broker becomes a follower, and then the leader again, while its first load runs.

    So the queue gets three tasks, for the leader epochs 1, 2 and 3 (FO-06, KAFKA-10614).
    """
    lab = TaskLab()
    lab.partition(0, commit_records=20_000)
    lab.lead(0, epoch=1)
    lab.run_for(6_000)  # the load, whose fixed part takes 5 ms, has begun to read
    lab.follow(0, epoch=2)
    lab.lead(0, epoch=3)
    lab.run_for(1_000_000)
    name = "__consumer_offsets-0"
    assert lab.task_events() == [
        ("load_started", name, 1),
        ("load_completed", name, 1),
        ("unload_completed", name, 2),
        ("load_started", name, 3),
        ("load_completed", name, 3),
    ]
    assert lab.coordinator.is_owned(0)


def test_load_of_a_lost_leadership_stops_reading() -> None:
    """A load asks again and again for the leader's log end, up to which it reads.

    A replica that no longer leads has no such end, so the load stops (BEHAVIOUR 5.4 step 4).
    """
    lab = TaskLab()
    lab.partition(0, commit_records=20_000)
    lab.lead(0, epoch=1)
    lab.run_for(6_000)  # the load has begun to read
    lab.follow(0, epoch=2)
    lab.run_for(1_000_000)
    completed = lab.row(TraceKind.LOAD_COMPLETED)
    assert completed.offset is not None
    assert 0 < completed.offset < 20_000
    assert not lab.coordinator.is_owned(0)
    assert lab.coordinator.groups() == ()


def test_load_reads_a_batch_that_is_larger_than_its_buffer() -> None:
    """A batch is read as a whole, so the buffer grows to the size of the batch.

    MM-20: load: record larger than the buffer
    """
    lab = TaskLab(load_buffer=100)
    lab.partition(0, commit_records=1_000, records_per_batch=500)
    lab.lead(0, epoch=1)
    lab.run_for(1_000_000)
    detail = json.loads(lab.row(TraceKind.LOAD_COMPLETED).detail or "{}")
    assert (detail["records"], detail["groups"]) == (1_000, 20)
    assert detail["bytes"] > 2 * 100  # two batches, each larger than the buffer of 100 bytes


def test_load_that_stops_early_traces_the_reason_and_serves_the_partition() -> None:
    """A record without a key ends the load, and the event of its end has the reason.

    The Scala coordinator then serves the partition without its groups (BEHAVIOUR 5.4 step 8).
    """
    lab = TaskLab()
    lab.partition(0, Record(None, b"v"), commit_records=1_000)  # no coordinator writes this record
    lab.lead(0, epoch=1)
    lab.run_for(1_000_000)
    completed = lab.row(TraceKind.LOAD_COMPLETED)
    assert "without key" in (completed.cause_text or "")
    assert json.loads(completed.detail or "{}")["groups"] == 0
    assert lab.coordinator.is_owned(0)


def test_java_coordinator_does_not_repeat_a_failed_load_in_the_same_epoch() -> None:
    """After a failed load the Java coordinator refuses all requests for the partition.

    With `late_notices_us` the load comes three more times with the same leader epoch. It is ignored
    each time.
    """
    lab = TaskLab(java=JavaSwitches(failed_load_refuses=True), late_notices_us=100_000)
    lab.partition(0, Record(None, b"v"), commit_records=1_000)
    lab.lead(0, epoch=1)
    lab.run_for(1_000_000)
    name = "__consumer_offsets-0"
    assert lab.task_events() == [
        ("load_started", name, 1),
        ("load_failed", name, 1),
        *[("load_ignored", name, 1)] * 3,
    ]
    failed = lab.row(TraceKind.LOAD_FAILED)
    assert "without key" in (failed.cause_text or "")
    # The load has read 1,000 commits and the record without a key.
    assert json.loads(failed.detail or "{}")["records"] == 1_001
    assert not lab.coordinator.is_owned(0)


def test_load_continues_in_a_log_that_is_cleaned_during_it() -> None:
    """A cleaning in the middle of a load must not change what the load finds (KAFKA-19862).

    The cleaning removes some records. The remaining records keep their offsets, and the load reads
    by offset. The test compares this load with a load of the same log without a cleaning.
    """
    lab = TaskLab()
    log = lab.partition(0, commit_records=20_000).log
    lab.lead(0, epoch=1)
    lab.run_for(6_000)  # the load has begun to read
    assert lab.coordinator.is_loading(0)
    # Only records below the high watermark can be cleaned.
    log.update_high_watermark(log.log_end_offset)
    compaction = Compaction(
        log,
        TransactionIndex(log),
        first_dirty_offset=0,
        end_offset=19_500,  # all batches but the last one, which has 500 records
        now_ms=0,
        delete_retention_ms=0,
    )
    # A step reads up to 1 MiB, and returns True when it has reached the end.
    while not compaction.step(2**20):
        pass
    assert compaction.apply() is not None
    lab.run_for(1_000_000)

    detail = json.loads(lab.row(TraceKind.LOAD_COMPLETED).detail or "{}")
    assert detail["groups"] == 20
    assert detail["records"] < 20_000  # fewer than there were before the cleaning

    without_cleaning = TaskLab()
    without_cleaning.partition(0, commit_records=20_000)
    without_cleaning.lead(0, epoch=1)
    without_cleaning.run_for(1_000_000)
    for summary in without_cleaning.coordinator.groups():
        loaded = lab.coordinator.group(summary.group_id)
        expected = without_cleaning.coordinator.group(summary.group_id)
        assert loaded is not None
        assert expected is not None
        assert loaded.offsets.committed() == expected.offsets.committed()


def test_load_counts_records_of_unknown_types() -> None:
    """A newer coordinator may have written records of new types. The load skips these records."""
    lab = TaskLab()
    unknown = Record(b"\x00\x10\x91\xa1x", b"\x00\x00")  # a key begins with its type, here 16
    lab.partition(0, unknown, unknown, commit_records=1_000)
    lab.lead(0, epoch=1)
    lab.run_for(1_000_000)
    completed = lab.row(TraceKind.LOAD_COMPLETED)
    assert completed.cause_text is None
    assert json.loads(completed.detail or "{}")["ignored"] == 2
    assert lab.coordinator.is_owned(0)


def test_load_of_an_owned_partition_is_ignored() -> None:
    """A broker that is elected again has the groups already (BEHAVIOUR 5.4 step 2)."""
    lab = TaskLab()
    lab.lead(0, epoch=1)
    lab.run_for(100_000)  # enough for a load of an empty log
    lab.lead(0, epoch=2)
    lab.run_for(100_000)
    ignored = lab.row(TraceKind.LOAD_IGNORED)
    assert ignored.leader_epoch == 2
    assert lab.coordinator.is_owned(0)


def test_data_partitions_are_not_loaded() -> None:
    """A change of metadata about a topic of users adds no task to the queue."""
    lab = TaskLab()
    orders_0 = TopicPartition("orders", 0)
    replica = Partition(orders_0, ME, PartitionLog(orders_0, MemoryLogStorage()), ReplicaConfig())
    lab.tasks.leadership_changed(
        LocalLeadership(became_leader=(replica,), became_follower=(replica,), deleted=(orders_0,))
    )
    lab.run_for(10_000)
    assert [row.kind for row in lab.hosts.rows if row.kind.endswith("_scheduled")] == []


def test_late_tasks_of_older_epochs_are_ignored() -> None:
    """A late unload must not end the newest leadership, and a late load must not load again.

    Each of the three tasks is added three more times within a second (KAFKA-10614).
    """
    lab = TaskLab(late_notices_us=1_000_000)
    lab.lead(0, epoch=1)
    lab.follow(0, epoch=2)
    lab.lead(0, epoch=3)
    lab.run_for(2_000_000)

    events = lab.task_events()
    assert events[:5] == [
        ("load_started", "__consumer_offsets-0", 1),
        ("load_completed", "__consumer_offsets-0", 1),
        ("unload_completed", "__consumer_offsets-0", 2),
        ("load_started", "__consumer_offsets-0", 3),
        ("load_completed", "__consumer_offsets-0", 3),
    ]
    assert sorted(events[5:]) == [
        *[("load_ignored", "__consumer_offsets-0", 1)] * 3,
        *[("load_ignored", "__consumer_offsets-0", 3)] * 3,
        *[("unload_ignored", "__consumer_offsets-0", 2)] * 3,
    ]
    assert lab.coordinator.is_owned(0)
